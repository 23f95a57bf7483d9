//! Every option of `sacct`, `sprio`, `sshare`, `sstat` and `sreport` that is said to act changes what they print, and every one
//! of `scancel` which jobs it ends.

use crate::harness::{Cluster, until};
use slurm::option::table::{self, Verdict, verdict};
use slurm::option::{Command, OptionKey as K};

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AuthInfo=cred_expire=0
DefMemPerCPU=16
KillWait=1
RequeueExit=5
AccountingStoreFlags=job_script,job_env
PriorityType=priority/multifactor
PriorityWeightJobSize=1000
NodeName=node[1-4] CPUs=4 RealMemory=4000
PartitionName=main Nodes=node[1-2] Default=YES State=UP
PartitionName=other Nodes=node[3-4] State=UP
";

/// A user beside root.
const USER: &str = "daemon";

/// An option, a line without it, and one with it. No line prints a time that passes. `@` is a format without one; `ENDED`,
/// `STEP`, `STEPS` and `HET` are jobs.
pub type Row = (K, &'static str, &'static str);

const SACCT: &[Row] = &[
    (K::Account, "sacct @", "sacct @ -A math"),
    (K::AllocationsOnly, "sacct @", "sacct @ -X"),
    (K::AllUsers, "sacct @", "sacct @ -a"),
    (K::Constraint, "sacct @", "sacct @ -C fast"),
    (K::Duplicates, "sacct @", "sacct @ -D"),
    (K::EndTime, "sacct @", "sacct @ -E now-1hour"),
    (K::Groups, "sacct @", "sacct @ -g root"),
    (K::Jobs, "sacct @", "sacct @ -j STEP"),
    (K::Name, "sacct @", "sacct @ --name=none"),
    (K::Ncpus, "sacct @", "sacct @ -I 3"),
    (K::Nnodes, "sacct @", "sacct @ -i 2"),
    (K::Nodelist, "sacct @", "sacct @ -N node4"),
    (K::Partition, "sacct @", "sacct @ -r other"),
    (K::Qos, "sacct @", "sacct @ -q high"),
    (K::Reason, "sacct @", "sacct @ -R BadConstraints"),
    (K::StartTime, "sacct -P -o JobID -S now-2hours", "sacct -P -o JobID -S now"),
    (K::States, "sacct -X -P -o JobID -S now-2hours", "sacct -X -P -o JobID -s R"),
    (K::TimelimitMin, "sacct @", "sacct @ -k 7"),
    (K::TimelimitMax, "sacct @ -k 1", "sacct @ -k 1 -K 1000"),
    (K::Truncate, UNCUT, CUT),
    (K::Users, "sacct @", "sacct @ -u root"),
    (K::Wckey, "sacct @", "sacct @ -W none"),
    (K::WholeHetjob, "sacct @ -j HET", "sacct @ -j HET --whole-hetjob=no"),
    (K::BatchScript, "sacct @ -j ENDED", "sacct -B -j ENDED"),
    (K::Brief, "sacct", "sacct -b"),
    (K::Delimiter, "sacct @", "sacct @ --delimiter=,"),
    (K::EnvVars, "sacct @ -j ENDED", "sacct --env-vars -j ENDED"),
    (K::Format, "sacct", "sacct -o JobID"),
    (K::HelpFormat, "sacct", "sacct -e"),
    (K::Json, "sacct", "sacct --json"),
    (K::Long, "sacct", "sacct -l"),
    (K::Noheader, "sacct", "sacct -n"),
    (K::Parsable, "sacct", "sacct -p"),
    (K::Parsable2, "sacct", "sacct -P"),
    (K::Units, "sacct @", "sacct @ --units=K"),
    (K::Help, "sacct", "sacct --help"),
    (K::Usage, "sacct", "sacct --usage"),
    (K::Version, "sacct", "sacct --version"),
];

