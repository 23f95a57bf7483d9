//! Bindings in words: masks, the variables that tasks find, and the line in which a task says what it is bound to.

use super::{CpuBind, CpuBinding, Level, MemBind, MemBinding, NodeBindings};
use crate::cpuset::CpuSet;
use std::fmt;

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Threads => "threads",
            Level::Cores => "cores",
            Level::Sockets => "sockets",
            Level::Ldoms => "ldoms",
        })
    }
}

/// `0x3`, as short as it can be.
pub fn mask(set: &CpuSet) -> String {
    format!("0x{}", digits(set))
}

/// The hexadecimal digits of a mask, without leading zeros.
fn digits(set: &CpuSet) -> String {
    let highest = set.iter().last().unwrap_or(0);
    let digit = |at: u32| (0..4).filter(|bit| set.contains(at * 4 + bit)).map(|b| 1 << b).sum();
    let all = (0..=highest / 4).rev().map(|at| char::from_digit(digit(at), 16).unwrap_or('0'));
    all.collect()
}

/// `0x0003` on a machine of 16 CPUs.
pub(super) fn mask_wide(set: &CpuSet, cpus: u32) -> String {
    let width = cpus.div_ceil(4) as usize;
    format!("0x{:0>width$}", digits(set).to_ascii_uppercase())
}

/// A mask from its digits, with `0x` before them or not.
pub fn parse_mask(text: &str) -> Option<CpuSet> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let few = !digits.is_empty() && digits.len() <= (crate::cpuset::CPU_MAX / 4) as usize;
    if !few {
        return None;
    }
    let mut set = CpuSet::new();
    for (at, digit) in (0..).zip(digits.chars().rev()) {
        let value = digit.to_digit(16)?;
        (0..4).filter(|bit| value & (1 << bit) != 0).for_each(|bit| set.insert(at * 4 + bit));
    }
    Some(set)
}

fn numbers(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn masks(list: &[CpuSet]) -> String {
    list.iter().map(digits).collect::<Vec<_>>().join(",")
}

/// What was listed, with repetitions written out.
pub(super) fn list(kind: &CpuBind) -> String {
    match kind {
        CpuBind::MapCpu(list) | CpuBind::MapLdom(list) => numbers(list),
        CpuBind::MaskCpu(list) | CpuBind::MaskLdom(list) => masks(list),
        _ => String::new(),
    }
}

fn quiet(verbose: bool) -> &'static str {
    if verbose { "verbose" } else { "quiet" }
}

/// What was asked for, as a refusal names it.
pub(super) fn asked(binding: &CpuBinding, one_thread: bool) -> String {
    let kind = match binding.kind.as_ref() {
        Some(CpuBind::Rank) => "rank",
        Some(CpuBind::RankLdom) => "rank_ldom",
        Some(CpuBind::MapLdom(_)) => "map_ldom",
        Some(CpuBind::MaskLdom(_)) => "mask_ldom",
        _ => "",
    };
    let verbose = if binding.verbose { "verbose," } else { "" };
    format!("{verbose}{kind}{}", if one_thread { ",one_thread" } else { "" })
}

/// Which task a line speaks of.
#[derive(Debug, Clone, Copy)]
pub struct BoundTask<'a> {
    pub node: &'a str,
    pub rank: u32,
    pub local_rank: u32,
    pub pid: i32,
}

impl BoundTask<'_> {
    fn says(&self, what: &str, mask: &str, set: bool) -> String {
        let BoundTask { node, rank, local_rank, pid } = self;
        let set = if set { " set" } else { "" };
        format!("{what} - {node}, task {rank:2} {local_rank:2} [{pid}]: mask {mask}{set}")
    }
}

impl NodeBindings {
    /// `quiet` or `verbose`.
    pub fn verbosity(&self) -> &'static str {
        quiet(self.verbose)
    }

    /// `mask_cpu:`, `none`, …
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn list(&self) -> &str {
        &self.list
    }

    /// All of it, in the form in which it can be asked for again.
    pub fn whole_text(&self) -> String {
        format!("{},{}{}", self.verbosity(), self.kind, self.list)
    }

    /// `cpu-bind=MASK - n1, task  0  0 [71]: mask 0x1 set`.
    pub fn report(&self, who: BoundTask<'_>) -> String {
        let level = self.missed.map(|level| format!("-{level}")).unwrap_or_default();
        let own = self.mask(who.local_rank);
        let mask = own.map_or("0x0".to_owned(), mask);
        who.says(&format!("cpu-bind{level}={}", self.label), &mask, own.is_some())
    }
}

impl MemBinding {
    /// The variables' parts: kind and list.
    pub fn kind_and_list(&self) -> (&'static str, String) {
        match &self.kind {
            None => ("", String::new()),
            Some(MemBind::None) => ("none", String::new()),
            Some(MemBind::Local) => ("local", String::new()),
            Some(MemBind::Rank) => ("rank", String::new()),
            Some(MemBind::Map(list)) => ("map_mem:", numbers(list)),
            Some(MemBind::Mask(list)) => ("mask_mem:", masks(list)),
        }
    }

    pub fn verbosity(&self) -> &'static str {
        quiet(self.verbose)
    }

    pub fn whole_text(&self) -> String {
        let (kind, list) = self.kind_and_list();
        let prefer = if self.prefer { ",prefer" } else { "" };
        let comma = if kind.is_empty() { "" } else { "," };
        format!("{}{prefer}{comma}{kind}{list}", self.verbosity())
    }

    /// The domains that a task is bound to by name; none: by where it runs, or not at all.
    pub fn named(&self, local_rank: u32) -> Option<CpuSet> {
        let pick = |count: usize| local_rank as usize % count.max(1);
        match self.kind.as_ref()? {
            MemBind::None | MemBind::Local => None,
            MemBind::Rank => Some(CpuSet::from_iter([local_rank])),
            MemBind::Map(list) => {
                list.get(pick(list.len())).map(|ldom| [*ldom].into_iter().collect())
            }
            MemBind::Mask(list) => list.get(pick(list.len())).cloned(),
        }
    }

    /// `mem-bind=LOC - n1, task  0  0 [71]: mask 0x1 set`.
    pub fn report(&self, who: BoundTask<'_>, domains: &CpuSet) -> String {
        let label = match &self.kind {
            None => "NULL",
            Some(MemBind::None) => "NONE",
            Some(MemBind::Local) => "LOC",
            Some(MemBind::Rank) => "RANK",
            Some(MemBind::Map(_)) => "MAP",
            Some(MemBind::Mask(_)) => "MASK",
        };
        let set = !matches!(self.kind, None | Some(MemBind::None));
        let what = if self.prefer {
            format!("mem-bind PREFER {label}")
        } else {
            format!("mem-bind={label}")
        };
        who.says(&what, &mask(domains), set)
    }
}
