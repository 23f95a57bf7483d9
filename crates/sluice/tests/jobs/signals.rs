//! `scancel --signal`, `--batch` and `--full`: which processes a signal reaches, and that the job goes on.

use crate::harness::{Cluster, TWO_NODES, until};

/// A script with a child and a step, each with its pid in a file. All run until they are ended.
const SCRIPT: &str = "#!/bin/bash
trap 'echo heard >> script.heard' USR1
sleep 600 & echo $! > child
srun -n1 --overlap bash -c 'trap \"echo heard >> step.heard\" USR1; echo $$ > step; while :; do sleep 0.05; done' &
echo $$ > script
while :; do sleep 0.05; done
";

const ALL: [&str; 3] = ["script", "child", "step"];

struct Job {
    cluster: Cluster,
    id: u32,
}

impl Job {
    fn start() -> Job {
        let cluster = Cluster::up(TWO_NODES);
        cluster.write("job.sh", SCRIPT);
        let id = cluster.submit(&["-n2", "-o", "out", "job.sh"]);
        ALL.iter().for_each(|name| drop(cluster.await_file(name, |text| text.ends_with('\n'))));
        Job { cluster, id }
    }

    fn scancel(&self, options: &str) {
        self.cluster.shell(&format!("scancel {options} {}", self.id)).ok();
    }

    fn is_stopped(&self, name: &str) -> bool {
        let pid = self.cluster.read(name);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).expect("it lives");
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        assert!(!state.starts_with('Z'), "{name} is dead");
        state.starts_with('T')
    }

    /// Waits until exactly these processes are stopped.
    fn await_stopped(&self, wanted: &[&str], after: &str) {
        let found = || ALL.into_iter().filter(|name| self.is_stopped(name)).collect::<Vec<_>>();
        until(&format!("{wanted:?} stand still after {after}"), || {
            (found() == wanted).then_some(())
        });
        // The others would have been stopped in the same time.
        assert_eq!(found(), wanted, "after {after}");
        assert_eq!(self.cluster.state_of(self.id), "RUNNING|None", "after {after}");
    }
}

#[test]
fn up_scancel_stop_reaches_steps_script_or_all_as_asked_and_the_job_runs_on() {
    let job = Job::start();
    for (options, whom) in [
        ("", &["step"][..]),
        ("--batch", &["script"]),
        // The `srun` of the step is a child of the script, and passes signals on.
        ("--full", &["script", "child"]),
        // As in Slurm, `--full` wins over `--batch`.
        ("--batch --full", &["script", "child"]),
    ] {
        job.scancel(&format!("-s STOP {options}"));
        job.await_stopped(whom, &format!("STOP {options}"));
        job.scancel(&format!("--signal=SIGCONT {options}"));
        job.await_stopped(&[], &format!("CONT {options}"));
    }
    let step = format!("{}.0", job.id);
    job.cluster.shell(&format!("scancel -s STOP {step}")).ok();
    job.await_stopped(&["step"], "STOP of the step");
    job.cluster.shell(&format!("scancel -s CONT {step}")).ok();
    job.await_stopped(&[], "CONT of the step");
    // A stopped job can be cancelled.
    job.scancel("-s STOP --full");
    job.scancel("-s STOP");
    job.await_stopped(&ALL, "the last STOP");
    job.scancel("");
    assert!(job.cluster.await_end(job.id).starts_with("CANCELLED"));
    until("nothing of it is left", || job.cluster.groups().is_empty().then_some(()));
}

#[test]
fn up_a_caught_signal_reaches_only_its_targets() {
    let job = Job::start();
    let heard =
        || ["script", "step"].map(|n| job.cluster.read(&format!("{n}.heard")).lines().count());
    for (options, wanted) in [("", [0, 1]), ("--batch", [1, 1]), ("--batch", [2, 1])] {
        job.scancel(&format!("-s USR1 {options}"));
        until(&format!("{wanted:?} were heard"), || (heard() == wanted).then_some(()));
    }
    assert_eq!(job.cluster.state_of(job.id), "RUNNING|None");
    // The child of the script does not catch the signal, and is the only process that ends.
    let child: i32 = job.cluster.read("child").trim().parse().expect("a pid");
    assert!(crate::harness::is_alive(child));
    job.scancel("-s USR1 --full");
    until("all heard", || (heard() == [3, 2] && !crate::harness::is_alive(child)).then_some(()));
    // A second delivery would have arrived before the next signal.
    job.scancel("-s USR1");
    until("the next is heard", || (heard()[1] >= 3).then_some(()));
    assert_eq!(heard(), [3, 3], "nobody heard it twice");
    assert_eq!(job.cluster.state_of(job.id), "RUNNING|None");
}
