//! A shell in the browser: a step of the job with a terminal, as the SSH endpoint starts one, and its bytes over a WebSocket.
//!
//! The page asks for a ticket by a `POST`, which proves its origin, and opens the socket with it. The job's owner alone gets one.
//! Binary messages are the terminal's bytes. A text from the page says how large its window is, or how many bytes of output it has
//! shown: where a page falls behind, the step waits. A text to the page says how the shell ended.

use crate::http::peer::HeldSlot;
use crate::per_user::CountedUser;
use crate::shared::Shared;
use crate::shared::shell_tickets::ShellTarget;
use crate::ssh::launch::{Program, SessionRequest, Terminal, launch};
use crate::ssh::step_client::{self, FromStep, StepClient, StepEnd, ToStep};
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::guard::Admission;
use crate::web::job_name;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use cluster::authorise::{Act, authorise};
use cluster::{Job, State as ClusterState};
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::interval;

/// Shells of one user at the same time.
const SHELLS_MAX: usize = 8;
/// The longest message of a page.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of output that a page may have and has not shown.
const UNSHOWN_BYTES_MAX: u64 = 1 << 20;
/// How often a page is asked for a sign of life, and whether its shell may go on.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// A page that is silent for so long is gone; a shell in which nothing happens for so long is ended.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// The sizes that a window may have.
const CELLS_MIN: u16 = 2;
const CELLS_MAX: u16 = 1_000;

const TERMINAL: &str = "xterm-256color";

/// Whether this user opens shells in this job: its owner, whom nobody has shut out. Those who may act for owners use `ssh`.
pub fn may_enter(state: &ClusterState, by: &Principal, job: &Job) -> bool {
    let is_active = state.users.get(&by.name).is_none_or(|known| known.active);
    is_active && job.spec.owner.uid == by.uid && authorise(state, by, Act::ActAsOwner(job)).is_ok()
}

fn check(shared: &Shared, by: &Principal, id: JobId) -> Result<(), Refusal> {
    let state = shared.read();
    let job = state.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
    // Also where it is private: it is refused as one that is not there.
    authorise(&state, by, Act::ActAsOwner(job))?;
    if !may_enter(&state, by, job) {
        return Err(Refusal::AccessDenied);
    }
    match job.attempt() {
        Some(_) => Ok(()),
        None if job.has_ended() => Err(Refusal::JobEnded(id)),
        None => Err(Refusal::JobNotRunning(id)),
    }
}

#[derive(Deserialize)]
struct TicketRequest {
    /// The node's place in the allocation.
    #[serde(default)]
    rank: u32,
}

/// `POST /api/web/jobs/{job}/shell`
pub async fn ticket(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
    body: Bytes,
) -> WebResult {
    let TicketRequest { rank } = read(&body)?;
    let job = job_name::number(&shared, &by, &job_name::read(&name)?)?;
    let target = ShellTarget { job, rank };
    check(&shared, &by, target.job)?;
    let secret = shared.volatile.shell_tickets.make(by.uid, target, Instant::now());
    let secret = secret.ok_or_else(|| {
        WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many shells are being opened")
    })?;
    Ok(json_answer(&json!({ "ticket": secret })))
}

#[derive(Deserialize)]
pub struct ShellQuery {
    ticket: String,
    rows: u16,
    columns: u16,
}

/// `GET /api/web/shell` with `Upgrade: websocket`
pub async fn open(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(admission): Extension<Admission>,
    slot: Option<Extension<HeldSlot>>,
    Query(asked): Query<ShellQuery>,
    upgrade: WebSocketUpgrade,
) -> WebResult {
    let target = shared.volatile.shell_tickets.take(&asked.ticket, by.uid, Instant::now());
    let target = target.ok_or_else(|| {
        WebRefusal::new(StatusCode::FORBIDDEN, "this ticket was used, or is too old")
    })?;
    check(&shared, &by, target.job)?;
    let counted = shared.volatile.web_shells.enter(by.uid, SHELLS_MAX).ok_or_else(|| {
        let text = format!("user {} has {SHELLS_MAX} shells open in browsers", by.name);
        WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    tracing::info!(user = by.name, job = target.job.0, "shell opened in a browser");
    let size = (cells(asked.rows), cells(asked.columns));
    let shell = Shell { shared, by, admission, target, size, _held: (counted, slot) };
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| shell.serve(socket)))
}

