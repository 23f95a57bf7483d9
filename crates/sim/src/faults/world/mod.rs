//! One history: a queue of what happens when, on one thread under one clock.
//!
//! `commit` is the server's way to the disk and its restarts, `deliver` what messages do at either end, `disturb` the faults,
//! `settle` the time after the last fault.

mod commit;
mod deliver;
mod disturb;
mod settle;

use super::agent::Agent;
use super::bug::Bugs;
use super::checks::{self, Broken, Checked, Ledger};
use super::disks::Disks;
use super::network::Network;
use super::orders::OrderTexts;
use super::requests;
use super::server::{AnswerTo, Server, Work};
use super::shared_log::SharedLog;
use super::site;
use super::trace::Trace;
use super::{Counts, Finished, Options};
use crate::chance::Chance;
use cluster::command::plan_commands;
use cluster::{Command, Event, State};
use model::id::AttemptId;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::link::{ToAgent, ToServer};
use wire::version::PROTOCOL;

/// When a history begins, milliseconds since the epoch.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Events between two checks of the whole state; after the last fault there are fewer of them.
const CHECK_EVERY: u64 = 50;
const CALM_CHECK_EVERY: u64 = 250;

/// What happens at a moment.
enum Happening {
    /// Clients ask for something.
    Client,
    ToServer {
        node: String,
        link: u64,
        message: Box<ToServer>,
    },
    ToAgent {
        node: String,
        link: u64,
        message: Box<ToAgent>,
    },
    /// The server finds the end of a link.
    LinkEnded {
        node: String,
        link: u64,
    },
    /// The server tries again to write that a node is lost.
    MarkLost {
        node: String,
    },
    /// The agent finds the end of its link.
    LinkLost {
        node: String,
        link: u64,
    },
    /// The agent dials.
    Connect {
        node: String,
    },
    /// The dispatcher comes to a node's hello.
    Reconcile {
        node: String,
        link: u64,
        held: Vec<(AttemptId, bool)>,
    },
    /// Steps whose launch nobody has are given up.
    Disown {
        node: String,
        link: u64,
    },
    /// Something is due in attempts of the node.
    Attempts {
        node: String,
    },
    Tick,
    Plan,
    /// A plan that took a while is carried out.
    CarryOut {
        term: u64,
        commands: Vec<Command>,
    },
    Fault,
    ServerStart,
    /// A server that stood still goes on.
    ServerThaws,
    AgentStart {
        node: String,
    },
    PartitionHealed {
        node: String,
    },
    DiskHasRoom,
}

/// What a server that died leaves behind.
struct Dead {
    memory: State,
    /// The state before the commit that was under way, where one was.
    before: Option<State>,
    /// The events of that commit.
    events: Vec<Event>,
    /// The power was cut, with this seed for what survives.
    power_cut: Option<u64>,
}

