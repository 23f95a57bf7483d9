//! The doors' bounds: how many may be inside, how long who says nothing may stay, and how long who
//! does not read is waited for. Every place is counted below the limit of descriptors, so that the
//! journal, the books and the agents always have theirs.

use crate::http::Peer;
use crate::http::stall_timeout::{Impatient, Patience};
use crate::auth::principal;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors that no connection gets: journal, books, blobs, snapshots, the doors themselves.
const RESERVE: u64 = 256;

/// Never more than this behind one door, whatever the limit of descriptors.
const PLACES_MAX: u64 = 20_000;

/// Bytes of a request's head, and of what is read ahead of a handler.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 128;

/// A door that is full says so this often at most.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// How long the door rests when the machine has no descriptor left.
const REST: Duration = Duration::from_millis(100);

/// Bounds in time, and a lower one in number where wanted; `places=100,silence_ms=500`.
#[derive(Debug, Clone)]
pub struct DoorLimits {
    /// Places behind each door; without it, by the limit of descriptors.
    pub places: Option<u64>,
    /// A connection without a whole head of a request for this long is closed.
    pub silence: Duration,
    /// A request's body must be there within this time.
    pub body: Duration,
    /// A client that takes nothing of its answer for this long is dropped.
    pub stall: Duration,
    /// The same for streams, whose memory has a bound of its own: somebody may be reading along.
    pub stream_stall: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            places: None,
            silence: Duration::from_secs(30),
            body: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            stream_stall: Duration::from_secs(3600),
        }
    }
}

impl FromStr for DoorLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let expected = || {
                format!(
                    "'{part}': expected NAME=NUMBER with one of places, silence_ms, body_ms, stall_ms, stream_stall_ms"
                )
            };
            let (name, value) = part.split_once('=').ok_or_else(expected)?;
            let value: u64 = value.parse().map_err(|_| expected())?;
            let time = Duration::from_millis(value);
            match name {
                "places" => limits.places = Some(value),
                "silence_ms" => limits.silence = time,
                "body_ms" => limits.body = time,
                "stall_ms" => limits.stall = time,
                "stream_stall_ms" => limits.stream_stall = time,
                _ => return Err(expected()),
            }
        }
        Ok(limits)
    }
}

/// Takes as many descriptors as the machine lets this process have; says how many.
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// How many may stand before a door that is about to be opened to them. Beyond it the kernel lets
/// callers of a port try again after a second.
const BEFORE_THE_DOOR: i32 = 4096;

/// Lets more stand before the door than the standard library does. What the machine does not allow is
/// no error: its own bound holds then.
pub fn deepen(listener: &impl AsFd) {
    if let Ok(backlog) = Backlog::new(BEFORE_THE_DOOR) {
        let _ = listen(listener, backlog);
    }
}

/// The places behind each door. Half are the agents', so that no number of clients keeps a node out.
pub struct Rooms {
    pub socket: Arc<Room>,
    pub port: Arc<Room>,
    pub agents: Arc<Room>,
}

impl Rooms {
    pub fn new(descriptors: u64, limits: &DoorLimits) -> Self {
        let free = descriptors - RESERVE.min(descriptors / 2);
        let room = |name, share: u64| {
            let places = share.min(PLACES_MAX).min(limits.places.unwrap_or(u64::MAX)).max(1);
            Arc::new(Room::new(name, places as usize))
        };
        Self {
            socket: room("the local socket", free / 4),
            port: room("the clients' port", free / 4),
            agents: room("the agents' port", free / 2),
        }
    }
}

/// The places behind one door.
pub struct Room {
    name: &'static str,
    max: usize,
    places: Arc<Semaphore>,
    said: Mutex<Said>,
}

/// When the door last complained, and how much it has kept to itself since.
#[derive(Default)]
struct Said {
    at: Option<Instant>,
    unsaid: u64,
}

impl Room {
    fn new(name: &'static str, max: usize) -> Self {
        Self { name, max, places: Arc::new(Semaphore::new(max)), said: Mutex::default() }
    }

