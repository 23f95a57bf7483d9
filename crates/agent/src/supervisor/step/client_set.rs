//! The clients of a step: its `srun`, which the tasks wait for, and observers (`sattach`), which may miss output.

use crate::supervisor::step::client_link::{ClientLink, Progress};
use crate::supervisor::step::listener::StepConnection;
use std::collections::VecDeque;
use wire::frame::Frame;
use wire::resume::ResumeGap;
use wire::step::{StepLaunch, StepMessage, channel};
use wire::stream::ReceiveWindow;

/// Observers of one step on one node; further ones are refused.
const OBSERVERS_MAX: usize = 16;
/// Bytes of recent output kept for new observers.
const RECENT_BYTES_MAX: usize = 16 << 10;

/// The length of the rank before a task's output.
const RANK_BYTES: usize = size_of::<u32>();

struct Observer {
    link: ClientLink,
    /// Bytes of output that were not sent because the observer was too slow; reported before the next output.
    skipped: u64,
    input: ReceiveWindow,
}

pub(crate) struct StepClients {
    srun: ClientLink,
    /// Recent output, with its channel.
    recent: VecDeque<(u8, Vec<u8>)>,
    recent_bytes: usize,
    input: ReceiveWindow,
    observers: Vec<Observer>,
}

impl StepClients {
    /// Starts to dial the step's `srun`.
    pub fn dial(launch: &StepLaunch) -> StepClients {
        let srun = ClientLink::dial(launch);
        StepClients {
            srun,
            recent: VecDeque::new(),
            recent_bytes: 0,
            input: ReceiveWindow::default(),
            observers: Vec::new(),
        }
    }

    pub fn srun(&self) -> &ClientLink {
        &self.srun
    }

    pub fn observers(&self) -> impl Iterator<Item = &ClientLink> {
        self.observers.iter().map(|observer| &observer.link)
    }

    /// Sends a message to all clients.
    pub fn send_to_all(&mut self, message: &StepMessage) {
        self.srun.send(message);
        self.observers.iter_mut().for_each(|observer| observer.link.send(message));
    }

    /// Sends a task's output to `srun` and to the observers that keep up.
    pub fn output(&mut self, channel: u8, rank: u32, bytes: &[u8]) {
        let payload = [&rank.to_le_bytes(), bytes].concat();
        self.srun.send_bytes(channel, &payload);
        self.observers.iter_mut().for_each(|observer| observer.output(channel, &payload));
        self.remember(channel, payload);
    }

    fn remember(&mut self, channel: u8, mut payload: Vec<u8>) {
        // Only the end of a long output is kept, after its rank.
        let beyond = payload.len().saturating_sub(RECENT_BYTES_MAX);
        if beyond > 0 {
            payload.drain(RANK_BYTES..RANK_BYTES + beyond);
        }
        self.recent_bytes += payload.len();
        self.recent.push_back((channel, payload));
        while self.recent_bytes > RECENT_BYTES_MAX
            && let Some((_, oldest)) = self.recent.pop_front()
        {
            self.recent_bytes -= oldest.len();
        }
    }

    pub fn flush(&mut self) {
        self.srun.flush();
        self.observers.iter_mut().for_each(|observer| observer.link.flush());
    }

    pub fn advance_srun(&mut self) -> Progress {
        let progress = self.srun.advance();
        if let Progress::Frames(frames) = &progress
            && !admits(&mut self.input, frames)
        {
            self.srun.close();
        }
        progress
    }

    pub fn srun_received(&mut self, bytes: u64) {
        self.srun.acknowledged(bytes);
    }

    pub fn send_to_srun(&mut self, message: &StepMessage) {
        self.srun.send(message);
    }

    pub fn close_srun(&mut self) {
        self.srun.close();
    }

    /// Connects the `srun` by a stream.
    pub fn resume_srun(
        &mut self,
        joined: StepConnection,
        received: u64,
        hello: &StepMessage,
    ) -> Result<(), ResumeGap> {
        let StepConnection { stream, decoder, ask } = joined;
        self.srun.resume_srun(stream, decoder, ask.stream, received, hello)
    }

