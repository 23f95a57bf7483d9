//! Fragmentation of GPUs: how much of what a node has free the typical jobs of the cluster could not use.
//!
//! Free GPUs are lost to a job that the node cannot hold for lack of CPUs, memory or GPUs. The rest of a GPU is lost to a job that
//! needs more of one. A placement after which the least is lost, over all typical jobs by their weights, keeps the cluster usable
//! for what is likely to come (Weng et al., Beware of Fragmentation, USENIX ATC 2023). Unlike there, free GPUs are also lost as far
//! as CPUs and memory do not suffice for as many jobs of the sort as the GPUs would hold: eight free GPUs with the CPUs of one job
//! are of no more use than one.

use crate::free::cores;
use crate::free::timeline::{CORE, CORES, GRES, MEMORY};
use crate::view::{TypicalGpus, TypicalJob};
use model::gres::GPU;
use model::node::NodeConfig;
use smallvec::SmallVec;

/// How much of a GPU counts as one.
const WHOLE: u64 = 1_000;

/// What a node has free, as far as GPUs are lost with it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remainder {
    cpus: u64,
    memory_mib: u64,
    /// GPUs of which something is free, those with as much of each together.
    gpus: SmallVec<[EqualGpus; 4]>,
    /// What is free of all of them, in thousandths of one.
    all: u64,
}

/// GPUs with as much free of each, in shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EqualGpus {
    free: u64,
    /// All shares of a GPU; one where it is granted whole only.
    shares: u64,
    is_shared: bool,
    /// The free shares of one of them in thousandths of the GPU: worked out once for all typical jobs.
    amount: u64,
    count: u64,
}

impl EqualGpus {
    /// So many GPUs that are granted whole or not at all, and are free.
    fn whole(count: u64) -> Self {
        Self { free: 1, shares: 1, is_shared: false, amount: WHOLE, count }
    }

    fn shared(free: u64, shares: u64) -> Self {
        Self { free, shares, is_shared: true, amount: free * WHOLE / shares.max(1), count: 1 }
    }

    fn is_whole(&self) -> bool {
        self.free == self.shares
    }

    fn are_like(&self, other: &Self) -> bool {
        (self.free, self.shares, self.is_shared) == (other.free, other.shares, other.is_shared)
    }
}

impl Remainder {
    /// The remainder of a node that has these amounts free, by column of its timeline.
    fn of(config: &NodeConfig, free: &[u64]) -> Self {
        Self::without(config, free, 0)
    }

    /// The remainder of the same node once a job has taken these amounts.
    fn after(config: &NodeConfig, free: &[u64], taken: &[u64]) -> Self {
        let left: SmallVec<[u64; 16]> =
            free.iter().zip(taken).map(|(free, taken)| free.saturating_sub(*taken)).collect();
        // The shares of a GPU that is granted whole are not among the amounts.
        let lines = config.gres.iter().zip(&taken[GRES..]);
        let granted = lines.filter(|(line, _)| line.name == GPU).map(|(_, taken)| *taken).sum();
        Self::without(config, &left, granted)
    }

    /// The same where the amounts still have the shares of so many GPUs that are granted whole.
    fn without(config: &NodeConfig, free: &[u64], mut granted: u64) -> Self {
        let mut remainder = Self {
            cpus: free[CORES] / CORE * u64::from(cores::threads(config)),
            memory_mib: free[MEMORY] >> 20,
            gpus: SmallVec::new(),
            all: 0,
        };
        let (mut has_shares, mut whole) = (false, 0);
        for (line, free) in config.gres.iter().zip(&free[GRES..]) {
            if line.share_of.is_some() {
                has_shares = true;
                let gpu = EqualGpus::shared(*free, line.count);
                if granted > 0 && gpu.is_whole() {
                    granted -= 1;
                } else {
                    remainder.add(gpu);
                }
            } else if line.name == GPU {
                whole += *free;
            }
        }
        if !has_shares {
            remainder.add(EqualGpus::whole(whole));
        }
        remainder
    }

