//! The way to the disk: what is decided is committed, and only then answered and sent; a commit that fails, and a server that
//! dies with it.

use super::{Dead, Happening, World};
use crate::faults::bug::Bug;
use crate::faults::checks::{self, Broken, Checked};
use crate::faults::disks::DiskFault;
use crate::faults::dispatch::{Dispatched, Seen};
use crate::faults::server::{self, AnswerTo, Batch, Server, Work};
use crate::faults::site;
use cluster::{Command, Event};
use wire::link::ToAgent;
use wire::order::SignedOrder;

/// How often a disk is read back that fails again and again.
const READS_MAX: u32 = 8;

/// How long a server waits until it tries again to write that a node is lost, milliseconds. The real one is quicker.
const MARK_PAUSE_MS: i64 = 2_000;

/// When an agent finds that a link is over that the server has ended and that was not the node's newest, milliseconds.
const OVERTAKEN_ENDS_MS: i64 = 500;

impl World {
    /// Decides, applies and commits; what the dispatcher itself adds follows in commits of its own.
    pub(super) fn commit(&mut self, work: Vec<Work>) -> Checked {
        let mut work = work;
        while !work.is_empty() {
            work = self.commit_once(work)?;
        }
        Ok(())
    }

    fn commit_once(&mut self, work: Vec<Work>) -> Result<Vec<Work>, Broken> {
        let now = self.server_time();
        let Some(mut server) = self.server.take() else { return Ok(Vec::new()) };
        let before = self.disks.is_armed().then(|| server.state.clone());
        let mut batch = Batch::default();
        for one in work {
            // Jobs that are submitted together take the numbers after it too.
            self.random += 1_000;
            server.decide(one, (now, self.random), &self.ledger, &mut batch)?;
        }
        if self.bugs.has(Bug::AckBeforeCommit) {
            let upto = server.position().seq + batch.events.len() as u64;
            self.answer_clients(&batch, upto);
        }
        let committed = if batch.events.is_empty() { Ok(()) } else { server.append(&batch) };
        if self.disks.has_crashed() {
            let power_cut = self.chance.one_in(2).then(|| self.chance.draw());
            self.server_dies(server, before, batch.events, power_cut);
            return Ok(Vec::new());
        }
        match committed {
            Ok(()) => self.publish(server, batch),
            Err(error) => {
                self.counts.failed_commits += 1;
                self.disks.note_failure();
                self.trace.note(|| format!("    the commit fails: {error}"));
                self.roll_back(server, before, batch)
            }
        }
    }

    /// `upto`: the end of the history with the batch.
    fn answer_clients(&mut self, batch: &Batch, upto: u64) {
        let clients = batch.answers.iter().filter(|(to, _)| *to == AnswerTo::Client);
        clients.for_each(|(_, answer)| self.ledger.acknowledged(answer, upto));
    }

