//! The pod that a job runs in where a source of Kubernetes makes its machines: what of the job decides what the pod is.

use serde::{Deserialize, Serialize};

/// Where the program is copied to, and where the join file is, in a pod.
pub const PROGRAM_DIR: &str = "/sluice";
pub const JOIN_DIR: &str = "/sluice-join";

/// The agent's state: `/tmp` is the one folder that every image has and nobody can replace a folder in.
pub const STATE_DIR: &str = "/tmp/sluice";

/// What no volume of a run may be at, below or above: the agent's own folders, and the kernel's.
pub const OWN_PATHS: [&str; 6] = [PROGRAM_DIR, JOIN_DIR, STATE_DIR, "/dev", "/proc", "/sys"];

/// What a pod is made with beside its resources. A job runs in a pod that was made for one like it and in no other: what one
/// leaves in the pod's files the next one finds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodTemplate {
    /// `None` for the source's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The user whose jobs the pod is for: no other user's job runs in it.
    pub uid: u32,
    pub gid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// The volumes that the job names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PodClaim>,
}

/// A claim of Kubernetes that a job names as a volume, and where its pod finds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    pub claim_name: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// It was made for its owner: what is in it may be given to the owner's group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    /// One pod at a time may have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exclusive: bool,
}

impl PodTemplate {
    /// Whether a pod of it has the claim.
    pub fn mounts(&self, claim_name: &str) -> bool {
        self.claims.iter().any(|claim| claim.claim_name == claim_name)
    }
}

/// Whether a machine is a pod, and of which jobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodKind {
    #[default]
    NoPod,
    /// One that would be made for the job.
    ForAny,
    Of(Box<PodTemplate>),
}

impl PodKind {
    pub fn is_none(&self) -> bool {
        *self == Self::NoPod
    }

    /// Whether a job of this template may be on the machine.
    pub fn admits(&self, wanted: Option<&PodTemplate>) -> bool {
        match self {
            Self::NoPod | Self::ForAny => true,
            Self::Of(made) => wanted == Some(&**made),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_for_jobs_of_its_own_template() {
        let of = |uid: u32| PodTemplate {
            image: Some("ubuntu".into()),
            uid,
            gid: 0,
            groups: Vec::new(),
            claims: Vec::new(),
        };
        let pod = PodKind::Of(Box::new(of(1)));
        assert!(pod.admits(Some(&of(1))));
        assert!(!pod.admits(Some(&of(2))) && !pod.admits(None), "another user's files");
        assert!(PodKind::ForAny.admits(None) && PodKind::NoPod.admits(Some(&of(1))));
    }
}
