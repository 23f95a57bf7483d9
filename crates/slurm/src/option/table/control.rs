//! The options of the commands that act on jobs and nodes: `scancel`, `scontrol`, `sattach`, `sbcast`, `strigger`.

use super::Arg::{self, Optional, Required};
use super::{OptionSpec, row};
use crate::option::command::{Command, Commands};
use crate::option::key::{OptionKey as K, TriggerEvent as E};

const CANCEL: Commands = Commands::only(Command::Scancel);
const CONTROL: Commands = Commands::only(Command::Scontrol);
const ATTACH: Commands = Commands::only(Command::Sattach);
const BCAST: Commands = Commands::only(Command::Sbcast);
const TRIGGER: Commands = Commands::only(Command::Strigger);
const EACH: Commands = CANCEL.and(CONTROL).and(ATTACH).and(BCAST).and(TRIGGER);

const FLAG: Arg = Arg::None;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    // scancel
    row(CANCEL, "account", Some('A'), Required("name"), K::Account, "only jobs charged to this account"),
    row(CANCEL, "batch", Some('b'), FLAG, K::BatchOnly, "signal the batch script only"),
    row(CANCEL.and(CONTROL), "clusters", Some('M'), Required("names"), K::Clusters, "clusters to act on"),
    row(CANCEL.and(CONTROL), "cluster", None, Required("names"), K::Clusters, ""),
    row(CANCEL, "ctld", None, FLAG, K::Ctld, "send the request through the server"),
    row(CANCEL, "full", Some('f'), FLAG, K::Full, "signal the batch script and all steps"),
    row(CANCEL, "hurry", Some('H'), FLAG, K::Hurry, "do not stage data out"),
    row(CANCEL, "interactive", Some('i'), FLAG, K::Confirm, "ask before each job"),
    row(CANCEL, "me", None, FLAG, K::Me, "only my own jobs"),
    row(CANCEL, "name", Some('n'), Required("name"), K::Name, "only jobs with this name"),
    row(CANCEL, "jobname", None, Required("name"), K::Name, ""),
    row(CANCEL, "nodelist", Some('w'), Required("hosts"), K::Nodelist, "only jobs on these nodes"),
    row(CANCEL, "partition", Some('p'), Required("name"), K::Partition, "only jobs in this partition"),
    row(CANCEL, "qos", Some('q'), Required("name"), K::Qos, "only jobs with this quality of service"),
    row(CANCEL, "reservation", Some('R'), Required("name"), K::Reservation, "only jobs in this reservation"),
    row(CANCEL, "sibling", None, Required("cluster"), K::Sibling, "remove a federated job's sibling"),
    row(CANCEL, "signal", Some('s'), Required("signal"), K::Signal, "send this signal instead of ending the job"),
    row(CANCEL, "state", Some('t'), Required("states"), K::States, "only PENDING, RUNNING or SUSPENDED jobs"),
    row(CANCEL, "user", Some('u'), Required("name"), K::Users, "only jobs of this user"),
    row(CANCEL, "wckey", None, Required("key"), K::Wckey, "only jobs with this workload key"),
    // scontrol
    row(CONTROL, "all", Some('a'), FLAG, K::All, "hidden partitions as well"),
    row(CONTROL, "details", Some('d'), FLAG, K::Details, "more about each job"),
    row(CONTROL, "federation", None, FLAG, K::Federation, "the whole federation"),
    row(CONTROL, "future", Some('F'), FLAG, K::Future, "nodes in FUTURE state as well"),
    row(CONTROL, "hide", None, FLAG, K::Hide, "no hidden partitions"),
    row(CONTROL, "local", None, FLAG, K::Local, "only this cluster"),
    row(CONTROL, "oneliner", Some('o'), FLAG, K::Oneliner, "one line per record"),
    row(CONTROL, "sibling", None, FLAG, K::Sibling, "each cluster's record of a federated job"),
    row(CONTROL, "uid", Some('u'), Required("user"), K::AsUser, "act as this user (operators only)"),
    // sattach
    row(ATTACH, "error-filter", None, Required("task"), K::ErrorFilter, "standard error of this task only"),
    row(ATTACH, "input-filter", None, Required("task"), K::InputFilter, "standard input to this task only"),
    row(ATTACH, "output-filter", None, Required("task"), K::OutputFilter, "standard output of this task only"),
    row(ATTACH, "label", Some('l'), FLAG, K::Label, "put the task's number before each line"),
    row(ATTACH, "layout", None, FLAG, K::Layout, "print where the tasks are and end"),
    row(ATTACH, "pty", None, FLAG, K::Pty, "attach to a pseudo terminal"),
    row(ATTACH, "debugger-test", None, FLAG, K::DebuggerTest, ""),
    // sbcast
    row(BCAST, "compress", Some('C'), Optional("library"), K::Compress, "compress what is sent"),
    row(BCAST, "exclude", None, Required("paths"), K::BcastExclude, "libraries that are not sent"),
    row(BCAST, "fanout", Some('F'), Required("count"), K::Fanout, "how many nodes are sent to at once"),
    row(BCAST, "force", Some('f'), FLAG, K::Force, "overwrite the destination"),
    row(BCAST, "jobid", Some('j'), Required("id"), K::JobId, "the job whose nodes get the file"),
    row(BCAST, "preserve", Some('p'), FLAG, K::Preserve, "keep times and mode"),
    row(BCAST, "send-libs", None, Optional("yes|no"), K::SendLibs, "send the program's libraries as well"),
    row(BCAST, "size", Some('s'), Required("bytes"), K::BlockSize, "size of a block"),
    row(BCAST, "timeout", Some('t'), Required("secs"), K::Timeout, "how long to wait for an answer"),
    // strigger
    row(TRIGGER, "set", None, FLAG, K::TriggerSet, "make a trigger"),
    row(TRIGGER, "get", None, FLAG, K::TriggerGet, "show triggers"),
    row(TRIGGER, "clear", None, FLAG, K::TriggerClear, "remove triggers"),
    row(TRIGGER, "burst_buffer", None, FLAG, K::TriggerEvent(E::BurstBuffer), "on a burst buffer's error"),
    row(TRIGGER, "front_end", None, FLAG, K::TriggerEvent(E::FrontEnd), "on a front end's change of state"),
    row(TRIGGER, "primary_slurmctld_failure", Some('a'), FLAG, K::TriggerEvent(E::PrimarySlurmctldFailure), "when the server fails"),
    row(TRIGGER, "primary_slurmctld_resumed_operation", Some('A'), FLAG, K::TriggerEvent(E::PrimarySlurmctldResumedOperation), "when the server is back"),
    row(TRIGGER, "primary_slurmctld_resumed_control", Some('b'), FLAG, K::TriggerEvent(E::PrimarySlurmctldResumedControl), "when the server leads again"),
    row(TRIGGER, "backup_slurmctld_failure", Some('B'), FLAG, K::TriggerEvent(E::BackupSlurmctldFailure), "when a standby fails"),
    row(TRIGGER, "backup_slurmctld_resumed_operation", Some('c'), FLAG, K::TriggerEvent(E::BackupSlurmctldResumedOperation), "when a standby is back"),
    row(TRIGGER, "backup_slurmctld_assumed_control", Some('C'), FLAG, K::TriggerEvent(E::BackupSlurmctldAssumedControl), "when a standby takes over"),
    row(TRIGGER, "down", Some('d'), FLAG, K::TriggerEvent(E::NodeDown), "when a node goes DOWN"),
    row(TRIGGER, "drained", Some('D'), FLAG, K::TriggerEvent(E::NodeDrained), "when a node is DRAINED"),
    row(TRIGGER, "primary_slurmctld_acct_buffer_full", Some('e'), FLAG, K::TriggerEvent(E::PrimarySlurmctldAcctBufferFull), "when the books cannot be written"),
    row(TRIGGER, "fail", Some('F'), FLAG, K::TriggerEvent(E::NodeFail), "when a node is about to fail"),
    row(TRIGGER, "fini", Some('f'), FLAG, K::TriggerEvent(E::JobFini), "when the job ends"),
    row(TRIGGER, "flags", None, Required("perm"), K::Flags, "perm keeps the trigger after it has fired"),
    row(TRIGGER, "primary_slurmdbd_failure", Some('g'), FLAG, K::TriggerEvent(E::PrimarySlurmdbdFailure), "when the books' server fails"),
    row(TRIGGER, "primary_slurmdbd_resumed_operation", Some('G'), FLAG, K::TriggerEvent(E::PrimarySlurmdbdResumedOperation), "when the books' server is back"),
    row(TRIGGER, "primary_database_failure", Some('h'), FLAG, K::TriggerEvent(E::PrimaryDatabaseFailure), "when the database fails"),
    row(TRIGGER, "primary_database_resumed_operation", Some('H'), FLAG, K::TriggerEvent(E::PrimaryDatabaseResumedOperation), "when the database is back"),
    row(TRIGGER, "id", Some('i'), Required("id"), K::TriggerId, "the trigger's number"),
    row(TRIGGER, "idle", Some('I'), FLAG, K::TriggerEvent(E::NodeIdle), "when a node stays IDLE"),
    row(TRIGGER, "jobid", Some('j'), Required("id"), K::JobId, "the job it is about"),
    row(TRIGGER, "cluster", Some('M'), Required("name"), K::Clusters, "the cluster to act on"),
    row(TRIGGER, "node", Some('n'), Optional("hosts"), K::Nodelist, "the nodes it is about, all by default"),
    row(TRIGGER, "noheader", Some('N'), FLAG, K::Noheader, "no header line"),
    row(TRIGGER, "offset", Some('o'), Required("secs"), K::Offset, "fire so much after the event, or before it"),
    row(TRIGGER, "program", Some('p'), Required("path"), K::Program, "the program to run"),
    row(TRIGGER, "reconfig", Some('r'), FLAG, K::TriggerEvent(E::Reconfig), "when the configuration is read again"),
    row(TRIGGER, "time", Some('t'), FLAG, K::TriggerEvent(E::JobTimeLimit), "when the job reaches its time limit"),
    row(TRIGGER, "up", Some('u'), FLAG, K::TriggerEvent(E::NodeUp), "when a node comes back"),
    row(TRIGGER, "user", None, Required("name"), K::Users, "only triggers of this user"),
    // About the command itself.
    row(CANCEL.and(CONTROL).and(ATTACH).and(TRIGGER), "quiet", Some('Q'), FLAG, K::Quiet, "print errors only"),
    row(EACH, "verbose", Some('v'), FLAG, K::Verbose, "say more; may be repeated"),
    row(CONTROL.and(ATTACH), "help", Some('h'), FLAG, K::Help, "print this and end"),
    row(CANCEL.and(BCAST).and(TRIGGER), "help", None, FLAG, K::Help, "print this and end"),
    row(CANCEL.and(CONTROL).and(BCAST).and(TRIGGER), "usage", None, FLAG, K::Usage, "print a summary of the usage and end"),
    row(ATTACH, "usage", Some('u'), FLAG, K::Usage, "print a summary of the usage and end"),
    row(EACH, "version", Some('V'), FLAG, K::Version, "print the version and end"),
];
