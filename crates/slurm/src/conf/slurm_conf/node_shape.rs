//! A node's boards, sockets, cores and threads, completed from the given counts, and the CPUs reserved for
//! the system.

use model::cpuset::CpuSet;

use crate::conf::error::{Findings, NoticeKind};
use crate::conf::keys::record::{Entry, Record};

/// A bound on the CPUs of a node. A shape with more is refused as a mistake.
const CPUS_MAX: u64 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeShape {
    /// What jobs are given: the threads, or the cores if `CPUs` counts those.
    pub cpus: u32,
    pub boards: u32,
    /// On all boards.
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
}

/// A count as given: its key, its entry, and the number, which is at least one.
type Count<'a> = (&'static str, &'a Entry, u64);

/// A key, its entry, and what would be right.
type WrongCount<'a> = (&'static str, &'a Entry, String);

impl NodeShape {
    const ONE_CPU: NodeShape =
        NodeShape { cpus: 1, boards: 1, sockets: 1, cores_per_socket: 1, threads_per_core: 1 };

    /// The shape that a node's keys describe; one CPU if there is an error.
    pub fn read(record: &Record, findings: &mut Findings) -> NodeShape {
        if let (true, Some(entry)) = (record.has("CPUs"), record.entry("Procs")) {
            let how = "the former name of CPUs, which is on the line too and counts".to_owned();
            findings.notice(&entry.place, "Procs", NoticeKind::Corrected { how });
        }
        match GivenCounts::read(record) {
            Ok(given) => given.complete(findings),
            Err((key, entry, expected)) => {
                findings.wrong(&entry.place, key, &entry.text, expected);
                NodeShape::ONE_CPU
            }
        }
    }

    fn cores(self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// The CPUs that `CpuSpecList` or `CoreSpecCount` keeps from jobs.
    pub fn reserved(self, record: &Record, findings: &mut Findings) -> CpuSet {
        let list = record.entry("CpuSpecList");
        let (key, entry, cores) = match (list, record.entry("CoreSpecCount")) {
            (None, None) => return CpuSet::new(),
            (Some(_), Some(entry)) => {
                let expected = "excludes CpuSpecList; expected only one of the two";
                findings.wrong(&entry.place, "CoreSpecCount", &entry.text, expected);
                return CpuSet::new();
            }
            (Some(entry), None) => ("CpuSpecList", entry, self.listed_cores(record)),
            (None, Some(entry)) => ("CoreSpecCount", entry, self.last_cores(record)),
        };
        match cores {
            Some(cores) if cores.len() < self.cores() => self.cpus_of(&cores),
            Some(_) => {
                let expected = format!("expected to leave a core of {} to jobs", self.cores());
                findings.wrong(&entry.place, key, &entry.text, expected);
                CpuSet::new()
            }
            None => {
                let expected = format!("expected CPUs from 0 to {}", self.cpus - 1);
                findings.wrong(&entry.place, key, &entry.text, expected);
                CpuSet::new()
            }
        }
    }

    /// The cores of the listed CPUs; `None` if the node does not have one of the CPUs.
    fn listed_cores(self, record: &Record) -> Option<CpuSet> {
        let cpus = record.cpus("CpuSpecList").unwrap_or_default();
        let known = cpus.is_subset(&CpuSet::first(self.cpus));
        known.then(|| cpus.iter().map(|cpu| cpu / self.cpus_per_core()).collect())
    }

    /// The last core of each socket, beginning with the last socket; then the last but one of each.
    fn last_cores(self, record: &Record) -> Option<CpuSet> {
        let count: u32 = record.number("CoreSpecCount").unwrap_or(0);
        let in_order = (0..self.cores_per_socket).rev().flat_map(|core| {
            (0..self.sockets).rev().map(move |socket| socket * self.cores_per_socket + core)
        });
        Some(in_order.take(count as usize).collect())
    }

    fn cpus_per_core(self) -> u32 {
        self.cpus / self.cores()
    }

    fn cpus_of(self, cores: &CpuSet) -> CpuSet {
        let each = self.cpus_per_core();
        cores.iter().flat_map(|core| core * each..(core + 1) * each).collect()
    }
}

/// The counts that the line has.
struct GivenCounts<'a> {
    cpus: Option<Count<'a>>,
    boards: Option<Count<'a>>,
    /// With `Boards`, `Sockets` counts those of one board; without, all sockets of the node.
    sockets_per_board: Option<Count<'a>>,
    cores_per_socket: Option<Count<'a>>,
    threads_per_core: Option<Count<'a>>,
}

