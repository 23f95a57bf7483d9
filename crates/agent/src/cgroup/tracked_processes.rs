//! The members of a job where no control group can be made: found by ancestry and by a mark in their environment.
//!
//! Weaker than a group: a process that drops its environment *and* outlives all its ancestors escapes once the
//! supervisor has ended. While the supervisor lives it is the subreaper, and no descendant escapes.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Read;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::unistd::getpid;

use super::error::CgroupError;

/// The environment variable that marks a tracked process; its value is `ROOT/GROUP`, or `ROOT/GROUP/CHILD`.
pub const MARKER_VARIABLE: &str = "SLUICE_GROUP";

/// Bytes read of a process's environment: the kernel's limit, except with unusual stack limits.
const PAGE_BYTES_MAX: u64 = 2 << 20;

pub(super) struct ProcessSet {
    mark: Box<str>,
    /// The supervisor's pid: all its descendants are members, marked or not.
    owner: Option<i32>,
}

#[derive(Clone, Debug)]
struct TrackedProcess {
    pid: i32,
    parent: i32,
    session: i32,
    dead: bool,
    mark: Option<String>,
}

impl ProcessSet {
    /// Called by the job's supervisor, which becomes the subreaper of the job's orphans.
    pub fn own(root_name: &str, name: &str) -> Result<ProcessSet, CgroupError> {
        prctl::set_child_subreaper(true)
            .map_err(|errno| CgroupError::io("become subreaper for", name, errno))?;
        Ok(ProcessSet {
            mark: format!("{root_name}/{name}").into(),
            owner: Some(getpid().as_raw()),
        })
    }

    /// The processes that an earlier supervisor left, found by their mark alone.
    pub fn marked(root_name: &str, name: &str) -> ProcessSet {
        ProcessSet { mark: format!("{root_name}/{name}").into(), owner: None }
    }

    pub fn child(&self, name: &str) -> ProcessSet {
        ProcessSet { mark: format!("{}/{name}", self.mark).into(), owner: None }
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The living members, without zombies.
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        Ok(members(&scan()?, &self.mark, self.owner, getpid().as_raw()))
    }
}

/// The jobs' groups of `root_name` whose mark a living process has.
pub(super) fn marked_groups(root_name: &str) -> Result<Vec<String>, CgroupError> {
    let prefix = format!("{root_name}/");
    let group = |mark: &String| Some(mark.strip_prefix(&prefix)?.split('/').next()?.to_owned());
    let own = getpid().as_raw();
    let strangers = scan()?.into_iter().filter(|process| !process.dead && process.pid != own);
    Ok(strangers.filter_map(|process| group(process.mark.as_ref()?)).collect())
}

/// The root groups, by their names, of which a living process has a mark.
pub(super) fn marked_roots() -> Result<BTreeSet<String>, CgroupError> {
    let living = scan()?.into_iter().filter(|process| !process.dead);
    let root = |mark: String| mark.split_once('/').map(|(root, _)| root.to_owned());
    Ok(living.filter_map(|process| process.mark.and_then(root)).collect())
}

fn members(all: &[TrackedProcess], mark: &str, owner: Option<i32>, own: i32) -> Vec<i32> {
    let above = ancestors(all, own);
    let carries = |process: &TrackedProcess| {
        let rest = process.mark.as_deref().and_then(|value| value.strip_prefix(mark));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut inside: HashSet<i32> = HashSet::new();
    // Each pass adds at least one process or is the last.
    for _ in 0..=all.len() {
        let before = inside.len();
        for process in all {
            let belongs = Some(process.parent) == owner
                || carries(process)
                || inside.contains(&process.parent)
                || inside.contains(&process.session);
            if belongs && Some(process.pid) != owner && !above.contains(&process.pid) {
                inside.insert(process.pid);
            }
        }
        if inside.len() == before {
            break;
        }
    }
    let alive = all.iter().filter(|process| !process.dead && inside.contains(&process.pid));
    alive.map(|process| process.pid).collect()
}

/// `pid` and its ancestors: never members, even if they inherited the mark of an outer cluster.
fn ancestors(all: &[TrackedProcess], pid: i32) -> HashSet<i32> {
    let mut above = HashSet::from([pid]);
    let mut at = pid;
    while let Some(process) = all.iter().find(|process| process.pid == at) {
        at = process.parent;
        if !above.insert(at) {
            break;
        }
    }
    above
}

fn scan() -> Result<Vec<TrackedProcess>, CgroupError> {
    let entries =
        fs::read_dir("/proc").map_err(|source| CgroupError::io("list", "/proc", source))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| read_process(pid).transpose()).collect()
}

