//! Machines whose clocks differ from the server's, or are set while they run; and an agent that hangs.

use super::power::PowerCluster;
use crate::harness::clock::Clock;
use crate::harness::{Cluster, is_alive, signal, until};

const CONF: &str = "\
ClusterName=clocks
SlurmdParameters=config_overrides
DefMemPerCPU=16
SlurmdTimeout=300
KillWait=1 AuthInfo=cred_expire=0
NodeName=a CPUs=2 RealMemory=500
NodeName=b CPUs=2 RealMemory=500
PartitionName=main Nodes=a,b Default=YES State=UP
";

/// `Submit`, `Start` and `End` of a job, and the server's time.
fn times(cluster: &Cluster, job: u32) -> [String; 4] {
    let line = format!("sacct -n -X -P -j {job} -o Submit,Start,End; date +%FT%T");
    let text = cluster.shell(&line).ok().replace('\n', "|");
    let mut words = text.split('|').map(str::to_owned);
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

#[test]
fn up_clocks_that_differ_are_said_and_orders_and_times_are_the_servers() {
    let mut site = PowerCluster::up_with(CONF);
    let clock = Clock::make(&site.cluster().path("bin"));
    // The node's clock is a minute ahead at first, then an hour behind, and is set while the link lives.
    clock.set(60);
    site.start_agent_with("a", &[], &clock.environment());
    site.await_node("a", "idle");
    let said = site.agent_log("a");
    assert!(said.contains("the server's clock is not this machine's"), "{said}");
    for (round, seconds) in [60, -3600, 86_400].into_iter().enumerate() {
        clock.set(seconds);
        let cluster = site.cluster();
        let said = cluster.shell("srun -w a sh -c 'echo $SLURMD_NODENAME'");
        assert_eq!(said.stdout, "a\n", "{seconds} s: {said:?} {}", site.agent_log("a"));
        let job = cluster.submit(&["-w", "a", "-o", "/dev/null", "--wrap", "true"]);
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
        let [submit, start, end, now] = times(cluster, job);
        let in_order = submit <= start && start <= end && end <= now;
        assert!(in_order && !start.is_empty(), "{seconds} s: {submit} {start} {end} {now}");
        let lines = site.agent_log("a").matches("this machine's clock was set").count();
        assert_eq!(lines, round, "each time it is set is said once: {}", site.agent_log("a"));
    }
    assert!(!site.agent_log("a").contains("order refused"), "{}", site.agent_log("a"));
}

/// An agent that is stopped neither reads nor answers; its connection stays open.
#[test]
fn up_agent_that_hangs_is_noticed_by_its_silence_and_goes_on_later() {
    let mut site = PowerCluster::up_with(CONF);
    for node in ["a", "b"] {
        site.start_agent(node, &[]);
        site.await_node(node, "idle");
    }
    let wait = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo ended > out";
    let job = site.cluster().submit(&["-w", "a", "-o", "/dev/null", "--wrap", wait]);
    let pid = site.cluster().await_file("pid", |text| text.ends_with('\n'));
    let agent = site.agent_pid("a");
    signal(agent, "STOP");
    site.await_node("a", "mix*");
    // What is sent to it meanwhile is sent again.
    let later = site.cluster().submit(&["-w", "a", "-o", "/dev/null", "--wrap", "true"]);
    let elsewhere = site.cluster().submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(site.cluster().await_end(elsewhere), "COMPLETED|0:0");
    assert!(site.cluster().state_of(later).starts_with("PENDING"));
    assert!(
        is_alive(pid.trim().parse().unwrap())
            && site.cluster().state_of(job).starts_with("RUNNING")
    );
    signal(agent, "CONT");
    assert_eq!(site.cluster().await_end(later), "COMPLETED|0:0");
    site.cluster().write("go", "");
    assert_eq!(site.cluster().await_end(job), "COMPLETED|0:0");
    until("both nodes are idle", || {
        let states = site.cluster().shell("sinfo -h -N -o %t").stdout;
        states.lines().all(|state| state.trim() == "idle").then_some(())
    });
}
