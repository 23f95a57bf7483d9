//! Whether the server that listens at an address is this job's: all jobs of a node share its network, and each may listen there.
//!
//! A socket is this job's where a process has it that is in the control group of this attempt, or that has the group's mark in its environment
//! where no groups are made. One that only processes have which cannot be looked at, because they keep others from it, counts as the job's
//! if it is of the job's user. Several sockets of this user may share a port (`SO_REUSEPORT`), as he likes: one of them is to be the job's.

use crate::cgroup::find_mark;
use crate::kernel_file;
use model::listening_socket::{self, ListeningSocket};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use wire::forward::{OwnServer, SERVER_SOCKETS_MAX};

/// Bytes of a list of sockets that are read at once.
const LIST_BYTES: usize = 32 << 10;
/// Bytes of a file that says a process's groups, and of its environment.
const GROUPS_BYTES_MAX: u64 = 64 << 10;
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;
/// Sockets that are known to be the job's.
const KNOWN_MAX: usize = 256;

/// What is known of the servers of this job.
pub struct PortOwners {
    uid: u32,
    job: Option<JobGroup>,
    /// The inodes of sockets that were found to be the job's. Whose a socket is does not change while it listens.
    known: Mutex<HashSet<u64>>,
}

/// The group of an attempt of a job.
#[derive(Debug, PartialEq, Eq)]
enum JobGroup {
    /// A tree of control groups, by its number and controllers, and the path in it.
    Group { tree: String, path: String },
    /// `ROOT/GROUP`.
    Marked(String),
}

/// Whether a process belongs to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Inside,
    Outside,
    Unknown,
}

impl PortOwners {
    pub fn of_this_process() -> Self {
        let process = Path::new("/proc/self");
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            job: JobGroup::of_process(process),
            known: Mutex::default(),
        }
    }

    /// The sockets that take the connections to an address, where those are the job's; else why they are not.
    pub fn check(&self, address: SocketAddr) -> Result<Vec<ListeningSocket>, String> {
        let found = listening_at(address).map_err(|error| format!("{address}: {error}"))?;
        if found.is_empty() {
            return Err(format!("{address}: nobody listens there"));
        }
        if found.iter().any(|socket| socket.uid != self.uid) {
            return Err(format!("{address}: another user listens there"));
        }
        if !self.is_of_job(&found) {
            return Err(format!("{address}: no process of this job listens there"));
        }
        Ok(found)
    }

    /// Whether a connection that was made since the check is to one of the sockets that it found: none of another user has its port then.
    pub fn holds_still(&self, address: SocketAddr, checked: &[ListeningSocket]) -> bool {
        let found = listening_at(address).unwrap_or_default();
        let is_own = |socket: &ListeningSocket| socket.uid == self.uid;
        found.iter().all(is_own) && found.iter().any(|socket| checked.contains(socket))
    }

    /// The job's server whose sockets were found at an address.
    pub fn own_server(&self, address: SocketAddr, sockets: &[ListeningSocket]) -> OwnServer {
        let address = common_address(address, sockets);
        let inodes = sockets.iter().map(|socket| socket.inode);
        let known = self.known.lock().expect("no panic with the sockets held");
        let of_job = inodes.clone().filter(|inode| known.contains(inode));
        let mut own: Vec<u64> = of_job.take(SERVER_SOCKETS_MAX).collect();
        if own.is_empty() {
            // No socket was proved to be the job's: the processes cannot be looked at, or the job has no group.
            own = inodes.take(SERVER_SOCKETS_MAX).collect();
        }
        OwnServer { address, sockets: own }
    }

    fn is_of_job(&self, sockets: &[ListeningSocket]) -> bool {
        let Some(job) = &self.job else { return true };
        let inodes: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
        let mut known = self.known.lock().expect("no panic with the sockets held");
        if !known.is_disjoint(&inodes) {
            return true;
        }
        let held = held_by_processes(&inodes, |process| job.membership(process));
        if is_admitted(&inodes, &held) {
            // The oldest are not told from the others: they are looked for once more.
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            let inside = held.iter().filter(|(_, member)| *member == Membership::Inside);
            known.extend(inside.map(|(inode, _)| *inode));
            return true;
        }
        false
    }
}

/// Whether one of these sockets is the job's, or may be: `held` says which of them processes have, and whether those are the job's.
fn is_admitted(inodes: &HashSet<u64>, held: &[(u64, Membership)]) -> bool {
    inodes.iter().any(|wanted| {
        let has = |member| held.contains(&(*wanted, member));
        has(Membership::Inside) || !has(Membership::Outside)
    })
}