fn cells(count: u16) -> u16 {
    count.clamp(CELLS_MIN, CELLS_MAX)
}

struct Shell {
    shared: Arc<Shared>,
    by: Principal,
    admission: Admission,
    target: ShellTarget,
    /// Rows and columns.
    size: (u16, u16),
    /// The shell's place among its user's, and the slot of its connection.
    _held: (CountedUser, Option<Extension<HeldSlot>>),
}

/// What a page says in a text.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum PageMessage {
    Size { rows: u16, columns: u16 },
    Shown { shown: u64 },
}

/// What passed between a page and its step, and when.
struct Traffic {
    /// When something of the page was heard, and when a byte of the terminal passed.
    heard: Instant,
    used: Instant,
    /// Bytes of output that were sent, and that the page has shown.
    sent: u64,
    shown: u64,
    /// What the step has not taken yet.
    waiting: Option<ToStep>,
}

impl Traffic {
    fn new(now: Instant) -> Self {
        Self { heard: now, used: now, sent: 0, shown: 0, waiting: None }
    }

    fn has_room(&self) -> bool {
        self.sent - self.shown < UNSHOWN_BYTES_MAX
    }

    fn on_output(&mut self, bytes: usize, now: Instant) {
        self.sent += bytes as u64;
        self.used = now;
    }

    /// Takes in what the page said; false where it is gone.
    fn on_message(&mut self, message: Message, now: Instant) -> bool {
        self.heard = now;
        match message {
            Message::Binary(bytes) => {
                self.used = now;
                self.waiting = Some(ToStep::Input(bytes));
            }
            // A newer page may say what this server does not know.
            Message::Text(text) => match serde_json::from_str(text.as_str()) {
                Ok(PageMessage::Size { rows, columns }) => {
                    let (rows, columns) = (cells(rows), cells(columns));
                    self.waiting = Some(ToStep::Resize { rows, columns });
                }
                Ok(PageMessage::Shown { shown }) => self.shown = shown.min(self.sent),
                Err(_) => {}
            },
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return false,
        }
        true
    }

    /// Why the shell does not go on.
    fn overdue(&self, now: Instant) -> Option<&'static str> {
        if now.duration_since(self.heard) > SILENCE_MAX {
            return Some("the page is gone");
        }
        (now.duration_since(self.used) > IDLE_MAX).then_some("nothing happened for an hour")
    }
}

impl Shell {
    async fn serve(self, mut socket: WebSocket) {
        let end = self.run(&mut socket).await;
        // A page that has gone needs no reason.
        let _ = socket.send(Message::Text(json!({ "ended": end }).to_string().into())).await;
        let _ = socket.send(Message::Close(None)).await;
    }

    async fn start(&self) -> Result<StepClient, Refusal> {
        let (rows, columns) = self.size;
        let request = SessionRequest {
            program: Program::Shell,
            terminal: Some(Terminal { name: TERMINAL.to_owned(), rows, columns }),
            variables: vec![("COLORTERM".to_owned(), "truecolor".to_owned())],
        };
        let ShellTarget { job, rank } = self.target;
        let launch = launch(&self.shared, job, rank, &request)?;
        step_client::start(&self.shared, self.by.clone(), job, launch).await
    }

