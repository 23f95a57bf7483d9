//! Volumes that are disks of a cloud: where one is, what the cloud has told of it, and the machine that it is attached to.

use crate::month::costs_by_month;
use crate::price::{Cost, Price};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a disk is, or is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CloudPlace {
    /// In dstack's words: `aws`.
    pub backend: String,
    /// The source that makes it. A client leaves it out: the server chooses the source of the backend that has the region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    pub region: String,
    /// `None` until it is known: the cloud chooses one where nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// A disk that is there already, by the cloud's own name of it. It stays when the volume is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<String>,
    /// How long it may be without a job before it is deleted, seconds; `None` for as long as nobody deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup_s: Option<u32>,
    /// What is asked of a claim, where the disk is one of Kubernetes: manifests of pods name it, and nobody attaches it or makes a file
    /// system on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Box<ClaimTerms>>,
}

/// What a claim of Kubernetes is made with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimTerms {
    /// `None` for the usual one of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The access modes of the claim; the API tells those of one that was there before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// Every pod has it for reading only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl ClaimTerms {
    /// Whether several pods may have it at once.
    pub fn is_shared(&self) -> bool {
        let has = |wanted: &str| self.access_modes.iter().any(|mode| mode == wanted);
        has("ReadWriteMany") || (self.read_only && has("ReadOnlyMany"))
    }
}

impl fmt::Display for CloudPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone.as_deref().unwrap_or(&self.region) {
            "" => write!(f, "{}", self.backend),
            place => write!(f, "{} {place}", self.backend),
        }
    }
}

/// What is known of the disk of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// The cloud's own name of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When the cloud said that it is there: it is paid for from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
    /// What it costs in an hour. A disk that was there before is not paid for by the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// When it was detached from the machine of its last job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// Why there is no such disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Disk {
    /// What it has cost from then until now.
    pub fn cost_since(&self, from: Timestamp, now: Timestamp) -> Cost {
        let (Some(made), Some(price)) = (self.made, self.price) else { return Cost::default() };
        price.for_time(now.since(made.max(from)))
    }

    /// What it has cost until now.
    pub fn cost(&self, now: Timestamp) -> Cost {
        self.made.map_or(Cost::default(), |made| self.cost_since(made, now))
    }

    /// What it has cost until its end, by calendar months (UTC).
    pub fn costs_by_month(&self, end: Timestamp) -> Vec<(String, Cost)> {
        let (Some(made), Some(price)) = (self.made, self.price) else { return Vec::new() };
        costs_by_month(price, made, end)
    }
}

/// The machine that a disk is attached to. It is in the journal before the cloud is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub node: String,
    /// The token of the machine that the node is.
    pub machine: String,
    pub state: AttachmentState,
    /// When it came into this state.
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentState {
    /// The cloud is to be called, and the node to mount it.
    Attaching,
    /// It is mounted on its node.
    Attached,
    /// It cannot be used there: the jobs that wait for it fail with these words.
    Failed(String),
    /// The node is to let go of it, and the cloud to be called.
    Detaching,
}

impl AttachmentState {
    /// Whether a job that waits for the disk can be launched now, or fail.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Attached | Self::Failed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn claim_is_of_several_pods_where_its_access_modes_say_so() {
        let of = |mode: &str, read_only: bool| {
            let access_modes = vec![mode.to_owned()];
            ClaimTerms { access_modes, read_only, ..ClaimTerms::default() }.is_shared()
        };
        assert!(of("ReadWriteMany", false) && of("ReadOnlyMany", true));
        assert!(!of("ReadOnlyMany", false), "one of the pods would write");
        assert!(!of("ReadWriteOnce", true) && !of("ReadWriteOncePod", false));
    }

    #[test]
    fn disk_costs_its_price_from_the_moment_that_it_was_made() {
        let start = Timestamp::from_secs(1_794_945_600);
        let hours = |count: u64| start + Duration::from_secs(3600 * count);
        let price = Price::from_dollars(0.5);
        let disk = Disk { made: Some(hours(1)), price, ..Disk::default() };
        assert_eq!(Some(disk.cost(hours(3))), Cost::from_dollars(1.0));
        assert_eq!(Some(disk.cost_since(hours(2), hours(3))), Cost::from_dollars(0.5));
        let sum: Cost = disk.costs_by_month(hours(1001)).into_iter().map(|(_, cost)| cost).sum();
        assert_eq!(Some(sum), Cost::from_dollars(500.0));
        assert_eq!(disk.costs_by_month(hours(1001)).len(), 2, "November and December");
        assert_eq!(Disk { price: None, ..disk }.cost(hours(3)), Cost::default());
    }
}
