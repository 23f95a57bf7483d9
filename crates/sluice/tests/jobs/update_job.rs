//! `scontrol update JobId=…` and `top` through the built program: the words of a real Slurm 22.05, key by key.

use crate::harness::{Cluster, TWO_NODES};

/// For a pending job held by its user: the pair, the error (empty: it succeeds), and what `show job` then shows.
const WAITING: &[(&str, &str, &str)] = &[
    ("TimeLimit=30", "", "TimeLimit=00:30:00"),
    ("TimeLimit+=10", "", "TimeLimit=00:40:00"),
    ("TimeLimit-=5", "", "TimeLimit=00:35:00"),
    ("TimeMin=5", "", "TimeMin=00:05:00"),
    (
        "TimeMin=50000",
        "Invalid time-min specification (exceeds job's time or other limits) for job {}\n",
        "",
    ),
    ("Partition=nosuch", "Invalid partition name specified for job {}\n", "Partition=gpu"),
    ("Partition=", "Invalid partition name specified for job {}\n", "Partition=gpu"),
    ("Partition=gpu,debug", "", "Partition=gpu,debug"),
    ("QOS=nosuch", "Invalid qos specification for job {}\n", "QOS=normal"),
    ("QOS=", "", "QOS=normal"),
    ("NumNodes=2", "", "NumNodes=2"),
    ("NumNodes=99", "Node count specification invalid for job {}\n", "NumNodes=2"),
    ("NumCPUs=9999", "CPU count specification invalid for job {}\n", ""),
    ("NumTasks=0", "Task count specification invalid for job {}\n", ""),
    ("NumTasks=2", "", "NumTasks=2"),
    ("ReqNodeList=nosuch", "Invalid node name specified for job {}\n", "ReqNodeList=(null)"),
    ("ReqNodeList=node1", "", "ReqNodeList=node1"),
    ("ReqNodeList=", "", "ReqNodeList=(null)"),
    ("ExcNodeList=node2", "", "ExcNodeList=node2"),
    ("Features=nosuch", "Invalid feature specification for job {}\n", "Features=(null)"),
    ("Features=h100", "", "Features=h100"),
    ("Gres=bogus:1", "Invalid generic resource (gres) specification for job {}\n", ""),
    ("Gres=gpu:1", "", "TresPerNode=gres:gpu:1"),
    ("Dependency=afterok:{}", "Job dependency problem for job {}\n", "Dependency=(null)"),
    ("Deadline=2020-01-01", "Invalid time specified for job {}\n", "Deadline=N/A"),
    (
        "Priority=5",
        "Job is in held state, pending scheduler release for job {}\n",
        "Reason=JobHeldUser",
    ),
    ("Nice=50", "", "Nice=50"),
    ("Nice", "", "Nice=100"),
    ("Comment=hi", "", "Comment=hi"),
    ("AdminComment=adm", "", "AdminComment=adm"),
    ("Requeue=0", "", "Requeue=0"),
    ("MinCPUsNode=2", "", "MinCPUsNode=2"),
    ("MinMemoryNode=100", "", "MinMemoryNode=100M"),
    ("MinTmpDiskNode=10", "", "MinTmpDiskNode=10M"),
    ("ReservationName=nosuch", "Requested reservation is invalid for job {}\n", ""),
    ("StdOut=/tmp/zz.out", "", "StdOut=/tmp/zz.out"),
    ("Contiguous=yes", "", "Contiguous=1"),
    ("OverSubscribe=no", "", "OverSubscribe=NO"),
    ("MailUser=bob MailType=END", "", "MailUser=bob MailType=END"),
    ("DelayBoot=10", "", ""),
    ("ResetAccrueTime", "", ""),
    ("CPUsPerTask=2", "", "CPUs/Task=2"),
    ("WorkDir=/tmp", "", "WorkDir=/tmp"),
    ("EndTime=now+10minutes", "Job is not running for job {}\n", ""),
    ("UserID=root", "No changes specified\n", ""),
    ("BurstBuffer=x", "Requested operation not supported on this system for job {}\n", ""),
    ("CoreSpec=1", "Access/permission denied for job {}\n", ""),
    ("Reboot=no", "", ""),
    ("Bogus=1", "Update of this parameter is not supported: Bogus=1\nRequest aborted\n", ""),
    ("JobName=renamed", "", "JobName=renamed"),
];