    pub fn has_free_slot(&self) -> bool {
        self.observers.len() < OBSERVERS_MAX
    }

    /// Adds an observer; `catch_up` are the messages about the tasks that it has missed.
    pub fn add(&mut self, joined: StepConnection, catch_up: &[StepMessage]) {
        let link = ClientLink::attached(joined.stream, joined.decoder, joined.ask.stream);
        let mut observer = Observer { link, skipped: 0, input: ReceiveWindow::default() };
        let (hello, ends) = catch_up.split_at(1.min(catch_up.len()));
        hello.iter().for_each(|message| observer.link.send(message));
        self.recent.iter().for_each(|(channel, piece)| observer.link.send_bytes(*channel, piece));
        ends.iter().for_each(|message| observer.link.send(message));
        observer.link.flush();
        self.observers.push(observer);
    }

    /// Reads the observers' frames, each with the number of its observer until [`StepClients::drop_closed`].
    pub fn advance_observers(&mut self) -> Vec<(usize, Frame)> {
        let mut said = Vec::new();
        for (number, observer) in self.observers.iter_mut().enumerate() {
            match observer.link.advance() {
                Progress::Frames(frames) if admits(&mut observer.input, &frames) => {
                    said.extend(frames.into_iter().map(|frame| (number, frame)));
                }
                Progress::Frames(_) | Progress::Lost => observer.link.close(),
                Progress::Opened | Progress::Waiting => {}
            }
        }
        said
    }

    pub fn close_observer(&mut self, number: usize) {
        if let Some(observer) = self.observers.get_mut(number) {
            observer.link.close();
        }
    }

    /// Drops the observers that have disconnected.
    pub fn drop_closed(&mut self) {
        self.observers.retain(|observer| !observer.link.is_closed());
    }

    /// Credits all clients with input: the tasks have read what was sent.
    pub fn credit_input(&mut self) {
        credit(&mut self.input, &mut self.srun);
        for observer in &mut self.observers {
            credit(&mut observer.input, &mut observer.link);
        }
    }

    /// Closes the link of this stream's client, which does not come back. Returns whether it was the `srun`.
    pub fn client_gone(&mut self, stream: u32) -> bool {
        for observer in &mut self.observers {
            observer.link.client_gone(stream);
        }
        self.observers.retain(|observer| !observer.link.is_closed());
        self.srun.client_gone(stream)
    }
}

impl Observer {
    fn output(&mut self, channel: u8, payload: &[u8]) {
        if !self.link.can_take_output() {
            self.skipped += payload.len().saturating_sub(RANK_BYTES) as u64;
            return;
        }
        if self.skipped > 0 {
            let bytes = std::mem::take(&mut self.skipped);
            self.link.send(&StepMessage::Skipped { bytes });
        }
        self.link.send_bytes(channel, payload);
    }
}

/// Whether the input in these frames stays within its credit.
fn admits(window: &mut ReceiveWindow, frames: &[Frame]) -> bool {
    let input = frames.iter().filter_map(input_of);
    input.into_iter().all(|(_, bytes)| window.received(bytes.len()).is_ok())
}

fn credit(window: &mut ReceiveWindow, link: &mut ClientLink) {
    if let Some(bytes) = window.consumed_all() {
        link.send(&StepMessage::InputCredit { bytes });
        link.flush();
    }
}

/// The input in a frame: its task (`None` for all tasks with input) and the bytes.
pub(crate) fn input_of(frame: &Frame) -> Option<(Option<u32>, &[u8])> {
    match frame.channel {
        channel::STDIN => Some((None, &frame.payload)),
        channel::STDIN_OF => {
            let (rank, bytes) = frame.payload.split_first_chunk::<4>()?;
            Some((Some(u32::from_le_bytes(*rank)), bytes))
        }
        _ => None,
    }
}
