//! Every option of `squeue` and `sinfo` that is said to act changes what they print.

use crate::harness::Cluster;
use slurm::option::table::{self, Verdict, verdict};
use slurm::option::{Command, OptionKey as K};

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AuthInfo=cred_expire=0
DefMemPerCPU=16
KillWait=1
Licenses=matlab:4
NodeName=node[1-2] CPUs=4 RealMemory=4000
NodeName=node3 CPUs=2 RealMemory=4000
NodeName=node4 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node[1-2] Default=YES State=UP
PartitionName=other Nodes=node[3-4] State=UP
PartitionName=secret Nodes=node4 Hidden=YES State=UP
";

/// A user beside root.
const USER: &str = "daemon";

/// An option, a line without it, and one with it. No line prints a time that passes. `@` is a format without one.
type Row = (K, &'static str, &'static str);

const SQUEUE: &[Row] = &[
    (K::Account, "squeue @", "squeue @ -A physics"),
    (K::Jobs, "squeue @", "squeue @ -j 1"),
    (K::Licenses, "squeue @", "squeue @ -L matlab"),
    (K::Me, "squeue @", "squeue @ --me"),
    (K::Name, "squeue @", "squeue @ -n first"),
    (K::Nodelist, "squeue @", "squeue @ -w node1"),
    (K::Partition, "squeue @", "squeue @ -p other"),
    (K::Qos, "squeue @", "squeue @ -q high"),
    (K::Reservation, "squeue @", "squeue @ -R none"),
    (K::States, "squeue @", "squeue @ -t PD"),
    (K::Steps, "squeue -h -t PD", "squeue -h -t PD -s"),
    (K::Users, "squeue @", "squeue @ -u daemon"),
    (K::ArrayExpanded, "squeue @", "squeue @ -r"),
    (K::Format, "squeue -t PD", "squeue -t PD -o %i"),
    (K::LongFormat, "squeue -t PD", "squeue -t PD -O JobID"),
    (K::Iterate, "squeue @", "timeout 3 squeue @ -i 1; true"),
    (K::Json, "squeue -t PD", "squeue -t PD --json"),
    (K::Long, "squeue -t PD", "squeue -t PD -l"),
    (K::ByPriority, "squeue @", "squeue @ -P"),
    (K::Noheader, "squeue @", "squeue @ -h"),
    (K::Sort, "squeue @ --sort=i", "squeue @ --sort=-i"),
    (K::Start, "squeue @", "squeue @ --start"),
    (K::Help, "squeue -t PD", "squeue --help"),
    (K::Usage, "squeue -t PD", "squeue --usage"),
    (K::Version, "squeue -t PD", "squeue --version"),
];

const SINFO: &[Row] = &[
    (K::All, "sinfo", "sinfo -a"),
    (K::Dead, "sinfo", "sinfo -d"),
    (K::Nodelist, "sinfo", "sinfo -n node1"),
    (K::Partition, "sinfo", "sinfo -p other"),
    (K::Reservations, "sinfo", "sinfo -T"),
    (K::States, "sinfo", "sinfo -t drain"),
    (K::ExactMatch, "sinfo -p other -o '%c %D'", "sinfo -p other -o '%c %D' -e"),
    (K::Format, "sinfo", "sinfo -o %N"),
    (K::LongFormat, "sinfo", "sinfo -O NodeList"),
    (K::Iterate, "sinfo", "timeout 3 sinfo -i 1; true"),
    (K::Json, "sinfo", "sinfo --json"),
    (K::ListReasons, "sinfo", "sinfo -R"),
    (K::Long, "sinfo", "sinfo -l"),
    (K::NodeCentric, "sinfo", "sinfo -N"),
    (K::Noheader, "sinfo", "sinfo -h"),
    (K::Sort, "sinfo -N -o %N --sort=N", "sinfo -N -o %N --sort=-N"),
    (K::Summarize, "sinfo", "sinfo -s"),
    (K::Help, "sinfo", "sinfo --help"),
    (K::Usage, "sinfo", "sinfo --usage"),
    (K::Version, "sinfo", "sinfo --version"),
];

/// Options that act only where a node does not answer, which is not so here.
const OF_LOST_NODES: &[K] = &[K::Responding];

fn rows(command: Command) -> &'static [Row] {
    if command == Command::Squeue { SQUEUE } else { SINFO }
}

#[test]
fn every_option_of_a_view_that_is_said_to_act_has_a_row() {
    for command in [Command::Squeue, Command::Sinfo] {
        let acting = table::options(command).map(|spec| spec.key);
        let acting = acting.filter(|key| verdict(command, *key) == Verdict::Acts);
        for key in acting.filter(|key| !OF_LOST_NODES.contains(key)) {
            let is_tried = rows(command).iter().any(|(of, ..)| *of == key);
            assert!(is_tried, "{} {key:?}", command.name());
        }
    }
}

#[test]
fn root_every_option_of_squeue_and_sinfo_that_is_said_to_act_changes_what_they_print() {
    let cluster = Cluster::up(CONF);
    for line in ["add account physics", "add qos high"] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let sleeper = "-o /dev/null --wrap 'sleep 600'";
    let first = cluster.submit_sleeper("-J first -p main -w node1");
    let licensed = cluster.submit_sleeper("-J second -p other -w node3 -L matlab:1");
    let anothers = cluster.submit_as(USER, &format!("-J third -p main -w node1 {sleeper}"));
    assert_eq!(first, 1);
    for job in [first, licensed, anothers] {
        cluster.await_state(job, "RUNNING");
    }
    cluster.submit_sleeper("-J many -H --array=1-3");
    cluster.submit_sleeper("-J both --begin=now+1hour -p main,other");
    cluster.shell("scontrol update NodeName=node2 State=DRAIN Reason=fan").ok();

    let mut idle = Vec::new();
    for &(key, without, with) in SQUEUE.iter().chain(SINFO) {
        let print = |line: &str| {
            // As an ordinary user: an administrator is shown what is hidden.
            let line = line.replace('@', "-o '%i %j %P %T %N'");
            cluster.shell_as(USER, &line).ok()
        };
        let before = print(without);
        assert_eq!(before, print(without), "{without}: it changes by itself");
        if print(with) == before {
            idle.push(format!("{key:?}: {with}"));
        }
    }
    assert!(idle.is_empty(), "said to act, and change nothing:\n{}", idle.join("\n"));
}
