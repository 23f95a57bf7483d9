//! Who listens at the port of a service's replica, for the server, which tells gateways of it: they connect there, and ask nobody in the
//! job. The step that the proxy runs in a job judges the same (`in_job/port_owner`), but as the job's user; here the user has no part.

use super::Agent;
use crate::attempt_key::AttemptKey;
use crate::in_job::port_owner::{common_address, listening_at, socket_inode};
use model::listening_socket::ListeningSocket;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use wire::forward::{OwnServer, SERVER_SOCKETS_MAX};
use wire::link::{ServerAtPort, ToServer};

/// Looks that wait for their turn, and those that are made at once. The server asks again where it gets no answer.
const WAITING_MAX: usize = 1024;
const AT_ONCE: usize = 4;
/// Descriptors of a job that one look reads: a process may have any number.
const DESCRIPTORS_MAX: usize = 1 << 16;
/// Before a job's processes are searched again for sockets that none of them had.
const SEARCH_PAUSE: Duration = Duration::from_secs(5);
/// Sockets of a job that are remembered.
const KNOWN_MAX: usize = 256;

/// The looks of an agent, and what is known of the sockets of its jobs.
pub(super) struct ServerFinder {
    jobs: HashMap<AttemptKey, Arc<JobSockets>>,
    waiting: Arc<Semaphore>,
    places: Arc<Semaphore>,
    answers_in: mpsc::Sender<ToServer>,
    answers: mpsc::Receiver<ToServer>,
}

impl ServerFinder {
    pub fn new() -> ServerFinder {
        let (answers_in, answers) = mpsc::channel(AT_ONCE);
        let (waiting, places) = (Semaphore::new(WAITING_MAX), Semaphore::new(AT_ONCE));
        let (waiting, places) = (Arc::new(waiting), Arc::new(places));
        ServerFinder { jobs: HashMap::new(), waiting, places, answers_in, answers }
    }

    /// The next answer for the server.
    pub async fn next(&mut self) -> ToServer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

impl Agent {
    /// Looks who listens at a port that an attempt's service has; the answer comes by [`ServerFinder::next`]. Nobody is the job's where the
    /// attempt does not run here.
    pub fn find_server(&mut self, request: u64, key: AttemptKey, port: u16) {
        let Ok(turn) = self.servers.waiting.clone().try_acquire_owned() else { return };
        let job = self.sockets_of(key);
        let (places, answers) = (self.servers.places.clone(), self.servers.answers_in.clone());
        tokio::spawn(async move {
            let _turn = turn;
            let found = match (job, places.acquire().await) {
                (Some(job), Ok(_place)) => spawn_blocking(move || job.find(port)).await,
                _ => Ok(ServerAtPort::default()),
            };
            if let Ok(found) = found {
                let _ = answers.send(ToServer::ServerFound { request, found }).await;
            }
        });
    }

    fn sockets_of(&mut self, key: AttemptKey) -> Option<Arc<JobSockets>> {
        let uid = self.attempts.get(&key).filter(|held| !held.has_ended())?.uid?;
        if let Some(known) = self.servers.jobs.get(&key) {
            return Some(known.clone());
        }
        let groups = self.nodes.get(&key.node)?.attempt_groups(key.attempt);
        let attempts = &self.attempts;
        let is_here = |key: &AttemptKey| attempts.get(key).is_some_and(|held| !held.has_ended());
        self.servers.jobs.retain(|key, _| is_here(key));
        let processes = move || groups.pids().unwrap_or_default();
        let job = Arc::new(JobSockets::new(uid, Box::new(processes)));
        self.servers.jobs.insert(key, job.clone());
        Some(job)
    }
}

/// The sockets of an attempt, as far as they were asked for.
struct JobSockets {
    /// The job's user.
    uid: u32,
    /// The processes of its group.
    processes: Box<dyn Fn() -> Vec<i32> + Send + Sync>,
    known: Mutex<KnownSockets>,
}

#[derive(Default)]
struct KnownSockets {
    /// The inodes of sockets that its processes had. Whose a socket is does not change while it listens.
    own: BTreeSet<u64>,
    /// The inodes of sockets that none of its processes had, and when that was found.
    strange: Option<(BTreeSet<u64>, Instant)>,
}

impl JobSockets {
    fn new(uid: u32, processes: Box<dyn Fn() -> Vec<i32> + Send + Sync>) -> JobSockets {
        JobSockets { uid, processes, known: Mutex::default() }
    }

