//! Reactions of a step to its clients: they connect, send input and requests, and disconnect.

use super::{INPUT_BACKLOG, Stage, Step};
use crate::spool::LaunchRecord;
use crate::supervisor::job_context::JobContext;
use crate::supervisor::step::client_link::Progress;
use crate::supervisor::step::client_set::input_of;
use crate::supervisor::step::listener::StepConnection;
use crate::supervisor::step::task::Task;
use wire::frame::{self, Frame};
use wire::order::StepOrder;
use wire::step::{StepMessage, StepStart, channel};
use wire::stream::StepRole;

impl Step {
    /// Advances the connection to `srun`: starts the tasks once it is open, and passes input on.
    pub fn on_link(&mut self, job: JobContext) {
        match self.clients.advance_srun() {
            Progress::Waiting | Progress::Lost => {}
            Progress::Opened => {
                let hello = self.hello(job.record);
                self.clients.send_to_srun(&hello);
                self.on_srun(job);
                self.clients.flush();
            }
            Progress::Frames(frames) => {
                frames.iter().for_each(|frame| self.on_frame(frame, job));
                self.clients.flush();
            }
        }
        self.on_input_taken();
    }

    /// Starts the tasks now that `srun` is connected, unless it asked to start them itself.
    fn on_srun(&mut self, job: JobContext) {
        match self.order.launch.starts {
            StepStart::OnGo => self.stage = Stage::Awaiting,
            StepStart::AtOnce | StepStart::AsSite => self.start(job),
        }
    }

    fn hello(&self, record: &LaunchRecord) -> StepMessage {
        // The key itself is never sent: a dialled link has proven it, a stream was opened with it.
        let (key, node) = (String::new(), record.node.clone());
        let unstarted = matches!(self.stage, Stage::Dialling | Stage::Awaiting);
        let waits = unstarted && self.order.launch.starts == StepStart::OnGo;
        let StepOrder { node_index, step_tasks, .. } = self.order;
        StepMessage::Hello { key, node, node_index, waits, step_tasks }
    }

    /// Takes a client that connects by a stream: an `srun` that could not be dialled, or an observer (`sattach`).
    pub fn join(&mut self, joined: StepConnection, job: JobContext) {
        match joined.ask.role.clone() {
            StepRole::Srun { key, .. } if !same_key(&key, &self.order.launch.key) => {
                joined.refuse("the step is another srun's", false);
            }
            StepRole::Srun { received, .. } => match self.clients.srun().check_resume(received) {
                Ok(()) => self.resume_srun(joined, received, job),
                Err(why) => joined.refuse(why, false),
            },
            StepRole::Attached if self.is_over() => joined.refuse("the step has ended", false),
            StepRole::Attached if !self.clients.has_free_slot() => {
                joined.refuse("too many are attached to this step already", false);
            }
            StepRole::Attached => {
                let mut catch_up = vec![self.hello(job.record)];
                catch_up.extend(self.tasks.iter().flat_map(Task::catch_up));
                self.clients.add(joined, &catch_up);
                self.on_observers();
            }
        }
    }

    fn resume_srun(&mut self, joined: StepConnection, received: u64, job: JobContext) {
        let hello = self.hello(job.record);
        if self.clients.resume_srun(joined, received, &hello).is_err() {
            // Its count of received bytes does not fit what was sent: it is not the `srun` that was connected before.
            return self.clients.close_srun();
        }
        if self.stage == Stage::Dialling {
            self.on_srun(job);
        }
        self.clients.flush();
        // Frames that came with the stream's opening are already buffered: the descriptor does not report them.
        self.on_link(job);
    }

    /// Reads the observers' input, and drops those that have disconnected.
    pub fn on_observers(&mut self) {
        for (observer, frame) in self.clients.advance_observers() {
            // Only the `srun` may send signals and end the input.
            if let Some((rank, bytes)) = input_of(&frame)
                && !self.take_input(rank, bytes)
            {
                self.clients.close_observer(observer);
            }
        }
        self.clients.drop_closed();
        self.on_input_taken();
    }

    pub fn client_gone(&mut self, stream: u32) {
        self.clients.client_gone(stream);
    }

    /// Credits more input once the slowest task has read most of what it got.
    pub fn on_input_taken(&mut self) {
        let read = self.tasks.iter().all(|task| task.backlog() <= INPUT_BACKLOG);
        if read && self.held_input.may_grow() {
            self.clients.credit_input();
        }
    }

    /// Hands input to its tasks; false if the job's tasks have left too much unread already.
    #[must_use]
    fn take_input(&mut self, rank: Option<u32>, bytes: &[u8]) -> bool {
        let is_for = |task: &Task| task.has_input() && rank.is_none_or(|rank| rank == task.rank);
        let tasks = self.tasks.iter().filter(|task| is_for(task)).count();
        if tasks == 0 {
            return true;
        }
        let Some(piece) = self.held_input.piece(bytes, tasks) else { return false };
        let tasks = self.tasks.iter_mut().filter(|task| is_for(task));
        tasks.for_each(|task| task.take_input(piece.clone()));
        true
    }

    fn on_frame(&mut self, frame: &Frame, job: JobContext) {
        if let Some((rank, bytes)) = input_of(frame) {
            if !self.take_input(rank, bytes) {
                self.clients.close_srun();
            }
            return;
        }
        if frame.channel != channel::CONTROL {
            return;
        }
        match frame::decode_message(&frame.payload) {
            Ok(StepMessage::Signal { signal }) => self.signal(signal),
            Ok(StepMessage::InputEnd) => self.tasks.iter_mut().for_each(Task::end_input),
            Ok(StepMessage::End { at_once }) => {
                self.end_request = Some(self.end_request.unwrap_or(false) || at_once);
            }
            Ok(StepMessage::Go) if self.stage == Stage::Awaiting => self.start(job),
            Ok(StepMessage::GoAs { first_rank, environment }) if self.stage == Stage::Awaiting => {
                self.first_rank = first_rank;
                self.order.environment.extend(environment);
                self.start(job);
            }
            Ok(StepMessage::Received { bytes }) => self.clients.srun_received(bytes),
            Ok(StepMessage::Resize { rows, columns }) => {
                self.tasks.iter().for_each(|task| task.resize(rows, columns));
            }
            // Other messages go from step to client, or are of a newer version.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Compares two keys in constant time.
fn same_key(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differing == 0
}
