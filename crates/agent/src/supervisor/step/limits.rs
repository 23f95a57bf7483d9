//! The limits of a step's group, where the step has only a part of its job's share. A step with the whole share is
//! limited by the job's group.

use crate::cgroup::GroupLimits;
use crate::device_access::{self, DeviceScope};
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::limits::Limits;

/// The lowest memory limit, as for jobs: a process needs as much to start.
const MEMORY_FLOOR: Bytes = Bytes::from_mib(30);

/// The limits of one step. Its memory is always counted separately, so that an OOM kill is assigned to the right step.
pub(crate) fn step_limits(
    of_job: &Limits,
    job: &NodeShare,
    step: Option<&NodeShare>,
    scope: DeviceScope,
) -> Result<GroupLimits, String> {
    let counted = GroupLimits { count_memory: true, ..GroupLimits::default() };
    let Some(step) = step else { return Ok(counted) };
    let cpus =
        of_job.cpus.as_ref().filter(|_| step.cpus != job.cpus && step.cpus.is_subset(&job.cpus));
    // The step's limit is the same proportion of its memory as the job's limit is of the job's.
    let part = |limit: Bytes| {
        let scaled =
            u128::from(limit.0) * u128::from(step.memory.0) / u128::from(job.memory.0.max(1));
        Bytes(scaled as u64).max(MEMORY_FLOOR)
    };
    let less = step.memory.0 > 0 && step.memory < job.memory;
    let memory = of_job.memory.filter(|_| less).map(part).filter(|m| of_job.memory > Some(*m));
    let fewer = of_job.devices.as_ref().and_then(|of_job| {
        let own = of_job.of_step(step);
        (own.granted != of_job.granted).then_some(own)
    });
    let devices = fewer.map(|own| device_access::allowed(&own, scope));
    Ok(GroupLimits {
        // Swap is limited for the whole job.
        memory_bytes: memory.map(|bytes| bytes.0),
        cpuset: cpus.filter(|_| !step.cpus.is_empty()).map(|_| step.cpus.to_string()),
        devices: devices.transpose()?,
        ..counted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::DeviceRule;
    use model::allocation::GresShare;
    use model::limits::{DeviceLimits, DeviceUnit};

    const SCOPE: DeviceScope = DeviceScope { of_several_nodes: false, cdi: &[] };

    fn share(cpus: &str, mib: u64) -> NodeShare {
        let cpus = cpus.parse().expect("a list of a test");
        NodeShare {
            node: "n1".into(),
            cpus,
            memory: Bytes::from_mib(mib),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        }
    }

    #[test]
    fn step_with_a_part_of_the_share_has_limits_of_its_own() {
        let job = share("0-3", 400);
        let limits = Limits {
            memory: Some(Bytes::from_mib(800)),
            cpus: Some("0-3".parse().expect("a list")),
            ..Limits::default()
        };
        let of = |limits: &Limits, step: Option<&NodeShare>| {
            step_limits(limits, &job, step, SCOPE).expect("no device is in it")
        };
        let counted = GroupLimits { count_memory: true, ..GroupLimits::default() };
        assert_eq!(of(&limits, None), counted);
        assert_eq!(of(&limits, Some(&job)), counted);
        let part = of(&limits, Some(&share("1,3", 100)));
        assert_eq!(part.cpuset.as_deref(), Some("1,3"));
        assert_eq!(part.memory_bytes, Some(Bytes::from_mib(200).0));
        let tiny = of(&limits, Some(&share("0-3", 1)));
        assert_eq!((tiny.cpuset, tiny.memory_bytes), (None, Some(MEMORY_FLOOR.0)));
        let loose = of(&Limits::default(), Some(&share("1", 100)));
        assert_eq!(loose, counted, "what the job is not held to, the step is not");
    }

    #[test]
    fn step_with_fewer_devices_has_its_own_allow_list() {
        let unit = |index, file: &str| DeviceUnit {
            name: "gpu".into(),
            index: Some(index),
            files: vec![file.into()],
        };
        let granted = vec![unit(0, "/dev/null"), unit(1, "/dev/full")];
        let guarded = vec!["/dev/null".into(), "/dev/full".into()];
        let devices = Some(DeviceLimits { granted, guarded, allowed: Vec::new() });
        let limits = Limits { devices, ..Limits::default() };
        let with = |indices: &[u32]| NodeShare {
            gres: vec![GresShare {
                name: "gpu".into(),
                kind: None,
                count: indices.len() as u64,
                indices: indices.to_vec(),
            }],
            ..share("0", 1)
        };
        let job = with(&[0, 1]);
        let of = |step: &NodeShare| {
            step_limits(&limits, &job, Some(step), SCOPE).expect("both are devices").devices
        };
        assert_eq!(of(&job), None, "the job's own list holds");
        let (null, full) = (DeviceRule::char(1, Some(3)), DeviceRule::char(1, Some(7)));
        let one = of(&with(&[1])).expect("a list");
        assert!(one.contains(&full) && !one.contains(&null), "{one:?}");
    }
}
