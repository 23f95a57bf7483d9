//! Tests of batch jobs on a real agent with a fake server: what a script gets, and how it ends.

mod support;

use model::amount::Bytes;
use model::run::{ExitStatus, SignalBefore};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use support::{Cluster, UID, attempt, now, wait_until};
use wire::link::ToAgent;
use wire::order::{Action, EndOrder, Output, ProcessVariable, SignalOrder};
use wire::report::ReportEvent;
use wire::stream::StreamKind;

const CODE_3: ExitStatus = ExitStatus { code: 3, signal: 0 };

#[test]
fn root_script_runs_as_its_user_with_its_environment_and_files() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/sh\necho \"$GREETING $1 $2 $RANK $LOCAL $HERE\"\nid -u; id -g; id -G\npwd\numask\n\
                  touch made\nulimit -Sn\necho $0\n[ $PID = $$ ] && echo pid\nexit 3\n";
    let mut launch = cluster.batch(script);
    launch.arguments = vec!["one".into(), "two words".into()];
    launch.stdout = Output::File { pattern: "slurm-%4j-%x.out".into(), append: false };
    launch.rlimits.soft = vec![("NOFILE".into(), 77)];
    launch.process_variables = [
        ("RANK", ProcessVariable::Rank),
        ("LOCAL", ProcessVariable::LocalRank),
        ("HERE", ProcessVariable::RanksHere),
        ("PID", ProcessVariable::Pid),
    ]
    .map(|(name, variable)| (name.to_owned(), variable))
    .to_vec();
    let end = cluster.run(&mut link, 12, launch);
    assert_eq!(
        (end.exit, end.oom, end.timed_out, end.supervisor_lost),
        (CODE_3, false, false, false)
    );
    assert!(end.usage.memory_peak_bytes > 0 && end.usage.cpu_user_us + end.usage.cpu_system_us > 0);

    let home = cluster.home().display().to_string();
    let spool = std::fs::canonicalize(cluster.spool()).expect("the spool");
    let script = spool.join("12.1/slurm_script").display().to_string();
    let expected = format!(
        "hello one two words 0 0 0\n{UID}\n{UID}\n{UID}\n{home}\n0027\n77\n{script}\npid\n"
    );
    assert_eq!(cluster.output("slurm-0012-test.out"), expected);
    let made = std::fs::metadata(cluster.home().join("made")).expect("made by the job");
    assert_eq!((made.uid(), made.mode() & 0o777), (UID, 0o640));
    wait_until("the spool is empty", || std::fs::read_dir(&spool).expect("the spool").count() == 0);
    cluster.assert_no_groups();
}

#[test]
fn root_processes_that_a_script_leaves_are_killed() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/sh\n(trap '' TERM HUP; setsid sh -c 'echo $$ > daemon; sleep 1000' &)\n\
                  while [ ! -s daemon ]; do :; done\n";
    let launch = cluster.batch(script);
    let end = cluster.run(&mut link, 1, launch);
    assert!(end.exit.is_success());
    let pid = cluster.output("daemon");
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "the daemon lives");
    cluster.assert_no_groups();
}

#[test]
fn root_job_beyond_its_memory_is_killed_and_reported_out_of_memory() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let mut launch = cluster.batch("#!/bin/sh\ntail -n 1 /dev/zero\necho rc=$?\n");
    launch.share.memory = Bytes::from_mib(40);
    let end = cluster.run(&mut link, 1, launch);
    assert!(end.oom && end.usage.oom_kills > 0, "{end:?}");
    let output = cluster.output("out");
    assert!(output.contains("rc=137"), "{output}");
    assert!(output.contains("oom-kill event(s) in StepId=1.batch."), "{output}");
}

#[test]
fn root_time_limit_warns_terminates_and_kills() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/sh\ntrap 'echo warned' USR1\ntrap 'echo terminated' TERM\ntouch ready\n\
                  while :; do sleep 0.05; done\n";
    let mut launch = cluster.batch(script);
    launch.kill_wait_s = 5;
    launch.end_limit = Some(now() + Duration::from_secs(600));
    launch.signal = Some(SignalBefore {
        signal: libc::SIGUSR1,
        before_s: 2,
        batch_only: true,
        overlaps: false,
    });
    let job = attempt(1, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let ready = cluster.home().join("ready");
    wait_until("the traps are set", || ready.exists());
    let limit = now() + Duration::from_millis(2_500);
    cluster.order(&mut link, job, Action::ExtendTo { end: Some(limit) });
    let end = cluster.await_end(&mut link, job);
    assert!(end.timed_out, "{end:?}");
    assert_eq!(end.exit, ExitStatus { code: 0, signal: libc::SIGKILL });
    let output = cluster.output("out");
    let order = ["warned", "DUE TO TIME LIMIT", "terminated"].map(|w| output.find(w).expect(w));
    assert!(order.is_sorted(), "{output}");
}