pub struct World {
    chance: Chance,
    bugs: Bugs,
    /// The events before the faults stop.
    events: u64,
    /// The first server is killed in the middle of this write.
    killed_at_write: Option<u64>,
    /// Milliseconds since the epoch, as no machine sees them.
    now: i64,
    queue: BTreeMap<(i64, u64), Happening>,
    /// The number of the queue's newest entry: of entries of one moment the first that was put in happens first.
    last_entry: u64,
    disks: Disks,
    /// In a box: it goes from hand to hand with every commit, and is large.
    server: Option<Box<Server>>,
    /// A leader that stands still, while another takes over.
    frozen: Option<Box<Server>>,
    dead: Option<Dead>,
    /// Counts the starts of servers.
    server_start: u64,
    /// How far the server's clock is ahead, milliseconds.
    server_clock_ms: i64,
    /// The version of the protocol that the server says it speaks.
    protocol: u32,
    /// The number of the site's present files.
    variant: u64,
    texts: Arc<OrderTexts>,
    agents: BTreeMap<String, Agent>,
    /// Agents that will dial.
    dialling: BTreeSet<String>,
    network: Network,
    /// Nodes whose loss could not be written yet.
    unmarked: BTreeSet<String>,
    /// When the attempts of each node are looked at next.
    timers: BTreeMap<String, i64>,
    is_plan_due: bool,
    random: u128,
    /// No fault comes any more.
    is_calm: bool,
    ledger: Ledger,
    pub trace: Trace,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64, options: &Options, trace: Trace) -> Result<Self, Broken> {
        let mut chance = Chance::new(seed);
        let texts = OrderTexts::read().map_err(|error| Broken(format!("an order: {error}")))?;
        // In one of four histories the server is of the next release, in others an agent is.
        let protocol = if chance.one_in(4) { PROTOCOL + 1 } else { PROTOCOL };
        let mut agents = BTreeMap::new();
        for node in site::NODES {
            let version = if chance.one_in(4) { PROTOCOL + 1 } else { PROTOCOL };
            agents.insert(node.to_owned(), Agent::new(node, version));
        }
        // In one of five the journal is in a database that several servers share.
        let has_database = chance.one_in(5) && options.killed_at_write.is_none();
        let database = has_database.then(SharedLog::default);
        let mut world = Self {
            chance,
            bugs: options.bugs,
            events: options.events,
            killed_at_write: options.killed_at_write,
            now: BEGIN_MS,
            queue: BTreeMap::new(),
            last_entry: 0,
            disks: Disks::new(database),
            server: None,
            frozen: None,
            dead: None,
            server_start: 0,
            server_clock_ms: 0,
            protocol,
            variant: 0,
            texts: Arc::new(texts),
            agents,
            dialling: BTreeSet::new(),
            network: Network::default(),
            unmarked: BTreeSet::new(),
            timers: BTreeMap::new(),
            is_plan_due: false,
            random: 0,
            is_calm: false,
            ledger: Ledger::default(),
            trace,
            counts: Counts::default(),
        };
        world.after(0, Happening::ServerStart);
        world.after(5_000, Happening::Tick);
        world.after(1_000, Happening::Client);
        world.after(20_000, Happening::Fault);
        for node in site::NODES {
            world.dial(node, 100);
        }
        Ok(world)
    }

    /// Runs the history: its events, and then until everything that can run has run.
    pub fn run(&mut self) -> Result<Finished, Broken> {
        while self.counts.events < self.events {
            self.step()?;
            if self.counts.events.is_multiple_of(CHECK_EVERY) {
                self.check_all()?;
            }
        }
        self.settle()?;
        self.check_all()?;
        let position = self.server.as_ref().map(|server| server.position()).unwrap_or_default();
        self.counts.launches = self.ledger.launches() as u64;
        Ok(Finished { counts: self.counts, end_seq: position.seq, end_chain: position.chain })
    }

    /// Whether the first server is still to be killed in the middle of a write: nothing else disturbs it before.
    fn awaits_its_kill(&self) -> bool {
        self.killed_at_write.is_some() && self.counts.server_deaths == 0
    }

    fn step(&mut self) -> Checked {
        let Some(((time, _), happening)) = self.queue.pop_first() else {
            return Err(Broken("nothing happens any more".to_owned()));
        };
        self.now = self.now.max(time);
        self.counts.events += 1;
        self.note(&happening);
        self.happen(happening)
    }

    fn after(&mut self, delay_ms: i64, happening: Happening) {
        self.at(self.now + delay_ms, happening);
    }

    fn at(&mut self, time: i64, happening: Happening) {
        self.last_entry += 1;
        self.queue.insert((time, self.last_entry), happening);
    }

    /// The time by the server's clock.
    fn server_time(&self) -> Timestamp {
        Timestamp(self.now + self.server_clock_ms)
    }

    fn happen(&mut self, happening: Happening) -> Checked {
        match happening {
            Happening::Client => self.clients_ask(),
            Happening::ToServer { node, link, message } => self.on_server(&node, link, *message),
            Happening::ToAgent { node, link, message } => self.on_agent(&node, link, *message),
            Happening::LinkEnded { node, link } => self.link_ended(&node, link),
            Happening::MarkLost { node } => self.mark_lost(&node),
            Happening::LinkLost { node, link } => {
                self.link_lost(&node, link);
                Ok(())
            }
            Happening::Connect { node } => self.connect(&node),
            Happening::Reconcile { node, link, held } => self.reconcile(&node, link, &held),
            Happening::Disown { node, link } => self.disown(&node, link),
            Happening::Attempts { node } => self.advance_attempts(&node),
            Happening::Tick => self.tick(),
            Happening::Plan => self.plan(),
            Happening::CarryOut { term, commands } => self.carry_out(term, commands),
            Happening::Fault => self.disturb(),
            Happening::ServerStart => self.start_server(),
            Happening::ServerThaws => self.thaw_server(),
            Happening::AgentStart { node } => {
                self.start_agent(&node);
                Ok(())
            }
            Happening::PartitionHealed { node } => {
                if let Some(agent) = self.agents.get_mut(&node) {
                    agent.is_partitioned = false;
                }
                self.dial(&node, 500);
                Ok(())
            }
            Happening::DiskHasRoom => {
                self.disks.make_room();
                Ok(())
            }
        }
    }

    fn clients_ask(&mut self) -> Checked {
        if self.is_calm {
            return Ok(());
        }
        let pause = self.chance.millis(200, 5_000);
        self.after(pause, Happening::Client);
        let now = self.server_time();
        let Some(server) = &self.server else { return Ok(()) };
        // Commands that come together go into one commit.
        let count = if self.chance.one_in(4) { 3 } else { 1 };
        let mut work = Vec::new();
        for _ in 0..count {
            let asked = requests::next(&mut self.chance, &server.state, now, &mut self.variant);
            let requests::Asked { by, command } = asked;
            self.trace.note(|| format!("    {} asks: {}", by.name, words(&command)));
            work.push(Work { by, command, answer: AnswerTo::Client });
        }
        self.commit(work)
    }

    fn tick(&mut self) -> Checked {
        let pause = if self.is_calm { 15_000 } else { self.chance.millis(1_000, 8_000) };
        self.after(pause, Happening::Tick);
        let mut work = vec![Work::own(Command::Tick { booked: true })];
        if self.is_calm {
            work.extend(self.operator_work());
        }
        self.commit(work)?;
        self.wake_planner();
        Ok(())
    }

    fn wake_planner(&mut self) {
        if !self.is_plan_due && self.server.is_some() {
            self.is_plan_due = true;
            let delay = self.chance.millis(5, 200);
            self.after(delay, Happening::Plan);
        }
    }

    fn plan(&mut self) -> Checked {
        self.is_plan_due = false;
        let now = self.server_time();
        let Some(server) = &mut self.server else { return Ok(()) };
        if server.plan_under_way {
            return Ok(());
        }
        let Server { state, view_builder, memo, .. } = &mut **server;
        let view = view_builder.update(state, now);
        let resumes = view.running.iter().any(|running| running.resume_when_free);
        if view.queue.is_empty() && !resumes {
            return Ok(());
        }
        let plan = sched::plan(view, now, memo);
        let commands = plan_commands(plan, now);
        if commands.is_empty() {
            return Ok(());
        }
        self.counts.plans += 1;
        if self.is_calm || !self.chance.one_in(3) {
            return self.commit(commands.into_iter().map(Work::own).collect());
        }
        server.plan_under_way = true;
        let term = server.term;
        let delay = self.chance.millis(50, 800);
        self.after(delay, Happening::CarryOut { term, commands });
        Ok(())
    }

    fn carry_out(&mut self, term: u64, commands: Vec<Command>) -> Checked {
        let Some(server) = &mut self.server else { return Ok(()) };
        if server.term != term {
            return Ok(());
        }
        server.plan_under_way = false;
        // A start that was overtaken is refused: the next plan sees why.
        self.commit(commands.into_iter().map(Work::own).collect())?;
        self.wake_planner();
        Ok(())
    }

    /// The checks that cost more than an event: recounts, a plan from nothing, and one explanation.
    fn check_all(&mut self) -> Checked {
        self.up_nodes_are_connected()?;
        self.limits_are_kept()?;
        let now = self.server_time();
        let Some(server) = &mut self.server else { return Ok(()) };
        let Server { state, view_builder, memo, .. } = &mut **server;
        checks::recounts(state)?;
        let view = view_builder.update(state, now);
        let plan = sched::plan(view, now, memo);
        let from_nothing = checks::plan_from_nothing(state, now, view, &plan)?;
        let waiting = self.chance.pick(&view.queue).map(|waiting| waiting.job);
        match waiting {
            Some(job) => checks::explanation(state, now, from_nothing, job),
            None => Ok(()),
        }
    }

    fn note(&mut self, happening: &Happening) {
        let (event, now) = (self.counts.events, self.now - BEGIN_MS);
        self.trace.note(|| {
            let (seconds, millis) = (now / 1_000, now % 1_000);
            format!("{event:>5}  {seconds:>5}.{millis:03} s  {}", happening.words())
        });
    }
}

