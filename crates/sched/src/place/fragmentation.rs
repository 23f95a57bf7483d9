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

/// How much of a GPU counts as one.
const WHOLE: u64 = 1_000;

/// What a node has free, as far as GPUs are lost with it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remainder {
    cpus: u64,
    memory_mib: u64,
    gpus: Vec<GpuRemainder>,
    /// What is free of all of them, in thousandths of one.
    all: u64,
}

/// What is free of one GPU, in shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GpuRemainder {
    free: u64,
    /// All shares of the GPU; one where it is granted whole only.
    shares: u64,
    is_shared: bool,
    /// The free shares in thousandths of the GPU: worked out once for all typical jobs.
    amount: u64,
}

impl GpuRemainder {
    /// A GPU that is granted whole or not at all, and is free.
    const FREE: Self = Self { free: 1, shares: 1, is_shared: false, amount: WHOLE };

    fn shared(free: u64, shares: u64) -> Self {
        Self { free, shares, is_shared: true, amount: free * WHOLE / shares.max(1) }
    }

    fn is_whole(&self) -> bool {
        self.free == self.shares
    }
}

impl Remainder {
    /// The remainder of a node that has these amounts free, by column of its timeline.
    fn of(config: &NodeConfig, free: &[u64]) -> Self {
        let lines = || config.gres.iter().zip(&free[GRES..]);
        let shared = lines().filter(|(line, _)| line.share_of.is_some());
        let mut gpus: Vec<GpuRemainder> =
            shared.map(|(line, free)| GpuRemainder::shared(*free, line.count)).collect();
        if gpus.is_empty() {
            let free: u64 =
                lines().filter(|(line, _)| line.name == GPU).map(|(_, free)| *free).sum();
            gpus = vec![GpuRemainder::FREE; free as usize];
        }
        Self {
            cpus: free[CORES] / CORE * u64::from(cores::threads(config)),
            memory_mib: free[MEMORY] >> 20,
            all: gpus.iter().map(|gpu| gpu.amount).sum(),
            gpus,
        }
    }

    /// The remainder of the same node once a job has taken these amounts.
    fn after(config: &NodeConfig, free: &[u64], taken: &[u64]) -> Self {
        let left: Vec<u64> =
            free.iter().zip(taken).map(|(free, taken)| free.saturating_sub(*taken)).collect();
        let mut remainder = Self::of(config, &left);
        let is_shared = config.gres.iter().any(|line| line.share_of.is_some());
        if is_shared {
            // The shares of a GPU that is granted whole are not among the amounts.
            let lines = config.gres.iter().zip(&taken[GRES..]);
            let whole: u64 =
                lines.filter(|(line, _)| line.name == GPU).map(|(_, taken)| *taken).sum();
            let granted = remainder.gpus.iter_mut().filter(|gpu| gpu.is_whole());
            for gpu in granted.take(whole as usize) {
                remainder.all -= gpu.amount;
                *gpu = GpuRemainder::shared(0, gpu.shares);
            }
        }
        remainder
    }

    /// How much of the free GPUs the job could not use.
    fn lost_to(&self, job: &TypicalJob, config: &NodeConfig) -> u64 {
        let jobs = self.jobs_begun(job);
        if jobs == 0 || !is_of_kind(config, job) {
            return self.all;
        }
        let serves = |gpu: &GpuRemainder| match job.gpus {
            TypicalGpus::Whole(_) => gpu.is_whole(),
            TypicalGpus::Shares(count) => gpu.is_shared && gpu.free >= count,
        };
        // One walk: this is done for each typical job on each node that is compared.
        let (mut serving, mut by_gpus, mut shares) = (0, 0, u64::MAX);
        for gpu in self.gpus.iter().filter(|gpu| serves(gpu)) {
            serving += 1;
            by_gpus += gpu.amount;
            shares = shares.min(gpu.shares.max(1));
        }
        let (wanted, of_one_job, of_gpu) = match job.gpus {
            TypicalGpus::Whole(count) => (count, count, 1),
            TypicalGpus::Shares(count) => (1, count, shares),
        };
        if serving < wanted {
            return self.all;
        }
        // Divided last: what one job takes may be less than a thousandth.
        let by_rest = jobs.saturating_mul(of_one_job).saturating_mul(WHOLE) / of_gpu;
        self.all - by_gpus.min(by_rest)
    }

    /// How many such jobs the free CPUs and memory suffice for, with the one for which they suffice in part; zero where they do not
    /// suffice for one. The last is counted because smaller jobs can use what is left for it.
    fn jobs_begun(&self, job: &TypicalJob) -> u64 {
        let cpus = u64::from(job.cpus).max(1);
        if self.cpus < cpus || self.memory_mib < job.memory_mib {
            return 0;
        }
        let by_memory = match job.memory_mib {
            0 => u64::MAX,
            each => self.memory_mib.div_ceil(each),
        };
        self.cpus.div_ceil(cpus).min(by_memory)
    }

    fn lost(&self, config: &NodeConfig, typical: &[TypicalJob]) -> i64 {
        if self.all == 0 {
            return 0;
        }
        let of_job = |job: &TypicalJob| u64::from(job.weight) * self.lost_to(job, config);
        typical.iter().map(of_job).sum::<u64>() as i64
    }
}

fn is_of_kind(config: &NodeConfig, job: &TypicalJob) -> bool {
    let has = |wanted: &String| {
        let mut kinds = config.gres.iter().filter_map(|line| line.kind.as_deref());
        kinds.any(|kind| kind.eq_ignore_ascii_case(wanted))
    };
    job.kinds.is_empty() || job.kinds.iter().any(has)
}

/// By how much more is lost to typical jobs on a node with so much free if these amounts of it are taken; less than zero where
/// the job takes what was lost already.
pub fn growth(config: &NodeConfig, free: &[u64], taken: &[u64], typical: &[TypicalJob]) -> i64 {
    let before = Remainder::of(config, free).lost(config, typical);
    Remainder::after(config, free, taken).lost(config, typical) - before
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

    #[test]
    fn gpus_are_lost_to_jobs_that_lack_cpus_gpus_or_their_kind() {
        let node = node(false);
        let lost = |cores: u64, gpu: u64, job: &TypicalJob| {
            Remainder::of(&node, &free(cores, &[gpu])).lost_to(job, &node)
        };
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
            Remainder::of(&node, &free).lost_to(job, &node)
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
            Remainder::of(&node, &free(cores, gres)).lost_to(job, &node)
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
}
