//! `SrunProlog`: the program that `srun` runs before its tasks start. They start when it has ended.

use super::prolog_epilog::{Program, Running};
use super::{HetPlacement, Step, terminal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use wire::step::StepMessage;

/// Whether the tasks may start, as far as `SrunProlog` is concerned.
pub(super) enum StartGate {
    /// The program has not been started: it waits for the allocation.
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
    /// The allocation is granted: starts the program, or the tasks if there is none.
    pub(super) fn on_granted(&mut self) -> io::Result<()> {
        self.granted = true;
        match std::mem::replace(&mut self.gate, StartGate::Open) {
            StartGate::Shut(program) => match program.start() {
                Some(running) => self.gate = StartGate::Running(running),
                None => self.start_tasks()?,
            },
            begun => self.gate = begun,
        }
        self.take_terminal()
    }

    /// The program has ended. If it failed, the step runs nevertheless, as in Slurm.
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

    /// Tells a waiting node to start its tasks, if they may start. A node may wait without a program here: the site may
    /// have configured one since this `srun` asked.
    pub(super) fn send_go(&mut self, index: usize) {
        let (link, _) = &mut self.links[index];
        if !self.held && matches!(self.gate, StartGate::Open) && std::mem::take(&mut link.waits) {
            let node = link.peer.as_ref().map_or(0, |peer| peer.node_index);
            link.send(&go(self.plan.het.as_ref(), node));
        }
    }

    /// Whether the tasks could start now on every node.
    pub(super) fn can_begin(&self) -> bool {
        matches!(self.gate, StartGate::Open) && self.all_linked()
    }

    /// Whether the step has ended or lost a node before any task started.
    pub(super) fn cannot_begin(&self) -> bool {
        self.over || self.job_ended.is_some() || self.ends.count() > 0
    }

    /// Makes the terminal raw from the moment that the tasks may start: until then Ctrl-C is a signal to `srun` itself.
    pub(super) fn take_terminal(&mut self) -> io::Result<()> {
        if self.plan.terminal && self.raw.is_none() && matches!(self.gate, StartGate::Open) {
            self.raw = terminal::RawTerminal::enter()?;
        }
        Ok(())
    }
}

/// The message that lets the tasks of a node start.
fn go(het: Option<&HetPlacement>, node_index: u32) -> StepMessage {
    let Some(HetPlacement { first_rank, first_node, environment, .. }) = het else {
        return StepMessage::Go;
    };
    let mut environment = environment.clone();
    environment.push(format!("SLURM_NODEID={}", first_node + node_index));
    StepMessage::GoAs { first_rank: *first_rank, environment }
}
