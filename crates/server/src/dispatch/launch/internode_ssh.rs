//! How the nodes of one run reach one another by `ssh`: whose key it is, and which name means which node.

use super::TaskFacts;
use crate::shared::Shared;
use cluster::{Job, State};
use model::id::AttemptId;
use model::run::LaunchKind;
use std::collections::HashSet;
use wire::ssh::{InternodeHost, InternodeSsh};

/// The attempt whose key the nodes of a job's run have: its own, or that of the first group. `None` for a run on one node, and
/// for one that does not run.
pub fn run_attempt(state: &State, job: &Job) -> Option<AttemptId> {
    if job.spec.launch.kind != LaunchKind::Task || job.has_ended() {
        return None;
    }
    job.attempt().filter(|attempt| attempt.ending.is_none())?;
    let first = match job.het {
        Some(het) => state.jobs.get(&het.jobs().next()?)?,
        None => job,
    };
    let attempt = first.attempt()?;
    let is_several = job.het.is_some() || attempt.allocation.nodes.len() > 1;
    is_several.then_some(AttemptId { job: first.id, number: attempt.number })
}

pub(super) fn of_attempt(shared: &Shared, attempt: AttemptId, task: &TaskFacts) -> InternodeSsh {
    InternodeSsh {
        private_key: shared.ssh_keys.run_private_text(attempt),
        host_key: shared.setup.ssh_host_key.clone(),
        hosts: hosts(task),
    }
}

/// A name or an address that several nodes have means the first of them.
fn hosts(task: &TaskFacts) -> Vec<InternodeHost> {
    let mut taken = HashSet::new();
    let nodes = task.nodes.iter().zip(&task.addresses);
    let host = |(node, address): (&super::TaskNode, &String)| {
        let names = [address, &node.name].into_iter().filter(|name| is_host(name));
        let names = names.filter(|name| taken.insert((*name).clone())).cloned().collect();
        InternodeHost { names, login: format!("{}.{}", node.job, node.index) }
    };
    nodes.map(host).collect()
}

/// Whether it can stand in a configuration of `ssh` as a host: no pattern, no space, nothing that negates.
fn is_host(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !name.is_empty() && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::super::TaskNode;
    use super::*;
    use model::id::JobId;

    #[test]
    fn names_and_addresses_mean_one_node_each() {
        let node = |name: &str, index| TaskNode { job: JobId(7), index, name: name.to_owned() };
        let task = TaskFacts {
            first_rank: 0,
            addresses: ["10.0.0.1", "10.0.0.1", "10.0.0.* !x"].map(str::to_owned).to_vec(),
            nodes: vec![node("n1", 0), node("n2", 1), node("n3", 2)],
            gpus: vec![0; 3],
        };
        let found: Vec<String> = hosts(&task)
            .into_iter()
            .map(|h| format!("{} {}", h.login, h.names.join(",")))
            .collect();
        assert_eq!(found, ["7.0 10.0.0.1,n1", "7.1 n2", "7.2 n3"]);
    }
}
