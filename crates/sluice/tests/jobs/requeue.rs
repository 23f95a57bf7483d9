//! Requeues: by exit code, by hand, held, and with Slurm's delay.

use crate::harness::{Cluster, TWO_NODES};

fn cluster(more: &str) -> Cluster {
    Cluster::up(&format!("{TWO_NODES}{more}\n"))
}

fn shown(cluster: &Cluster, job: u32, format: &str) -> String {
    let job = job.to_string();
    cluster.sluice(&["squeue", "-h", "-t", "all", "-j", &job, "-o", format]).ok().trim().to_owned()
}

#[test]
fn up_requeue_exit_and_requeue_exit_hold_requeue_jobs() {
    let cluster = cluster("RequeueExit=5-6\nRequeueExitHold=7");
    let script = "echo run ${SLURM_RESTART_COUNT:-0} >> again; [ $SLURM_RESTART_COUNT ] || exit 5";
    // As in Slurm, `--no-requeue` does not prevent it.
    let again = cluster.submit(&["--no-requeue", "-o", "/dev/null", "--wrap", script]);
    assert_eq!(cluster.await_end(again), "COMPLETED|0:0");
    assert_eq!(cluster.read("again"), "run 0\nrun 1\n");
    let books = format!("sacct -n -X -D -P -j {again} -o State,ExitCode");
    assert_eq!(cluster.shell(&books).ok(), "REQUEUED|5:0\nCOMPLETED|0:0\n");

    let script = "[ $SLURM_RESTART_COUNT ] || exit 7";
    let held = cluster.submit(&["-o", "/dev/null", "--wrap", script]);
    cluster.await_state(held, "SPECIAL_EXIT");
    assert_eq!(shown(&cluster, held, "%t %r"), "SE JobHeldUser");
    cluster.sluice(&["scontrol", "release", &held.to_string()]).ok();
    assert_eq!(cluster.await_end(held), "COMPLETED|0:0");
}

#[test]
fn up_scontrol_requeue_forms_behave_as_in_slurm() {
    let cluster = cluster("");
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(job, "RUNNING");
    let scontrol = |line: &str| cluster.shell(&format!("scontrol {line}"));
    scontrol(&format!("requeuehold {job}")).ok();
    cluster.await_state(job, "PENDING");
    assert_eq!(shown(&cluster, job, "%t %R"), "PD (job requeued in held state)");
    let text = cluster.sluice(&["scontrol", "show", "job", &job.to_string()]).ok();
    assert!(text.contains("Reason=job_requeued_in_held_state"), "{text}");
    scontrol(&format!("release {job}")).ok();
    cluster.await_state(job, "RUNNING");
    scontrol(&format!("requeuehold State=SpecialExit {job}")).ok();
    cluster.await_state(job, "SPECIAL_EXIT");
    scontrol(&format!("release {job}")).ok();
    cluster.await_state(job, "RUNNING");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    // `Incomplete` leaves a completed job alone; without it, the job runs again.
    scontrol(&format!("requeue Incomplete {job}")).ok();
    assert!(cluster.state_of(job).starts_with("CANCELLED"));
    scontrol(&format!("requeue {job}")).ok();
    cluster.await_state(job, "RUNNING");

    let once = cluster.submit(&["--no-requeue", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(once, "RUNNING");
    let waits = cluster.submit(&["-H", "--wrap", "true"]);
    let disabled = "Requested operation is presently disabled";
    let table = [
        (format!("requeue {once}"), format!("{disabled} for job {once}\n")),
        (format!("requeuehold {once}"), format!("{disabled} for job {once}\n")),
        (format!("requeue {waits}"), format!("Job is pending execution for job {waits}\n")),
        (format!("requeuehold {waits}"), format!("Job is pending execution for job {waits}\n")),
        ("requeue".into(), "too few arguments for keyword:requeue\n".into()),
        (
            "requeuehold State=Bogus 9999".into(),
            "Invalid job id specified for job State=Bogus\nInvalid job id specified for job 9999\n"
                .into(),
        ),
    ];
    for (line, words) in table {
        let said = scontrol(&line);
        assert_eq!((said.code, said.stderr), (1, words), "{line}");
    }
    scontrol(&format!("update JobId={once} Requeue=1")).ok();
    scontrol(&format!("requeue {once}")).ok();
    cluster.await_state(once, "RUNNING");
}

#[test]
fn up_job_requeue_0_and_the_requeue_delay_are_obeyed() {
    let conf = TWO_NODES.replace("cred_expire=0", "cred_expire=3600");
    let cluster = Cluster::up(&format!("{conf}JobRequeue=0\n"));
    let plain = cluster.submit(&["-o", "/dev/null", "--wrap", "sleep 600"]);
    let asked = cluster.submit(&["--requeue", "-o", "/dev/null", "--wrap", "sleep 600"]);
    for job in [plain, asked] {
        cluster.await_state(job, "RUNNING");
    }
    let requeue = |job: u32| cluster.sluice(&["scontrol", "requeue", &job.to_string()]).code;
    assert_eq!((requeue(plain), requeue(asked)), (1, 0));
    crate::harness::until("it waits for its time", || {
        (cluster.state_of(asked) == "PENDING|BeginTime").then_some(())
    });
}

/// A dependency that can never be satisfied, one on an array with a cancelled task, and a circular one.
#[test]
fn up_unsatisfiable_dependencies_are_reported() {
    let cluster = cluster("");
    let scontrol = |line: &str| cluster.shell(&format!("scontrol {line}"));
    let array = cluster.submit(&["-H", "-a", "1-3", "-o", "/dev/null", "--wrap", "true"]);
    let on = |text: &str| {
        cluster.submit(&["-d", text, "-o", "/dev/null", "--begin=now+1hour", "--wrap", "true"])
    };
    let all = on(&format!("afterok:{array}"));
    let one = on(&format!("afterok:{array}_2"));
    let any = on(&format!("afterany:{array}"));
    assert_eq!(shown(&cluster, all, "%E"), format!("afterok:{array}_*(unfulfilled)"));
    cluster.shell(&format!("scancel {array}_2")).ok();
    for job in [all, one] {
        crate::harness::until("it can never be met", || {
            (cluster.state_of(job) == "PENDING|DependencyNeverSatisfied").then_some(())
        });
    }
    scontrol(&format!("release {array}")).ok();
    crate::harness::until("the others have ended", || {
        (cluster.state_of(any) == "PENDING|BeginTime").then_some(())
    });
    let never = ["--kill-on-invalid-dep=yes", "-d", &format!("afterok:{array}"), "--wrap", "true"];
    let killed = cluster.submit(&never);
    cluster.await_state(killed, "CANCELLED|DependencyNeverSatisfied");

    let first = cluster.submit(&["-H", "--wrap", "true"]);
    let second = cluster.submit(&["-d", &format!("afterok:{first}"), "--wrap", "true"]);
    let said = scontrol(&format!("update JobId={first} Dependency=afterok:{second}"));
    let words = format!("Circular job dependency for job {first}\n");
    assert_eq!((said.code, said.stderr), (1, words));
}