    fn add(&mut self, gpus: EqualGpus) {
        if gpus.free == 0 || gpus.count == 0 {
            return;
        }
        self.all += gpus.amount * gpus.count;
        match self.gpus.iter_mut().find(|known| known.are_like(&gpus)) {
            Some(known) => known.count += gpus.count,
            None => self.gpus.push(gpus),
        }
    }
}

/// The typical jobs as the nodes of one class serve them. What is lost is worked out for every node that is compared, with a job and
/// without it: jobs that ask for the same GPUs are together, and what the class cannot serve is summed up.
#[derive(Debug, Clone)]
pub struct TypicalOnClass {
    /// The weights of all typical jobs.
    weight: u64,
    by_gpus: Vec<JobsByGpus>,
}

/// The typical jobs that ask for these GPUs.
#[derive(Debug, Clone)]
struct JobsByGpus {
    gpus: TypicalGpus,
    jobs: Vec<RestOfJob>,
}

/// What a typical job asks for beside GPUs.
#[derive(Debug, Clone, Copy)]
struct RestOfJob {
    /// At least one.
    cpus: u64,
    memory_mib: u64,
    weight: u64,
}

impl TypicalOnClass {
    /// The typical jobs on nodes with the hardware of this one.
    pub fn new(config: &NodeConfig, typical: &[TypicalJob]) -> Self {
        let mut served: Vec<&TypicalJob> =
            typical.iter().filter(|job| is_of_kind(config, job)).collect();
        served.sort_by_key(|job| job.gpus);
        let rest = |job: &&TypicalJob| RestOfJob {
            cpus: u64::from(job.cpus).max(1),
            memory_mib: job.memory_mib,
            weight: job.weight.into(),
        };
        let of_gpus = |jobs: &[&TypicalJob]| JobsByGpus {
            gpus: jobs[0].gpus,
            jobs: jobs.iter().map(rest).collect(),
        };
        Self {
            weight: typical.iter().map(|job| u64::from(job.weight)).sum(),
            by_gpus: served.chunk_by(|a, b| a.gpus == b.gpus).map(of_gpus).collect(),
        }
    }

    /// What typical jobs cannot use of the free GPUs of a node that has these amounts free, over all of them by their weights.
    pub fn lost(&self, config: &NodeConfig, free: &[u64]) -> i64 {
        self.lost_of(&Remainder::of(config, free))
    }

    /// The same once a job has taken these amounts.
    pub fn lost_after(&self, config: &NodeConfig, free: &[u64], taken: &[u64]) -> i64 {
        self.lost_of(&Remainder::after(config, free, taken))
    }

    fn lost_of(&self, remainder: &Remainder) -> i64 {
        if remainder.all == 0 {
            return 0;
        }
        let usable: u64 = self.by_gpus.iter().map(|jobs| jobs.usable_of(remainder)).sum();
        (self.weight * remainder.all - usable) as i64
    }
}

impl JobsByGpus {
    /// How much of the free GPUs these jobs could use, over all of them by their weights.
    fn usable_of(&self, remainder: &Remainder) -> u64 {
        let (mut serving, mut by_gpus, mut shares) = (0, 0, u64::MAX);
        let serves = |gpus: &EqualGpus| match self.gpus {
            TypicalGpus::Whole(_) => gpus.is_whole(),
            TypicalGpus::Shares(count) => gpus.is_shared && gpus.free >= count,
        };
        for gpus in remainder.gpus.iter().filter(|gpus| serves(gpus)) {
            serving += gpus.count;
            by_gpus += gpus.amount * gpus.count;
            shares = shares.min(gpus.shares.max(1));
        }
        let (wanted, of_one_job, of_gpu) = match self.gpus {
            TypicalGpus::Whole(count) => (count, count, 1),
            TypicalGpus::Shares(count) => (1, count, shares),
        };
        if serving < wanted.max(1) {
            return 0;
        }
        // Divided last: what one job takes may be less than a thousandth.
        let by_jobs = |jobs: u64| jobs.saturating_mul(of_one_job).saturating_mul(WHOLE) / of_gpu;
        // So many jobs use all that serves.
        let enough = match of_one_job {
            0 => u64::MAX,
            each => by_gpus.saturating_mul(of_gpu).div_ceil(each.saturating_mul(WHOLE)),
        };
        let weighted = |job: &RestOfJob| {
            if job.begins(enough, remainder) {
                job.weight * by_gpus
            } else {
                job.weight * by_jobs(job.count_begun(remainder)).min(by_gpus)
            }
        };
        self.jobs.iter().map(weighted).sum()
    }
}