    /// A place, kept until it is dropped; none when all are taken, which is said.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.places.clone().try_acquire_owned().ok();
        if place.is_none() {
            self.complain(&format!("{} connections are open", self.max));
        }
        place
    }

    /// A connection could not be taken: out of descriptors, most likely.
    pub async fn rest(&self, error: &io::Error) {
        self.complain(&error.to_string());
        tokio::time::sleep(REST).await;
    }

    fn complain(&self, why: &str) {
        let mut said = self.said.lock().expect("no panic with it held");
        said.unsaid += 1;
        if said.at.is_some_and(|at| at.elapsed() < SAY_EVERY) {
            return;
        }
        tracing::warn!("{} refuses connections, {} so far: {why}", self.name, said.unsaid);
        *said = Said { at: Some(Instant::now()), unsaid: 0 };
    }
}

/// Serves the local socket, where the kernel says who asks.
pub async fn serve_socket(
    router: Router,
    listener: UnixListener,
    room: Arc<Room>,
    limits: DoorLimits,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(place) = room.enter() else { continue };
                let Ok(peer) = stream.peer_cred() else { continue };
                // Looked up with the first request: names and groups of users are read from files.
                let who = move || Peer::Socket(principal::of_uid(peer.uid(), peer.gid()));
                serve(&router, stream, who, place, &limits);
            }
            Err(error) => room.rest(&error).await,
        }
    }
}

/// Serves the port, where a token says it.
pub async fn serve_port(
    router: Router,
    listener: TcpListener,
    room: Arc<Room>,
    limits: DoorLimits,
) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(place) = room.enter() else { continue };
                let _ = stream.set_nodelay(true);
                serve(&router, stream, move || Peer::Port(address), place, &limits);
            }
            Err(error) => room.rest(&error).await,
        }
    }
}

fn serve<S>(
    router: &Router,
    stream: S,
    who: impl Fn() -> Peer + Send + 'static,
    place: OwnedSemaphorePermit,
    limits: &DoorLimits,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.clone();
    let patience = Patience::new(limits.stall);
    let io = TokioIo::new(Impatient::new(stream, limits.silence, patience.clone()));
    let limits = limits.clone();
    let silence = limits.silence;
    let peer = OnceLock::new();
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        let is_call = request.uri().path() == CALL_PATH;
        patience.set(if is_call { limits.stall } else { limits.stream_stall });
        request.extensions_mut().insert(peer.get_or_init(&who).clone());
        let mut router = router.clone();
        async move { tower_service::Service::call(&mut router, request).await }
    });
    tokio::spawn(async move {
        let _place = place;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // Who says nothing does not keep a place. The first byte, by which the version of HTTP is
        // told, has its bound in `Impatient`.
        let mut one = builder.http1();
        one.timer(TokioTimer::new()).header_read_timeout(silence).max_buf_size(HEAD_BYTES_MAX);
        let mut two = builder.http2();
        two.timer(TokioTimer::new()).keep_alive_interval(silence).keep_alive_timeout(silence);
        two.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_BYTES_MAX as u32);
        let served = builder.serve_connection_with_upgrades(io, service).await;
        if let Err(error) = served {
            tracing::debug!("a connection ended early: {error}");
        }
    });
}

/// The one path whose answers are whole; all others are streams.
pub const CALL_PATH: &str = "/api/v1/call";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_door_takes_the_reserve_and_agents_have_half() {
        for (descriptors, expected) in [
            (1024, (192, 192, 384)),
            (20_000, (4936, 4936, 9872)),
            (1 << 20, (20_000, 20_000, 20_000)),
        ] {
            let rooms = Rooms::new(descriptors, &DoorLimits::default());
            let found = (rooms.socket.max, rooms.port.max, rooms.agents.max);
            assert_eq!(found, expected, "{descriptors}");
        }
        let rooms = Rooms::new(16, &"places=3".parse().unwrap());
        assert_eq!((rooms.socket.max, rooms.agents.max), (2, 3));
    }

    #[test]
    fn limits_are_read_and_what_is_wrong_is_named() {
        let limits: DoorLimits = "places=7,silence_ms=250,stall_ms=9".parse().unwrap();
        assert_eq!((limits.places, limits.silence.as_millis()), (Some(7), 250));
        assert_eq!(limits.body, DoorLimits::default().body);
        let wrong = "places=7,silence=9".parse::<DoorLimits>().unwrap_err();
        assert!(wrong.starts_with("'silence=9': expected NAME=NUMBER"), "{wrong}");
    }

    #[test]
    fn a_full_room_refuses_until_somebody_leaves() {
        let room = Room::new("a door", 2);
        let (first, second) = (room.enter(), room.enter());
        assert!(first.is_some() && second.is_some() && room.enter().is_none());
        drop(first);
        assert!(room.enter().is_some());
    }
}
