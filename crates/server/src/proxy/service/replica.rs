//! A replica of a service: the connections to it, and how many requests it has not answered yet.

use super::readiness::Readiness;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use model::id::AttemptId;
use model::principal::Principal;
use model::run::ArrayTask;
use model::service::Service;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Requests at once to one replica. The step in the replica takes somewhat more connections.
pub const OUTSTANDING_MAX: usize = 240;
/// Connections that are kept open for the next requests, and for how long.
const IDLE_MAX: usize = 32;
const IDLE: Duration = Duration::from_secs(60);
/// How long a replica may take to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a request may take to be sent and to have the head of its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

type Sender = SendRequest<Body>;

pub struct Replica {
    pub attempt: AttemptId,
    /// The deployment of its service that it belongs to.
    pub deployment: u32,
    /// A connection to its port was made once: its server is up.
    is_reached: AtomicBool,
    is_reaching: AtomicBool,
    /// Its place in the array of its service's replicas, where there is one.
    pub task: Option<ArrayTask>,
    pub readiness: Readiness,
    /// Since when it gets no more requests, because it is to be given up.
    drained: Mutex<Option<Instant>>,
    port: u16,
    outstanding: Arc<AtomicUsize>,
    /// The last used is at the end.
    idle: Mutex<Vec<(Sender, Instant)>>,
}

/// Why a request has no answer.
pub enum SendFailure {
    /// Nothing of it was sent: another replica may get it.
    NotSent(Box<hyper::Request<Body>>),
    /// It was sent, in part at least, and the connection was lost, or what came was no answer.
    Lost,
    TimedOut,
}

/// A request that the replica has not answered yet, until this is dropped.
pub struct Outstanding(Arc<AtomicUsize>);

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Replica {
    pub fn new(attempt: AttemptId, task: Option<ArrayTask>, service: &Service) -> Self {
        Self {
            attempt,
            deployment: service.deployment,
            is_reached: AtomicBool::default(),
            is_reaching: AtomicBool::default(),
            task,
            drained: Mutex::default(),
            readiness: Readiness::new(&service.probes),
            port: service.port,
            outstanding: Arc::default(),
            idle: Mutex::default(),
        }
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    /// Gives it no more requests from a time on, or gives it requests again.
    pub fn drain(&self, since: Option<Instant>) {
        *self.drained.lock().expect("no panic with the time held") = since;
    }

    pub fn drained_since(&self) -> Option<Instant> {
        *self.drained.lock().expect("no panic with the time held")
    }

    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    /// Connects to it, unless somebody does: then it is known that its server is up. The connection is closed at once, because a
    /// server that answers one connection at a time would wait for its request.
    pub async fn reach(
        self: Arc<Self>,
        shared: Arc<Shared>,
        forwarders: Arc<Forwarders>,
        owner: Principal,
    ) {
        if self.is_reached() || self.is_reaching.swap(true, Relaxed) {
            return;
        }
        drop(self.connect(&shared, &forwarders, &owner).await);
        self.is_reaching.store(false, Relaxed);
    }

    #[cfg(test)]
    pub fn set_reached(&self) {
        self.is_reached.store(true, Relaxed);
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push((sender, Instant::now()));
        }
    }

    /// Whether it is to get requests.
    pub fn is_open(&self) -> bool {
        self.readiness.is_ready() && self.drained_since().is_none()
    }

    pub fn enter(&self) -> Outstanding {
        self.outstanding.fetch_add(1, Relaxed);
        Outstanding(self.outstanding.clone())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Sender, Instant)>> {
        self.idle.lock().expect("no panic with the connections held")
    }

    /// Closes the connections that nobody has used for a while.
    pub fn close_idle(&self, now: Instant) {
        self.idle().retain(|(sender, since)| {
            !sender.is_closed() && now.saturating_duration_since(*since) < IDLE
        });
    }

    /// Sends a request by a connection that is open, or by a new one. A connection that becomes a websocket is always new.
    pub async fn send(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        forwarders: &Arc<Forwarders>,
        owner: &Principal,
        mut request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<Incoming>, SendFailure> {
        while !upgrades && let Some(sender) = self.take_idle() {
            match self.send_by(sender, request).await {
                // The replica has closed it meanwhile.
                Err(SendFailure::NotSent(unsent)) => request = *unsent,
                other => return other,
            }
        }
        match self.connect(shared, forwarders, owner).await {
            Some(sender) => self.send_by(sender, request).await,
            None => Err(SendFailure::NotSent(Box::new(request))),
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle();
        while let Some((sender, _)) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(
        &self,
        shared: &Arc<Shared>,
        forwarders: &Arc<Forwarders>,
        owner: &Principal,
    ) -> Option<Sender> {
        let step = forwarders.get(shared, owner, self.attempt.job, 0)?;
        let orders = step.orders();
        let stream = timeout(CONNECT_TIMEOUT, orders.open(self.port)).await.ok().flatten()?;
        self.is_reached.store(true, Relaxed);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
            drop(step);
        });
        Some(sender)
    }

    async fn send_by(
        self: &Arc<Self>,
        mut sender: Sender,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<Incoming>, SendFailure> {
        let answer = match timeout(ANSWER_TIMEOUT, sender.try_send_request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut failure)) => {
                return Err(match failure.take_message() {
                    Some(unsent) => SendFailure::NotSent(Box::new(unsent)),
                    None => SendFailure::Lost,
                });
            }
            Err(_) => return Err(SendFailure::TimedOut),
        };
        let replica = self.clone();
        // It is ready for another when the whole answer was read; never where it has become a websocket, or is closed.
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                replica.keep(sender);
            }
        });
        Ok(answer)
    }
}

/// The body of an answer. Its request is outstanding until all of it was read.
pub struct AnswerBody {
    body: Incoming,
    _outstanding: Outstanding,
}

impl AnswerBody {
    pub fn new(body: Incoming, outstanding: Outstanding) -> Self {
        Self { body, _outstanding: outstanding }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
