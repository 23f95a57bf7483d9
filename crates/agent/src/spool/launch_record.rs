//! A launch as the agent accepted it: what the supervisor is to run, and how.

use model::binding::CpuPlace;
use model::cpuset::CpuSet;
use model::id::AttemptId;
use model::limits::Limits;
use model::site::Site;
use serde::{Deserialize, Serialize};
use wire::order::JobLaunch;

/// A launch as accepted, with all that the supervisor cannot learn from the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub version: u32,
    pub attempt: AttemptId,
    pub node: String,
    /// The root of the node's control groups.
    pub group_root: String,
    /// `CgroupPlugin` in its own words.
    pub plugin: String,
    /// Of the kernel's numbers of CPUs.
    pub limits: Limits,
    /// Where the CPUs of the share are; empty where they are only counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CpuPlace>,
    /// How many CPUs the node has, and its machine.
    #[serde(default)]
    pub node_cpus: u32,
    #[serde(default)]
    pub machine_cpus: u32,
    /// Whether there is a script beside this file; the launch itself does not repeat it.
    pub has_script: bool,
    /// Times in it are by the node's own clock.
    pub launch: JobLaunch,
    /// What the site does around it.
    #[serde(default)]
    pub site: Site,
}

impl LaunchRecord {
    /// Never used for another attempt: a job's id and attempt number together are new each time.
    pub fn group_name(&self) -> String {
        group_name(self.attempt)
    }

    /// The kernel's numbers of a part of the share; as they are where CPUs are only counted.
    pub fn kernel_cpus(&self, share: &CpuSet) -> CpuSet {
        if self.places.is_empty() {
            return share.clone();
        }
        let places = self.places.iter().filter(|place| share.contains(place.id));
        places.flat_map(|place| place.kernel.iter().copied()).collect()
    }
}

pub(crate) fn group_name(attempt: AttemptId) -> String {
    format!("job_{}_{}", attempt.job, attempt.number)
}

/// The groups of the site's programs before and after an attempt, beside its own.
pub(crate) fn site_group_names(attempt: AttemptId) -> [String; 3] {
    let job = group_name(attempt);
    ["init", "prolog", "epilog"].map(|program| format!("{job}.{program}"))
}