/// The same for a running job.
const RUNNING: &[(&str, &str, &str)] = &[
    ("TimeLimit=20", "", "TimeLimit=00:20:00"),
    ("TimeLimit+=5", "", "TimeLimit=00:25:00"),
    ("Partition=debug", "Job is no longer pending execution for job {}\n", "Partition=gpu"),
    ("NumNodes=1", "", "NumNodes=1"),
    ("NumNodes=2", "Requested operation not supported on this system for job {}\n", "NumNodes=1"),
    ("Features=h100", "Job is no longer pending execution for job {}\n", "Features=(null)"),
    ("Gres=gpu:1", "Job is no longer pending execution for job {}\n", ""),
    ("StartTime=now+1hour", "Job is no longer pending execution for job {}\n", ""),
    ("WCKey=k", "Job is no longer pending execution for job {}\n", ""),
    ("Comment=hi", "", "Comment=hi"),
    ("JobName=renamed", "", "JobName=renamed"),
    ("Nice=50", "", "Nice=50"),
    ("Priority=1", "", "Priority=1"),
];

fn check(cluster: &Cluster, job: u32, rows: &[(&str, &str, &str)]) {
    let id = job.to_string();
    for (key, words, then) in rows {
        let key = key.replace("{}", &id);
        let said = cluster.shell(&format!("scontrol update JobId={id} {key}"));
        let code = i32::from(!words.is_empty());
        assert_eq!((said.code, said.stderr), (code, words.replace("{}", &id)), "{key}");
        let shown = cluster.sluice(&["scontrol", "show", "job", &id]).ok();
        assert!(shown.contains(then), "after {key} there is no {then}:\n{shown}");
    }
}

#[test]
fn up_every_key_of_a_job_is_set_or_refused_in_slurms_words() {
    let cluster = Cluster::up(TWO_NODES);
    let waiting = cluster.submit(&["-H", "--wrap", "sleep 1"]);
    check(&cluster, waiting, WAITING);
    let running = cluster.submit(&["-t", "30", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(running, "RUNNING");
    check(&cluster, running, RUNNING);
    // By name: all jobs of that name.
    cluster.shell("scontrol update JobName=renamed Comment=both").ok();
    for job in [waiting, running] {
        let shown = cluster.sluice(&["scontrol", "show", "job", &job.to_string()]).ok();
        assert!(shown.contains("Comment=both"), "{shown}");
    }
    cluster.sluice(&["scancel", &running.to_string()]).ok();
    cluster.await_end(running);
    for line in [format!("update JobId={running} Comment=x"), format!("hold {running}")] {
        let said = cluster.shell(&format!("scontrol {line}"));
        let words = format!("Job has already finished for job {running}\n");
        assert!(said.code == 1 && said.stderr.starts_with(&words), "{line}: {}", said.stderr);
    }
}

#[test]
fn up_scontrol_top_moves_jobs_to_the_front() {
    let cluster = Cluster::up(TWO_NODES);
    let full = cluster.submit(&["-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(full, "RUNNING");
    let waits = || cluster.submit(&["-N2", "--exclusive", "-o", "/dev/null", "--wrap", "true"]);
    let [a, b, c] = [waits(), waits(), waits()];
    let order = || -> Vec<u32> {
        let text = cluster.sluice(&["squeue", "-h", "-t", "PD", "-S", "-p,i", "-o", "%i"]).ok();
        text.lines().map(|line| line.trim().parse().expect("an id")).collect()
    };
    assert_eq!(order(), [a, b, c]);
    cluster.shell(&format!("scontrol top {c}")).ok();
    assert_eq!(order(), [c, a, b]);
    cluster.shell(&format!("scontrol top {b},{a}")).ok();
    assert_eq!(order(), [b, a, c]);
    let table = [
        ("top", "too few arguments for keyword:top\n".to_owned()),
        ("top 1 2", "too many arguments for keyword:top\n".to_owned()),
        ("top 9999", "Invalid job id specified for job 9999\n".to_owned()),
        ("top abc", "Invalid job id specified for job abc\n".to_owned()),
    ];
    for (line, words) in table {
        let said = cluster.shell(&format!("scontrol {line}"));
        assert_eq!((said.code, said.stderr), (1, words), "{line}");
    }
}