/// The starts of the jobs that run at this moment; cut, they are this moment.
const UNCUT: &str = "sacct -X -P -S now -o JobID,Start -j STEP";
const CUT: &str = "sacct -X -P -S now -o JobID,Start -j STEP -T";

const SPRIO: &[Row] = &[
    (K::Jobs, "sprio", "sprio --jobs=WAITS"),
    (K::Partition, "sprio", "sprio -p other"),
    (K::Users, "sprio", "sprio -u root"),
    (K::Format, "sprio", "sprio -o %i"),
    (K::Long, "sprio", "sprio -l"),
    (K::Noheader, "sprio", "sprio -h"),
    (K::Norm, "sprio", "sprio -n"),
    (K::Sort, "sprio --sort=i", "sprio --sort=-i"),
    (K::Weights, "sprio", "sprio -w"),
    (K::Help, "sprio", "sprio --help"),
    (K::Usage, "sprio", "sprio --usage"),
    (K::Version, "sprio", "sprio --version"),
];

const SSHARE: &[Row] = &[
    (K::Account, "sshare", "sshare -A math"),
    (K::All, "sshare", "sshare -a"),
    (K::WithPartition, "sshare", "sshare -m"),
    (K::Users, "sshare", "sshare -u root"),
    (K::UsersOnly, "sshare", "sshare -U"),
    (K::Format, "sshare", "sshare -o Account"),
    (K::HelpFormat, "sshare", "sshare -e"),
    (K::Long, "sshare", "sshare -l"),
    (K::Noheader, "sshare", "sshare -n"),
    (K::Parsable, "sshare", "sshare -p"),
    (K::Parsable2, "sshare", "sshare -P"),
    (K::Help, "sshare", "sshare --help"),
    (K::Usage, "sshare", "sshare --usage"),
    (K::Version, "sshare", "sshare --version"),
];

const SSTAT: &[Row] = &[
    (K::AllSteps, "sstat -o JobID -j STEP", "sstat -o JobID -j STEP -a"),
    (K::Jobs, "sstat -o JobID -j STEP", "sstat -o JobID -j STEPS"),
    (K::Format, "sstat -o JobID -j STEP", "sstat -o JobID,NTasks -j STEP"),
    (K::HelpFormat, "sstat -o JobID -j STEP", "sstat -e"),
    (K::Noheader, "sstat -o JobID -j STEP", "sstat -o JobID -j STEP -n"),
    (K::Parsable, "sstat -o JobID -j STEP", "sstat -o JobID -j STEP -p"),
    (K::Parsable2, "sstat -o JobID -j STEP", "sstat -o JobID -j STEP -P"),
    (K::PidFormat, "sstat -o JobID -j STEP", "sstat -j STEP -i"),
    (K::Help, "sstat -o JobID -j STEP", "sstat --help"),
    (K::Usage, "sstat -o JobID -j STEP", "sstat --usage"),
    (K::Version, "sstat -o JobID -j STEP", "sstat --version"),
];

/// A day before there was anything: only the titles are printed.
const REPORT: &str = "sreport user top start=2020-01-01 end=2020-01-02";

const SREPORT: &[Row] = &[
    (K::Noheader, REPORT, "sreport -n user top start=2020-01-01 end=2020-01-02"),
    (K::Parsable, REPORT, "sreport -p user top start=2020-01-01 end=2020-01-02"),
    (K::Parsable2, REPORT, "sreport -P user top start=2020-01-01 end=2020-01-02"),
    (K::TimeFormat, REPORT, "sreport -t Hour user top start=2020-01-01 end=2020-01-02"),
    (K::Tres, REPORT, "sreport -T mem user top start=2020-01-01 end=2020-01-02"),
    (K::Help, REPORT, "sreport --help"),
    (K::Usage, REPORT, "sreport --usage"),
    (K::Version, REPORT, "sreport --version"),
];

