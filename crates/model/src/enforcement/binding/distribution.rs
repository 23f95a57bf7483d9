//! Dealing a step's threads to its tasks: in which order, and how much at once.

use super::{CpuDistribution, CpuPlace, Level};
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
    (sockets, cores): (CpuDistribution, CpuDistribution),
    tasks: u32,
    each: u32,
) -> Option<Vec<CpuSet>> {
    if u64::from(tasks) * u64::from(each) > threads.len() as u64 {
        return None;
    }
    let mut deck = Deck::new(threads, level, sockets, cores);
    let hand = |task: u32| {
        let taken = deck.take(task, each as usize);
        let parts: BTreeSet<u32> = taken.iter().map(|thread| thread.part(level)).collect();
        let whole = threads.iter().filter(|thread| parts.contains(&thread.part(level)));
        whole.map(|thread| thread.cpu).collect()
    };
    Some((0..tasks).map(hand).collect())
}

/// What is left to deal: a pile for each socket.
struct Deck {
    piles: Vec<Pile>,
    distribution: CpuDistribution,
    /// The socket that the next thread comes from, where each comes from the next.
    next: usize,
}

/// The cores of a socket.
struct Pile {
    /// Each in units that are not divided among tasks: itself where tasks are bound to cores, else its threads.
    cores: Vec<Vec<Vec<Thread>>>,
    /// How many units of each core are gone.
    gone: Vec<usize>,
    distribution: CpuDistribution,
    /// The core that the next unit comes from, where it is not the first that has one.
    next: usize,
    /// A task has taken from it and may take more.
    in_use: bool,
}

impl Deck {
    fn new(
        threads: &[Thread],
        level: Level,
        sockets: CpuDistribution,
        cores: CpuDistribution,
    ) -> Deck {
        let unit = if level == Level::Cores { Level::Cores } else { Level::Threads };
        let units = |core: &[Thread]| -> Vec<Vec<Thread>> {
            core.chunk_by(|a, b| a.part(unit) == b.part(unit)).map(<[_]>::to_vec).collect()
        };
        let pile = |socket: &[Thread]| {
            let by_core: Vec<_> = socket.chunk_by(|a, b| a.core == b.core).map(units).collect();
            let gone = vec![0; by_core.len()];
            Pile { cores: by_core, gone, distribution: cores, next: 0, in_use: false }
        };
        let piles = threads.chunk_by(|a, b| a.socket == b.socket).map(pile).collect();
        Deck { piles, distribution: sockets, next: 0 }
    }

    /// So many threads for a task: from its own socket, and from the next ones what that does not have.
    fn take(&mut self, task: u32, count: usize) -> Vec<Thread> {
        let mut taken = Vec::new();
        let sockets = self.piles.len();
        let first = match self.distribution {
            CpuDistribution::Block => 0,
            CpuDistribution::Cyclic => task as usize % sockets.max(1),
            CpuDistribution::Fcyclic => self.next,
        };
        let mut at = first;
        // Every round takes something, or fills up once and then takes something.
        while taken.len() < count && sockets > 0 {
            let from = (0..sockets).map(|more| (at + more) % sockets);
            let Some((from, unit)) =
                from.into_iter().find_map(|from| Some((from, self.piles[from].take()?)))
            else {
                // More tasks than whole cores: they are dealt again from the first.
                self.piles.iter_mut().for_each(Pile::refill);
                at = if self.distribution == CpuDistribution::Fcyclic { 0 } else { first };
                continue;
            };
            taken.extend_from_slice(&unit);
            at = if self.distribution == CpuDistribution::Fcyclic {
                (from + 1) % sockets
            } else {
                from
            };
        }
        self.next = at;
        self.piles.iter_mut().for_each(Pile::end_task);
        taken
    }
}

impl Pile {
    fn take(&mut self) -> Option<Vec<Thread>> {
        let cores = self.cores.len();
        let first = if self.distribution == CpuDistribution::Block { 0 } else { self.next };
        let mut from = (0..cores).map(|more| (first + more) % cores);
        let core = from.find(|core| self.gone[*core] < self.cores[*core].len())?;
        let unit = self.cores[core][self.gone[core]].clone();
        self.gone[core] += 1;
        self.next = if self.distribution == CpuDistribution::Fcyclic { core + 1 } else { core };
        self.in_use = true;
        Some(unit)
    }

    /// The next task begins with the next core.
    fn end_task(&mut self) {
        if std::mem::take(&mut self.in_use) && self.distribution == CpuDistribution::Cyclic {
            self.next += 1;
        }
    }

    fn refill(&mut self) {
        self.gone.fill(0);
        self.next = 0;
    }
}
