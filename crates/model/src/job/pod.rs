//! The pod that a job runs in where a source of Kubernetes makes its machines: what of the job decides what the pod is.

use serde::{Deserialize, Serialize};

/// Where the program is copied to, and where the join file is, in a pod.
pub const PROGRAM_DIR: &str = "/sluice";
pub const JOIN_DIR: &str = "/sluice-join";

/// The agent's state: `/tmp` is the one folder that every image has and nobody can replace a folder in.
pub const STATE_DIR: &str = "/tmp/sluice";

/// Names the job's user to the commands in a pod: the users of its image are not those of the cluster.
pub const USER_VARIABLE: &str = "SLUICE_USER";

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
    #[serde(default, skip_serializing_if = "PodUser::is_job_user")]
    pub user: PodUser,
    /// Its image is pulled with credentials that the job brings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_registry_auth: bool,
    /// The volumes that the job names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PodClaim>,
}

/// Who the processes of a pod are inside it. To the cluster they are always the job's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodUser {
    #[default]
    JobUser,
    Root,
    /// The user that the image names, else root.
    OfImage,
}

impl PodUser {
    pub fn is_job_user(&self) -> bool {
        *self == Self::JobUser
    }
}

/// A claim of Kubernetes that a job names as a volume, and where its pod finds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    /// The claim of every pod of the job, or that of its first rank.
    pub claim_name: String,
    /// The claims of all ranks, where each pod of the job has one of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_ranks: Vec<String>,
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

impl PodClaim {
    /// The claim of the pod of this rank.
    pub fn name_on(&self, rank: u32) -> &str {
        self.of_ranks.get(rank as usize).unwrap_or(&self.claim_name)
    }
}

impl PodTemplate {
    /// Whether the pods of a job are different ones: each has claims of its own.
    pub fn is_by_rank(&self) -> bool {
        self.claims.iter().any(|claim| !claim.of_ranks.is_empty())
    }

    /// How many different pods a job of it has.
    pub fn ranks(&self) -> u32 {
        self.claims.iter().map(|claim| claim.of_ranks.len()).max().unwrap_or(0).max(1) as u32
    }

    /// Whether the pod of this rank has the claim.
    pub fn mounts(&self, claim_name: &str, rank: u32) -> bool {
        self.claims.iter().any(|claim| claim.name_on(rank) == claim_name)
    }

    /// What the pod of this rank is made with.
    pub fn of_rank(&self, rank: u32) -> Self {
        let claim = |of: &PodClaim| PodClaim {
            claim_name: of.name_on(rank).to_owned(),
            of_ranks: Vec::new(),
            ..of.clone()
        };
        Self { claims: self.claims.iter().map(claim).collect(), ..self.clone() }
    }
}

/// Whether a machine is a pod, and of which jobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodKind {
    #[default]
    NoPod,
    /// One that would be made for the job, if that is its own user there.
    ForAny,
    /// One that would be made for the job.
    ForAnyOrRoot,
    Of(Box<PodTemplate>),
}

impl PodKind {
    pub fn is_none(&self) -> bool {
        *self == Self::NoPod
    }

    /// Whether a job of this template may be on the machine.
    pub fn admits(&self, wanted: Option<&PodTemplate>) -> bool {
        match self {
            Self::NoPod | Self::ForAnyOrRoot => true,
            Self::ForAny => wanted.is_none_or(|pod| pod.user.is_job_user()),
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
            user: PodUser::JobUser,
            has_registry_auth: false,
            claims: Vec::new(),
        };
        let pod = PodKind::Of(Box::new(of(1)));
        assert!(pod.admits(Some(&of(1))));
        assert!(!pod.admits(Some(&of(2))) && !pod.admits(None), "another user's files");
        assert!(PodKind::ForAny.admits(None) && PodKind::NoPod.admits(Some(&of(1))));
        let root = PodTemplate { user: PodUser::Root, ..of(1) };
        assert!(!pod.admits(Some(&root)) && !PodKind::ForAny.admits(Some(&root)));
        assert!(PodKind::ForAnyOrRoot.admits(Some(&root)), "where the site says so");
    }

    #[test]
    fn pod_of_a_rank_has_the_claim_of_that_rank() {
        let claim = |claim_name: &str, of_ranks: &[&str]| PodClaim {
            claim_name: claim_name.to_owned(),
            of_ranks: of_ranks.iter().map(|name| (*name).to_owned()).collect(),
            path: "/data".into(),
            read_only: false,
            is_own: true,
            is_exclusive: true,
        };
        let of = |claims: Vec<PodClaim>| PodTemplate {
            image: None,
            uid: 1,
            gid: 1,
            groups: Vec::new(),
            user: PodUser::JobUser,
            has_registry_auth: false,
            claims,
        };
        let both = of(vec![claim("part-0", &["part-0", "part-1"]), claim("all", &[])]);
        assert_eq!((both.is_by_rank(), both.ranks()), (true, 2));
        assert!(both.mounts("part-1", 1) && !both.mounts("part-1", 0));
        assert!(both.mounts("all", 0) && both.mounts("all", 1));
        let second = both.of_rank(1);
        assert_eq!(second, of(vec![claim("part-1", &[]), claim("all", &[])]));
        assert_eq!((second.is_by_rank(), second.ranks()), (false, 1));
    }
}
