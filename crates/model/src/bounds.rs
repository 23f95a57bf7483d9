//! The bounds of what users, jobs and nodes may send, in one table. docs/limits.md has the same rows; a test of the server
//! compares them.

use crate::array::RANGES_MAX;
use crate::load::SAMPLES_MAX;
use crate::reason::Refusal;

/// One bound: what it holds, how much, and Slurm's own where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// What a refusal calls it.
    pub what: &'static str,
    pub most: usize,
    pub unit: Unit,
    /// Slurm's own bound, or why this one was chosen.
    pub slurm: &'static str,
}

impl Bound {
    /// Refuses more than the bound.
    pub fn hold(self, found: usize) -> Result<(), Refusal> {
        if found <= self.most {
            return Ok(());
        }
        Err(Refusal::InvalidValue {
            what: self.what.into(),
            value: format!("{found} {}", self.unit.word()),
            expected: format!("at most {} {}", self.most, self.unit.word()),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Items,
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Items => "items",
        }
    }
}

const fn bytes(what: &'static str, most: usize, slurm: &'static str) -> Bound {
    Bound { what, most, unit: Unit::Bytes, slurm }
}

const fn items(what: &'static str, most: usize, slurm: &'static str) -> Bound {
    Bound { what, most, unit: Unit::Items, slurm }
}

pub const REQUEST_BYTES: Bound = bytes("a request", 16 << 20, "");
pub const REQUEST_TEXT_BYTES: Bound =
    bytes("all texts of a request without script, environment and arguments", 1 << 20, "");
pub const SCRIPT_BYTES: Bound = bytes("script", 4 << 20, "`max_script_size`, 4 MiB");
pub const ENVIRONMENT_BYTES: Bound = bytes("environment", 12 << 20, "");
pub const ARGUMENT_BYTES: Bound = bytes("an argument of a program", 128 << 10, "");
pub const JOB_NAME_BYTES: Bound = bytes("name", 1024, "1,024 characters");
pub const COMMENT_BYTES: Bound = bytes("comment", 4096, "");
pub const SUBMIT_LINE_BYTES: Bound = bytes("submit line", 16 << 10, "");
pub const CONFIGURATION_BYTES: Bound = bytes("a configuration file", 8 << 20, "");
pub const TEXT_BYTES: Bound = bytes("any other text", 16 << 10, "");
pub const LIST_ITEMS: Bound = items("a list", 65_536, "");
pub const NODES: Bound = items("nodes of a job", 65_536, "");
pub const ARRAY_RANGES: Bound =
    items("ranges of an array's indices", RANGES_MAX, "`MaxArraySize`, at most 4000001 indices");
pub const REQUEST_KINDS: Bound =
    items("partitions, licenses, kinds of GRES or of devices that one request names", 256, "");
pub const LIMITED_KINDS: Bound =
    items("kinds of resources in one limit of a QOS or an association", 1000, "");
pub const MACHINE_NAMES: Bound =
    items("backends, regions, zones or types of machines that one request names", 1024, "");
pub const NODE_COUNTS: Bound = items("node counts that one request names", 4096, "");
pub const CONSTRAINT_PARTS: Bound = items("features of a constraint, and marks between", 2048, "");
pub const DEPENDENCY_ITEMS: Bound = items("dependency", 4096, "");
pub const USER_DEPENDENCIES: Bound = items(
    "jobs that one user's waiting jobs wait for, each task with `aftercorr` counted",
    100_000,
    "",
);
pub const ALL_DEPENDENCIES: Bound =
    items("the same of all jobs, an eighth of it for root and operators", 2_000_000, "");
pub const RUN_NAMES: Bound = items("runs to stop or delete in one call", 1000, "");
pub const EVENT_IDS: Bound = items("ids in a filter of events", 1000, "");
pub const SECRET_VARIABLES: Bound = items("variables of a job with secrets", 1000, "");
pub const PROJECT_MEMBERS: Bound = items("members of a project", 1000, "");
pub const ACTIVITIES: Bound = items("events beside those of runs", 1000, "");
pub const KEPT_ACTIVITIES: Bound =
    items("entries of the audit trail in the books", 500_000, "`PurgeTXNAfter`, `PurgeEventAfter`");
pub const DELETED_ENTRIES: Bound =
    items("deleted accounts, associations and QOS that are kept, of each", 1000, "");
pub const USAGE_SAMPLES: Bound =
    items("samples of a running job in an answer of a node", SAMPLES_MAX + 1, "");
pub const STEPS: Bound = items("steps of a job", 40_000, "`MaxStepCount`, 40000");
pub const RECORD_STEP_TEXT_BYTES: Bound =
    bytes("names and submit lines of a job's steps that its record has whole", 8 << 20, "");
pub const CUT_STEP_NAME_BYTES: Bound = bytes("a name of the steps beyond that", 64, "");
pub const CUT_STEP_LINE_BYTES: Bound = bytes("a submit line of the steps beyond that", 256, "");
pub const OPEN_STEPS_BYTES: Bound = bytes("records of a job's running steps", 12 << 20, "");
pub const LAUNCHES_BYTES: Bound =
    bytes("launches of a job's steps on their way to its nodes", 256 << 20, "");
pub const USER_LAUNCHES_BYTES: Bound =
    bytes("launches of one user's steps on their way to nodes", 1 << 30, "");
pub const USER_TEXT_BYTES: Bound = bytes("texts of one user's jobs in memory", 512 << 20, "");
pub const ALL_TEXT_BYTES: Bound = bytes("texts of all jobs in memory", 4 << 30, "");
pub const USER_BLOB_BYTES: Bound =
    bytes("scripts and environments of one user's jobs in memory", 2 << 30, "");
pub const ALL_BLOB_BYTES: Bound =
    bytes("scripts and environments of all jobs in memory", 32 << 30, "");
pub const USER_BOOKS_BYTES: Bound =
    bytes("records of one user's ended jobs in the books at once, and then in a day", 32 << 30, "");
pub const BOOKS_RESERVE_BYTES: Bound =
    bytes("disk of the books that is kept, or a twentieth of it", 4 << 30, "");
pub const WAITING_CALLS: Bound = items("calls of one user that wait for a job", 2000, "");
pub const LONG_CALLS: Bound = items(
    "calls of one user that read the books or have a plan made, those that wait for it with them",
    256,
    "",
);
pub const LOG_READERS: Bound = items("kept logs that one user reads at once", 256, "");
pub const JOB_INPUT_BYTES: Bound =
    bytes("input of a job's steps that its tasks on one node have not read", 128 << 20, "");
pub const TOKENS: Bound = items("tokens of one user", 100, "");
pub const JOIN_TOKENS: Bound = items("join tokens that wait to be used", 65_536, "");
pub const TOKEN_NAME_BYTES: Bound = bytes("token name", 64, "");
pub const NODE_NAME_BYTES: Bound = bytes("name of a dynamic node", 63, "");
pub const FLEETS: Bound = items("fleets over SSH", 1000, "");
pub const FLEET_HOSTS: Bound = items("hosts of a fleet", 10_000, "");
pub const FLEET_INSTANCES: Bound =
    items("machines that a fleet has where nothing runs", 10_000, "");
pub const SECRETS: Bound = items("secrets of a project", 1000, "");
pub const SECRET_BYTES: Bound = bytes("the value of a secret", 16 << 10, "");
pub const BACKENDS: Bound = items("backends of all projects", 64, "");
pub const BACKEND_BYTES: Bound = bytes("the configuration of a backend", 64 << 10, "");
pub const VOLUMES: Bound = items("volumes of a project", 1000, "");
pub const USER_VOLUMES: Bound = items("volumes of one user in a project", 100, "");
pub const TRIGGERS: Bound = items("triggers of one user", 100, "");
pub const TRIGGER_PROGRAM_BYTES: Bound = bytes("the program of a trigger", 1024, "");
pub const JOB_VOLUMES: Bound = items("volumes of a job", 32, "");
pub const INSTANCE_VOLUMES: Bound =
    items("folders of one user on a node for `instance: true`", 32, "");
pub const ARCHIVE_BYTES: Bound =
    bytes("an archive of files or a repository's changes", 4 << 20, "");
pub const ARCHIVE_ENTRIES: Bound = items("entries of an archive of files", 8192, "");
pub const ARCHIVE_PATH_BYTES: Bound = bytes("a path in an archive of files", 4096, "");
pub const ARCHIVE_PATH_PARTS: Bound = items("folders of a path in an archive of files", 64, "");
pub const FILES: Bound = items("`files` of a run", 1000, "");
pub const WORKSPACE_BYTES: Bound =
    bytes("files, repository and changes of a run, in an order", 8 << 20, "");
pub const UPLOADS: Bound = items("uploads of one user", 1000, "");
pub const UPLOADS_BYTES: Bound = bytes("all uploads of one user", 64 << 20, "");
pub const ALL_UPLOADS_BYTES: Bound = bytes("all uploads but repositories", 1 << 30, "");
pub const NODE_TEXT_BYTES: Bound = bytes("a text in a node's report", 1024, "");
pub const NODE_LINES: Bound = items("lines about a node from its agent", 64, "");
pub const NODE_DEVICES: Bound = items("devices of a node from its agent", 1024, "");
pub const NODE_GRES_LINES: Bound = items("lines of GRES of a node from its agent", 256, "");
pub const NODE_CONFIG_BYTES: Bound =
    bytes("what the agent of a dynamic node says that it has", 64 << 10, "");
pub const NODE_SERIES: Bound = items("series of a node from its exporter", 4096, "");
pub const NODE_LABEL_BYTES: Bound = bytes("the value of a label of such series", 128, "");
pub const NODE_SERIES_BYTES: Bound =
    bytes("lines of a node's series from its exporter in a scrape", 1 << 20, "");
pub const ALL_SERIES_BYTES: Bound = bytes("lines of all such series in a scrape", 64 << 20, "");
pub const CONTAINER_PORTS: Bound = items("ports of a container", 64, "");
pub const LOG_BYTES: Bound = bytes("the kept log of a run on one node", 64 << 20, "");
pub const ALL_LOGS_BYTES: Bound = bytes("all kept logs", 8 << 30, "");

/// Every bound, in the order of docs/limits.md.
pub const ALL: &[Bound] = &[
    REQUEST_BYTES,
    REQUEST_TEXT_BYTES,
    SCRIPT_BYTES,
    ENVIRONMENT_BYTES,
    ARGUMENT_BYTES,
    JOB_NAME_BYTES,
    COMMENT_BYTES,
    SUBMIT_LINE_BYTES,
    CONFIGURATION_BYTES,
    TEXT_BYTES,
    LIST_ITEMS,
    NODES,
    ARRAY_RANGES,
    REQUEST_KINDS,
    LIMITED_KINDS,
    MACHINE_NAMES,
    NODE_COUNTS,
    CONSTRAINT_PARTS,
    DEPENDENCY_ITEMS,
    USER_DEPENDENCIES,
    ALL_DEPENDENCIES,
    RUN_NAMES,
    EVENT_IDS,
    SECRET_VARIABLES,
    PROJECT_MEMBERS,
    ACTIVITIES,
    KEPT_ACTIVITIES,
    DELETED_ENTRIES,
    USAGE_SAMPLES,
    STEPS,
    RECORD_STEP_TEXT_BYTES,
    CUT_STEP_NAME_BYTES,
    CUT_STEP_LINE_BYTES,
    OPEN_STEPS_BYTES,
    LAUNCHES_BYTES,
    USER_LAUNCHES_BYTES,
    USER_TEXT_BYTES,
    ALL_TEXT_BYTES,
    USER_BLOB_BYTES,
    ALL_BLOB_BYTES,
    USER_BOOKS_BYTES,
    BOOKS_RESERVE_BYTES,
    WAITING_CALLS,
    LONG_CALLS,
    LOG_READERS,
    JOB_INPUT_BYTES,
    TOKENS,
    JOIN_TOKENS,
    TOKEN_NAME_BYTES,
    NODE_NAME_BYTES,
    FLEETS,
    FLEET_HOSTS,
    FLEET_INSTANCES,
    SECRETS,
    SECRET_BYTES,
    BACKENDS,
    BACKEND_BYTES,
    VOLUMES,
    USER_VOLUMES,
    TRIGGERS,
    TRIGGER_PROGRAM_BYTES,
    JOB_VOLUMES,
    INSTANCE_VOLUMES,
    ARCHIVE_BYTES,
    ARCHIVE_ENTRIES,
    ARCHIVE_PATH_BYTES,
    ARCHIVE_PATH_PARTS,
    FILES,
    WORKSPACE_BYTES,
    UPLOADS,
    UPLOADS_BYTES,
    ALL_UPLOADS_BYTES,
    NODE_TEXT_BYTES,
    NODE_LINES,
    NODE_DEVICES,
    NODE_GRES_LINES,
    NODE_CONFIG_BYTES,
    NODE_SERIES,
    NODE_LABEL_BYTES,
    NODE_SERIES_BYTES,
    ALL_SERIES_BYTES,
    CONTAINER_PORTS,
    LOG_BYTES,
    ALL_LOGS_BYTES,
];

/// What a text that was cut ends with.
pub const CUT_MARK: &str = "...";

/// The text, cut with a mark where it is longer than `bound`.
pub fn cut(text: &mut String, bound: Bound) -> bool {
    if text.len() <= bound.most {
        return false;
    }
    let end = cut_end(text, bound.most);
    text.truncate(end);
    text.push_str(CUT_MARK);
    true
}

/// A copy of the text, cut as [`cut`] does.
pub fn cut_copy(text: &str, bound: Bound) -> String {
    if text.len() <= bound.most {
        return text.to_owned();
    }
    format!("{}{CUT_MARK}", &text[..cut_end(text, bound.most)])
}

/// Where a text of more than `most` bytes is cut, so that the mark has room behind it.
pub fn cut_end(text: &str, most: usize) -> usize {
    let most = most.saturating_sub(CUT_MARK.len());
    (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_text_has_a_mark_and_whole_characters() {
        let mut long = "é".repeat(NODE_TEXT_BYTES.most);
        assert!(cut(&mut long, NODE_TEXT_BYTES));
        assert!(long.len() <= NODE_TEXT_BYTES.most && long.ends_with("é..."), "{long}");
        assert_eq!(cut_copy(&"é".repeat(NODE_TEXT_BYTES.most), NODE_TEXT_BYTES), long);
        let mut short = "é".repeat(NODE_TEXT_BYTES.most / 2);
        assert!(!cut(&mut short, NODE_TEXT_BYTES));
    }
}