#[test]
fn root_orders_end_suspend_and_signal_a_job() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/sh\ntrap 'echo signalled' USR2\ntrap 'echo bye; exit 5' TERM\ntouch ready\n\
                  while :; do sleep 0.05; done\n";
    let launch = cluster.batch(script);
    let job = attempt(1, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let home = cluster.home();
    wait_until("the traps are set", || home.join("ready").exists());
    let signal =
        SignalOrder { step: None, signal: libc::SIGUSR2, leader_only: true, steps_only: false };
    cluster.order(&mut link, job, Action::Signal(signal));
    wait_until("the signal arrived", || cluster.output("out").contains("signalled"));
    cluster.order(&mut link, job, Action::Suspend);
    cluster.order(&mut link, job, Action::Resume);
    let order = EndOrder {
        grace_s: 30,
        notice: Some("*** CANCELLED ***".into()),
        ..EndOrder::kill(None, None)
    };
    cluster.order(&mut link, job, Action::End(order));
    let end = cluster.await_end(&mut link, job);
    assert_eq!(end.exit, ExitStatus { code: 5, signal: 0 });
    let output = cluster.output("out");
    let order = ["signalled", "*** CANCELLED ***", "bye"].map(|w| output.find(w).expect(w));
    assert!(order.is_sorted(), "{output}");
}

#[test]
fn root_launch_failure_is_reported_with_its_reason() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let mut launch = cluster.batch("#!/bin/sh\ntrue\n");
    launch.stdout = Output::File { pattern: "/nonexistent/x.out".into(), append: false };
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let report = cluster.report(&mut link);
    let ReportEvent::LaunchFailed { what, .. } = report.event else { panic!("{report:?}") };
    assert_eq!(what, "cannot open /nonexistent/x.out: No such file or directory");
    cluster.assert_no_groups();

    let launch = cluster.batch("#!/nonexistent/interp\ntrue\n");
    let end = cluster.run(&mut link, 2, launch);
    assert_eq!(end.exit, ExitStatus { code: 2, signal: 0 }, "Slurm's exit of a bad interpreter");
    let words = "slurmstepd: error: execve(): bad interpreter(/nonexistent/interp): No such file or directory\n";
    assert_eq!(cluster.output("out"), words);

    let mut launch = cluster.batch("#!/bin/sh\npwd\n");
    let out = cluster.home().join("elsewhere").display().to_string();
    launch.stdout = Output::File { pattern: out, append: false };
    launch.work_dir = "/nonexistent".into();
    let end = cluster.run(&mut link, 3, launch);
    assert!(end.exit.is_success());
    let output = cluster.output("elsewhere");
    assert!(
        output.contains("cannot enter /nonexistent: No such file") && output.ends_with("/tmp\n"),
        "{output}"
    );
}

#[test]
fn root_log_is_read_while_the_job_runs_and_afterwards() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let home = cluster.home();
    let mut launch =
        cluster.batch("#!/bin/sh\necho first >/dev/stdout\nwhile [ ! -e go ]; do sleep 0.02; done\necho last >&2\n");
    launch.stdout = Output::Log;
    let job = attempt(1, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let read = |stream, follow| ToAgent::Open {
        stream,
        node: support::NODE.into(),
        attempt: job,
        kind: StreamKind::Log { offset: 0, follow, last: None },
    };
    cluster.send(&mut link, &read(1, true));
    std::fs::write(home.join("go"), "").expect("the signal to go on");
    let text = cluster.runtime.block_on(link.read_stream(1)).expect("the log");
    assert_eq!(String::from_utf8_lossy(&text), "first\nlast\n");
    cluster.send(&mut link, &read(2, false));
    let again = cluster.runtime.block_on(link.read_stream(2)).expect("the log again");
    assert_eq!(again, text);
    let unknown = ToAgent::Open {
        stream: 3,
        node: support::NODE.into(),
        attempt: attempt(99, 1),
        kind: StreamKind::Log { offset: 0, follow: true, last: None },
    };
    cluster.send(&mut link, &unknown);
    let error = cluster.runtime.block_on(link.read_stream(3)).expect_err("no such attempt");
    assert!(error.contains("no attempt 99.1"), "{error}");
}
