//! What `srun` runs itself before its tasks start: they are told to go when it is done.

use super::prolog_epilog::{Program, Running};
use super::{HetPlacement, Step, terminal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use wire::step::StepMessage;

/// Whether the tasks may start.
pub(super) enum StartGate {
    /// Not before this program has run, which waits for the allocation.
    Shut(Box<Program>),
    Running(Running),
    Open,
}

impl StartGate {
    pub fn new(prolog: Option<Program>) -> Self {
        prolog.map_or(Self::Open, |program| Self::Shut(Box::new(program)))
    }

    /// Readable once the program has ended.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Running(program) => Some(program.as_fd()),
            Self::Shut(_) | Self::Open => None,
        }
    }
}

impl Step {
    /// The allocation is there: now is the program's time.
    pub(super) fn on_granted(&mut self) -> io::Result<()> {
        self.granted = true;
        match std::mem::replace(&mut self.gate, StartGate::Open) {
            StartGate::Shut(program) => match program.start() {
                Some(running) => self.gate = StartGate::Running(running),
                None => self.start_tasks()?,
            },
            begun => self.gate = begun,
        }
        Ok(())
    }

    /// The program has ended; that it failed is no reason for the step not to run, as in Slurm.
    pub(super) fn on_prolog_end(&mut self) -> io::Result<()> {
        if let StartGate::Running(program) = std::mem::replace(&mut self.gate, StartGate::Open) {
            program.finish();
            self.start_tasks()?;
        }
        Ok(())
    }

    pub(super) fn start_tasks(&mut self) -> io::Result<()> {
        self.take_terminal()?;
        (0..self.links.len()).for_each(|index| self.send_go(index));
        Ok(())
    }

    /// Tells a node that waits for it, if it is time. It may wait where nothing is run here: the site may have got its
    /// program since this `srun` asked.
    pub(super) fn send_go(&mut self, index: usize) {
        let (link, _) = &mut self.links[index];
        if !self.held && matches!(self.gate, StartGate::Open) && std::mem::take(&mut link.waits) {
            let node = link.peer.as_ref().map_or(0, |peer| peer.node_index);
            link.send(&go(self.plan.het.as_ref(), node));
        }
    }

    /// Whether its tasks could start now, on every node.
    pub(super) fn can_begin(&self) -> bool {
        matches!(self.gate, StartGate::Open) && self.all_linked()
    }

    /// Whether a node of it was lost or it ended before any task started.
    pub(super) fn cannot_begin(&self) -> bool {
        self.over || self.job_ended.is_some() || self.ends.count() > 0
    }

    /// The terminal is the tasks' from the moment that they may start.
    pub(super) fn take_terminal(&mut self) -> io::Result<()> {
        if self.plan.terminal && self.raw.is_none() && matches!(self.gate, StartGate::Open) {
            self.raw = terminal::RawTerminal::enter()?;
        }
        Ok(())
    }
}

/// The word that lets the tasks of a node start.
fn go(het: Option<&HetPlacement>, node_index: u32) -> StepMessage {
    let Some(HetPlacement { first_rank, first_node, environment, .. }) = het else {
        return StepMessage::Go;
    };
    let mut environment = environment.clone();
    environment.push(format!("SLURM_NODEID={}", first_node + node_index));
    StepMessage::GoAs { first_rank: *first_rank, environment }
}