    /// The commit is on disk: everybody is answered, orders go out.
    fn publish(&mut self, mut server: Box<Server>, batch: Batch) -> Result<Vec<Work>, Broken> {
        self.counts.commits += u64::from(!batch.events.is_empty());
        self.counts.journalled += batch.events.len() as u64;
        self.ledger.published(&server.state, &batch.events)?;
        self.nothing_is_released_that_runs(&batch.events)?;
        let mut out = Dispatched::default();
        {
            let seen = Seen { state: &server.state, now: self.server_time() };
            for event in &batch.events {
                server.dispatcher.event(seen, event, &mut out);
            }
            for signal in &batch.signals {
                server.dispatcher.signal(seen, signal, &mut out);
            }
        }
        // So far these are nodes that the configuration names again.
        if self.bugs.has(Bug::NamedAgainWithoutHello) {
            out.cut.clear();
        }
        let wakes = batch.events.iter().any(Event::may_start_jobs);
        self.answer_clients(&batch, server.position().seq);
        for (to, answer) in batch.answers {
            match to {
                AnswerTo::Nobody | AnswerTo::Client => {}
                AnswerTo::Lost { node } => {
                    if answer.is_err() {
                        self.mark_later(node);
                    }
                }
                AnswerTo::Report { node, link, serial, forget } => {
                    if let Some(serial) = serial.filter(|_| answer.is_ok()) {
                        self.send_to_agent(&node, link, ToAgent::Ack { serial })?;
                    }
                    if let Some(attempt) = forget {
                        let now = self.server_time();
                        server.dispatcher.forget(now, &node, attempt, &mut out);
                    }
                }
                AnswerTo::Hello { node, link, held } => match answer {
                    Ok(_) => {
                        let delay = self.chance.millis(0, 300);
                        // So far behind a dispatcher is seldom; with a bug of the time until then it is always, so that it shows soon.
                        let is_behind = self.bugs.has(Bug::OvertakenHelloAnswered)
                            || self.bugs.has(Bug::OrderBeforeLaunch);
                        let delay = if is_behind { delay * 100 } else { delay };
                        self.after(delay, Happening::Reconcile { node, link, held });
                    }
                    Err(_) => out.cut.push(node),
                },
            }
        }
        let work = self.send_out(&mut server, out)?;
        server.maintain();
        if self.disks.has_crashed() {
            let power_cut = self.chance.one_in(2).then(|| self.chance.draw());
            self.server_dies(server, None, Vec::new(), power_cut);
            return Ok(Vec::new());
        }
        self.server = Some(server);
        if wakes {
            self.wake_planner();
        }
        Ok(work)
    }

    /// The loss of a node could not be written.
    fn mark_later(&mut self, node: String) {
        if self.bugs.has(Bug::UnwrittenLossForgotten) {
            return;
        }
        self.unmarked.insert(node.clone());
        self.after(MARK_PAUSE_MS, Happening::MarkLost { node });
    }

    /// Sends orders and cuts links. Returns what the dispatcher has for the writer.
    pub(super) fn send_out(
        &mut self,
        server: &mut Server,
        out: Dispatched,
    ) -> Result<Vec<Work>, Broken> {
        for sent in out.orders {
            let body = serde_json::to_string(&sent.order)
                .map_err(|error| Broken(format!("an order cannot be written: {error}")))?;
            let order = SignedOrder { body, signature: String::new() };
            self.send_to_agent(&sent.node, sent.link, ToAgent::Order(order))?;
        }
        let mut work: Vec<Work> = out.commands.into_iter().map(Work::own).collect();
        for node in out.cut {
            work.extend(self.cut(server, &node));
        }
        Ok(work)
    }

    /// The server ends every link that speaks for the node.
    fn cut(&mut self, server: &mut Server, node: &str) -> Option<Work> {
        let link = server.dispatcher.link(node)?;
        server.dispatcher.remove_link(node, link);
        self.network.end(link);
        let delay = self.chance.millis(5, 500);
        self.after(delay, Happening::LinkLost { node: node.to_owned(), link });
        for other in server.dispatcher.remove_live_links(node) {
            self.end_overtaken(node, other);
        }
        Some(Work::lost(node))
    }

    /// The server ends a link of the node that another took over from.
    pub(super) fn end_overtaken(&mut self, node: &str, link: u64) {
        self.network.end(link);
        self.after(OVERTAKEN_ENDS_MS, Happening::LinkLost { node: node.to_owned(), link });
    }

    /// What a commit says is gone from a node is gone there.
    fn nothing_is_released_that_runs(&self, events: &[Event]) -> Checked {
        for event in events {
            let (Event::AttemptEndedOnNode { attempt, node, .. }
            | Event::StaleAttemptGone { node, attempt }) = event
            else {
                continue;
            };
            let held = self.agents.get(node).and_then(|agent| agent.attempts.get(attempt));
            if held.is_some_and(|supervisor| supervisor.is_alive()) {
                let what = format!("{node} is freed of attempt {attempt}, which runs there");
                return Err(Broken(what));
            }
        }
        Ok(())
    }