/// Where a server listens whose sockets were found at an address. One of several may have the connections to this address alone.
pub fn common_address(asked: SocketAddr, sockets: &[ListeningSocket]) -> IpAddr {
    let first = sockets.first().map(|socket| socket.address);
    let is_one = sockets.iter().all(|socket| Some(socket.address) == first);
    first.filter(|_| is_one).unwrap_or_else(|| asked.ip())
}

pub fn listening_at(address: SocketAddr) -> io::Result<Vec<ListeningSocket>> {
    listening_socket::at(address, |list| {
        Ok(BufReader::with_capacity(LIST_BYTES, File::open(list)?))
    })
}

/// Which of these sockets processes have that this one may look at, and what `membership` says of those processes.
fn held_by_processes(
    inodes: &HashSet<u64>,
    membership: impl Fn(&Path) -> Membership,
) -> Vec<(u64, Membership)> {
    let mut held = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return held };
    for process in processes.flatten().map(|entry| entry.path()) {
        let name = process.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        // Closed to others than its user, and gone with the process.
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { continue };
        let links = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let sockets: HashSet<u64> = links.filter_map(|link| socket_inode(&link)).collect();
        let mut found = sockets.intersection(inodes).peekable();
        if found.peek().is_some() {
            let member = membership(&process);
            held.extend(found.map(|inode| (*inode, member)));
        }
    }
    held
}

/// The inode of a descriptor that leads to `socket:[INODE]`.
pub fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

impl JobGroup {
    fn of_process(process: &Path) -> Option<Self> {
        let of_groups = groups(process).as_deref().and_then(Self::of_groups);
        of_groups.or_else(|| mark(process).as_deref().and_then(Self::of_mark))
    }

