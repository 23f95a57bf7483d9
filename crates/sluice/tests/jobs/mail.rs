//! Mails about jobs, by a stand-in for `MailProg` that writes down its arguments.

use crate::harness::{Cluster, until};

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AuthInfo=cred_expire=0
NodeName=node1 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
";

/// A cluster whose mail program appends `USER: SUBJECT` to the file `mails`.
fn up(more: &str) -> Cluster {
    let cluster = Cluster::folder("");
    let tell = "test \"$1\" = -s && test $# = 3 && test -z \"$(cat)\" && \
                echo \"$3: $2 [$SLURM_JOB_MAIL_TYPE $SLURM_JOB_ID]\" >> $(dirname $0)/../work/mails";
    let program = cluster.write_program("mailer", tell);
    cluster.write_conf("slurm.conf", &format!("{CONF}MailProg={program}\n{more}"));
    cluster.start();
    cluster
}

/// The mails about a job, once there are so many: what is between the job's name and the variables.
fn mails(cluster: &Cluster, job: u32, count: usize) -> Vec<String> {
    let about = [format!("Job_id={job} "), format!("Job_id={job}_")];
    until("the mails", || {
        let text = std::fs::read_to_string(cluster.path("work").join("mails")).unwrap_or_default();
        let found = text.lines().filter(|line| about.iter().any(|about| line.contains(about)));
        let found: Vec<String> = found.map(str::to_owned).collect();
        (found.len() >= count).then_some(found)
    })
}

#[test]
fn up_mail_program_is_run_for_the_types_that_a_job_asked_for() {
    let cluster = up("MailDomain=site.org\n");
    let to = ["--mail-type=ALL", "--mail-user=ann@site.org", "-J", "train"];
    let job = cluster.submit(&[&to[..], &["--wrap", "exit 3"]].concat());
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    let sent = mails(&cluster, job, 2);
    let about = format!("ann@site.org: Slurm Job_id={job} Name=train");
    assert!(sent[0].starts_with(&format!("{about} Began, Queued time 00:00:0")), "{sent:?}");
    assert!(sent[0].ends_with(&format!(" [BEGIN {job}]")), "{sent:?}");
    assert!(sent[1].starts_with(&format!("{about} Failed, Run time 00:00:0")), "{sent:?}");
    assert!(sent[1].ends_with(&format!(", FAILED, ExitCode 3 [FAIL {job}]")), "{sent:?}");
    // Without an address the owner's name with the domain is one; a type that was not asked for brings none.
    let job = cluster.submit(&["--mail-type=END", "--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let sent = mails(&cluster, job, 1);
    let user = crate::harness::user_name();
    assert!(sent[0].starts_with(&format!("{user}@site.org: Slurm Job_id={job} ")), "{sent:?}");
    assert!(sent[0].contains(" Ended, Run time 00:00:0"), "{sent:?}");
    assert_eq!(sent.len(), 1, "{sent:?}");
    // A requeue is told, and the types can be changed while the job waits.
    let job = cluster.submit(&[
        "--mail-type=NONE",
        "--wrap",
        "test -n \"$SLURM_RESTART_COUNT\" || sleep 100",
    ]);
    cluster.await_state(job, "RUNNING");
    cluster.shell(&format!("scontrol update JobId={job} MailType=REQUEUE")).ok();
    cluster.shell(&format!("scontrol requeue {job}")).ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let sent = mails(&cluster, job, 1);
    assert!(sent.len() == 1 && sent[0].contains(" Requeued, Run time 00:00:"), "{sent:?}");
}

#[test]
fn up_array_has_one_mail_for_all_its_tasks_unless_each_is_asked_for() {
    let cluster = up("");
    let fails = "test $SLURM_ARRAY_TASK_ID != 2";
    let whole = cluster.submit(&["--mail-type=BEGIN,END", "--array=1-3", "--wrap", fails]);
    let each =
        cluster.submit(&["--mail-type=END,FAIL,ARRAY_TASKS", "--array=1-2", "--wrap", fails]);
    let sent = mails(&cluster, each, 2);
    assert!(sent.iter().all(|mail| mail.contains("Slurm Array Task Job_id=")), "{sent:?}");
    assert!(sent.iter().any(|mail| mail.contains(&format!("Job_id={each}_1 ("))), "{sent:?}");
    assert!(sent.iter().any(|mail| mail.contains("FAILED, ExitCode 1 [FAIL")), "{sent:?}");
    let sent = mails(&cluster, whole, 2);
    let about = format!("Slurm Array Summary Job_id={whole}_* ({whole}) Name=wrap");
    assert!(sent[0].contains(&format!("{about} Began [BEGIN ")), "{sent:?}");
    assert!(sent[1].contains(&format!("{about} Ended, Mixed, ExitCode [0-1] [END ")), "{sent:?}");
    assert_eq!(sent.len(), 2, "{sent:?}");
}

#[test]
fn up_dependency_that_can_never_be_met_is_told_once_and_not_again_after_a_restart() {
    let cluster = up("");
    let first = cluster.submit(&["--wrap", "false"]);
    let depends = format!("--dependency=afterok:{first}");
    let waits = cluster.submit(&["--mail-type=INVALID_DEPEND", &depends, "--wrap", "true"]);
    let sent = mails(&cluster, waits, 1);
    assert!(sent[0].contains("Invalid dependency [INVALID_DEPEND"), "{sent:?}");
    cluster.kill_alone("server");
    let killed = cluster.submit(&[
        "--mail-type=INVALID_DEPEND",
        &depends,
        "--kill-on-invalid-dep=yes",
        "--wrap",
        "true",
    ]);
    assert_eq!(mails(&cluster, killed, 1).len(), 1);
    assert_eq!(mails(&cluster, waits, 1).len(), 1, "not again");
}

#[test]
fn up_time_limit_is_told_near_it_and_at_it() {
    let cluster = up("");
    let types = "--mail-type=TIME_LIMIT,TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT_90";
    let job = cluster.submit(&[types, "--time=1", "--wrap", "sleep 600"]);
    assert_eq!(cluster.await_end(job), "TIMEOUT|0:0");
    let sent = mails(&cluster, job, 4);
    let said: Vec<&str> =
        sent.iter().filter_map(|mail| mail.split("Reached ").nth(1)?.split(" [").next()).collect();
    let of = "of time limit";
    let expected =
        [&*format!("50% {of}"), &*format!("80% {of}"), &*format!("90% {of}"), "time limit"];
    assert_eq!(said, expected);
}

#[test]
fn up_mail_address_that_is_none_has_no_mail_and_one_line_says_so() {
    let cluster = up("");
    for bad in ["-Sx", "|id", "a b", "/tmp/x"] {
        let taken = cluster.sluice(&[
            "sbatch",
            "-H",
            "--mail-type=END",
            &format!("--mail-user={bad}"),
            "--wrap=true",
        ]);
        assert_eq!(taken.code, 0, "{bad}: {}", taken.stderr);
        assert!(
            taken.stderr.contains("note: the job has no mail: mail address"),
            "{}",
            taken.stderr
        );
    }
    let job = cluster.submit(&["-H", "--wrap", "true"]);
    let refused = cluster.sluice(&["scontrol", "update", &format!("JobId={job}"), "MailUser=-x"]);
    assert!(refused.stderr.contains("mail address"), "{}", refused.stderr);
}
