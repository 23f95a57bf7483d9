//! Allocations that `srun` or `salloc` hold: what happens when the client ends, is killed, or the server is away.

use crate::harness::interactive::Running;
use crate::harness::pty::OnTerminal;
use crate::harness::{Cluster, TWO_NODES, is_alive, until, within};
use nix::sys::termios::LocalFlags;
use std::time::Duration;

/// A terminal on which all lines of a test stand side by side: the harness does not go to the next one.
const WIDE: (u16, u16) = (400, 10);

#[test]
fn up_a_step_ends_with_its_killed_srun() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["--wrap", "sleep 600"]);
    cluster.await_state(job, "RUNNING");
    let id = format!("--jobid={job}");
    // The task writes all the time, so that the loss of its `srun` shows in both directions.
    for script in ["echo $$ > pid; sleep 600; sleep 600", "echo $$ > pid; while :; do echo x; done"]
    {
        let mut srun =
            Running::start(&cluster, &["srun", "-n1", "--overlap", &id, "sh", "-c", script]);
        let pid: i32 = cluster.await_file("pid", |t| t.ends_with('\n')).trim().parse().unwrap();
        srun.child.kill().unwrap();
        srun.child.wait().unwrap();
        until("the task is gone", || (!is_alive(pid)).then_some(()));
        std::fs::remove_file(cluster.path("work").join("pid")).unwrap();
    }
    cluster.await_state(job, "RUNNING");
    until("its steps have ended", || {
        let text = cluster.sluice(&["squeue", "-h", "-s", "-o", "%i"]).stdout;
        (!text.lines().any(|line| line.trim() == format!("{job}.0"))).then_some(())
    });
}

#[test]
fn up_salloc_exits_as_its_command_and_releases_on_a_signal() {
    let cluster = Cluster::up(TWO_NODES);
    let salloc = |args: &[&str]| cluster.sluice(&[&["salloc", "-n1"], args].concat());
    let said = salloc(&["sh", "-c", "exit 4"]);
    let words = "salloc: Granted job allocation 1\nsalloc: Relinquishing job allocation 1\n";
    assert_eq!((said.code, said.stderr.as_str()), (4, words));
    let said = salloc(&["nosuchcmd"]);
    assert_eq!(said.code, 1);
    let words = "salloc: error: _fork_command: Unable to find command \"nosuchcmd\"\n";
    assert!(said.stderr.contains(words), "{}", said.stderr);

    // A shell that reads typed input.
    let mut shell = Running::start(&cluster, &["salloc", "-n1"]);
    shell.type_in("echo in $SLURM_JOB_ID; exit 7\n");
    let said = shell.end();
    assert_eq!((said.code, said.stdout.as_str()), (7, "in 3\n"), "{}", said.stderr);

    // With `--no-shell` the allocation stays until it is cancelled.
    let said = salloc(&["--no-shell"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, "salloc: Granted job allocation 4\n"));
    cluster.await_state(4, "RUNNING");
    cluster.sluice(&["scancel", "4"]).ok();

    // The allocation is cancelled under its command: it is reported, and the command signalled only with `-K`.
    let mut plain =
        Running::start(&cluster, &["salloc", "-n1", "sh", "-c", "echo up; read x; exit 3"]);
    plain.await_output(|text| text == "up\n");
    cluster.sluice(&["scancel", "5"]).ok();
    plain.await_error(|text| text.ends_with("salloc: Job allocation 5 has been revoked.\n"));
    assert_eq!(plain.end().code, 3);
    let mut killed = Running::start(
        &cluster,
        &["salloc", "-KTERM", "-n1", "sh", "-c", "echo up; exec sleep 600"],
    );
    killed.await_output(|text| text == "up\n");
    cluster.sluice(&["scancel", "6"]).ok();
    let said = killed.end();
    assert!(
        said.stderr.ends_with("salloc: Job allocation 6 has been revoked.\n"),
        "{}",
        said.stderr
    );
    assert_ne!(said.code, 0);

    // A signal to `salloc` itself cancels the allocation and not the command.
    let mut told =
        Running::start(&cluster, &["salloc", "-n1", "sh", "-c", "echo up; read x; exit 3"]);
    told.await_output(|text| text == "up\n");
    told.signal("TERM");
    told.await_error(|text| text.ends_with("salloc: Job allocation 7 has been revoked.\n"));
    assert_eq!(told.end().code, 3);
    let wait = "echo up; exec sleep 20 >/dev/null 2>&1";
    let mut left = Running::start(&cluster, &["salloc", "-n1", "sh", "-c", wait]);
    left.await_output(|text| text == "up\n");
    left.signal("HUP");
    let said = left.end();
    assert_eq!(said.code, 1);
    assert!(said.stderr.ends_with("salloc: Relinquishing job allocation 8\n"), "{}", said.stderr);
    until("all is given back", || cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(()));
}