impl RestOfJob {
    /// Whether the free CPUs and memory suffice for so many such jobs, the last of them in part: [`Self::count_begun`] without a
    /// division, which most jobs need not be asked for.
    fn begins(&self, count: u64, remainder: &Remainder) -> bool {
        let before_last = count.saturating_sub(1);
        self.fits(remainder)
            && remainder.cpus > before_last.saturating_mul(self.cpus)
            && (self.memory_mib == 0
                || remainder.memory_mib > before_last.saturating_mul(self.memory_mib))
    }

    fn fits(&self, remainder: &Remainder) -> bool {
        remainder.cpus >= self.cpus && remainder.memory_mib >= self.memory_mib
    }

    /// How many such jobs the free CPUs and memory suffice for, with the one for which they suffice in part; zero where they do not
    /// suffice for one. The last is counted because smaller jobs can use what is left for it.
    fn count_begun(&self, remainder: &Remainder) -> u64 {
        if !self.fits(remainder) {
            return 0;
        }
        let by_memory = match self.memory_mib {
            0 => u64::MAX,
            each => remainder.memory_mib.div_ceil(each),
        };
        remainder.cpus.div_ceil(self.cpus).min(by_memory)
    }
}

fn is_of_kind(config: &NodeConfig, job: &TypicalJob) -> bool {
    let has = |wanted: &String| {
        let mut kinds = config.gres.iter().filter_map(|line| line.kind.as_deref());
        kinds.any(|kind| kind.eq_ignore_ascii_case(wanted))
    };
    job.kinds.is_empty() || job.kinds.iter().any(has)
}

