//! What jobs of this cluster ask for, so that placements leave GPUs that the next ones can use.

use crate::state::State;
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
            let mut counts: BTreeMap<TypicalJob, u32> = BTreeMap::new();
            for job in self.jobs.values() {
                if let Some(mut asked) = asked_on_a_node(job.spec.request(), &shared) {
                    if !memory_is_counted {
                        asked.memory_mib = 0;
                    }
                    let tasks = job.pending.as_ref().map_or(1, |pending| pending.indices.len());
                    let count = counts.entry(asked).or_default();
                    *count = count.saturating_add(u32::try_from(tasks).unwrap_or(u32::MAX));
                }
            }
            let kinds = GpuKinds::of(lines());
            let frequent = most_frequent(counts).into_iter();
            frequent.filter_map(|(job, count)| kinds.weighted(job, count)).collect()
        })
    }
}

fn most_frequent(counts: BTreeMap<TypicalJob, u32>) -> Vec<(TypicalJob, u32)> {
    let mut typical: Vec<(TypicalJob, u32)> = counts.into_iter().collect();
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

    /// The job with the weight of so many of its sort. GPUs of a kind that few nodes have are worth more to the jobs that need that
    /// kind than to those that any would serve. `None` where no GPU serves: wherever others run, it makes no difference to such a job.
    fn weighted(&self, job: TypicalJob, count: u32) -> Option<TypicalJob> {
        let is_asked = |kind: &str| job.kinds.iter().any(|asked| asked.eq_ignore_ascii_case(kind));
        let serving: u64 = if job.kinds.is_empty() {
            self.all
        } else {
            let of_job = self.by_kind.iter().filter(|(kind, _)| is_asked(kind));
            of_job.map(|(_, count)| *count).sum()
        };
        let weight = u64::from(count).saturating_mul(self.all).checked_div(serving)?;
        Some(TypicalJob { weight: u32::try_from(weight).unwrap_or(u32::MAX), ..job })
    }
}

/// What the request takes of one node, with no weight yet; `None` without GPUs. `shared` are the names of shares of GPUs.
fn asked_on_a_node(request: &Request, shared: &BTreeSet<&str>) -> Option<TypicalJob> {
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
    Some(TypicalJob { cpus, memory_mib, gpus, kinds: gres.kinds.clone(), weight: 0 })
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
            let job = asked_on_a_node(&request(nodes, per, name, count), &shared)?;
            Some((job.cpus, job.memory_mib, job.gpus))
        };
        let whole = |count| Some((8, 800, TypicalGpus::Whole(count)));
        assert_eq!(asked(1, Per::Node, "gpu", 3), whole(3));
        assert_eq!(asked(4, Per::Job, "gpu", 8), whole(2));
        assert_eq!(asked(2, Per::Task, "gpu", 1), whole(2));
        assert_eq!(asked(1, Per::Node, "shard", 5), Some((8, 800, TypicalGpus::Shares(5))));
        assert_eq!(asked(1, Per::Node, "fpga", 1), None);
    }

    fn one_gpu(cpus: u32, kinds: &[&str]) -> TypicalJob {
        let kinds = kinds.iter().map(|kind| kind.to_string()).collect();
        TypicalJob { cpus, memory_mib: 0, gpus: TypicalGpus::Whole(1), kinds, weight: 0 }
    }

    #[test]
    fn most_frequent_requests_are_typical() {
        let counts = (1..=200).map(|cpus| (one_gpu(cpus, &[]), cpus)).collect();
        let typical = most_frequent(counts);
        assert_eq!((typical.len(), typical[0].0.cpus, typical[0].1), (128, 200, 200));
    }

    /// Of twenty GPUs four are A100, six H100, and ten have no kind.
    #[test]
    fn requests_weigh_more_the_fewer_gpus_serve_them() {
        let lines = [
            NodeGres::plain("gpu", Some("a100"), 4),
            NodeGres::plain("gpu", Some("h100"), 6),
            NodeGres::plain("gpu", None, 10),
            NodeGres::plain("fpga", Some("a100"), 8),
        ];
        let kinds = GpuKinds::of(lines.iter());
        let weight = |of: &[&str]| Some(kinds.weighted(one_gpu(1, of), 3)?.weight);
        assert_eq!(weight(&[]), Some(3));
        assert_eq!(weight(&["A100"]), Some(15));
        assert_eq!(weight(&["a100", "A100", "h100"]), Some(6));
        assert_eq!(weight(&["b200"]), None);
    }
}