/// `None` if the process ended meanwhile.
fn read_process(pid: i32) -> Result<Option<TrackedProcess>, CgroupError> {
    let Some(stat) = read_page(pid, "stat")? else { return Ok(None) };
    let Some((state, parent, session)) = parse_stat(&String::from_utf8_lossy(&stat)) else {
        return Ok(None);
    };
    let dead = matches!(state, 'Z' | 'X' | 'x');
    let mark = read_page(pid, "environ")?.as_deref().and_then(find_mark);
    Ok(Some(TrackedProcess { pid, parent, session, dead, mark }))
}

/// Reads a file in `/proc/PID`; `None` if the process has ended or the file is not readable by us. Other errors are
/// returned: an unreadable process must not count as dead.
fn read_page(pid: i32, page: &str) -> Result<Option<Vec<u8>>, CgroupError> {
    let path = format!("/proc/{pid}/{page}");
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(PAGE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
            Errno::ENOENT | Errno::ESRCH | Errno::EACCES | Errno::EPERM => Ok(None),
            _ => Err(CgroupError::io("read", path, error)),
        },
    }
}

/// Parses state, parent and session. The name before them is in parentheses and may hold blanks and parentheses itself.
fn parse_stat(stat: &str) -> Option<(char, i32, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some((state, parent, session))
}

/// The mark in an environment.
pub(crate) fn find_mark(environ: &[u8]) -> Option<String> {
    let value = environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(MARKER_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32, mark: &str) -> TrackedProcess {
        let mark = (!mark.is_empty()).then(|| mark.to_owned());
        TrackedProcess { pid, parent, session, dead: false, mark }
    }

    #[test]
    fn stat_is_parsed_despite_odd_names() {
        for (line, expected) in [
            ("7 (sh) S 3 7 7 0", Some(('S', 3, 7))),
            ("7 (a) b) (c) Z 1 2 9 0", Some(('Z', 1, 9))),
            ("7 (sh", None),
            ("7 (sh) S", None),
        ] {
            assert_eq!(parse_stat(line), expected, "{line}");
        }
    }

    #[test]
    fn the_mark_is_a_whole_variable() {
        for (environ, mark) in [
            (&b"A=1\0SLUICE_GROUP=r/j\0B=2\0"[..], Some("r/j")),
            (b"XSLUICE_GROUP=r/j\0", None),
            (b"SLUICE_GROUPS=r/j\0", None),
            (b"", None),
        ] {
            assert_eq!(find_mark(environ).as_deref(), mark);
        }
    }

    #[test]
    fn members_are_found_by_descent_session_and_mark() {
        let mut all = vec![
            process(1, 0, 1, ""),
            process(10, 1, 10, "r/job_1"), // our supervisor, marked by an outer cluster
            process(11, 10, 11, ""),       // the job's script
            process(12, 11, 11, ""),       // its child
            process(13, 1, 11, ""),        // orphan in the script's session
            process(14, 1, 14, "r/job_1/s0"), // daemon that kept the environment
            process(15, 14, 14, ""),       // and its child
            process(16, 1, 16, "r/job_10"), // another job whose name begins alike
            process(17, 1, 17, ""),        // a stranger
            process(18, 11, 11, ""),
        ];
        all[9].dead = true;
        let job = |owner| members(&all, "r/job_1", owner, 10);
        assert_eq!(job(Some(10)), [11, 12, 13, 14, 15]);
        assert_eq!(job(None), [14, 15]);
        assert_eq!(members(&all, "r/job_1/s0", None, 10), [14, 15]);
        assert_eq!(members(&all, "r/job_10", None, 10), [16]);
        assert_eq!(members(&all, "r/job_1", None, 14), [10, 11, 12, 13], "never ourselves");
    }
}
