//! Tests of the time limit: never enforced early, whatever the job does, and later if the limit is extended.

mod support;

use model::run::{ExitStatus, SignalBefore};
use model::time::Timestamp;
use std::time::Duration;
use support::{Cluster, attempt, now, wait_until};
use wire::order::{Action, EndOrder};

/// Milliseconds since 1970 that a job wrote as the only word of a line after `word`.
fn written(output: &str, word: &str) -> Timestamp {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let millis = line.unwrap_or_else(|| panic!("no {word} in {output}")).trim().parse();
    Timestamp::from_millis(millis.expect("a number"))
}

#[test]
fn root_warning_and_time_limit_never_come_early() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/bash\ntrap 'echo warned $(date +%s%3N)' USR1\n\
                  trap 'echo ended $(date +%s%3N); exit 9' TERM\ntouch ready\n\
                  while :; do sleep 0.02; done\n";
    let ready = cluster.home().join("ready");
    for (job, over_time_s) in [(1, 0), (2, 1)] {
        let mut launch = cluster.batch(script);
        launch.end_limit = Some(now() + Duration::from_secs(600));
        launch.over_time_s = over_time_s;
        launch.kill_wait_s = 20;
        launch.signal = Some(SignalBefore {
            signal: libc::SIGUSR1,
            before_s: 1,
            batch_only: true,
            overlaps: false,
        });
        let job = attempt(job, 1);
        cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
        cluster.await_started(&mut link);
        wait_until("the job has its traps", || ready.exists());
        std::fs::remove_file(&ready).expect("the mark of the job");
        let limit = now() + Duration::from_millis(1_500);
        cluster.order(&mut link, job, Action::ExtendTo { end: Some(limit) });
        let end = cluster.await_end(&mut link, job);
        assert!(end.timed_out, "{end:?}");
        assert_eq!(end.exit, ExitStatus { code: 9, signal: 0 });
        let output = cluster.output("out");
        let (warned, ended) = (written(&output, "warned"), written(&output, "ended"));
        assert!(warned >= limit - Duration::from_secs(1), "{output} for {limit:?}");
        assert!(ended >= limit + Duration::from_secs(u64::from(over_time_s)), "{output}");
        assert!(warned < ended);
    }
}

#[test]
fn root_stopped_job_ends_at_its_time_limit() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/bash\ntrap 'echo terminated; exit 7' TERM\necho $$ > pid\nkill -STOP $$\n\
                  echo woken\nwhile :; do sleep 0.02; done\n";
    let mut launch = cluster.batch(script);
    launch.kill_wait_s = 20;
    launch.end_limit = Some(now() + Duration::from_secs(600));
    let job = attempt(1, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let pid_file = cluster.home().join("pid");
    wait_until("the job stops itself", || {
        let pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
        status.is_ok_and(|status| status.contains("\nState:\tT"))
    });
    cluster.order(&mut link, job, Action::ExtendTo { end: Some(now()) });
    let end = cluster.await_end(&mut link, job);
    assert!(end.timed_out, "{end:?}");
    assert_eq!(end.exit, ExitStatus { code: 7, signal: 0 }, "{}", cluster.output("out"));
    cluster.assert_no_groups();
}

#[test]
fn root_extended_and_suspended_time_postpones_the_end() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let home = cluster.home();
    let script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.02; done\nrm go\necho done\n";
    let outlive = |limit: Timestamp| {
        wait_until("the old limit passes", || now() > limit + Duration::from_millis(300))
    };

    let mut launch = cluster.batch(script);
    launch.end_limit = Some(now() + Duration::from_secs(600));
    let job = attempt(1, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let limit = now() + Duration::from_secs(2);
    cluster.order(&mut link, job, Action::ExtendTo { end: Some(limit) });
    cluster.order(&mut link, job, Action::ExtendTo { end: Some(limit + Duration::from_secs(60)) });
    outlive(limit);
    std::fs::write(home.join("go"), "").expect("the word to end");
    let end = cluster.await_end(&mut link, job);
    assert!(!end.timed_out && end.exit.is_success(), "{end:?}");

    let mut launch = cluster.batch(script);
    let limit = now() + Duration::from_secs(600);
    launch.end_limit = Some(limit);
    let job = attempt(2, 1);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    cluster.order(&mut link, job, Action::Suspend);
    let soon = now() + Duration::from_secs(3);
    // A limit that passes while the job is suspended is not over: it gets that time back.
    cluster.order(&mut link, job, Action::ExtendTo { end: Some(soon) });
    outlive(soon);
    std::fs::write(home.join("go"), "").expect("the word to end");
    cluster.order(&mut link, job, Action::Resume);
    let end = cluster.await_end(&mut link, job);
    assert!(!end.timed_out && end.exit.is_success(), "{end:?}");
}

#[test]
fn root_suspended_job_gets_sigterm_when_it_is_ended() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let home = cluster.home();
    let script =
        "#!/bin/bash\ntrap 'echo bye; exit 5' TERM\ntouch ready\nwhile :; do sleep 0.02; done\n";
    let job = attempt(1, 1);
    let launch = cluster.batch(script);
    cluster.order(&mut link, job, Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    wait_until("the trap is set", || home.join("ready").exists());
    cluster.order(&mut link, job, Action::Suspend);
    cluster.order(
        &mut link,
        job,
        Action::End(EndOrder { grace_s: 30, ..EndOrder::kill(None, None) }),
    );
    let end = cluster.await_end(&mut link, job);
    assert_eq!(end.exit, ExitStatus { code: 5, signal: 0 });
    assert_eq!(cluster.output("out"), "bye\n");
}
