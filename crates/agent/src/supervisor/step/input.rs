//! Input that tasks have not read: a piece is held once for all its tasks, and all pieces of a job's steps count together. The
//! supervisor is root and outside the job's group, so what clients make it hold has a bound of its own, which is never more than
//! a part of the job's memory.

use model::amount::Bytes;
use model::bounds::JOB_INPUT_BYTES;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::rc::Rc;

/// What a piece takes beside its bytes, and what each of its tasks takes to refer to it.
const PIECE_BYTES: usize = 64;
const REFERENCE_BYTES: usize = 32;

/// A job may make its supervisor hold this part (a quarter) of its own memory on the node.
const MEMORY_PART: u64 = 4;
/// What the smallest job may have held: the windows of a few clients.
const LEAST_BYTES: usize = 1 << 20;

/// The input that the steps of one job hold together.
#[derive(Clone)]
pub(crate) struct HeldInput(Rc<Counters>);

struct Counters {
    most: usize,
    bytes: Cell<usize>,
    /// A step has credited its clients with no more input because of the others.
    withheld: Cell<bool>,
}

impl HeldInput {
    /// For a job with this limit of memory on the node.
    pub fn of_job(memory: Option<Bytes>) -> Self {
        let part = memory.and_then(|memory| usize::try_from(memory.0 / MEMORY_PART).ok());
        let most = part.map_or(JOB_INPUT_BYTES.most, |part| part.max(LEAST_BYTES));
        let most = most.min(JOB_INPUT_BYTES.most);
        Self(Rc::new(Counters { most, bytes: Cell::new(0), withheld: Cell::new(false) }))
    }

    /// One piece for so many tasks; `None` if the job holds too much already.
    pub fn piece(&self, bytes: &[u8], tasks: usize) -> Option<Rc<InputPiece>> {
        let weight = bytes.len() + PIECE_BYTES + REFERENCE_BYTES * tasks;
        let held = self.0.bytes.get() + weight;
        if held > self.0.most {
            return None;
        }
        self.0.bytes.set(held);
        Some(Rc::new(InputPiece { bytes: bytes.to_vec(), weight, held: self.clone() }))
    }

    /// Whether clients may send more. One that may not is credited later, after [`HeldInput::take_relief`].
    pub fn may_grow(&self) -> bool {
        let may = self.0.bytes.get() <= self.0.most / 2;
        if !may {
            self.0.withheld.set(true);
        }
        may
    }

    /// Whether clients that were held back may send more now.
    pub fn take_relief(&self) -> bool {
        let relieved = self.0.withheld.get() && self.0.bytes.get() <= self.0.most / 2;
        if relieved {
            self.0.withheld.set(false);
        }
        relieved
    }
}

/// Some bytes of input, counted until the last task has read them.
pub(crate) struct InputPiece {
    bytes: Vec<u8>,
    weight: usize,
    held: HeldInput,
}

impl Drop for InputPiece {
    fn drop(&mut self) {
        self.held.0.bytes.set(self.held.0.bytes.get() - self.weight);
    }
}

/// The input that one task has not read.
#[derive(Default)]
pub(crate) struct InputQueue {
    pieces: VecDeque<Rc<InputPiece>>,
    /// Bytes of the first piece that are written.
    written: usize,
    bytes: usize,
}

impl InputQueue {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, piece: Rc<InputPiece>) {
        if !piece.bytes.is_empty() {
            self.bytes += piece.bytes.len();
            self.pieces.push_back(piece);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes as much as `to` takes; an error other than a full pipe is returned.
    pub fn write_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        while let Some(piece) = self.pieces.front() {
            match to.write(&piece.bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes -= written;
                    self.written += written;
                    if self.written == piece.bytes.len() {
                        self.written = 0;
                        self.pieces.pop_front();
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 256 << 10;

    #[test]
    fn input_to_many_tasks_is_held_once() {
        let held = HeldInput::of_job(None);
        let piece = held.piece(&[7; FRAME], 4096).expect("room");
        let mut queues: Vec<InputQueue> = (0..4096).map(|_| InputQueue::default()).collect();
        queues.iter_mut().for_each(|queue| queue.push(piece.clone()));
        drop(piece);
        assert!(held.0.bytes.get() < 2 * FRAME, "{}", held.0.bytes.get());
        for queue in &mut queues {
            let mut read = Vec::new();
            queue.write_to(&mut read).expect("written");
            assert!(queue.is_empty() && queue.bytes() == 0 && read.len() == FRAME);
        }
        assert_eq!(held.0.bytes.get(), 0);
    }

    #[test]
    fn job_makes_its_supervisor_hold_no_more_than_a_part_of_its_own_memory() {
        let frames = |memory: Option<Bytes>| {
            let held = HeldInput::of_job(memory);
            let taken: Vec<_> = std::iter::from_fn(|| held.piece(&[0; FRAME], 1)).collect();
            taken.len()
        };
        assert_eq!(frames(Some(Bytes::from_mib(64))), 16 * 4 - 1);
        assert_eq!(frames(Some(Bytes::from_mib(1))), 3, "a few clients of the smallest job");
        let most = frames(None);
        assert_eq!(frames(Some(Bytes::from_gib(1024))), most);
    }

    #[test]
    fn steps_of_a_job_share_one_bound_and_those_held_back_hear_of_relief() {
        let held = HeldInput::of_job(None);
        let of_steps: Vec<HeldInput> = (0..8).map(|_| held.clone()).collect();
        let mut queue = InputQueue::default();
        let taken = (0..100_000)
            .map_while(|n: usize| of_steps[n % 8].piece(&[0; FRAME], 1))
            .map(|piece| queue.push(piece))
            .count();
        assert!(taken <= JOB_INPUT_BYTES.most / FRAME && taken > JOB_INPUT_BYTES.most / FRAME - 8);
        assert!(!of_steps[0].may_grow() && !held.take_relief());
        queue.clear();
        assert!(held.take_relief() && !held.take_relief() && of_steps[0].may_grow());
        // Frames of one byte weigh what they take.
        let small: Vec<_> = std::iter::from_fn(|| held.piece(b"x", 4096)).collect();
        assert!(small.len() < JOB_INPUT_BYTES.most / (4096 * REFERENCE_BYTES) + 1);
    }
}
