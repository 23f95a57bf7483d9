//! What jobs of this cluster ask for, so that placements leave GPUs that the next ones can use.

use crate::state::State;
use model::gpu_model;
use model::gres::GPU;
use model::node::NodeGres;
use model::request::{Memory, Per, Request};
use sched::view::{TypicalGpus, TypicalJob};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most frequent requests are typical; the others are left out.
const TYPICAL_MAX: usize = 128;

impl State {
    /// The requests for GPUs of all jobs that are known, those that have ended lately among them. Empty where no node has GPUs.
    pub(crate) fn typical_jobs(&self) -> Arc<Vec<TypicalJob>> {
        self.typical_jobs.get(|| {
            let lines = || self.nodes.values().flat_map(|node| &node.config.gres);
            if !lines().any(|line| line.name == GPU) {
                return Vec::new();
            }
            let shared = lines().filter(|line| line.share_of.is_some());
            let shared: BTreeSet<&str> = shared.map(|line| line.name.as_str()).collect();
            let memory_is_counted = self.config.parameters.select.memory;
            let mut counts: BTreeMap<Asked, u32> = BTreeMap::new();
            for job in self.jobs.values() {
                if let Some(mut asked) = asked_on_a_node(job.spec.request(), &shared) {
                    if !memory_is_counted {
                        asked.job.memory_mib = 0;
                    }
                    let tasks = job.pending.as_ref().map_or(1, |pending| pending.indices.len());
                    let count = counts.entry(asked).or_default();
                    *count = count.saturating_add(u32::try_from(tasks).unwrap_or(u32::MAX));
                }
            }
            let kinds = GpuKinds::of(lines());
            let frequent = most_frequent(counts).into_iter();
            frequent.filter_map(|(asked, count)| kinds.weighted(asked, count)).collect()
        })
    }
}

/// What a job asks for, in its own words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    job: TypicalJob,
    /// The kinds are models, which the kinds of nodes may name in more words.
    by_model: bool,
}

fn most_frequent(counts: BTreeMap<Asked, u32>) -> Vec<(Asked, u32)> {
    let mut typical: Vec<(Asked, u32)> = counts.into_iter().collect();
    typical.sort_by_key(|(_, count)| Reverse(*count));
    typical.truncate(TYPICAL_MAX);
    typical
}

/// How many GPUs the cluster has of each kind.
#[derive(Default)]
struct GpuKinds<'n> {
    all: u64,
    by_kind: BTreeMap<&'n str, u64>,
}

impl<'n> GpuKinds<'n> {
    fn of(lines: impl Iterator<Item = &'n NodeGres>) -> Self {
        let mut kinds = Self::default();
        for line in lines.filter(|line| line.name == GPU) {
            kinds.all = kinds.all.saturating_add(line.count);
            if let Some(kind) = line.kind.as_deref() {
                let count = kinds.by_kind.entry(kind).or_default();
                *count = count.saturating_add(line.count);
            }
        }
        kinds
    }

    /// The job with the weight of so many of its sort, and with the cluster's names of its kinds. GPUs of a kind that few nodes have
    /// are worth more to the jobs that need that kind than to those that any would serve. `None` where no GPU serves: wherever others
    /// run, it makes no difference to such a job.
    fn weighted(&self, asked: Asked, count: u32) -> Option<TypicalJob> {
        let Asked { mut job, by_model } = asked;
        let mut serving = self.all;
        if !job.kinds.is_empty() {
            let is_asked = |kind: &str| {
                let is_kind = |wanted: &String| {
                    wanted.eq_ignore_ascii_case(kind)
                        || (by_model && gpu_model::is_model(kind, wanted))
                };
                job.kinds.iter().any(is_kind)
            };
            let of_job = self.by_kind.iter().filter(|(kind, _)| is_asked(kind));
            let of_job: Vec<(&str, u64)> = of_job.map(|(kind, count)| (*kind, *count)).collect();
            serving = of_job.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
            job.kinds = of_job.iter().map(|(kind, _)| kind.to_string()).collect();
        }
        let weight = u64::from(count).saturating_mul(self.all).checked_div(serving)?;
        job.weight = u32::try_from(weight).unwrap_or(u32::MAX);
        Some(job)
    }
}

