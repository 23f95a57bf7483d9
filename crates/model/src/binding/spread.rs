//! Dealing a step's threads to its tasks: in which order, and how much at once.

use super::{CpuPlace, Level, Spread};
use crate::cpuset::CpuSet;
use std::collections::BTreeSet;

/// One hardware thread that tasks can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    pub cpu: u32,
    pub socket: u32,
    pub core: u32,
    pub ldom: u32,
}

impl Thread {
    fn part(&self, level: Level) -> u32 {
        match level {
            Level::Threads => self.cpu,
            Level::Cores => self.core,
            Level::Sockets => self.socket,
            Level::Ldoms => self.ldom,
        }
    }
}

/// The threads of the places in their order; of each core only the first where no more is wanted.
pub fn threads(places: &[CpuPlace], one_thread: bool) -> Vec<Thread> {
    let of = |place: &CpuPlace| {
        let (socket, core, ldom) = (place.socket, place.core, place.ldom);
        let thread = move |cpu: &u32| Thread { cpu: *cpu, socket, core, ldom };
        place.kernel.iter().map(thread).collect::<Vec<_>>()
    };
    let mut all: Vec<Thread> = places.iter().flat_map(of).collect();
    if one_thread {
        all.dedup_by_key(|thread| thread.core);
    }
    all
}

/// The level of which there are exactly so many parts, the largest first.
pub fn fitting(threads: &[Thread], wanted: u32) -> Option<Level> {
    let count = |level| threads.iter().map(|t| t.part(level)).collect::<BTreeSet<_>>().len();
    let levels = [Level::Sockets, Level::Cores, Level::Threads];
    levels.into_iter().find(|level| count(*level) == wanted as usize)
}

/// A mask for each task; none where there are fewer threads than the tasks want.
pub fn deal(
    threads: &[Thread],
    level: Level,
    spread: Spread,
    tasks: u32,
    each: u32,
) -> Option<Vec<CpuSet>> {
    if u64::from(tasks) * u64::from(each) > threads.len() as u64 {
        return None;
    }
    let mut deck = Deck::new(threads, level, spread);
    let hand = |task: u32| {
        let taken = deck.take(task, each as usize);
        let parts: BTreeSet<u32> = taken.iter().map(|thread| thread.part(level)).collect();
        let whole = threads.iter().filter(|thread| parts.contains(&thread.part(level)));
        whole.map(|thread| thread.cpu).collect()
    };
    Some((0..tasks).map(hand).collect())
}

/// What is left to deal: a pile for each socket, or one for all.
struct Deck {
    /// Units that are not divided among tasks: cores where tasks are bound to cores, else threads.
    piles: Vec<Vec<Vec<Thread>>>,
    /// How many units of each pile are gone.
    gone: Vec<usize>,
}

impl Deck {
    fn new(threads: &[Thread], level: Level, spread: Spread) -> Deck {
        let unit = if level == Level::Cores { Level::Cores } else { Level::Threads };
        let units = |threads: &[Thread]| -> Vec<Vec<Thread>> {
            threads.chunk_by(|a, b| a.part(unit) == b.part(unit)).map(<[_]>::to_vec).collect()
        };
        let by_socket: Vec<_> = threads.chunk_by(|a, b| a.socket == b.socket).map(units).collect();
        let piles = match spread {
            Spread::Block => vec![units(threads)],
            Spread::Cyclic => by_socket,
            Spread::Fcyclic => {
                let deepest = by_socket.iter().map(Vec::len).max().unwrap_or(0);
                let row = |i: usize| by_socket.iter().filter_map(move |pile| pile.get(i).cloned());
                vec![(0..deepest).flat_map(row).collect()]
            }
        };
        Deck { gone: vec![0; piles.len()], piles }
    }

    /// So many threads for a task: from its own socket, and from the next ones what that does not have.
    fn take(&mut self, task: u32, count: usize) -> Vec<Thread> {
        let mut taken = Vec::new();
        let sockets = self.piles.len();
        let mut at = task as usize % sockets.max(1);
        let mut dry = 0;
        while taken.len() < count && dry <= sockets {
            match self.piles[at].get(self.gone[at]) {
                Some(unit) => {
                    taken.extend_from_slice(unit);
                    self.gone[at] += 1;
                    dry = 0;
                }
                None => {
                    at = (at + 1) % sockets;
                    dry += 1;
                }
            }
            if dry == sockets {
                // More tasks than whole cores: they are dealt again from the first.
                self.gone.fill(0);
                at = task as usize % sockets;
            }
        }
        taken
    }
}
