//! Standard input of the tasks.

use super::{Step, terminal};
use std::io::{ErrorKind, Read};
use wire::step::{StepMessage, channel};

const INPUT_BYTES: usize = 32 << 10;

/// Input that one step of a het `srun` has read and that the others get too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputChunk {
    Bytes(Vec<u8>),
    End,
}

impl Step {
    /// Whether input may be read: every task has started, so none misses the first bytes, and every node has credit.
    pub(super) fn takes_input(&self) -> bool {
        self.plan.tasks.is_some_and(|tasks| self.started >= u64::from(tasks))
            && self.input_capacity() > 0
    }

    /// How many bytes of input every node takes now.
    pub(super) fn input_capacity(&self) -> usize {
        let takers = self.links.iter().filter(|(link, _)| link.peer.is_some() && !link.gone);
        let takers = takers.filter(|(link, _)| link.is_open() || link.may_resume());
        let capacities = takers.map(|(link, _)| link.input_capacity()).chain(self.input_bound);
        capacities.min().unwrap_or(INPUT_BYTES).min(INPUT_BYTES)
    }

    pub(super) fn on_input(&mut self) {
        let capacity = self.input_capacity();
        if capacity == 0 {
            return;
        }
        let Some(input) = &mut self.input else { return };
        let mut buffer = vec![0; capacity];
        let read = match input.read(&mut buffer) {
            Ok(length) if length > 0 => {
                buffer.truncate(length);
                InputChunk::Bytes(buffer)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) if !terminal::is_ours(input) => return,
            Ok(_) | Err(_) => {
                self.input = None;
                InputChunk::End
            }
        };
        self.give_input(&read);
        if self.input_bound.is_some() {
            self.input_passed.push(read);
        }
    }

    /// Sends the tasks what was read, here or by another step that shares the input.
    pub(super) fn give_input(&mut self, read: &InputChunk) {
        let bytes = match read {
            InputChunk::Bytes(bytes) => bytes,
            InputChunk::End => return self.send(&StepMessage::InputEnd),
        };
        let rank = self.plan.input_task.filter(|_| self.listener.is_none());
        let (channel, payload) = match rank {
            Some(rank) => (channel::STDIN_OF, [&rank.to_le_bytes()[..], bytes].concat()),
            None => (channel::STDIN, bytes.clone()),
        };
        for (link, _) in &mut self.links {
            link.send_input(channel, &payload, bytes.len());
        }
    }
}
