//! The limits of a step that has only a part of its job's share. Where it has all of it, the job's group is its limit.

use crate::cgroup::GroupLimits;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::limits::Limits;

/// No limit is set below this, as for jobs: a process needs so much to begin at all.
const MEMORY_FLOOR: Bytes = Bytes::from_mib(30);

pub(super) fn step_limits(
    of_job: &Limits,
    job: &NodeShare,
    step: Option<&NodeShare>,
) -> GroupLimits {
    let Some(step) = step else { return GroupLimits::default() };
    let cpus = of_job.cpus.as_ref().filter(|all| step.cpus != **all && step.cpus.is_subset(all));
    // What the policy made of the job's memory it makes of the step's part.
    let part = |limit: Bytes| {
        let scaled =
            u128::from(limit.0) * u128::from(step.memory.0) / u128::from(job.memory.0.max(1));
        Bytes(scaled as u64).max(MEMORY_FLOOR)
    };
    let less = step.memory.0 > 0 && step.memory < job.memory;
    let memory = of_job.memory.filter(|_| less).map(part).filter(|m| of_job.memory > Some(*m));
    GroupLimits {
        memory_bytes: memory.map(|bytes| bytes.0),
        // Swap is limited for the whole job.
        swap_bytes: None,
        cpuset: cpus.filter(|_| !step.cpus.is_empty()).map(|_| step.cpus.to_string()),
        pids_max: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(cpus: &str, mib: u64) -> NodeShare {
        let cpus = cpus.parse().expect("a list of a test");
        NodeShare {
            node: "n1".into(),
            cpus,
            memory: Bytes::from_mib(mib),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
        }
    }

    #[test]
    fn only_a_part_of_the_job_is_a_limit_of_its_own() {
        let job = share("0-3", 400);
        let limits = Limits {
            memory: Some(Bytes::from_mib(800)),
            cpus: Some("0-3".parse().expect("a list")),
            ..Limits::default()
        };
        assert_eq!(step_limits(&limits, &job, None), GroupLimits::default());
        assert_eq!(step_limits(&limits, &job, Some(&job)), GroupLimits::default());
        let part = step_limits(&limits, &job, Some(&share("1,3", 100)));
        assert_eq!(part.cpuset.as_deref(), Some("1,3"));
        assert_eq!(part.memory_bytes, Some(Bytes::from_mib(200).0));
        let tiny = step_limits(&limits, &job, Some(&share("0-3", 1)));
        assert_eq!((tiny.cpuset, tiny.memory_bytes), (None, Some(MEMORY_FLOOR.0)));
        let loose = step_limits(&Limits::default(), &job, Some(&share("1", 100)));
        assert_eq!(loose, GroupLimits::default(), "what the job is not held to, the step is not");
    }
}
