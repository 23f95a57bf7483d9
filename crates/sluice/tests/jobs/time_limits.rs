//! Time limits through the built program. Limits are in minutes, so one test of a minute checks all cases.

use crate::harness::{Cluster, TWO_NODES, within};
use std::time::Duration;

const CONF: &str = "\
PartitionName=strict Nodes=node[1-2] OverTimeLimit=0 State=UP
PartitionName=patient Nodes=node[1-2] OverTimeLimit=UNLIMITED State=UP
PartitionName=as_the_site Nodes=node[1-2] State=UP
";

#[test]
fn up_time_limits_end_jobs_except_with_over_time_limit_or_while_suspended() {
    let cluster = Cluster::up(&format!("OverTimeLimit=1\n{TWO_NODES}{CONF}"));
    let submit = |partition: &str| {
        let line = ["-p", partition, "-t", "1", "-o", "%x", "-J", partition, "--wrap", "sleep 600"];
        let id = cluster.submit(&line);
        cluster.await_state(id, "RUNNING");
        id
    };
    // A step with a limit of one minute in a longer job: the job goes on without it.
    let script = "srun -t 1 sleep 600; echo after $?; srun -n1 -t 1 true; echo next $?; sleep 600";
    let stepping = cluster.submit(&["-p", "strict", "-t", "9", "-o", "stepping", "--wrap", script]);
    let line = format!("squeue -h -s -j {stepping} -o %i");
    within(Duration::from_secs(30), "its step begins", || {
        cluster.shell(&line).ok().contains(&format!("{stepping}.0")).then_some(())
    });
    // Jobs that may go on are started first: when the last one is ended they have run for more than a minute.
    let (patient, site) = (submit("patient"), submit("as_the_site"));
    let stood =
        cluster.submit(&["-p", "strict", "-t", "1", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(stood, "RUNNING");
    cluster.sluice(&["scontrol", "suspend", &stood.to_string()]).ok();
    cluster.await_state(stood, "SUSPENDED");
    let strict = submit("strict");
    // The extra time is in the launch that the supervisor was started with.
    for (id, more) in [(strict, "0"), (site, "60"), (patient, &u32::MAX.to_string())] {
        let line = format!("cat ../state/nodes/*/spool/{id}.1/launch.json");
        let record = within(Duration::from_secs(30), "the node has the launch", || {
            let read = cluster.shell(&line);
            (read.code == 0).then_some(read.stdout)
        });
        assert!(record.contains(&format!("\"over_time_s\":{more},")), "{more}: {record}");
    }
    let ended = within(Duration::from_secs(100), "the strict one reaches its limit", || {
        let line = format!("sacct -n -X -P -j {strict} -o State,ExitCode,Timelimit");
        let text = cluster.shell(&line).ok();
        (!text.starts_with("RUNNING")).then_some(text)
    });
    assert_eq!(ended, "TIMEOUT|0:0|00:01:00\n");
    let text = cluster.sluice(&["explain", &strict.to_string()]).ok();
    assert!(text.contains("  It reached its time limit of 00:01:00.\n"), "{text}");
    let said = cluster.read("strict");
    assert!(said.contains("DUE TO TIME LIMIT"), "{said}");
    assert_eq!(cluster.state_of(patient), "RUNNING|None");
    assert_eq!(cluster.state_of(site), "RUNNING|None");
    let said = cluster.await_file("stepping", |text| text.contains("next 0\n"));
    let words = format!("*** STEP {stepping}.0 ON node1 CANCELLED AT ");
    assert!(said.contains(&words) && said.contains(" DUE TO TIME LIMIT ***\n"), "{said}");
    assert!(said.contains("after 143\n"), "{said}");
    let line = format!("sacct -n -P -j {stepping} -o JobID,State,ExitCode");
    let rows = cluster.shell(&line).ok();
    assert!(rows.starts_with(&format!("{stepping}|RUNNING|")), "{rows}");
    assert!(rows.contains(&format!("{stepping}.0|CANCELLED|0:15\n")), "{rows}");
    // Suspended time does not count: the job goes on with what it had left.
    assert!(cluster.state_of(stood).starts_with("SUSPENDED"));
    cluster.sluice(&["scontrol", "resume", &stood.to_string()]).ok();
    cluster.await_state(stood, "RUNNING");
}