/// An option of `scancel`, a job that it means, one that it does not, and the line that ends the first alone.
const SCANCEL: &[(K, &str, &str, &str)] = &[
    (K::Account, "-A physics", "-A math", "scancel -A physics"),
    (K::Name, "-J fits", "-J sleeper", "scancel -n fits"),
    (K::Nodelist, "-w node1", "-w node2", "scancel -w node1"),
    (K::Partition, "-p other", "-p main", "scancel -p other"),
    (K::Qos, "-q high", "-p main", "scancel -q high"),
    (K::Reservation, "-t 10 -p other --reservation=kept", "-p main", "scancel -R kept"),
    (K::States, "-H", "-p main", "scancel -t PENDING -u root"),
];

/// Options of `scancel` that choose among the jobs of several users.
const SCANCEL_BY_USER: &[(K, &str)] = &[(K::Me, "scancel --me"), (K::Users, "scancel -u root")];

/// Options of `scancel` that change what it prints.
const SCANCEL_PRINTS: &[Row] = &[
    (K::Verbose, "scancel 9999 2>&1", "scancel -v 9999 2>&1"),
    (K::Quiet, "scancel -v 9999 2>&1", "scancel -v -Q 9999 2>&1"),
    (K::Help, "scancel 9999 2>&1", "scancel --help"),
    (K::Usage, "scancel 9999 2>&1", "scancel --usage"),
    (K::Version, "scancel 9999 2>&1", "scancel --version"),
];

/// Options of `scancel` with tests of their own: signals in `signals.rs`, and the question whether to go on below.
const SCANCEL_APART: &[K] = &[K::Signal, K::BatchOnly, K::Full, K::Confirm];

fn keys(command: Command) -> Vec<K> {
    let printing = |rows: &[Row]| rows.iter().map(|(key, ..)| *key).collect::<Vec<K>>();
    match command {
        Command::Sacct => printing(SACCT),
        Command::Sprio => printing(SPRIO),
        Command::Sshare => printing(SSHARE),
        Command::Sstat => printing(SSTAT),
        Command::Sreport => printing(SREPORT),
        _ => {
            let chosen = SCANCEL.iter().map(|(key, ..)| *key);
            let by_user = SCANCEL_BY_USER.iter().map(|(key, _)| *key);
            let apart = SCANCEL_APART.iter().copied();
            chosen.chain(by_user).chain(apart).chain(printing(SCANCEL_PRINTS)).collect()
        }
    }
}

#[test]
fn every_option_of_a_report_or_of_scancel_that_is_said_to_act_has_a_row() {
    use Command::{Sacct, Scancel, Sprio, Sreport, Sshare, Sstat};
    for command in [Sacct, Scancel, Sprio, Sreport, Sshare, Sstat] {
        let tried = keys(command);
        let acting = table::options(command).map(|spec| spec.key);
        for key in acting.filter(|key| verdict(command, *key) == Verdict::Acts) {
            assert!(tried.contains(&key), "{} {key:?}", command.name());
        }
    }
}

