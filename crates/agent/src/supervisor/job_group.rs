//! The control group of a job with its limits, as far as the machine can enforce them.

use crate::cgroup::{GroupLimits, Hierarchy, JobGroup, Plugin};
use crate::device_access::{self, DeviceScope};
use crate::launch_request::LaunchRequest;
use crate::spool::LaunchRecord;
use model::limits::Limits;
use std::sync::LazyLock;

pub(super) fn make_group(
    request: &LaunchRequest,
    record: &LaunchRecord,
    hierarchy: Option<Hierarchy>,
) -> Result<JobGroup, String> {
    let create = |hierarchy: &Hierarchy| {
        let limits = group_limits(record, hierarchy, &request.plugin)?;
        JobGroup::create(hierarchy, &record.group_name(), &limits).map_err(|e| e.to_string())
    };
    match hierarchy.as_ref().map(create) {
        Some(Ok(group)) => Ok(group),
        // The launcher's knowledge of the control-group trees may be out of date: they are searched once more.
        Some(Err(_)) | None => create(&request.discover_groups()?),
    }
}

/// The job's limits as the group takes them. With `CgroupPlugin=autodetect` or `disabled` what the machine cannot
/// enforce is left out, and the node says so; with a named plugin it is an error.
fn group_limits(
    record: &LaunchRecord,
    hierarchy: &Hierarchy,
    plugin: &str,
) -> Result<GroupLimits, String> {
    let (limits, can): (&Limits, _) = (&record.limits, hierarchy.capabilities());
    let strict = matches!(plugin.parse(), Ok(Plugin::V1 | Plugin::V2));
    let allowed = |able: bool| able || strict;
    let memory = limits.memory.filter(|_| allowed(can.memory_hard));
    let swap = limits.memory_and_swap.zip(memory).filter(|_| allowed(can.swap));
    let guarded = limits.devices.as_ref().filter(|_| allowed(can.devices));
    let devices = guarded.map(|limits| device_access::allowed(limits, DeviceScope::of(record)));
    Ok(GroupLimits {
        memory_bytes: memory.map(|bytes| bytes.0),
        swap_bytes: swap.map(|(both, memory)| both.0.saturating_sub(memory.0)),
        soft_memory_bytes: limits.memory_soft.filter(|_| memory.is_some()).map(|bytes| bytes.0),
        swappiness: limits.swappiness.filter(|_| memory.is_some()),
        count_memory: can.usage_memory,
        cpuset: limits.cpus.as_ref().filter(|_| allowed(can.cpuset)).map(ToString::to_string),
        cpu_time: limits.cpu_time.filter(|_| allowed(can.cpu_time)),
        pids_max: match limits.pids {
            Some(most) => Some(most).filter(|_| allowed(can.pids)),
            None => MACHINE_PIDS.filter(|_| can.pids),
        },
        devices: devices.transpose()?,
    })
}

/// The most processes of one job where no limit is configured: half of the machine's, so that a fork bomb leaves the
/// node usable.
static MACHINE_PIDS: LazyLock<Option<u64>> = LazyLock::new(|| {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let most = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(number);
    most.into_iter().flatten().min().map(|most| (most / 2).max(1))
});

/// Finds the values that are the same for every job of the machine.
pub(super) fn cache_machine_limits() {
    LazyLock::force(&MACHINE_PIDS);
    // In a virtual machine each CPUID instruction traps to the host; std and ring cache what they find.
    #[cfg(target_arch = "x86_64")]
    let _ = std::arch::is_x86_feature_detected!("avx2");
    let _ = ring::digest::digest(&ring::digest::SHA256, b"");
}