#[test]
fn up_a_waiting_srun_or_salloc_tells_a_terminal_why_and_when_it_starts() {
    let cluster = Cluster::up(TWO_NODES);
    for command in ["srun", "salloc"] {
        let args = [command, "-n1", "--begin=now+1hour", "true"];
        let mut waits = OnTerminal::start(&cluster, &args, WIDE, &[]);
        let job = if command == "srun" { 1 } else { 2 };
        let line = format!("\r{command}: job {job} waits: BeginTime; expected start ");
        waits.until("why it waits", |screen| screen.contains("waits: BeginTime; expected start"));
        assert!(waits.seen.contains(&line), "{:?}", waits.seen);
        cluster.sluice(&["scontrol", "update", &format!("JobId={job}"), "StartTime=now"]).ok();
        assert!(waits.end().success(), "{:?}", waits.seen);
        // The line is overwritten before anything else is said.
        let allocated = format!(" \r{command}: job {job} has been allocated resources");
        assert!(waits.seen.contains(&allocated), "{:?}", waits.seen);
    }
    // Nobody is told where nobody looks, or who does not want to know.
    let quiet = ["srun", "--quiet", "-n1", "--begin=now+2", "true"];
    let mut quiet = OnTerminal::start(&cluster, &quiet, WIDE, &[]);
    assert!(quiet.end().success());
    assert!(!quiet.seen.contains("waits"), "{:?}", quiet.seen);
    let said = cluster.sluice(&["srun", "-n1", "--begin=now+2", "true"]);
    assert!(!said.stderr.contains("waits"), "{}", said.stderr);
}

/// Until then Ctrl-C is a signal, and what is typed is shown.
#[test]
fn up_terminal_is_raw_only_once_the_shell_of_srun_is_there() {
    let keys = LocalFlags::ISIG | LocalFlags::ICANON | LocalFlags::ECHO;
    let cluster = Cluster::up(TWO_NODES);
    let args = ["srun", "--pty", "-n1", "--begin=now+1hour", "sh"];
    let mut srun = OnTerminal::start(&cluster, &args, WIDE, &[]);
    srun.until("why it waits", |screen| screen.contains("waits: BeginTime"));
    assert!(srun.mode().local_flags.contains(keys), "{:?}", srun.mode());
    cluster.sluice(&["scontrol", "update", "JobId=1", "StartTime=now"]).ok();
    until("the terminal is raw", || (!srun.mode().local_flags.intersects(keys)).then_some(()));
    srun.press("exit 5\r");
    assert_eq!(srun.end().code(), Some(5), "{:?}", srun.seen);
    assert!(srun.mode().local_flags.contains(keys), "it is as it was: {:?}", srun.mode());
}

