//! Who listens at the port of a service's replica, for the server, which tells gateways of it: they connect there, and ask nobody in the
//! job. The step that the proxy runs in a job judges the same (`in_job/port_owner`), but as the job's user; here the user has no part.

use super::Agent;
use crate::attempt_key::AttemptKey;
use crate::in_job::port_owner::{common_address, listening_at, socket_inode};
use model::listening_socket::ListeningSocket;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use wire::forward::{OwnServer, SERVER_SOCKETS_MAX};
use wire::link::{ServerAtPort, ToServer};

/// Looks of one user's jobs that wait for their turn. The server asks again where it gets no answer.
const WAITING_OF_USER_MAX: usize = 512;
/// Looks that are made at once, one for each user.
const AT_ONCE: usize = 4;
/// Descriptors that one search reads, of all processes of a job and of one of them, the lowest first: a process may have any number, and
/// has the socket at which it listens early.
const DESCRIPTORS_MAX: usize = 4096;
const DESCRIPTORS_OF_PROCESS_MAX: usize = 1024;
/// Before a job's processes are searched again, whatever listens at its port by then.
const SEARCH_PAUSE: Duration = Duration::from_secs(5);
/// Sockets of a job that are remembered.
const KNOWN_MAX: usize = 256;

/// The looks of an agent, and what is known of the sockets of its jobs.
pub(super) struct ServerFinder {
    jobs: HashMap<AttemptKey, Arc<JobSockets>>,
    turns: Turns,
    answers_in: mpsc::Sender<ToServer>,
    answers: mpsc::Receiver<ToServer>,
}

impl ServerFinder {
    pub fn new() -> ServerFinder {
        let (answers_in, answers) = mpsc::channel(AT_ONCE);
        ServerFinder { jobs: HashMap::new(), turns: Turns::new(), answers_in, answers }
    }