impl<'a> GivenCounts<'a> {
    fn read(record: &'a Record) -> Result<GivenCounts<'a>, WrongCount<'a>> {
        let given = GivenCounts {
            cpus: count(record, "CPUs")?.or(count(record, "Procs")?),
            boards: count(record, "Boards")?,
            sockets_per_board: either(record, "Sockets", "SocketsPerBoard")?,
            cores_per_socket: count(record, "CoresPerSocket")?,
            threads_per_core: count(record, "ThreadsPerCore")?,
        };
        let factors =
            [given.boards, given.sockets_per_board, given.cores_per_socket, given.threads_per_core];
        let mut product = 1;
        for (key, entry, count) in factors.into_iter().flatten() {
            product *= count;
            if product > CPUS_MAX {
                return Err((key, entry, format!("expected at most {CPUS_MAX} CPUs in all")));
            }
        }
        Ok(given)
    }

    /// Without `CPUs` it is the number of threads; without `Sockets` they follow from `CPUs`; any other
    /// missing count is one. `CPUs` that are neither the threads nor the cores are told, and the threads count.
    fn complete(&self, findings: &mut Findings) -> NodeShape {
        let boards = or_one(self.boards);
        let cores_per_socket = or_one(self.cores_per_socket);
        let threads_per_core = or_one(self.threads_per_core);
        let sockets = match (self.sockets_per_board, self.cpus) {
            (None, Some((_, _, cpus))) => self.sockets_for(cpus),
            (per_board, _) => boards * or_one(per_board),
        };
        let cores = sockets * cores_per_socket;
        let threads = cores * threads_per_core;
        let cpus = match self.cpus {
            None => threads,
            Some((_, _, cpus)) if cpus == threads || cpus == cores => cpus,
            Some((key, entry, cpus)) => {
                let how = if cores == threads {
                    format!("{cpus} are not the node's {cores} cores, which count")
                } else {
                    format!(
                        "{cpus} are neither the node's {threads} threads, which count, nor its {cores} cores"
                    )
                };
                findings.notice(&entry.place, key, NoticeKind::Corrected { how });
                threads
            }
        };
        let narrow = |count: u64| u32::try_from(count).expect("bounded by CPUS_MAX");
        NodeShape {
            cpus: narrow(cpus),
            boards: narrow(boards),
            sockets: narrow(sockets),
            cores_per_socket: narrow(cores_per_socket),
            threads_per_core: narrow(threads_per_core),
        }
    }

    /// The number of sockets, on all boards, that have this many threads, or this many cores; or else at most as many
    /// threads.
    fn sockets_for(&self, cpus: u64) -> u64 {
        let boards = or_one(self.boards);
        let cores_of_all = boards * or_one(self.cores_per_socket);
        let threads_of_all = cores_of_all * or_one(self.threads_per_core);
        let per_board =
            [threads_of_all, cores_of_all].into_iter().find(|n| cpus.is_multiple_of(*n));
        boards * (cpus / per_board.unwrap_or(threads_of_all)).max(1)
    }
}

fn or_one(count: Option<Count<'_>>) -> u64 {
    count.map_or(1, |(_, _, count)| count)
}

fn count<'a>(record: &'a Record, key: &'static str) -> Result<Option<Count<'a>>, WrongCount<'a>> {
    let (Some(entry), Some(limit)) = (record.entry(key), record.limit::<u64>(key)) else {
        return Ok(None);
    };
    match limit {
        Some(count) if (1..=CPUS_MAX).contains(&count) => Ok(Some((key, entry, count))),
        _ => Err((key, entry, format!("expected from 1 to {CPUS_MAX}"))),
    }
}

/// A count that either of two keys gives, but not both.
fn either<'a>(
    record: &'a Record,
    key: &'static str,
    other: &'static str,
) -> Result<Option<Count<'a>>, WrongCount<'a>> {
    match (count(record, key)?, count(record, other)?) {
        (Some(_), Some((_, entry, _))) => {
            Err((other, entry, format!("excludes {key}; expected only one of the two")))
        }
        (one, another) => Ok(one.or(another)),
    }
}
