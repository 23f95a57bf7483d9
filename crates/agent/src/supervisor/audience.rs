//! Who a step's bytes go to: its `srun`, whose pace is the step's, and those that look on, who may miss some.

use super::step_door::Joined;
use super::step_link::{Progress, StepLink};
use std::collections::VecDeque;
use wire::frame::Frame;
use wire::resume::ResumeGap;
use wire::step::{StepMessage, channel};
use wire::stream::ReceiveWindow;

/// Those that look on at one step on one node; more are turned away.
const LOOKERS_MAX: usize = 16;
/// How much of the last output is kept for those that come to look on.
const RECENT_BYTES_MAX: usize = 16 << 10;

/// A rank before a task's output.
const RANK_BYTES: usize = size_of::<u32>();

struct Looker {
    link: StepLink,
    /// Bytes of output that it was too slow for since it was last told.
    skipped: u64,
    input: ReceiveWindow,
}

pub(super) struct Audience {
    srun: StepLink,
    /// The last pieces of output, by channel.
    recent: VecDeque<(u8, Vec<u8>)>,
    recent_bytes: usize,
    input: ReceiveWindow,
    lookers: Vec<Looker>,
}

impl Audience {
    /// Starts to dial the step's `srun`.
    pub fn dial(addresses: &[String]) -> Audience {
        let srun = StepLink::dial(addresses);
        Audience {
            srun,
            recent: VecDeque::new(),
            recent_bytes: 0,
            input: ReceiveWindow::default(),
            lookers: Vec::new(),
        }
    }

    pub fn srun(&self) -> &StepLink {
        &self.srun
    }

    pub fn lookers(&self) -> impl Iterator<Item = &StepLink> {
        self.lookers.iter().map(|looker| &looker.link)
    }

    /// To everybody.
    pub fn tell(&mut self, message: &StepMessage) {
        self.srun.send(message);
        self.lookers.iter_mut().for_each(|looker| looker.link.send(message));
    }

    /// A task's output, to everybody who keeps up.
    pub fn output(&mut self, channel: u8, rank: u32, bytes: &[u8]) {
        let payload = [&rank.to_le_bytes(), bytes].concat();
        self.srun.send_bytes(channel, &payload);
        self.lookers.iter_mut().for_each(|looker| looker.output(channel, &payload));
        self.remember(channel, payload);
    }

    fn remember(&mut self, channel: u8, mut payload: Vec<u8>) {
        // The end of a long piece: the rank, and what fits after it.
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
        self.lookers.iter_mut().for_each(|looker| looker.link.flush());
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

    pub fn say_to_srun(&mut self, message: &StepMessage) {
        self.srun.send(message);
    }

    pub fn close_srun(&mut self) {
        self.srun.close();
    }

    /// The `srun` comes by a stream.
    pub fn take_up(
        &mut self,
        joined: Joined,
        received: u64,
        hello: &StepMessage,
    ) -> Result<(), ResumeGap> {
        let Joined { stream, decoder, ask } = joined;
        self.srun.take_up(stream, decoder, ask.stream, received, hello)
    }

    pub fn has_place(&self) -> bool {
        self.lookers.len() < LOOKERS_MAX
    }

    /// One more looks on; `so_far` is what it has missed of the tasks' lives.
    pub fn add(&mut self, joined: Joined, so_far: &[StepMessage]) {
        let link = StepLink::attached(joined.stream, joined.decoder, joined.ask.stream);
        let mut looker = Looker { link, skipped: 0, input: ReceiveWindow::default() };
        let (hello, ends) = so_far.split_at(1.min(so_far.len()));
        hello.iter().for_each(|message| looker.link.send(message));
        self.recent.iter().for_each(|(channel, piece)| looker.link.send_bytes(*channel, piece));
        ends.iter().for_each(|message| looker.link.send(message));
        looker.link.flush();
        self.lookers.push(looker);
    }

    /// What those that look on have said; who has gone is let go.
    pub fn advance_lookers(&mut self) -> Vec<Frame> {
        let mut said = Vec::new();
        for looker in &mut self.lookers {
            match looker.link.advance() {
                Progress::Frames(frames) if admits(&mut looker.input, &frames) => {
                    said.extend(frames);
                }
                Progress::Frames(_) | Progress::Lost => looker.link.close(),
                Progress::Opened | Progress::Waiting => {}
            }
        }
        self.lookers.retain(|looker| !looker.link.is_closed());
        said
    }

    /// The tasks have taken what was sent: more may come.
    pub fn credit_input(&mut self) {
        credit(&mut self.input, &mut self.srun);
        for looker in &mut self.lookers {
            credit(&mut looker.input, &mut looker.link);
        }
    }

    /// The client of this stream is gone for good; whether it was the `srun`.
    pub fn client_gone(&mut self, stream: u32) -> bool {
        for looker in &mut self.lookers {
            looker.link.client_gone(stream);
        }
        self.lookers.retain(|looker| !looker.link.is_closed());
        self.srun.client_gone(stream)
    }
}

impl Looker {
    fn output(&mut self, channel: u8, payload: &[u8]) {
        if !self.link.has_room() {
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

/// Whether the input among these was credited.
fn admits(window: &mut ReceiveWindow, frames: &[Frame]) -> bool {
    let input = frames.iter().filter_map(input_of);
    input.into_iter().all(|(_, bytes)| window.received(bytes.len()).is_ok())
}

fn credit(window: &mut ReceiveWindow, link: &mut StepLink) {
    if let Some(bytes) = window.consumed_all() {
        link.send(&StepMessage::InputCredit { bytes });
        link.flush();
    }
}

/// Input in a frame: for which task (none: for all that take any), and the bytes.
pub(super) fn input_of(frame: &Frame) -> Option<(Option<u32>, &[u8])> {
    match frame.channel {
        channel::STDIN => Some((None, &frame.payload)),
        channel::STDIN_OF => {
            let (rank, bytes) = frame.payload.split_first_chunk::<4>()?;
            Some((Some(u32::from_le_bytes(*rank)), bytes))
        }
        _ => None,
    }
}