#[test]
fn up_a_waiting_srun_or_salloc_can_be_interrupted() {
    let cluster = Cluster::up(TWO_NODES);
    let waiting = |command: &'static str, job: u32| {
        let mut one = Running::start(&cluster, &[command, "-n1", "--begin=now+1hour", "true"]);
        let words = format!("{command}: job {job} queued and waiting for resources\n");
        one.await_error(|text| text.ends_with(&words));
        one.err.clear();
        one
    };
    let table = [
        (
            "srun",
            "INT",
            "srun: Job allocation 1 has been revoked\nsrun: Force Terminated JobId=1\n",
        ),
        (
            "srun",
            "TERM",
            "srun: Job allocation 2 has been revoked\nsrun: Force Terminated JobId=2\n",
        ),
        (
            "salloc",
            "INT",
            "salloc: Job allocation 3 has been revoked.\nsalloc: Job aborted due to signal\n",
        ),
        (
            "salloc",
            "TERM",
            "salloc: Job allocation 4 has been revoked.\nsalloc: Job aborted due to signal\n",
        ),
        (
            "srun",
            "",
            "srun: Job has been cancelled\nsrun: error: Unable to allocate resources: \
             Job/step already completing or completed\n",
        ),
        (
            "salloc",
            "",
            "salloc: Job has been cancelled\nsalloc: Job allocation 6 has been revoked.\n\
             salloc: error: Job submit/allocate failed: Job/step already completing or completed\n",
        ),
    ];
    for (job, (command, name, words)) in (1..).zip(table) {
        let one = waiting(command, job);
        match name {
            "" => drop(cluster.sluice(&["scancel", &job.to_string()]).ok()),
            name => one.signal(name),
        }
        let said = one.end();
        assert_eq!((said.code, said.stderr.as_str()), (1, words), "{command} {name}");
        assert!(cluster.await_end(job).starts_with("CANCELLED"));
    }
}

#[test]
fn up_sbatch_wait_exits_as_the_job_did() {
    let cluster = Cluster::up(TWO_NODES);
    let code = |args: &[&str]| {
        cluster.sluice(&[&["sbatch", "-Q", "-o", "/dev/null", "-W"], args].concat()).code
    };
    assert_eq!(code(&["--wrap", "exit 5"]), 5);
    assert_eq!(code(&["-a", "0-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID"]), 2);
    assert_eq!(code(&["--wrap", "kill -9 $$"]), 1);
}

#[test]
fn up_an_srun_that_ended_without_a_server_is_recorded_when_it_returns() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.shell("mkfifo gate").ok();
    let mut srun =
        Running::start(&cluster, &["srun", "-n1", "sh", "-c", "echo up; read line < gate; exit 6"]);
    srun.await_output(|text| text == "up\n");
    cluster.kill("server");
    cluster.shell(": > gate").ok();
    assert_eq!(srun.end().code, 6, "the step is its supervisor's, and not the server's");
    cluster.start();
    assert_eq!(cluster.await_end(1), "FAILED|6:0");
}

#[test]
fn up_only_allocations_without_a_client_end_after_the_grace() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["--wrap", "srun -n1 --overlap sleep 600"]);
    let steps = || {
        let text = cluster.sluice(&["squeue", "-h", "-s", "-o", "%i"]).stdout;
        let steps = text.lines().map(|line| line.trim().to_owned());
        let numbered =
            |step: &String| step.rsplit('.').next().is_some_and(|n| n.parse::<u32>().is_ok());
        steps.filter(numbered).collect::<Vec<_>>()
    };
    let (alive, lost) = (format!("{job}.0"), format!("{job}.1"));
    until("the job's own step runs", || steps().contains(&alive).then_some(()));
    // One allocation that needs no client, and one whose client is killed while the server is away.
    cluster.sluice(&["salloc", "-n1", "--no-shell"]).ok();
    let mut waits = Running::start(&cluster, &["salloc", "-n1", "--begin=now+1hour", "true"]);
    waits.await_error(|text| text.contains("queued and waiting"));
    let (unattended, forsaken) = (job + 1, job + 2);
    // With the agent dead no order arrives; then client and server, which could repeat it, die too.
    cluster.kill("agent");
    let id = format!("--jobid={job}");
    let mut srun = Running::start(&cluster, &["srun", "-n1", "--overlap", &id, "true"]);
    until("the second is there", || steps().contains(&lost).then_some(()));
    srun.child.kill().unwrap();
    srun.child.wait().unwrap();
    cluster.kill("server");
    waits.child.kill().unwrap();
    waits.child.wait().unwrap();
    cluster.start();
    assert_eq!(steps(), [alive.clone(), lost], "both are known again");
    within(Duration::from_secs(90), "the lost one ends", || {
        (steps() == [alive.clone()]).then_some(())
    });
    within(Duration::from_secs(90), "the forsaken one ends", || {
        cluster.state_of(forsaken).starts_with("CANCELLED").then_some(())
    });
    assert!(cluster.state_of(unattended).starts_with("RUNNING"));
    assert!(cluster.state_of(job).starts_with("RUNNING"));
}