/// How much of its GPUs a node with so much free has left, in thousandths of one.
pub fn gpus_left(config: &NodeConfig, free: &[u64]) -> u64 {
    Remainder::of(config, free).all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpus;
    use model::amount::Bytes;
    use model::node::NodeGres;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn typical(cpus: u32, gpus: TypicalGpus, weight: u32) -> TypicalJob {
        TypicalJob { cpus, memory_mib: 0, gpus, kinds: Vec::new(), weight }
    }

    /// Eight CPUs and two GPUs, in shares of a tenth where `shared`.
    fn node(shared: bool) -> NodeConfig {
        let mut node = NodeConfig::plain("n1", 8, Bytes::from_gib(16));
        node.gres = vec![gpus("h100", 2, 0)];
        if shared {
            let share = |gpu: u32| NodeGres {
                share_of: Some(gpu),
                ..NodeGres::plain("shard", Some("h100"), 10)
            };
            node.gres.extend([share(0), share(1)]);
        }
        node
    }

    fn free(cores: u64, gres: &[u64]) -> Vec<u64> {
        [&[cores * CORE, 16 * GIB][..], gres].concat()
    }

    fn lost_to(job: &TypicalJob, node: &NodeConfig, free: &[u64]) -> i64 {
        TypicalOnClass::new(node, std::slice::from_ref(job)).lost(node, free)
    }

    /// By how much more is lost if these amounts are taken.
    fn growth(node: &NodeConfig, free: &[u64], taken: &[u64], typical: &[TypicalJob]) -> i64 {
        let typical = TypicalOnClass::new(node, typical);
        typical.lost_after(node, free, taken) - typical.lost(node, free)
    }

    #[test]
    fn gpus_are_lost_to_jobs_that_lack_cpus_gpus_or_their_kind() {
        let node = node(false);
        let lost =
            |cores: u64, gpu: u64, job: &TypicalJob| lost_to(job, &node, &free(cores, &[gpu]));
        let one = typical(2, TypicalGpus::Whole(1), 1);
        let two = typical(4, TypicalGpus::Whole(2), 1);
        assert_eq!((lost(8, 2, &one), lost(8, 2, &two)), (0, 0));
        assert_eq!((lost(8, 1, &one), lost(8, 1, &two)), (0, 1_000), "too few GPUs");
        assert_eq!((lost(1, 2, &one), lost(3, 2, &two)), (2_000, 2_000), "too few CPUs");
        let other = TypicalJob { kinds: vec!["A100".into()], ..one.clone() };
        let same = TypicalJob { kinds: vec!["H100".into()], ..one };
        assert_eq!((lost(8, 2, &other), lost(8, 2, &same)), (2_000, 0), "another kind");
    }

    #[test]
    fn rest_of_a_gpu_is_lost_to_jobs_that_need_more_of_one() {
        let node = node(true);
        let lost = |shares: [u64; 2], job: &TypicalJob| {
            let whole = shares.iter().filter(|free| **free == 10).count() as u64;
            let free = free(8, &[whole, shares[0], shares[1]]);
            lost_to(job, &node, &free)
        };
        let half = typical(1, TypicalGpus::Shares(5), 1);
        let whole = typical(1, TypicalGpus::Whole(1), 1);
        assert_eq!((lost([10, 10], &half), lost([10, 10], &whole)), (0, 0));
        assert_eq!((lost([10, 4], &half), lost([10, 4], &whole)), (400, 400));
        assert_eq!((lost([6, 4], &half), lost([6, 4], &whole)), (400, 1_000));
    }

    /// Two GPUs are of use as far as there are CPUs and memory for them: for one job, and for another that has begun.
    #[test]
    fn gpus_are_lost_beyond_the_jobs_that_cpus_and_memory_suffice_for() {
        let lost = |shared: bool, cores: u64, job: &TypicalJob| {
            let gres: &[u64] = if shared { &[2, 10, 10] } else { &[2] };
            let node = node(shared);
            lost_to(job, &node, &free(cores, gres))
        };
        let one = typical(4, TypicalGpus::Whole(1), 1);
        assert_eq!(lost(false, 4, &one), 1_000, "the CPUs of one job");
        assert_eq!(lost(false, 5, &one), 0, "a second one has begun");
        assert_eq!(lost(false, 3, &one), 2_000, "the CPUs of none");
        let large = |gib: u64| TypicalJob { memory_mib: gib << 10, ..one.clone() };
        assert_eq!((lost(false, 8, &large(16)), lost(false, 8, &large(15))), (1_000, 0));
        let part = typical(4, TypicalGpus::Shares(4), 1);
        assert_eq!((lost(true, 4, &part), lost(true, 8, &part)), (1_600, 1_200));
    }

    #[test]
    fn whole_gpus_and_parts_are_left() {
        assert_eq!(gpus_left(&node(false), &free(8, &[2])), 2_000);
        assert_eq!(gpus_left(&node(true), &free(8, &[1, 10, 4])), 1_400);
        assert_eq!(gpus_left(&node(true), &free(8, &[0, 0, 0])), 0);
    }

    /// A GPU for itself costs the pair; a share of a GPU that is broken into already costs nothing.
    #[test]
    fn growth_is_what_a_placement_adds_to_what_is_lost() {
        let node = node(true);
        let jobs = [typical(1, TypicalGpus::Whole(2), 3), typical(1, TypicalGpus::Whole(1), 1)];
        let one_gpu = [CORE, 0, 1, 0, 0];
        // Both GPUs were usable. One is left, which three of four jobs cannot use.
        assert_eq!(growth(&node, &free(8, &[2, 10, 10]), &one_gpu, &jobs), 3_000);
        // The last GPU was lost to three of four, and is gone.
        assert_eq!(growth(&node, &free(8, &[1, 0, 10]), &one_gpu, &jobs), -3_000);
        let share = [CORE, 0, 0, 0, 5];
        // The other half of a GPU was lost to all four.
        assert_eq!(growth(&node, &free(8, &[0, 0, 5]), &share, &jobs), -2_000);
        // A whole GPU is broken into: its other half is lost to the four, after the three that lacked a second one.
        assert_eq!(growth(&node, &free(8, &[1, 0, 10]), &share, &jobs), -1_000);
    }

    /// What is lost to one job by the words of this page: GPU by GPU, and with divisions.
    fn lost_one_by_one(job: &TypicalJob, cpus: u64, memory_mib: u64, gpus: &[(u64, u64)]) -> u64 {
        let amount = |(free, shares): (u64, u64)| free * WHOLE / shares;
        let all: u64 = gpus.iter().map(|gpu| amount(*gpu)).sum();
        let of_job = u64::from(job.cpus).max(1);
        if cpus < of_job || memory_mib < job.memory_mib {
            return all;
        }
        let by_memory = memory_mib.checked_div(job.memory_mib);
        let in_part =
            by_memory.map(|by| by + u64::from(!memory_mib.is_multiple_of(job.memory_mib)));
        let jobs = cpus.div_ceil(of_job).min(in_part.unwrap_or(u64::MAX));
        let serves = |(free, shares): &&(u64, u64)| match job.gpus {
            TypicalGpus::Whole(_) => free == shares,
            TypicalGpus::Shares(count) => *free >= count,
        };
        let serving: Vec<(u64, u64)> = gpus.iter().filter(serves).copied().collect();
        let by_gpus: u64 = serving.iter().map(|gpu| amount(*gpu)).sum();
        let usable = match job.gpus {
            TypicalGpus::Whole(count) if serving.len() as u64 >= count => jobs * count * WHOLE,
            TypicalGpus::Shares(count) if !serving.is_empty() => {
                let least = serving.iter().map(|(_, shares)| *shares).min();
                jobs * count * WHOLE / least.unwrap_or(1)
            }
            _ => 0,
        };
        all - by_gpus.min(usable)
    }

    proptest! {
        #[test]
        fn what_is_lost_to_all_is_the_sum_of_what_is_lost_to_each(
            jobs in proptest::collection::vec((0u32..12, 0u64..9, 1u64..12, any::<bool>(), any::<bool>(), 1u32..5), 0..12),
            free_cores in 0u64..=8,
            free_mib in 0u64..=16,
            free_shares in proptest::collection::vec((0u64..=10).prop_map(|free| if free > 6 { 10 } else { free }), 4),
        ) {
            let mut node = NodeConfig::plain("n1", 8, Bytes::from_mib(16));
            node.gres = vec![gpus("h100", 4, 0)];
            node.gres.extend((0..4).map(|gpu| NodeGres {
                share_of: Some(gpu),
                ..NodeGres::plain("shard", Some("h100"), 10)
            }));
            let free: Vec<u64> =
                [&[free_cores * CORE, free_mib << 20, 0][..], &free_shares[..]].concat();
            let job = |(cpus, memory_mib, count, is_whole, other_kind, weight)| TypicalJob {
                cpus,
                memory_mib,
                gpus: if is_whole { TypicalGpus::Whole(count) } else { TypicalGpus::Shares(count) },
                kinds: if other_kind { vec!["a100".into()] } else { Vec::new() },
                weight,
            };
            let jobs: Vec<TypicalJob> = jobs.into_iter().map(job).collect();
            let of_gpus: Vec<(u64, u64)> = free_shares.iter().map(|free| (*free, 10)).collect();
            let each = jobs.iter().map(|job| {
                let lost = if job.kinds.is_empty() {
                    lost_one_by_one(job, free_cores, free_mib, &of_gpus)
                } else {
                    free_shares.iter().sum::<u64>() * 100
                };
                u64::from(job.weight) * lost
            });
            let all = TypicalOnClass::new(&node, &jobs).lost(&node, &free);
            prop_assert_eq!(all, each.sum::<u64>() as i64);
        }
    }
}
