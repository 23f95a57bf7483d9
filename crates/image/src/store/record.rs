//! What the store knows about images, layers and tags.

use serde::{Deserialize, Serialize};

use super::access::Access;
use crate::config::ImageConfig;
use crate::digest::Digest;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The digest of its manifest, or of the archive it came from.
    pub digest: Digest,
    pub config: ImageConfig,
    /// Bottom first.
    pub diff_ids: Vec<Digest>,
    /// Credentials were needed: who has none is not shown it without asking the registry.
    #[serde(default)]
    pub private: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LayerRecord {
    pub disk_bytes: u64,
    pub entries: u64,
    #[serde(default)]
    pub skipped: u64,
    /// The boot in which it was unpacked. After another boot only a layer that was synced counts as whole.
    pub boot: String,
    #[serde(default)]
    pub synced: bool,
    #[serde(default)]
    pub access: Access,
}

/// What a reference led to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TagRecord {
    pub reference: String,
    pub digest: Digest,
    /// Seconds and nanoseconds since 1970.
    pub resolved_at: (u64, u32),
}

/// What a file of this machine held when it was imported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImportRecord {
    pub stamp: String,
    pub digest: Digest,
    /// Every layer was read from the file: who can read the file has them.
    #[serde(default)]
    pub is_whole: bool,
}

pub fn now() -> (u64, u32) {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

/// Tells this boot of the machine from every other.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}
