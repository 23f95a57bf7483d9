//! Frames from the nodes of a step: output, and the start and end of tasks.

use super::link::Peer;
use super::output::OutputStream;
use super::signals::Abort;
use super::task_ends::TaskEnd;
use super::{IndexSet, Step, terminal};
use crate::command::slurm::submit::messages::print_error;
use std::io;
use std::time::{Duration, Instant};
use wire::frame::{self, Frame};
use wire::step::{StepMessage, channel};

/// Tasks that end in the same way within this time share a line.
const REPORT_DELAY: Duration = Duration::from_millis(50);

impl Step {
    pub(super) fn on_link(&mut self, index: usize, readable: bool) -> io::Result<()> {
        let (link, _) = &mut self.links[index];
        link.flush();
        let known = link.peer.is_some() && link.is_open();
        let frames = if readable { link.read(self.listener.is_some()) } else { Vec::new() };
        let Some(peer) = link.peer.clone() else {
            return if link.is_open() { Ok(()) } else { self.on_stream_closed(index) };
        };
        if !known || !frames.is_empty() {
            self.mark_linked(&peer);
        }
        if !known {
            self.on_node_linked(index)?;
            self.send_go(index);
        }
        for frame in &frames {
            self.on_frame(index, &peer, frame)?;
        }
        if self.outputs.take_broken() {
            // The tasks get what a broken pipe without `srun` in between would give them.
            self.send(&StepMessage::Signal { signal: libc::SIGPIPE });
        }
        let (link, _) = &self.links[index];
        if !link.is_open() && link.may_resume() {
            self.on_stream_closed(index)?;
        } else if link.is_broken() {
            self.lose_tasks(index)?;
        }
        self.report_ends_soon();
        Ok(())
    }

    /// The link of a node has broken for good: its tasks are lost, also those that had not started.
    pub(super) fn lose_tasks(&mut self, index: usize) -> io::Result<()> {
        let (link, started) = &self.links[index];
        let Some(peer) = link.peer.clone() else { return Ok(()) };
        let all: IndexSet = started.iter().chain(self.tasks_on(&peer)).collect();
        for task in all.iter().filter(|task| !self.ends.has(*task)).collect::<Vec<_>>() {
            self.end(&peer, task, TaskEnd::Lost)?;
        }
        self.report_ends_soon();
        Ok(())
    }

    fn report_ends_soon(&mut self) {
        if self.ends.has_unreported() {
            self.report_at.get_or_insert(Instant::now() + REPORT_DELAY);
        }
    }

    /// A node has linked: its job has been granted, also if the server has not been asked yet.
    fn on_node_linked(&mut self, index: usize) -> io::Result<()> {
        if !self.granted {
            self.on_granted()?;
        }
        match self.links[index].0.step_tasks {
            Some(tasks) if self.plan.tasks.is_none() => self.expect(tasks.get()),
            _ => Ok(()),
        }
    }

    pub(super) fn report_task_ends(&mut self) {
        self.report_at = None;
        let command = self.command;
        if !self.hides_task_ends {
            self.show_task_ends();
        }
        let lines = self.ends.take_lines(command);
        if !self.hides_task_ends {
            lines.iter().for_each(|line| print_error(command, line));
        }
    }

    fn on_frame(&mut self, index: usize, peer: &Peer, frame: &Frame) -> io::Result<()> {
        let which = match frame.channel {
            channel::STDOUT => OutputStream::Stdout,
            channel::STDERR => OutputStream::Stderr,
            channel::CONTROL => return self.on_message(index, peer, frame),
            _ => return Ok(()),
        };
        match frame.payload.split_first_chunk::<4>() {
            Some((rank, bytes)) => {
                self.outputs.write(which, peer, u32::from_le_bytes(*rank), bytes)
            }
            None => Ok(()),
        }
    }

    fn on_message(&mut self, index: usize, peer: &Peer, frame: &Frame) -> io::Result<()> {
        // A newer supervisor may send messages that this version does not know.
        let Ok(message) = frame::decode_message(&frame.payload) else { return Ok(()) };
        match message {
            StepMessage::Started { task, .. } => self.on_started(index, peer, task),
            StepMessage::Failed { task, what, .. } => {
                self.started += 1;
                return self.end(peer, task, TaskEnd::NotStarted(what));
            }
            StepMessage::Exited { task, oom: true, .. } => {
                return self.end(peer, task, TaskEnd::OutOfMemory);
            }
            StepMessage::Exited { task, exit, .. } => {
                return self.end(peer, task, TaskEnd::Exited(exit));
            }
            StepMessage::Gone => {
                let (link, _) = &mut self.links[index];
                link.gone = true;
                link.acknowledge(true);
            }
            StepMessage::Ending { wait_s } if self.listener.is_some() => self.on_ending(wait_s),
            StepMessage::InputCredit { bytes } => self.links[index].0.credit(bytes),
            StepMessage::Received { bytes } => self.links[index].0.acknowledged(bytes),
            StepMessage::Skipped { bytes } => {
                let text =
                    format!("{}: {bytes} bytes are missing: this end reads too slowly", peer.node);
                print_error(self.command, &text);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_started(&mut self, index: usize, peer: &Peer, task: u32) {
        let (link, tasks) = &mut self.links[index];
        let is_new = tasks.insert(task);
        let started_here = tasks.len();
        self.started += u64::from(is_new);
        if self.plan.terminal
            && task == 0
            && let Some((rows, columns)) = terminal::size()
        {
            link.send(&StepMessage::Resize { rows, columns });
        }
        if is_new {
            self.show_started(peer, started_here);
        }
    }

    pub(super) fn end(&mut self, peer: &Peer, task: u32, end: TaskEnd) -> io::Result<()> {
        self.outputs.end(peer, task)?;
        let failed = end.code() != 0;
        self.ends.add(peer, task, end);
        if failed && self.abort == Abort::No && !self.all_ended() && self.kills_on_bad_exit() {
            self.terminate_rest();
        }
        if self.first_end.is_none() && !self.all_ended() {
            self.first_end = Some(Instant::now());
            self.begin_wait()?;
        }
        Ok(())
    }
}
