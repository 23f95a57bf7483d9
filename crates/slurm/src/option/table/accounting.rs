//! The options of the commands on the books: `sacct`, `sacctmgr`, `sreport`.

use super::Arg::{self, Optional, Required};
use super::{OptionSpec, row};
use crate::option::command::{Command, Commands};
use crate::option::key::OptionKey as K;

const ACCT: Commands = Commands::only(Command::Sacct);
const MGR: Commands = Commands::only(Command::Sacctmgr);
const REPORT: Commands = Commands::only(Command::Sreport);
const ACCT_REPORT: Commands = ACCT.and(REPORT);
const MGR_REPORT: Commands = MGR.and(REPORT);
const EACH: Commands = ACCT.and(MGR).and(REPORT);

const FLAG: Arg = Arg::None;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    // Which records.
    row(ACCT, "accounts", Some('A'), Required("names"), K::Account, "only these accounts"),
    row(ACCT, "allclusters", Some('L'), FLAG, K::AllClusters, "jobs of all clusters"),
    row(REPORT, "all_clusters", Some('a'), FLAG, K::AllClusters, "all clusters"),
    row(ACCT, "allocations", Some('X'), FLAG, K::AllocationsOnly, "jobs only, no steps"),
    row(ACCT, "allusers", Some('a'), FLAG, K::AllUsers, "jobs of all users"),
    row(ACCT, "associations", Some('x'), Required("ids"), K::Associations, "only these associations"),
    row(MGR, "associations", Some('s'), FLAG, K::Associations, "show associations with each entity"),
    row(ACCT, "clusters", Some('M'), Required("names"), K::Clusters, "only these clusters"),
    row(ACCT, "cluster", None, Required("names"), K::Clusters, ""),
    row(REPORT, "cluster", Some('M'), Required("names"), K::Clusters, "only these clusters"),
    row(ACCT, "completion", Some('c'), FLAG, K::Completion, "read the completion log instead of the books"),
    row(ACCT, "constraints", Some('C'), Required("features"), K::Constraint, "only jobs that asked for these features"),
    row(ACCT, "duplicates", Some('D'), FLAG, K::Duplicates, "every attempt of a job"),
    row(ACCT, "endtime", Some('E'), Required("time"), K::EndTime, "jobs before this time"),
    row(ACCT_REPORT, "federation", None, FLAG, K::Federation, "the whole federation"),
    row(ACCT, "file", Some('f'), Required("file"), K::File, "completion log to read"),
    row(ACCT, "flags", Some('F'), Required("flags"), K::Flags, "only jobs that were scheduled this way"),
    row(ACCT, "gid", Some('g'), Required("groups"), K::Groups, "only jobs of these groups"),
    row(ACCT, "group", None, Required("groups"), K::Groups, ""),
    row(ACCT, "jobs", Some('j'), Required("ids"), K::Jobs, "only these jobs or steps"),
    row(ACCT_REPORT, "local", None, FLAG, K::Local, "only this cluster"),
    row(ACCT, "name", None, Required("names"), K::Name, "only jobs with these names"),
    row(ACCT, "ncpus", Some('I'), Required("min[-max]"), K::Ncpus, "only jobs with this many CPUs"),
    row(ACCT, "nnodes", Some('i'), Required("min[-max]"), K::Nnodes, "only jobs with this many nodes"),
    row(ACCT, "nodelist", Some('N'), Required("hosts"), K::Nodelist, "only jobs that ran on these nodes"),
    row(ACCT, "partition", Some('r'), Required("names"), K::Partition, "only these partitions"),
    row(ACCT, "qos", Some('q'), Required("names"), K::Qos, "only these qualities of service"),
    row(ACCT, "reason", Some('R'), Required("reasons"), K::Reason, "only jobs that waited for these reasons"),
    row(ACCT, "starttime", Some('S'), Required("time"), K::StartTime, "jobs after this time; by default since midnight"),
    row(ACCT, "state", Some('s'), Required("states"), K::States, "only jobs in these states"),
    row(ACCT, "timelimit-max", Some('K'), Required("limit"), K::TimelimitMax, "time limit at most"),
    row(ACCT, "timelimit-min", Some('k'), Required("limit"), K::TimelimitMin, "time limit at least, or exactly"),
    row(ACCT, "truncate", Some('T'), FLAG, K::Truncate, "cut times at the asked period"),
    row(ACCT, "user", Some('u'), Required("users"), K::Users, "only jobs of these users"),
    row(ACCT, "uid", None, Required("users"), K::Users, ""),
    row(ACCT, "use-local-uid", None, FLAG, K::UseLocalUid, "names of this machine for user ids"),
    row(ACCT, "wckeys", Some('W'), Required("keys"), K::Wckey, "only these workload keys"),
    row(ACCT, "whole-hetjob", None, Optional("yes|no"), K::WholeHetjob, "all components of a heterogeneous job"),
    // How they are shown.
    row(ACCT, "batch-script", Some('B'), FLAG, K::BatchScript, "print the job's script"),
    row(ACCT, "brief", Some('b'), FLAG, K::Brief, "job id, state and exit code only"),
    row(ACCT, "delimiter", None, Required("text"), K::Delimiter, "separator for -p and -P instead of |"),
    row(ACCT, "env-vars", None, FLAG, K::EnvVars, "print the job's environment"),
    row(ACCT, "format", Some('o'), Required("fields"), K::Format, "columns to show"),
    row(ACCT, "fields", None, Required("fields"), K::Format, ""),
    row(ACCT, "helpformat", Some('e'), FLAG, K::HelpFormat, "list the columns there are"),
    row(MGR_REPORT, "immediate", Some('i'), FLAG, K::Immediate, "change without asking"),
    row(ACCT, "json", None, FLAG, K::Json, "as JSON"),
    row(ACCT, "long", Some('l'), FLAG, K::Long, "all the usual columns"),
    row(ACCT, "noconvert", None, FLAG, K::Noconvert, "leave amounts in their own units"),
    row(EACH, "noheader", Some('n'), FLAG, K::Noheader, "no header line"),
    row(MGR, "oneliner", Some('o'), FLAG, K::Oneliner, "one line per record"),
    row(EACH, "parsable", Some('p'), FLAG, K::Parsable, "fields separated and ended by |"),
    row(EACH, "parsable2", Some('P'), FLAG, K::Parsable2, "fields separated by |"),
    row(MGR_REPORT, "quiet", Some('Q'), FLAG, K::Quiet, "print errors only"),
    row(MGR, "readonly", Some('r'), FLAG, K::ReadOnly, "refuse changes"),
    row(REPORT, "", Some('t'), Required("format"), K::TimeFormat, "unit of time: Second, Minute, Hour, Percent, SecPer, MinPer, HourPer"),
    row(REPORT, "tres", Some('T'), Required("names"), K::Tres, "resources to report on, or ALL"),
    row(ACCT, "units", None, Required("K|M|G|T|P"), K::Units, "unit of amounts"),
    row(ACCT, "yaml", None, FLAG, K::Yaml, "as YAML"),
    // About the command itself.
    row(EACH, "verbose", Some('v'), FLAG, K::Verbose, "say more; may be repeated"),
    row(EACH, "help", Some('h'), FLAG, K::Help, "print this and end"),
    row(EACH, "usage", None, FLAG, K::Usage, "print a summary of the usage and end"),
    row(EACH, "version", Some('V'), FLAG, K::Version, "print the version and end"),
];
