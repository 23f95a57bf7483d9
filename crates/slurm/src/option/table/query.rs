//! The options of the commands that show state: `squeue`, `sinfo`, `sprio`, `sshare`, `sdiag`, `sstat`, `seff`.

use super::Arg::{self, Optional, Required};
use super::{OptionSpec, row};
use crate::option::command::{Command, Commands};
use crate::option::key::OptionKey as K;

const QUEUE: Commands = Commands::only(Command::Squeue);
const INFO: Commands = Commands::only(Command::Sinfo);
const PRIO: Commands = Commands::only(Command::Sprio);
const SHARE: Commands = Commands::only(Command::Sshare);
const DIAG: Commands = Commands::only(Command::Sdiag);
const STAT: Commands = Commands::only(Command::Sstat);
const EFF: Commands = Commands::only(Command::Seff);
const QUEUE_INFO: Commands = QUEUE.and(INFO);
const QUEUE_INFO_PRIO: Commands = QUEUE_INFO.and(PRIO);
const QUEUE_PRIO: Commands = QUEUE.and(PRIO);
const SHARE_STAT: Commands = SHARE.and(STAT);

const FLAG: Arg = Arg::None;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    // Which records.
    row(QUEUE.and(SHARE), "accounts", Some('A'), Required("names"), K::Account, "only these accounts"),
    row(QUEUE_INFO, "all", Some('a'), FLAG, K::All, "hidden partitions as well"),
    row(SHARE, "all", Some('a'), FLAG, K::All, "the users of all accounts"),
    row(DIAG, "all", Some('a'), FLAG, K::All, "all statistics (the default)"),
    row(STAT, "allsteps", Some('a'), FLAG, K::AllSteps, "all steps of each job"),
    row(QUEUE_INFO_PRIO.and(SHARE).and(DIAG), "clusters", Some('M'), Required("names"), K::Clusters, "clusters to ask"),
    row(QUEUE_INFO_PRIO.and(SHARE).and(DIAG), "cluster", None, Required("names"), K::Clusters, ""),
    row(INFO, "dead", Some('d'), FLAG, K::Dead, "only nodes that do not answer"),
    row(QUEUE_INFO_PRIO, "federation", None, FLAG, K::Federation, "the whole federation"),
    row(QUEUE_INFO, "hide", None, FLAG, K::Hide, "no hidden partitions"),
    row(QUEUE_PRIO, "jobs", Some('j'), Optional("ids"), K::Jobs, "only these jobs"),
    row(STAT, "jobs", Some('j'), Required("ids"), K::Jobs, "the jobs or steps to show"),
    row(QUEUE, "licenses", Some('L'), Required("names"), K::Licenses, "only jobs that use these licenses"),
    row(QUEUE_INFO_PRIO, "local", None, FLAG, K::Local, "only this cluster"),
    row(QUEUE, "me", None, FLAG, K::Me, "only my own jobs"),
    row(QUEUE, "name", Some('n'), Required("names"), K::Name, "only jobs with these names"),
    row(QUEUE, "nodelist", Some('w'), Required("hosts"), K::Nodelist, "only jobs on these nodes"),
    row(QUEUE, "node", None, Required("hosts"), K::Nodelist, ""),
    row(QUEUE, "nodes", None, Required("hosts"), K::Nodelist, ""),
    row(INFO, "nodes", Some('n'), Required("hosts"), K::Nodelist, "only these nodes"),
    row(QUEUE, "partitions", Some('p'), Required("names"), K::Partition, "only these partitions"),
    row(INFO.and(PRIO), "partition", Some('p'), Required("names"), K::Partition, "only these partitions"),
    row(SHARE, "partition", Some('m'), FLAG, K::WithPartition, "show the associations' partitions"),
    row(QUEUE, "qos", Some('q'), Required("names"), K::Qos, "only jobs with these qualities of service"),
    row(QUEUE, "reservation", Some('R'), Required("name"), K::Reservation, "only jobs in this reservation"),
    row(INFO, "reservation", Some('T'), FLAG, K::Reservations, "show the reservations"),
    row(INFO, "responding", Some('r'), FLAG, K::Responding, "only nodes that answer"),
    row(QUEUE_PRIO, "sibling", None, FLAG, K::Sibling, "each cluster's record of a federated job"),
    row(QUEUE_PRIO, "sib", None, FLAG, K::Sibling, ""),
    row(QUEUE_INFO, "states", Some('t'), Required("states"), K::States, "only what is in these states, or all"),
    row(QUEUE, "steps", Some('s'), Optional("ids"), K::Steps, "show steps, all or these"),
    row(QUEUE_PRIO, "user", Some('u'), Required("names"), K::Users, "only jobs of these users"),
    row(QUEUE, "users", None, Required("names"), K::Users, ""),
    row(SHARE, "users", Some('u'), Required("names"), K::Users, "only these users"),
    row(SHARE, "Users", Some('U'), FLAG, K::UsersOnly, "only the users' rows"),
    // How they are shown.
    row(QUEUE, "array", Some('r'), FLAG, K::ArrayExpanded, "one line for each task of an array"),
    row(QUEUE, "array-unique", None, FLAG, K::ArrayUnique, "one line for each pending task of an array"),
    row(INFO, "exact", Some('e'), FLAG, K::ExactMatch, "group only nodes that are exactly alike"),
    row(QUEUE_INFO_PRIO.and(SHARE_STAT), "format", Some('o'), Required("format"), K::Format, "columns to show"),
    row(STAT, "fields", None, Required("format"), K::Format, ""),
    row(QUEUE_INFO, "Format", Some('O'), Required("fields"), K::LongFormat, "columns to show, by their long names"),
    row(SHARE_STAT, "helpformat", Some('e'), FLAG, K::HelpFormat, "list the columns there are"),
    row(QUEUE_INFO, "iterate", Some('i'), Required("seconds"), K::Iterate, "show again every so many seconds"),
    row(QUEUE_INFO, "json", None, FLAG, K::Json, "as JSON"),
    row(INFO, "list-reasons", Some('R'), FLAG, K::ListReasons, "why nodes are down or drained"),
    row(QUEUE_INFO_PRIO.and(SHARE), "long", Some('l'), FLAG, K::Long, "more columns"),
    row(QUEUE_INFO.and(STAT), "noconvert", None, FLAG, K::Noconvert, "leave amounts in their own units"),
    row(INFO, "Node", Some('N'), FLAG, K::NodeCentric, "one line per node"),
    row(QUEUE_INFO_PRIO, "noheader", Some('h'), FLAG, K::Noheader, "no header line"),
    row(SHARE_STAT, "noheader", Some('n'), FLAG, K::Noheader, "no header line"),
    row(SHARE, "", Some('h'), FLAG, K::Noheader, ""),
    row(PRIO, "norm", Some('n'), FLAG, K::Norm, "factors between 0 and 1"),
    row(SHARE_STAT, "parsable", Some('p'), FLAG, K::Parsable, "fields separated and ended by |"),
    row(SHARE_STAT, "parsable2", Some('P'), FLAG, K::Parsable2, "fields separated by |"),
    row(STAT, "pidformat", Some('i'), FLAG, K::PidFormat, "the processes of each step"),
    row(QUEUE, "priority", Some('P'), FLAG, K::ByPriority, "a line for each partition of a pending job, by priority"),
    row(DIAG, "reset", Some('r'), FLAG, K::Reset, "set the counters back"),
    row(QUEUE_INFO_PRIO, "sort", Some('S'), Required("fields"), K::Sort, "order of the lines"),
    row(DIAG, "sort-by-id", Some('i'), FLAG, K::SortById, "requests by number"),
    row(DIAG, "sort-by-time", Some('t'), FLAG, K::SortByTime, "requests by total time"),
    row(DIAG, "sort-by-time2", Some('T'), FLAG, K::SortByTime2, "requests by mean time"),
    row(QUEUE, "start", None, FLAG, K::Start, "when pending jobs are expected to start"),
    row(INFO, "summarize", Some('s'), FLAG, K::Summarize, "one line per partition, counts only"),
    row(PRIO, "weights", Some('w'), FLAG, K::Weights, "the weight of each factor"),
    row(QUEUE_INFO, "yaml", None, FLAG, K::Yaml, "as YAML"),
    // About the command itself.
    row(QUEUE_INFO_PRIO.and(SHARE_STAT), "verbose", Some('v'), FLAG, K::Verbose, "say more; may be repeated"),
    row(QUEUE_INFO_PRIO, "help", None, FLAG, K::Help, "print this and end"),
    row(SHARE, "help", None, FLAG, K::Help, "print this and end"),
    row(STAT.and(DIAG).and(EFF), "help", Some('h'), FLAG, K::Help, "print this and end"),
    row(QUEUE_INFO_PRIO.and(SHARE_STAT).and(DIAG).and(EFF), "usage", None, FLAG, K::Usage, "print a summary of the usage and end"),
    row(QUEUE_INFO_PRIO.and(SHARE_STAT).and(DIAG).and(EFF), "version", Some('V'), FLAG, K::Version, "print the version and end"),
];
