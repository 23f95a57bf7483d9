//! Volumes: what clients are shown of them, and the orders by which a node makes and removes their folders.

use model::amount::Bytes;
use model::id::JobId;
use model::price::{Cost, Price};
use model::time::Timestamp;
use model::volume::{VolumeFolder, VolumePlace, VolumeState};
use serde::{Deserialize, Serialize};

/// Jobs of a volume that one view names.
pub const SHOWN_JOBS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeView {
    pub name: String,
    pub project: String,
    pub owner: String,
    pub place: VolumePlace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    pub created: Timestamp,
    pub state: VolumeState,
    /// The jobs that use it and have not ended, at most [`SHOWN_JOBS_MAX`].
    #[serde(default)]
    pub jobs: Vec<JobId>,
    /// Whether whoever asks may delete it; a server of an earlier version does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_delete: Option<bool>,
    /// Of a volume that is a disk of a cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Box<DiskView>>,
}

/// The disk of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskView {
    /// The cloud's own name of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The node that it is attached to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why there is no such disk, or why it cannot be used on its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What it has cost until now.
    pub cost: Cost,
}

/// An order about the folder of a volume; the order's user is its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeOrder {
    pub folder: VolumeFolder,
    pub action: VolumeAction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeAction {
    /// It must not be there yet.
    Make {
        gid: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Bytes>,
    },
    /// With everything in it.
    Remove,
    /// The disk at the first of these device files that there is is mounted at the folder. An empty one gets a file system.
    Mount { gid: u32, devices: Vec<String> },
    /// The disk that is mounted there is let go.
    Unmount,
}

/// What the stream of such an order carries when it was carried out: without it, nobody knows.
pub const CARRIED_OUT: &[u8] = b"done";

/// A volume of a job on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchVolume {
    /// As its user calls it, for messages.
    pub name: String,
    pub folder: VolumeFolder,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}