/// What the request takes of one node, with no weight yet; `None` without GPUs. `shared` are the names of shares of GPUs.
fn asked_on_a_node(request: &Request, shared: &BTreeSet<&str>) -> Option<Asked> {
    let nodes = request.nodes.min.max(1);
    let tasks = u64::from(request.task_count().div_ceil(nodes));
    let gres = request.gres.iter().find(|gres| {
        (gres.name == GPU || shared.contains(gres.name.as_str())) && gres.count.min > 0
    })?;
    let count = match gres.per {
        Per::Node | Per::Socket => gres.count.min,
        Per::Job => gres.count.min.div_ceil(u64::from(nodes)),
        Per::Task => gres.count.min.saturating_mul(tasks),
    };
    let gpus =
        if gres.name == GPU { TypicalGpus::Whole(count) } else { TypicalGpus::Shares(count) };
    let cpus = request.cpu_count().div_ceil(nodes);
    let memory_mib = match &request.memory {
        Memory::PerNode(range) => range.min.mib(),
        Memory::PerCpu(each) => each.mib().saturating_mul(u64::from(cpus)),
        Memory::PerGpu(each) if gres.name == GPU => each.mib().saturating_mul(count),
        Memory::PerGpu(_) | Memory::Default | Memory::WholeNode => 0,
    };
    let job = TypicalJob { cpus, memory_mib, gpus, kinds: gres.kinds.clone(), weight: 0 };
    // Without a kind it is the same in either language.
    Some(Asked { job, by_model: gres.by_model && !gres.kinds.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::range::Range;
    use model::request::{DeviceMake, GresRequest};

    fn request(nodes: u32, per: Per, name: &str, count: u64) -> Request {
        let gres = GresRequest {
            per,
            name: name.to_string(),
            kinds: Vec::new(),
            by_model: false,
            count: Range::exactly(count),
            device_memory: None,
            total_memory: None,
            make: DeviceMake::default(),
        };
        Request {
            nodes: Range::exactly(nodes),
            nodes_given: true,
            tasks: Some(2 * nodes),
            cpus_per_task: Range::exactly(4),
            memory: Memory::PerCpu(Bytes::from_mib(100)),
            gres: vec![gres],
            ..Request::default()
        }
    }

    #[test]
    fn request_is_counted_as_what_it_takes_of_one_node() {
        let shared = BTreeSet::from(["shard"]);
        let asked = |nodes, per, name, count| {
            let job = asked_on_a_node(&request(nodes, per, name, count), &shared)?.job;
            Some((job.cpus, job.memory_mib, job.gpus))
        };
        let whole = |count| Some((8, 800, TypicalGpus::Whole(count)));
        assert_eq!(asked(1, Per::Node, "gpu", 3), whole(3));
        assert_eq!(asked(4, Per::Job, "gpu", 8), whole(2));
        assert_eq!(asked(2, Per::Task, "gpu", 1), whole(2));
        assert_eq!(asked(1, Per::Node, "shard", 5), Some((8, 800, TypicalGpus::Shares(5))));
        assert_eq!(asked(1, Per::Node, "fpga", 1), None);
    }

    fn one_gpu(cpus: u32, kinds: &[&str], by_model: bool) -> Asked {
        let kinds = kinds.iter().map(|kind| kind.to_string()).collect();
        let gpus = TypicalGpus::Whole(1);
        Asked { job: TypicalJob { cpus, memory_mib: 0, gpus, kinds, weight: 0 }, by_model }
    }

    #[test]
    fn most_frequent_requests_are_typical() {
        let counts = (1..=200).map(|cpus| (one_gpu(cpus, &[], false), cpus)).collect();
        let typical = most_frequent(counts);
        assert_eq!((typical.len(), typical[0].0.job.cpus, typical[0].1), (128, 200, 200));
    }

    /// The cluster has twenty GPUs: four A100, six H100, and ten without a kind.
    #[test]
    fn requests_weigh_more_the_fewer_gpus_serve_them() {
        let lines = [
            NodeGres::plain("gpu", Some("a100"), 4),
            NodeGres::plain("gpu", Some("h100"), 6),
            NodeGres::plain("gpu", None, 10),
            NodeGres::plain("fpga", Some("a100"), 8),
        ];
        let kinds = GpuKinds::of(lines.iter());
        let weight = |of: &[&str]| Some(kinds.weighted(one_gpu(1, of, false), 3)?.weight);
        assert_eq!(weight(&[]), Some(3));
        assert_eq!(weight(&["A100"]), Some(15));
        assert_eq!(weight(&["a100", "A100", "h100"]), Some(6));
        assert_eq!(weight(&["b200"]), None);
    }

    /// dstack's `H100` is any of the kinds that are that model, but no slice of one.
    #[test]
    fn models_are_served_by_all_kinds_that_name_them() {
        let lines = [
            NodeGres::plain("gpu", Some("nvidia_h100_80gb_hbm3"), 4),
            NodeGres::plain("gpu", Some("h100"), 2),
            NodeGres::plain("gpu", Some("h100_1g.10gb"), 7),
            NodeGres::plain("gpu", Some("a100"), 5),
        ];
        let kinds = GpuKinds::of(lines.iter());
        let served = |by_model: bool| {
            let job = kinds.weighted(one_gpu(1, &["H100"], by_model), 1)?;
            Some((job.kinds, job.weight))
        };
        let both = vec!["h100".to_string(), "nvidia_h100_80gb_hbm3".to_string()];
        assert_eq!(served(true), Some((both, 3)));
        assert_eq!(served(false), Some((vec!["h100".to_string()], 9)));
    }
}