    /// Runs the shell to its end, and says which that was. The step is asked to end when its client is dropped.
    async fn run(&self, socket: &mut WebSocket) -> String {
        // A run that ends when nobody is connected stays.
        let _connection = self.shared.volatile.ssh_connections.opened(self.target.job);
        let StepClient { to, mut from } = match self.start().await {
            Ok(step) => step,
            Err(why) => return why.to_string(),
        };
        let mut traffic = Traffic::new(Instant::now());
        let mut timer = interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                is_taken = hand_over(&to, &mut traffic.waiting), if traffic.waiting.is_some() => {
                    if !is_taken {
                        // The step has ended, and its last words are on their way.
                        traffic.waiting = None;
                    }
                }
                message = socket.recv(), if traffic.waiting.is_none() => {
                    let Some(Ok(message)) = message else { return "the page is gone".into() };
                    if !traffic.on_message(message, Instant::now()) {
                        return "it was closed".into();
                    }
                }
                report = from.recv(), if traffic.has_room() => {
                    let bytes = match report {
                        Some(FromStep::Stdout(bytes) | FromStep::Stderr(bytes)) => bytes,
                        Some(FromStep::Ended(end)) => return end_text(&end),
                        None => return "the step was lost".into(),
                    };
                    traffic.on_output(bytes.len(), Instant::now());
                    if socket.send(Message::Binary(bytes)).await.is_err() {
                        return "the page is gone".into();
                    }
                }
                _ = timer.tick() => {
                    if let Some(why) = self.overdue(&traffic) {
                        return why.into();
                    }
                    if socket.send(Message::Ping(Bytes::new())).await.is_err() {
                        return "the page is gone".into();
                    }
                }
            }
        }
    }

    fn overdue(&self, traffic: &Traffic) -> Option<&'static str> {
        if !self.admission.holds(&self.shared) {
            return Some("the session or the token is over: sign in again");
        }
        let state = self.shared.read();
        let is_shut_out = |job: &Arc<Job>| !may_enter(&state, &self.by, job);
        // A job that has left memory says so by its step.
        if state.jobs.get(&self.target.job).is_some_and(is_shut_out) {
            return Some("you may not enter this job any more");
        }
        traffic.overdue(Instant::now())
    }
}

/// Hands a message to the step once it has room; false where the step has ended. What is not handed over stays.
async fn hand_over(to: &mpsc::Sender<ToStep>, waiting: &mut Option<ToStep>) -> bool {
    let Ok(permit) = to.reserve().await else { return false };
    if let Some(message) = waiting.take() {
        permit.send(message);
    }
    true
}

fn end_text(end: &StepEnd) -> String {
    match end {
        StepEnd::Exited(exit) if exit.signal != 0 => format!("signal {}", exit.signal),
        StepEnd::Exited(exit) => format!("exit code {}", exit.code),
        StepEnd::Failed(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_says_its_size_and_what_it_has_shown() {
        let now = Instant::now();
        let mut traffic = Traffic::new(now);
        let say = |traffic: &mut Traffic, text: &str| {
            assert!(traffic.on_message(Message::Text(text.into()), now));
        };
        say(&mut traffic, r#"{"rows": 40, "columns": 60000}"#);
        assert!(matches!(traffic.waiting, Some(ToStep::Resize { rows: 40, columns: CELLS_MAX })));
        traffic.on_output(UNSHOWN_BYTES_MAX as usize, now);
        assert!(!traffic.has_room(), "the step waits");
        say(&mut traffic, r#"{"shown": 99999999999}"#);
        assert!(traffic.has_room(), "and goes on");
        assert_eq!(traffic.shown, traffic.sent, "no more was shown than was sent");
        for unknown in ["{}", "[1]", "nothing", r#"{"rows": -1, "columns": 2}"#] {
            say(&mut traffic, unknown);
        }
        assert!(!traffic.on_message(Message::Close(None), now));
    }

    #[test]
    fn shell_ends_when_its_page_is_silent_or_nothing_happens() {
        let start = Instant::now();
        let mut traffic = Traffic::new(start);
        assert_eq!(traffic.overdue(start + SILENCE_MAX), None);
        let late = start + SILENCE_MAX + Duration::from_secs(1);
        assert_eq!(traffic.overdue(late), Some("the page is gone"));
        assert!(traffic.on_message(Message::Pong(Bytes::new()), late));
        assert_eq!(traffic.overdue(late), None);
        let idle = start + IDLE_MAX + Duration::from_secs(1);
        assert!(traffic.on_message(Message::Pong(Bytes::new()), idle));
        assert_eq!(traffic.overdue(idle), Some("nothing happened for an hour"));
        assert!(traffic.on_message(Message::Binary(Bytes::from_static(b"x")), idle));
        assert_eq!(traffic.overdue(idle), None);
    }
}