impl Happening {
    /// One line, for the trace.
    fn words(&self) -> String {
        match self {
            Self::Client => "clients ask".to_owned(),
            Self::ToServer { node, link, message } => {
                format!("{node} → server, link {link}: {}", words(message))
            }
            Self::ToAgent { node, link, message } => {
                format!("server → {node}, link {link}: {}", words(message))
            }
            Self::LinkEnded { node, link } => {
                format!("link {link} of {node} is over at the server")
            }
            Self::MarkLost { node } => format!("the loss of {node} is written again"),
            Self::LinkLost { node, link } => format!("{node} finds its link {link} over"),
            Self::Connect { node } => format!("{node} dials"),
            Self::Reconcile { node, link, .. } => format!("{node} is reconciled, link {link}"),
            Self::Disown { node, .. } => format!("steps of {node} without a launch are given up"),
            Self::Attempts { node } => format!("attempts of {node}"),
            Self::Tick => "tick".to_owned(),
            Self::Plan => "plan".to_owned(),
            Self::CarryOut { commands, .. } => format!("a plan of {} commands", commands.len()),
            Self::Fault => "fault".to_owned(),
            Self::ServerStart => "the server starts".to_owned(),
            Self::ServerThaws => "a server that stood still goes on".to_owned(),
            Self::AgentStart { node } => format!("the agent of {node} starts"),
            Self::PartitionHealed { node } => format!("{node} is reachable again"),
            Self::DiskHasRoom => "the disk has room again".to_owned(),
        }
    }
}

/// The most of a message or a command that a trace shows, characters.
const WORDS_MAX: usize = 160;

fn words(of: &impl std::fmt::Debug) -> String {
    let text = format!("{of:?}");
    match text.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