    /// The group of an attempt, `job_JOB_ATTEMPT`, among the groups of a process; the innermost, since an agent may run in a job.
    fn of_groups(text: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let (tree, path) = split_line(line)?;
            let parts: Vec<&str> = path.split('/').collect();
            let at = parts.iter().rposition(|part| is_attempt(part))?;
            let path = parts[..=at].join("/");
            Some(Self::Group { tree: tree.to_owned(), path })
        })
    }

    fn of_mark(mark: &str) -> Option<Self> {
        let mut parts = mark.split('/');
        let (root, group) = (parts.next()?, parts.next()?);
        is_attempt(group).then(|| Self::Marked(format!("{root}/{group}")))
    }

    fn membership(&self, process: &Path) -> Membership {
        let is_inside = match self {
            Self::Group { .. } => groups(process).map(|text| self.has_in_groups(&text)),
            // One that has left its environment behind may be the job's: it descends from those that have it.
            Self::Marked(_) => {
                let found = mark(process);
                found.map(|found| Self::of_mark(&found).as_ref() == Some(self))
            }
        };
        match is_inside {
            Some(true) => Membership::Inside,
            Some(false) => Membership::Outside,
            None => Membership::Unknown,
        }
    }

    /// Whether a process in these groups is in this one, or in one inside it.
    fn has_in_groups(&self, text: &str) -> bool {
        let Self::Group { tree, path } = self else { return false };
        let mut own = text.lines().filter_map(split_line).filter(|(found, _)| found == tree);
        own.any(|(_, found)| {
            let rest = found.strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// `NUMBER:CONTROLLERS` and the path of a line of `/proc/PID/cgroup`.
fn split_line(line: &str) -> Option<(&str, &str)> {
    let path = line.match_indices(':').nth(1)?.0 + 1;
    Some((&line[..path - 1], &line[path..]))
}

/// Whether this is the name of an attempt's group (`spool::group_name`).
fn is_attempt(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_prefix("job_").and_then(|rest| rest.split_once('_'));
    numbers.is_some_and(|(job, attempt)| is_number(job) && is_number(attempt))
}

fn groups(process: &Path) -> Option<String> {
    kernel_file::read(File::open(process.join("cgroup")).ok()?, GROUPS_BYTES_MAX).ok()
}

/// The mark of a process where no control groups are made.
fn mark(process: &Path) -> Option<String> {
    let file = File::open(process.join("environ")).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    find_mark(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const OWN: &str = "12:pids:/a/sluice/job_7_1/step_0\n0::/a/sluice/job_7_1/step_0/x\n";

    #[test]
    fn process_is_the_jobs_in_its_group_and_those_inside_it() {
        let job = JobGroup::of_groups(OWN).expect("a group of a job");
        for (text, expected) in [
            (OWN, true),
            ("12:pids:/a/sluice/job_7_1\n", true),
            ("12:pids:/a/sluice/job_7_1/step_extern\n0::/\n", true),
            ("12:pids:/a/sluice/job_7_10\n", false),
            ("12:pids:/a/sluice/job_8_1/step_0\n", false),
            ("0::/a/sluice/job_7_1/step_0\n", false),
            ("12:pids:/user.slice\n", false),
            ("", false),
        ] {
            assert_eq!(job.has_in_groups(text), expected, "{text}");
        }
        let nested = "0::/sluice/job_1_1/step_0/sluice/job_2_1/step_0\n";
        let inner = "/sluice/job_1_1/step_0/sluice/job_2_1".to_owned();
        let expected = JobGroup::Group { tree: "0:".into(), path: inner };
        assert_eq!(JobGroup::of_groups(nested), Some(expected));
        for none in ["0::/\n", "0::/a/job_x_1/job_1\n", "", "job_1_1"] {
            assert_eq!(JobGroup::of_groups(none), None, "{none}");
        }
    }

    #[test]
    fn name_of_an_attempts_group_is_known_in_a_path_and_in_a_mark() {
        let attempt = model::id::AttemptId { job: model::id::JobId(7), number: 2 };
        assert!(is_attempt(&crate::spool::group_name(attempt)));
        let marked = JobGroup::Marked("root/job_7_2".into());
        assert_eq!(JobGroup::of_mark("root/job_7_2/step_0"), Some(marked));
        assert_eq!(JobGroup::of_mark("root/other"), None);
    }

    #[test]
    fn socket_is_refused_where_it_is_known_to_be_anothers() {
        use Membership::{Inside, Outside, Unknown};
        for (held, expected) in [
            (vec![(1, Inside)], true),
            (vec![(1, Outside)], false),
            (vec![(1, Unknown)], true),
            (vec![(1, Outside), (1, Inside)], true),
            (vec![(1, Outside), (1, Unknown)], false),
            (vec![], true),
        ] {
            assert_eq!(is_admitted(&HashSet::from([1]), &held), expected, "{held:?}");
        }
        let shared = [(1, Outside), (2, Inside)];
        assert!(is_admitted(&HashSet::from([1, 2]), &shared), "one of several is enough");
    }

    #[test]
    fn server_has_all_addresses_where_each_of_its_sockets_does() {
        let asked: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        for (sockets, expected) in [
            (vec!["0.0.0.0"], "0.0.0.0"),
            (vec!["0.0.0.0", "0.0.0.0"], "0.0.0.0"),
            (vec!["::"], "::"),
            (vec!["127.0.0.1"], "127.0.0.1"),
            (vec!["0.0.0.0", "127.0.0.1"], "127.0.0.1"),
            (vec!["127.0.0.1", "0.0.0.0"], "127.0.0.1"),
        ] {
            let socket = |address: &&str| ListeningSocket {
                address: address.parse().expect("an address"),
                uid: 7,
                inode: 107,
            };
            let found: Vec<ListeningSocket> = sockets.iter().map(socket).collect();
            let server = PortOwners::of_this_process().own_server(asked, &found);
            assert_eq!(server.address.to_string(), expected, "{sockets:?}");
        }
    }

    #[test]
    fn servers_sockets_are_those_that_are_known_to_be_the_jobs() {
        let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let named = |known: &[u64], inodes: std::ops::Range<u64>| {
            let known = Mutex::new(known.iter().copied().collect());
            let owners = PortOwners { known, ..PortOwners::of_this_process() };
            let socket = |inode| ListeningSocket { address: address.ip(), uid: 7, inode };
            let found: Vec<ListeningSocket> = inodes.map(socket).collect();
            owners.own_server(address, &found).sockets
        };
        assert_eq!(named(&[2, 9], 1..4), [2]);
        assert_eq!(named(&[], 1..4), [1, 2, 3]);
        assert_eq!(named(&[], 0..1000).len(), SERVER_SOCKETS_MAX);
    }

    #[test]
    fn listener_of_another_job_is_refused_and_ones_own_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let owners = |job: Option<JobGroup>| PortOwners { job, ..PortOwners::of_this_process() };
        let other = || Some(JobGroup::Group { tree: "99:none".into(), path: "/job_1_1".into() });
        let found = owners(None).check(address).expect("its own");
        assert!(owners(None).holds_still(address, &found));
        let why = owners(other()).check(address).expect_err("another job's");
        assert!(why.contains("no process of this job"), "{why}");
        let user = PortOwners { uid: u32::MAX, ..owners(None) };
        let why = user.check(address).expect_err("another user's");
        assert!(why.contains("another user"), "{why}");
        drop(listener);
        assert!(!owners(None).holds_still(address, &found));
        let why = owners(None).check(address).expect_err("nobody's");
        assert!(why.contains("nobody"), "{why}");
    }
}