    /// A commit did not reach the disk: the state goes back to what the disk has, and nobody in it is told that it was kept. A
    /// disk whose sync failed may have it after all: then nodes are to say hello again, since its orders were never sent.
    fn roll_back(
        &mut self,
        mut server: Box<Server>,
        before: Option<cluster::State>,
        batch: Batch,
    ) -> Result<Vec<Work>, Broken> {
        let mut reads = 0;
        let opened = loop {
            match server::open(&self.disks, Some(server.epoch)) {
                Ok(opened) => break opened,
                Err(_) if self.disks.has_crashed() => {
                    let power_cut = self.chance.one_in(2).then(|| self.chance.draw());
                    self.server_dies(server, before, batch.events, power_cut);
                    return Ok(Vec::new());
                }
                Err(error) if reads == READS_MAX => {
                    return Err(Broken(format!("the journal cannot be read back: {error}")));
                }
                Err(_) => reads += 1,
            }
        };
        if opened.has_loss {
            return Err(Broken("acknowledged history is lost".to_owned()));
        }
        let is_kept = checks::read_back(before.as_ref(), &server.state, &opened.state)?;
        if is_kept && self.disks.database.is_some() {
            // Its records and its orders were dropped with the session: a start makes them from the journal.
            self.server_dies(server, before, batch.events, None);
            return Ok(Vec::new());
        }
        server.roll_back(opened);
        // First, since a purge in it takes jobs out of memory that are in the books.
        if is_kept {
            self.ledger.published(&server.state, &batch.events)?;
        }
        self.ledger.jobs_are_kept(&server.state)?;
        self.ledger.history_is_kept(server.position().seq)?;
        let is_sent_again = is_kept && !self.bugs.has(Bug::KeptCommitUnsent);
        let mut nodes = if is_sent_again { server.dispatcher.links() } else { Vec::new() };
        for (to, _) in batch.answers {
            match to {
                AnswerTo::Nobody | AnswerTo::Client => {}
                AnswerTo::Lost { node } => self.mark_later(node),
                AnswerTo::Hello { .. } if self.bugs.has(Bug::UnkeptHelloLinkLives) => {}
                AnswerTo::Report { node, .. } | AnswerTo::Hello { node, .. } => nodes.push(node),
            }
        }
        let mut work = Vec::new();
        for node in nodes {
            work.extend(self.cut(&mut server, &node));
        }
        self.server = Some(server);
        self.wake_planner();
        Ok(work)
    }

    /// The server's process ends; agents find their links over.
    pub(super) fn server_dies(
        &mut self,
        server: Box<Server>,
        before: Option<cluster::State>,
        events: Vec<Event>,
        power_cut: Option<u64>,
    ) {
        self.trace.note(|| format!("    the server dies in term {}", server.term));
        self.dead = Some(Dead { memory: server.state, before, events, power_cut });
        self.server_is_gone();
    }

    /// Nobody leads: agents find their links over, and a server starts soon.
    fn server_is_gone(&mut self) {
        self.counts.server_deaths += 1;
        self.server = None;
        // The next one begins with nodes that nobody is connected to.
        self.unmarked.clear();
        self.is_plan_due = false;
        let linked: Vec<(String, u64)> =
            self.agents.iter().filter_map(|(node, a)| Some((node.clone(), a.link?))).collect();
        for (node, link) in linked {
            let delay = self.chance.millis(10, 3_000);
            self.after(delay, Happening::LinkLost { node, link });
        }
        let delay = self.chance.millis(300, 12_000);
        self.after(delay, Happening::ServerStart);
    }