    /// The next answer for the server.
    pub async fn next(&mut self) -> ToServer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

/// Whose turn it is to look. One user's jobs have one place at a time, so that the looks of others wait for one of each user at most.
struct Turns {
    of_user: HashMap<u32, UserTurns>,
    places: Arc<Semaphore>,
}

#[derive(Clone)]
struct UserTurns {
    waiting: Arc<Semaphore>,
    place: Arc<Semaphore>,
}

/// The right to wait for a place among a user's looks.
struct Turn {
    _waiting: OwnedSemaphorePermit,
    of_user: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Turns {
    fn new() -> Turns {
        Turns { of_user: HashMap::new(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// `None` where as many looks of this user wait as may.
    fn take(&mut self, uid: u32) -> Option<Turn> {
        let new = || UserTurns {
            waiting: Arc::new(Semaphore::new(WAITING_OF_USER_MAX)),
            place: Arc::new(Semaphore::new(1)),
        };
        let UserTurns { waiting, place } = self.of_user.entry(uid).or_insert_with(new).clone();
        let waiting = waiting.try_acquire_owned().ok()?;
        Some(Turn { _waiting: waiting, of_user: place, places: self.places.clone() })
    }

    /// Forgets the users of whose jobs none is here. What still waits ends by itself.
    fn retain(&mut self, uids: &HashSet<u32>) {
        self.of_user.retain(|uid, _| uids.contains(uid));
    }
}

impl Turn {
    /// Waits for the user's place, and only with it for one of all.
    async fn place(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        let of_user = self.of_user.acquire().await.ok()?;
        Some((of_user, self.places.acquire().await.ok()?))
    }
}

impl Agent {
    /// Looks who listens at a port that an attempt's service has; the answer comes by [`ServerFinder::next`]. Nobody is the job's where the
    /// attempt has ended; of one that is not known here nothing is said, nor where the kernel does not say who listens.
    pub fn find_server(&mut self, request: u64, key: AttemptKey, port: u16) {
        let Some(held) = self.attempts.get(&key) else { return };
        let Some(uid) = held.uid else { return };
        let has_ended = held.has_ended();
        let job = if has_ended { None } else { self.sockets_of(key, uid) };
        if job.is_none() && !has_ended {
            return;
        }
        let Some(turn) = self.servers.turns.take(uid) else { return };
        let answers = self.servers.answers_in.clone();
        tokio::spawn(async move {
            let found = match job {
                None => Some(ServerAtPort::default()),
                Some(job) => {
                    let Some(_place) = turn.place().await else { return };
                    spawn_blocking(move || job.find(port).ok()).await.ok().flatten()
                }
            };
            if let Some(found) = found {
                let _ = answers.send(ToServer::ServerFound { request, found }).await;
            }
        });
    }

    fn sockets_of(&mut self, key: AttemptKey, uid: u32) -> Option<Arc<JobSockets>> {
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
        let uids = self.servers.jobs.values().map(|job| job.uid).collect();
        self.servers.turns.retain(&uids);
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
    /// When its processes were searched last.
    searched: Option<Instant>,
}

impl JobSockets {
    fn new(uid: u32, processes: Box<dyn Fn() -> Vec<i32> + Send + Sync>) -> JobSockets {
        JobSockets { uid, processes, known: Mutex::default() }
    }

    fn find(&self, port: u16) -> io::Result<ServerAtPort> {
        let mut known = self.known.lock().expect("no panic with the sockets held");
        let mut seen: Vec<(SocketAddr, Vec<ListeningSocket>)> = Vec::new();
        // A server that has a socket of each family is known by that of the family in which most nodes have their addresses.
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let address = SocketAddr::from((address, port));
            let found = listening_at(address)?;
            if found.is_empty() || found.iter().any(|socket| socket.uid != self.uid) {
                continue;
            }
            let is_own = !known.own_of(&found).is_empty();
            seen.push((address, found));
            if is_own {
                break;
            }
        }
        // A user may have other sockets there at each look.
        let may_search = known.searched.is_none_or(|at| at.elapsed() >= SEARCH_PAUSE);
        let is_new = seen.first().is_some_and(|(_, found)| known.own_of(found).is_empty());
        if is_new && may_search {
            let inodes = seen.iter().flat_map(|(_, found)| found).map(|socket| socket.inode);
            known.note(held_by(&(self.processes)(), &inodes.collect()));
        }
        let server = seen.iter().find_map(|(address, found)| {
            let sockets = known.own_of(found);
            let address = common_address(*address, found);
            (!sockets.is_empty()).then_some(OwnServer { address, sockets })
        });
        Ok(ServerAtPort { listens: !seen.is_empty(), server })
    }
}

impl KnownSockets {
    /// The inodes of those sockets that processes of the job have.
    fn own_of(&self, found: &[ListeningSocket]) -> Vec<u64> {
        let own = found.iter().map(|socket| socket.inode).filter(|inode| self.own.contains(inode));
        own.take(SERVER_SOCKETS_MAX).collect()
    }

    /// What a search has found.
    fn note(&mut self, held: BTreeSet<u64>) {
        self.searched = Some(Instant::now());
        if self.own.len() >= KNOWN_MAX {
            self.own.clear();
        }
        self.own.extend(held);
    }
}

/// Which of these sockets processes have.
fn held_by(processes: &[i32], inodes: &BTreeSet<u64>) -> BTreeSet<u64> {
    let descriptors = processes.iter().flat_map(|process| {
        // Gone with the process.
        let entries = fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
        entries.into_iter().flatten().flatten().take(DESCRIPTORS_OF_PROCESS_MAX)
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
        let found = job.find(port).expect("the lists");
        let server = found.server.expect("its own");
        assert!(
            found.listens && server.address == Ipv4Addr::UNSPECIFIED && server.sockets.len() == 1
        );
        let strange = ServerAtPort { listens: true, server: None };
        let find = |job: &JobSockets| job.find(port).expect("the lists");
        assert_eq!(find(&other), strange, "that of another job of the user");
        assert_eq!(find(&self::job(uid + 1, vec![own])), ServerAtPort::default());
        drop(listener);
        assert_eq!(find(&job), ServerAtPort::default(), "it has ended");
    }

    #[test]
    fn socket_that_takes_the_port_later_is_searched_for_anew_when_the_pause_is_over() {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = first.local_addr().expect("an address").port();
        let uid = nix::unistd::geteuid().as_raw();
        let job = job(uid, vec![std::process::id() as i32]);
        let find = || job.find(port).expect("the lists");
        let before = find().server.expect("its own");
        drop(first);
        let _second = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port");
        assert_eq!(find(), ServerAtPort { listens: true, server: None }, "it was just searched");
        job.known.lock().expect("no panic").searched = None;
        let after = find().server.expect("its own");
        assert_ne!(before.sockets, after.sockets);
    }

    #[test]
    fn server_of_one_family_is_found_where_another_job_of_its_user_has_the_port_of_the_other() {
        let Ok(own) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else { return };
        let port = own.local_addr().expect("an address").port();
        let uid = nix::unistd::geteuid().as_raw();
        let job = job(uid, vec![std::process::id() as i32]);
        assert!(job.find(port).expect("the lists").server.is_some());
        let strange = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port");
        let inode = |at| listening_at(at).expect("the lists")[0].inode;
        let known = KnownSockets {
            own: BTreeSet::from([inode(own.local_addr().expect("an address"))]),
            searched: Some(Instant::now()),
        };
        *job.known.lock().expect("no panic") = known;
        let server = job.find(port).expect("the lists").server.expect("its own");
        assert_eq!(server.address, Ipv6Addr::LOCALHOST);
        job.known.lock().expect("no panic").searched = None;
        let server = job.find(port).expect("the lists").server.expect("its own");
        assert_eq!(server.address, Ipv4Addr::LOCALHOST, "it is the job's too");
        drop(strange);
    }

    #[tokio::test]
    async fn looks_of_one_user_leave_places_to_others() {
        let mut turns = Turns::new();
        let many: Vec<Turn> = (0..WAITING_OF_USER_MAX).filter_map(|_| turns.take(7)).collect();
        assert_eq!(many.len(), WAITING_OF_USER_MAX);
        assert!(turns.take(7).is_none(), "as many as may wait");
        let place = async |turn: &Turn| {
            let placed = tokio::time::timeout(Duration::ZERO, turn.place()).await;
            placed.is_ok_and(|placed| placed.is_some())
        };
        let held = many[0].place().await.expect("a place");
        assert!(!place(&many[1]).await, "one of a user at a time");
        for uid in 8..8 + AT_ONCE as u32 {
            let other = turns.take(uid).expect("a turn");
            assert!(place(&other).await, "of user {uid}");
        }
        drop(held);
        assert!(place(&many[1]).await);
        drop(many);
        assert!(turns.take(7).is_some());
    }
}
