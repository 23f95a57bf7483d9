//! A launch as the agent accepted it: what the supervisor is to run, and how.

use model::amount::Bytes;
use model::binding::CpuPlace;
use model::cpuset::CpuSet;
use model::id::AttemptId;
use model::limits::Limits;
use model::site::Site;
use serde::{Deserialize, Serialize};
use wire::order::JobLaunch;
use wire::volume::LaunchVolume;

/// A launch as accepted, with everything that the order does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub version: u32,
    pub attempt: AttemptId,
    pub node: String,
    /// The root of the node's control groups.
    pub group_root: String,
    /// `CgroupPlugin` as slurm.conf writes it.
    pub plugin: String,
    /// Its CPUs are the kernel's numbers.
    pub limits: Limits,
    /// Sockets and cores of the share's CPUs; empty where CPUs are only counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CpuPlace>,
    /// The number of CPUs of the node, and of its machine.
    #[serde(default)]
    pub node_cpus: u32,
    #[serde(default)]
    pub machine_cpus: u32,
    /// Whether the folder has a script; it is not repeated in `launch`.
    pub has_script: bool,
    /// The order. Its times are converted to the node's clock.
    pub launch: JobLaunch,
    /// The site's configuration of prolog, epilog and folders.
    #[serde(default)]
    pub site: Site,
    /// The private folders are not of the site's configuration: the job runs also where they cannot be made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private_by_default: bool,
}

impl LaunchRecord {
    /// The name of the attempt's group. It is never reused: id and attempt number together are unique.
    pub fn group_name(&self) -> String {
        group_name(self.attempt)
    }

    /// The size of the `/dev/shm` that the job asks for on the node itself; a container has one of its own.
    pub fn private_memory(&self) -> Option<Bytes> {
        self.launch.shared_memory.filter(|_| self.launch.container.is_none())
    }

    /// Whether the job's processes are in namespaces of the job's own.
    pub fn has_namespaces(&self) -> bool {
        self.site.private.is_some()
            || self.private_memory().is_some()
            || !self.node_volumes().is_empty()
    }

    /// The volumes that are shown among the node's own files; a container shows them among its own.
    pub fn node_volumes(&self) -> &[LaunchVolume] {
        match self.launch.container {
            Some(_) => &[],
            None => &self.launch.volumes,
        }
    }

    /// Converts CPUs of the share to the kernel's numbers; unchanged where CPUs are only counted.
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

/// The names of the groups of an attempt's InitScript, prolog and epilog.
pub(crate) fn site_group_names(attempt: AttemptId) -> [String; 3] {
    let job = group_name(attempt);
    ["init", "prolog", "epilog"].map(|program| format!("{job}.{program}"))
}