    /// A server starts with what is on the disks, which must be what the one before it had acknowledged.
    pub(super) fn start_server(&mut self) -> Checked {
        if self.server.is_some() {
            return Ok(());
        }
        let mut power_cut = self.dead.as_ref().and_then(|dead| dead.power_cut);
        let mut starts = 0;
        let opened = loop {
            self.disks.make_room();
            self.disks.restart(power_cut);
            if let Some(write) = self.killed_at_write.filter(|_| self.awaits_its_kill()) {
                self.disks.arm(DiskFault::Crash { write });
            } else if !self.is_calm && starts < 2 && self.chance.one_in(6) {
                // It may be killed while it reads.
                let write = 1 + self.chance.below(6);
                self.disks.arm(DiskFault::Crash { write });
            }
            match server::open(&self.disks, None) {
                Ok(opened) if !self.disks.has_crashed() => break opened,
                Ok(_) => self.counts.server_deaths += 1,
                Err(_) if self.disks.has_crashed() => self.counts.server_deaths += 1,
                Err(error) => {
                    return Err(Broken(format!("the journal cannot be opened: {error}")));
                }
            }
            starts += 1;
            power_cut = self.chance.one_in(2).then(|| self.chance.draw());
        };
        if opened.has_loss {
            return Err(Broken("acknowledged history is lost".to_owned()));
        }
        if let Some(dead) = self.dead.take() {
            let found = &opened.state;
            let is_kept = checks::read_back(dead.before.as_ref(), &dead.memory, found)?;
            if is_kept {
                self.ledger.published(found, &dead.events)?;
            }
            self.ledger.jobs_are_kept(found)?;
            self.ledger.history_is_kept(opened.end())?;
        }
        self.server_start += 1;
        let mut started = Server::start(opened, &self.texts, self.protocol, self.server_time());
        started.dispatcher.bugs = self.bugs;
        let term = started.term;
        self.server = Some(Box::new(started));
        let mut work = vec![
            Work::own(Command::StartTerm { term }),
            Work::own(Command::Configure(Box::new(site::configuration(self.variant)))),
            Work::own(Command::SetQos(Box::new(site::limited_qos()))),
        ];
        work.extend(site::accounting().into_iter().map(Work::own));
        self.commit(work)?;
        // A server that cannot begin its term does not go on.
        if self.server.as_ref().is_some_and(|server| server.state.term != server.term) {
            self.kill_server(None);
        }
        self.wake_planner();
        Ok(())
    }

    /// The leader of several servers stands still; another takes over. When it goes on, it must not write.
    pub(super) fn freeze_server(&mut self) {
        if self.frozen.is_some() {
            return;
        }
        let Some(server) = self.server.take() else { return };
        self.trace.note(|| format!("    the server of term {} stands still", server.term));
        let memory = server.state.clone();
        self.dead = Some(Dead { memory, before: None, events: Vec::new(), power_cut: None });
        self.frozen = Some(server);
        self.server_is_gone();
        let delay = self.chance.millis(5_000, 60_000);
        self.after(delay, Happening::ServerThaws);
    }

    /// A server that stood still goes on, with what it had decided before it knew better.
    pub(super) fn thaw_server(&mut self) -> Checked {
        if self.server.is_none() {
            self.after(2_000, Happening::ServerThaws);
            return Ok(());
        }
        let Some(mut deposed) = self.frozen.take() else { return Ok(()) };
        let mut batch = Batch::default();
        let work = Work::own(Command::StartTerm { term: deposed.state.term + 1 });
        self.random += 1_000;
        let context = (self.server_time(), self.random);
        deposed.decide(work, context, &self.ledger, &mut batch)?;
        match deposed.append(&batch) {
            Ok(()) => Err(Broken("a server that was deposed has written".to_owned())),
            Err(_) => Ok(()),
        }
    }

    /// Ends the server's process between two commits.
    pub(super) fn kill_server(&mut self, power_cut: Option<u64>) {
        if let Some(server) = self.server.take() {
            self.server_dies(server, None, Vec::new(), power_cut);
        }
    }
}