    fn find(&self, port: u16) -> ServerAtPort {
        let mut listens = false;
        // A server that has a socket of each family is known by that of the family in which most nodes have their addresses.
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let address = SocketAddr::from((address, port));
            let found = listening_at(address).unwrap_or_default();
            if found.is_empty() || found.iter().any(|socket| socket.uid != self.uid) {
                continue;
            }
            listens = true;
            let sockets = self.own_of(&found);
            if !sockets.is_empty() {
                let server = OwnServer { address: common_address(address, &found), sockets };
                return ServerAtPort { listens, server: Some(server) };
            }
        }
        ServerAtPort { listens, server: None }
    }

    /// The inodes of those sockets that processes of the job have.
    fn own_of(&self, found: &[ListeningSocket]) -> Vec<u64> {
        let inodes: BTreeSet<u64> = found.iter().map(|socket| socket.inode).collect();
        let mut known = self.known.lock().expect("no panic with the sockets held");
        if known.own.is_disjoint(&inodes) {
            let is_strange = known.strange.as_ref().is_some_and(|(strange, at)| {
                inodes.is_subset(strange) && at.elapsed() < SEARCH_PAUSE
            });
            if is_strange {
                return Vec::new();
            }
            let held = held_by(&(self.processes)(), &inodes);
            if held.is_empty() {
                known.strange = Some((inodes, Instant::now()));
                return Vec::new();
            }
            if known.own.len() >= KNOWN_MAX {
                known.own.clear();
            }
            known.own.extend(held);
        }
        known.own.intersection(&inodes).copied().take(SERVER_SOCKETS_MAX).collect()
    }
}

/// Which of these sockets processes have.
fn held_by(processes: &[i32], inodes: &BTreeSet<u64>) -> BTreeSet<u64> {
    let descriptors = processes.iter().flat_map(|process| {
        // Gone with the process.
        let entries = fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
        entries.into_iter().flatten().flatten()
    });
    let links = descriptors.take(DESCRIPTORS_MAX).filter_map(|one| fs::read_link(one.path()).ok());
    links.filter_map(|link| socket_inode(&link)).filter(|inode| inodes.contains(inode)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn job(uid: u32, processes: Vec<i32>) -> JobSockets {
        JobSockets::new(uid, Box::new(move || processes.clone()))
    }

    #[test]
    fn server_is_a_jobs_own_while_a_process_of_its_group_listens() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (uid, own) = (nix::unistd::geteuid().as_raw(), std::process::id() as i32);
        let (job, other) = (job(uid, vec![own]), job(uid, Vec::new()));
        let found = job.find(port);
        let server = found.server.expect("its own");
        assert!(
            found.listens && server.address == Ipv4Addr::UNSPECIFIED && server.sockets.len() == 1
        );
        let strange = ServerAtPort { listens: true, server: None };
        assert_eq!(other.find(port), strange, "that of another job of the user");
        assert_eq!(self::job(uid + 1, vec![own]).find(port), ServerAtPort::default());
        drop(listener);
        assert_eq!(job.find(port), ServerAtPort::default(), "it has ended");
    }

    #[test]
    fn socket_that_takes_the_port_later_is_searched_for_anew() {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = first.local_addr().expect("an address").port();
        let uid = nix::unistd::geteuid().as_raw();
        let job = job(uid, vec![std::process::id() as i32]);
        let before = job.find(port).server.expect("its own");
        drop(first);
        let _second = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port");
        let after = job.find(port).server.expect("its own");
        assert_ne!(before.sockets, after.sockets);
    }
}
