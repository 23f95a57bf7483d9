//! Distribution of a step's hardware threads over its tasks.

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

/// The threads of the places in their order; with `one_thread` only the first of each core.
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

/// A mask for each task; `None` if there are fewer threads than the tasks need.
pub fn distribute(
    threads: &[Thread],
    level: Level,
    (sockets, cores): (CpuDistribution, CpuDistribution),
    tasks: u32,
    each: u32,
) -> Option<Vec<CpuSet>> {
    if u64::from(tasks) * u64::from(each) > threads.len() as u64 {
        return None;
    }
    let mut free = FreeThreads::new(threads, level, sockets, cores);
    let mask_of = |task: u32| {
        let taken = free.take(task, each as usize);
        let parts: BTreeSet<u32> = taken.iter().map(|thread| thread.part(level)).collect();
        let whole = threads.iter().filter(|thread| parts.contains(&thread.part(level)));
        whole.map(|thread| thread.cpu).collect()
    };
    Some((0..tasks).map(mask_of).collect())
}

/// The threads not yet given to a task, by socket.
struct FreeThreads {
    sockets_free: Vec<SocketThreads>,
    distribution: CpuDistribution,
    /// The socket of the next thread, for [`CpuDistribution::Fcyclic`].
    next: usize,
}

/// The free threads of one socket, by core.
struct SocketThreads {
    /// For each core its units, which tasks do not share: the whole core if tasks are bound to cores, else each thread.
    cores: Vec<Vec<Vec<Thread>>>,
    /// The number of taken units of each core.
    taken: Vec<usize>,
    distribution: CpuDistribution,
    /// The core of the next unit, unless the distribution is by block.
    next: usize,
    /// The current task has taken units of this socket.
    in_use: bool,
}

impl FreeThreads {
    fn new(
        threads: &[Thread],
        level: Level,
        sockets: CpuDistribution,
        cores: CpuDistribution,
    ) -> FreeThreads {
        let unit = if level == Level::Cores { Level::Cores } else { Level::Threads };
        let units = |core: &[Thread]| -> Vec<Vec<Thread>> {
            core.chunk_by(|a, b| a.part(unit) == b.part(unit)).map(<[_]>::to_vec).collect()
        };
        let socket_threads = |socket: &[Thread]| {
            let by_core: Vec<_> = socket.chunk_by(|a, b| a.core == b.core).map(units).collect();
            let taken = vec![0; by_core.len()];
            SocketThreads { cores: by_core, taken, distribution: cores, next: 0, in_use: false }
        };
        let sockets_free =
            threads.chunk_by(|a, b| a.socket == b.socket).map(socket_threads).collect();
        FreeThreads { sockets_free, distribution: sockets, next: 0 }
    }

    /// Takes `count` threads for a task: from its socket, and the rest from the sockets after it.
    fn take(&mut self, task: u32, count: usize) -> Vec<Thread> {
        let mut taken = Vec::new();
        let sockets = self.sockets_free.len();
        let first = match self.distribution {
            CpuDistribution::Block => 0,
            CpuDistribution::Cyclic => task as usize % sockets.max(1),
            CpuDistribution::Fcyclic => self.next,
        };
        let mut at = first;
        // Every round takes a unit, or refills once and takes one in the next round.
        while taken.len() < count && sockets > 0 {
            let from = (0..sockets).map(|more| (at + more) % sockets);
            let Some((from, unit)) =
                from.into_iter().find_map(|from| Some((from, self.sockets_free[from].take()?)))
            else {
                // More tasks than whole cores: cores are given again from the first.
                self.sockets_free.iter_mut().for_each(SocketThreads::refill);
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
        self.sockets_free.iter_mut().for_each(SocketThreads::end_task);
        taken
    }
}

impl SocketThreads {
    fn take(&mut self) -> Option<Vec<Thread>> {
        let cores = self.cores.len();
        let first = if self.distribution == CpuDistribution::Block { 0 } else { self.next };
        let mut from = (0..cores).map(|more| (first + more) % cores);
        let core = from.find(|core| self.taken[*core] < self.cores[*core].len())?;
        let unit = self.cores[core][self.taken[core]].clone();
        self.taken[core] += 1;
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
        self.taken.fill(0);
        self.next = 0;
    }
}
