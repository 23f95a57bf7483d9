//! Histories of random faults: one seed is one history of a small cluster under a virtual clock, in one thread.
//!
//! ```text
//!   world/       one history: what happens when, the way to the disk, messages, faults, and the rest after them
//!   server       the writer around the real state machine and the real journal
//!   dispatch     from events to orders; orders: what they carry
//!   agent        the gate of orders, the spool and the reports of a node; supervisor: one attempt on it
//!   network      links that break, and messages that are late or come twice
//!   disks        the faulty disks of the journal and of the snapshots; shared_log: a database in the place of the first
//!   requests     what clients ask for; site: the cluster's files, and who uses it
//!   checks       what must hold
//!   bug          bugs that are put in on purpose
//!   trace        the last events of a history that failed
//! ```
//!
//! `cluster`, `sched`, `store` and the messages of `wire` are those of the server and the agents. The loops around them are
//! written here, after those of `server` and `agent`: docs/faults.md says what is real and what is not.

mod agent;
mod bug;
mod checks;
mod disks;
mod dispatch;
mod network;
mod orders;
mod requests;
mod server;
mod shared_log;
mod site;
mod supervisor;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use bug::{Bug, Bugs};

use checks::Broken;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trace::Trace;
use world::World;

/// The events of a history before the faults stop.
pub const EVENTS: u64 = 1_000;

/// How a history goes, beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The events before the faults stop.
    pub events: u64,
    pub bugs: Bugs,
    /// The first server is killed in the middle of this write, counted from its start.
    pub killed_at_write: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { events: EVENTS, bugs: Bugs::default(), killed_at_write: None }
    }
}

/// What a history was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// With those after the last fault.
    pub events: u64,
    pub messages: u64,
    pub commits: u64,
    pub journalled: u64,
    pub plans: u64,
    pub launches: u64,
    pub faults: u64,
    pub server_deaths: u64,
    pub failed_commits: u64,
    pub lossy_links: u64,
    pub doubled: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.messages += other.messages;
        self.commits += other.commits;
        self.journalled += other.journalled;
        self.plans += other.plans;
        self.launches += other.launches;
        self.faults += other.faults;
        self.server_deaths += other.server_deaths;
        self.failed_commits += other.failed_commits;
        self.lossy_links += other.lossy_links;
        self.doubled += other.doubled;
    }
}

/// A history that held, and where its journal ended: the same seed gives the same chain of hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    pub counts: Counts,
    pub end_seq: u64,
    pub end_chain: [u8; 32],
}

/// A history in which something did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub events: u64,
    /// The event at which it was found.
    pub event: u64,
    pub what: String,
    /// What happened last.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, events, event, what, trace } = self;
        for line in trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {seed} fails at event {event}: {what}")?;
        write!(f, "again: sluice sim faults --seed {seed}")?;
        if *events == EVENTS { Ok(()) } else { write!(f, " --events {events}") }
    }
}

/// Runs the history of a seed: its events with faults, and then until it comes to rest.
pub fn history(seed: u64, options: &Options) -> Result<Finished, Box<Failure>> {
    if let Ok(finished) = run(seed, options, Trace::default()) {
        return Ok(finished);
    }
    // Once more, and watched: it goes the same way.
    run(seed, options, Trace::on())
}

fn run(seed: u64, options: &Options, trace: Trace) -> Result<Finished, Box<Failure>> {
    let events = options.events;
    let failure = |event: u64, what: String, trace: Vec<String>| {
        Box::new(Failure { seed, events, event, what, trace })
    };
    let mut world = match World::new(seed, options, trace) {
        Ok(world) => world,
        Err(Broken(what)) => return Err(failure(0, what, Vec::new())),
    };
    // The state machine's own assertions stop a history as well.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let what = match outcome {
        Ok(Ok(finished)) => return Ok(finished),
        Ok(Err(Broken(what))) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("an assertion does not hold: {}", text.unwrap_or_default())
        }
    };
    Err(failure(world.counts.events, what, world.trace.lines()))
}
