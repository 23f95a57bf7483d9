//! What jobs of this cluster ask for, so that placements leave GPUs that the next ones can use.

use crate::state::State;
use model::gres::GPU;
use model::request::{Memory, Per, Request};
use sched::view::{TypicalGpus, TypicalJob};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most frequent requests are typical; the others are left out.
const TYPICAL_MAX: usize = 64;

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
            let mut counts: BTreeMap<TypicalJob, u32> = BTreeMap::new();
            for job in self.jobs.values() {
                if let Some(asked) = asked_on_a_node(job.spec.request(), &shared) {
                    let tasks = job.pending.as_ref().map_or(1, |pending| pending.indices.len());
                    let count = counts.entry(asked).or_default();
                    *count = count.saturating_add(u32::try_from(tasks).unwrap_or(u32::MAX));
                }
            }
            most_frequent(counts)
        })
    }
}

fn most_frequent(counts: BTreeMap<TypicalJob, u32>) -> Vec<TypicalJob> {
    let counted = counts.into_iter().map(|(job, count)| TypicalJob { count, ..job });
    let mut typical: Vec<TypicalJob> = counted.collect();
    typical.sort_by_key(|job| Reverse(job.count));
    typical.truncate(TYPICAL_MAX);
    typical
}

/// What the request takes of one node, with no count yet; `None` without GPUs. `shared` are the names of shares of GPUs.
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
    Some(TypicalJob { cpus, memory_mib, gpus, kinds: gres.kinds.clone(), count: 0 })
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

    #[test]
    fn most_frequent_requests_are_typical() {
        let job = |cpus| TypicalJob {
            cpus,
            memory_mib: 0,
            gpus: TypicalGpus::Whole(1),
            kinds: Vec::new(),
            count: 0,
        };
        let counts = (1..=100).map(|cpus| (job(cpus), cpus)).collect();
        let typical = most_frequent(counts);
        assert_eq!((typical.len(), typical[0].cpus, typical[0].count), (64, 100, 100));
    }
}
