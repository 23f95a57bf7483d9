//! `scontrol suspend` and `resume`: who may use them, what is shown, and that suspended time is not counted.

use crate::harness::{Cluster, TWO_NODES, until};
use std::time::Instant;

/// `Elapsed` and `Suspended` of the accounting record, in seconds.
fn booked(cluster: &Cluster, job: u32) -> (u64, u64) {
    let line = format!("sacct -n -X -P -j {job} -o ElapsedRaw,Suspended");
    let text = cluster.shell(&line).ok();
    let (elapsed, suspended) = text.trim().split_once('|').expect("two columns");
    let parts = suspended.split(':').map(|part| part.parse::<u64>().expect("a number"));
    (elapsed.parse().expect("seconds"), parts.fold(0, |sum, part| sum * 60 + part))
}

#[test]
fn up_suspended_time_is_not_counted_as_run_time() {
    let cluster = Cluster::up(TWO_NODES);
    let begun = Instant::now();
    let job = cluster.submit(&["-t", "10", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(job, "RUNNING");
    let scontrol = |verb: &str| cluster.sluice(&["scontrol", verb, &job.to_string()]);
    let show = || cluster.sluice(&["scontrol", "show", "job", &job.to_string()]).ok();
    let line = |text: &str, key: &str| {
        let word = text.split_whitespace().find_map(|word| word.strip_prefix(key));
        word.unwrap_or_default().to_owned()
    };
    let end = line(&show(), "EndTime=");
    scontrol("suspend").ok();
    let again = scontrol("suspend");
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "once more is no fault");
    cluster.await_state(job, "SUSPENDED");
    let time = || cluster.sluice(&["squeue", "-h", "-j", &job.to_string(), "-o", "%M"]).ok();
    let ran = time();
    until("it has stood still for three seconds", || (booked(&cluster, job).1 >= 3).then_some(()));
    assert_eq!(time(), ran, "TIME stands still as well");
    let text = show();
    assert!(!text.contains("SuspendTime=None"), "{text}");
    scontrol("resume").ok();
    cluster.await_state(job, "RUNNING");
    assert_ne!(line(&show(), "EndTime="), end, "its limit has moved");
    let not = scontrol("resume");
    assert_eq!((not.code, not.stderr), (1, format!("Job is not suspended for job {job}\n")));
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    let (elapsed, suspended) = booked(&cluster, job);
    // Both together are no more than all the time since its submit, each rounded to seconds.
    let passed = begun.elapsed().as_secs() + 2;
    assert!(suspended >= 3 && elapsed + suspended <= passed, "{elapsed} ran, {suspended} stood");
    let ended = format!("Job/step already completing or completed for job {job}\n");
    let table = [("suspend", ended.clone()), ("resume", ended)];
    for (verb, words) in table {
        let said = scontrol(verb);
        assert_eq!((said.code, said.stderr), (1, words), "{verb}");
    }
    let waits = cluster.submit(&["-H", "--wrap", "true"]);
    let said = cluster.sluice(&["scontrol", "suspend", &waits.to_string()]);
    let words = format!("Job is pending execution for job {waits}\n");
    assert_eq!((said.code, said.stderr), (1, words));
}

#[test]
fn up_a_suspended_job_releases_its_cores_and_gets_them_back() {
    let cluster = Cluster::up(TWO_NODES);
    let whole = ["-w", "node1", "-n32", "-o", "/dev/null", "--wrap"];
    let first = cluster.submit(&[&whole[..], &["sleep 600"]].concat());
    cluster.await_state(first, "RUNNING");
    let wait = "while [ ! -e done ]; do sleep 0.05; done";
    let second = cluster.submit(&[&whole[..], &[wait]].concat());
    cluster.sluice(&["scontrol", "suspend", &first.to_string()]).ok();
    cluster.await_state(second, "RUNNING");
    cluster.sluice(&["scontrol", "resume", &first.to_string()]).ok();
    assert!(cluster.state_of(first).starts_with("SUSPENDED"), "nothing is granted twice");
    // A restart of the server keeps the pending resume.
    cluster.kill("server");
    cluster.start();
    cluster.write("done", "");
    cluster.await_end(second);
    cluster.await_state(first, "RUNNING");
}
