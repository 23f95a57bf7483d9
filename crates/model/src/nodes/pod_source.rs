//! What the site says of a Kubernetes cluster whose pods are machines.

use crate::price::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The access modes of a claim.
pub const ACCESS_MODES: [&str; 4] =
    ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// That of a claim that says none.
pub const USUAL_ACCESS_MODE: &str = "ReadWriteOnce";

/// Whether a job may be root in its pod, and who that root is on the node of Kubernetes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodRoot {
    #[default]
    Never,
    /// Nobody: the pod has a user namespace of its own.
    Namespace,
    /// Root, without most of its powers.
    Host,
}

impl PodRoot {
    /// As sluice.toml says it.
    pub const NAMES: [(&str, Self); 3] =
        [("never", Self::Never), ("namespace", Self::Namespace), ("host", Self::Host)];
}

/// It holds no secret: who calls is in the kubeconfig that it names, or in the files of the server's own pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesConfig {
    /// `None`: the server runs in the cluster.
    pub kubeconfig: Option<String>,
    /// `None`: the current one of the kubeconfig.
    pub context: Option<String>,
    /// `None`: that of the context, or of the server's own pod.
    pub namespace: Option<String>,
    /// The image that has the program, which is copied from it into each pod.
    pub runner_image: String,
    /// The image of jobs that name none.
    pub image: String,
    pub pull_secrets: Vec<String>,
    pub service_account: Option<String>,
    pub priority_class: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    /// The device plugin's name of GPUs.
    pub gpu_resource: String,
    /// Claims that every pod mounts, as the users' homes.
    pub claims: Vec<ClaimMount>,
    /// Dollars an hour of a CPU, a GiB of memory and a GPU.
    pub cpu_price: Price,
    pub gib_price: Price,
    pub gpu_price: Price,
    /// How long a pod may wait for a place, seconds.
    pub pending_s: u32,
    /// Whether jobs that ask for it are root in their pods.
    pub root: PodRoot,
}

/// A toleration of Kubernetes; what is not given is not written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Toleration {
    /// Whether a pod with it may be on a node with this taint.
    pub fn covers(&self, key: &str, value: &str, effect: &str) -> bool {
        let is_key = match (&self.key, self.operator.as_deref()) {
            (None, Some("Exists")) => true,
            (Some(own), Some("Exists")) => own == key,
            (Some(own), _) => own == key && self.value.as_deref().unwrap_or_default() == value,
            (None, _) => false,
        };
        is_key && self.effect.as_deref().is_none_or(|own| own.is_empty() || own == effect)
    }
}

/// A claim for a volume, and where a pod finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimMount {
    /// `{uid}` in it is the job's user: each has a claim of their own.
    pub claim_name: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The size of a claim that is made where it is missing; `None`: it must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The storage class of a claim that is made; `None` for the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The access modes of a claim that is made; `ReadWriteOnce` where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
}

impl ClaimMount {
    /// The claim of this user.
    pub fn name_for(&self, uid: u32) -> String {
        self.claim_name.replace("{uid}", &uid.to_string())
    }

    /// Whether the claim of this name may be that of some user.
    pub fn may_be(&self, name: &str) -> bool {
        let Some((head, _)) = self.claim_name.split_once("{uid}") else {
            return self.claim_name == name;
        };
        let tail = self.claim_name.rsplit_once("{uid}").map_or("", |(_, tail)| tail);
        let uid = name.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
        uid.is_some_and(|uid| uid.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Whether each user has one of their own.
    pub fn is_of_user(&self) -> bool {
        self.claim_name.contains("{uid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_users_are_known_by_their_names() {
        let of = |claim_name: &str| ClaimMount {
            claim_name: claim_name.to_owned(),
            ..ClaimMount::default()
        };
        assert!(of("home-{uid}-x").may_be("home-1000-x") && of("data").may_be("data"));
        for other in ["home-x", "home-ann-x", "home-1000", "data-2"] {
            assert!(!of("home-{uid}-x").may_be(other) && !of("data").may_be(other), "{other}");
        }
    }

    #[test]
    fn toleration_covers_taints_as_kubernetes_has_it() {
        let of = |key: &str, operator: &str, value: &str, effect: &str| Toleration {
            key: Some(key.to_owned()).filter(|key| !key.is_empty()),
            operator: Some(operator.to_owned()).filter(|operator| !operator.is_empty()),
            value: Some(value.to_owned()).filter(|value| !value.is_empty()),
            effect: Some(effect.to_owned()).filter(|effect| !effect.is_empty()),
        };
        let table = [
            (of("", "Exists", "", ""), true),
            (of("gpu", "Exists", "", ""), true),
            (of("gpu", "", "yes", ""), true),
            (of("gpu", "Equal", "yes", "NoSchedule"), true),
            (of("gpu", "Equal", "no", ""), false),
            (of("gpu", "Exists", "", "NoExecute"), false),
            (of("other", "Exists", "", ""), false),
            (of("", "", "yes", ""), false),
        ];
        for (toleration, is_covered) in table {
            assert_eq!(toleration.covers("gpu", "yes", "NoSchedule"), is_covered, "{toleration:?}");
        }
    }
}