/// The cluster with two accounts, in which root and the user are.
fn started() -> Cluster {
    let cluster = Cluster::up(CONF);
    for line in [
        "add account physics".to_owned(),
        "add account math".to_owned(),
        "add qos high".to_owned(),
        format!("add user {USER} account=physics"),
        "add user root account=physics".to_owned(),
        "add user root account=math".to_owned(),
        "modify user root set qos+=high".to_owned(),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    cluster
}

/// Asserts that each row's option changes what is printed.
pub fn assert_all_act(rows: &[Row], print: &dyn Fn(&str) -> String) {
    let mut idle = Vec::new();
    for &(key, without, with) in rows {
        let before = print(without);
        assert_eq!(before, print(without), "{without}: it changes by itself");
        if print(with) == before {
            idle.push(format!("{key:?}: {with}"));
        }
    }
    assert!(idle.is_empty(), "said to act, and change nothing:\n{}", idle.join("\n"));
}

#[test]
fn root_every_option_of_a_report_that_is_said_to_act_changes_what_is_printed() {
    let cluster = started();
    // Before anything has run: usage grows while something does.
    assert_all_act(SSHARE, &|line: &str| cluster.shell_as(USER, line).ok());
    assert_all_act(SREPORT, &|line: &str| cluster.shell_as(USER, line).ok());

    let again = "-o /dev/null -t 10 --wrap '[ $SLURM_RESTART_COUNT ] || exit 5'";
    let ended = cluster.submit_as(USER, again);
    assert_eq!(cluster.await_end(ended), "COMPLETED|0:0");
    let stepping = "-o /dev/null -t 10 -w node1 --wrap 'srun sleep 600'";
    let steps = [cluster.submit_as(USER, stepping), cluster.submit_as(USER, stepping)];
    let het = "-o /dev/null -t 10 -p main -w node1 : -p other -w node4 --wrap 'sleep 600'";
    let het = cluster.submit_as(USER, het);
    cluster.submit_sleeper("-p main -w node2 --exclusive");
    cluster.submit_sleeper("-p other -w node3 --exclusive");
    let waits = cluster.submit_as(USER, "-o /dev/null -t 10 -p main -w node2 --wrap true");
    cluster.submit_sleeper("-p other -w node3");
    let print = |line: &str| {
        let line = line.replace('@', "-S now-2hours -P -o JobID,JobName,Partition,ReqMem");
        let line = line.replace("WAITS", &waits.to_string());
        let line = line.replace("STEPS", &steps[1].to_string());
        let line = line.replace("STEP", &steps[0].to_string());
        let line = line.replace("ENDED", &ended.to_string()).replace("HET", &het.to_string());
        cluster.shell_as(USER, &line).ok()
    };
    until("the steps run", || {
        let all = cluster.shell("squeue -h -s -o %i").ok();
        steps.iter().all(|job| all.contains(&format!("{job}.0"))).then_some(())
    });
    cluster.await_state(het, "RUNNING");
    until("both jobs that wait have a priority", || {
        (print("sprio -h").lines().count() == 2).then_some(())
    });
    // Times are printed in seconds.
    until("the first of them runs for a second", || (print(CUT) != print(UNCUT)).then_some(()));
    assert_all_act(SACCT, &print);
    assert_all_act(SPRIO, &print);
    assert_all_act(SSTAT, &print);
}

#[test]
fn root_every_option_of_scancel_that_is_said_to_act_chooses_jobs() {
    let cluster = started();
    assert_all_act(SCANCEL_PRINTS, &|line: &str| cluster.shell(line).ok());
    let kept = "reservation=kept users=root starttime=now duration=60 nodes=node4";
    cluster.shell(&format!("scontrol create {kept}")).ok();
    let begins = |job: u32, args: &str| {
        cluster.await_state(job, if args == "-H" { "PENDING" } else { "RUNNING" });
    };
    let ends_alone = |fits: u32, other: u32, line: &str| {
        cluster.shell(line).ok();
        cluster.await_end(fits);
        assert!(cluster.state_of(other).starts_with("RUNNING"), "{line}");
        cluster.shell(&format!("scancel {other}")).ok();
        cluster.await_end(other);
    };
    for &(_, fits, other, line) in SCANCEL {
        let jobs = [fits, other].map(|args| {
            let job = cluster.submit_sleeper(args);
            begins(job, args);
            job
        });
        ends_alone(jobs[0], jobs[1], line);
    }
    for &(_, line) in SCANCEL_BY_USER {
        let own = cluster.submit_sleeper("");
        let anothers = cluster.submit_as(USER, "-o /dev/null --wrap 'sleep 600'");
        [own, anothers].into_iter().for_each(|job| begins(job, ""));
        ends_alone(own, anothers, line);
    }
    let asked = cluster.submit_sleeper("");
    begins(asked, "");
    cluster.shell(&format!("echo n | scancel -i {asked}")).ok();
    assert!(cluster.state_of(asked).starts_with("RUNNING"));
    cluster.shell(&format!("echo y | scancel -i {asked}")).ok();
    cluster.await_end(asked);
}
