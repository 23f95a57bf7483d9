//! The images of a node: layers by content, each unpacked once, shared by all jobs and all processes.
//!
//! - `folders.rs`: where everything is; `record.rs`: what is known about it.
//! - `lock.rs`: locks between processes; `progress.rs`: how far a pull is.
//! - `layer.rs`: a layer gets into the store once, whoever brings it; `access.rs`: who may use it.
//! - `eviction.rs`: what was not used for longest goes first, never what is in use.
//! - `slot.rs`: how many pulls go on at a time, and whose; `stopped.rs`: pulls that do not go on.
//! - `leftovers.rs`: what killed pulls and lost power leave behind.

mod access;
mod eviction;
mod folders;
mod layer;
mod leftovers;
mod lock;
mod progress;
mod record;
mod slot;
mod stopped;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::reference::Source;
use crate::unpack::Limits;

pub use access::Requester;
pub use folders::{Folders, names, read_record, write_record};
pub use layer::LayerHeld;
pub use lock::{Lock, Mode};
pub use progress::{OnProgress, Phase, Progress, Reporter};
pub use record::{ImageRecord, ImportRecord, TagRecord, now};
pub use stopped::{KeepAlive, Watcher};

/// How a node keeps its images.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// What layers and partial downloads may take together.
    pub bound_bytes: u64,
    /// Pulls at the same time on this node.
    pub pulls_max: usize,
    /// Layers of one pull that are downloaded at the same time.
    pub downloads_max: usize,
    /// A pull that has not renewed its keep-alive for so long is killed, by a process that waits for a pull, a layer or a slot.
    pub keep_alive_timeout: Duration,
    /// What killed pulls left is not looked for again within this time of the same boot; zero: it is, whenever the store is opened.
    pub clean_pause: Duration,
    pub limits: Limits,
}

impl StoreOptions {
    pub fn bounded(bound_bytes: u64) -> Self {
        let (keep_alive_timeout, limits) = (Duration::from_secs(60), Limits::default());
        let clean_pause = Duration::ZERO;
        Self {
            bound_bytes,
            pulls_max: 3,
            downloads_max: 3,
            keep_alive_timeout,
            clean_pause,
            limits,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) folders: Folders,
    pub(crate) options: StoreOptions,
}

impl Store {
    /// Opens the store of a node, or makes it. Leftovers of pulls that were killed are removed or taken up.
    pub fn open(dir: &Path, bound_bytes: u64) -> Result<Self> {
        Self::open_with(dir, StoreOptions::bounded(bound_bytes))
    }

    pub fn open_with(dir: &Path, options: StoreOptions) -> Result<Self> {
        let dir = std::path::absolute(dir).map_err(Error::at(dir))?;
        let store = Self { folders: Folders::make(&dir)?, options };
        store.clean_if_due();
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        self.folders.root()
    }

    /// How far the pull of an image is that a process of this node is at; `None` when there is none.
    pub fn progress(&self, source: &Source) -> Option<Progress> {
        let key = pull_key(source);
        let idle = Lock::try_take(&self.folders.pull_lock(&key), Mode::Shared).ok()?.is_some();
        if idle { None } else { read_record(&self.folders.progress(&key)) }
    }

    /// The images that are there, in no order.
    pub fn images(&self) -> Vec<ImageRecord> {
        let folder = self.folders.images();
        names(&folder).iter().filter_map(|name| read_record(&folder.join(name))).collect()
    }

    /// Whether a registry's image of this name is there that was given to who did not sign in, whatever its tag leads to now.
    pub fn has_public_image(&self, source: &Source) -> bool {
        let tag: Option<TagRecord> = read_record(&self.folders.tag(&pull_key(source)));
        let image = tag.and_then(|tag| self.whole_image(&tag.digest));
        image.is_some_and(|image| !image.private)
    }

    /// The record of an image of which every layer is there.
    pub(crate) fn whole_image(&self, digest: &Digest) -> Option<ImageRecord> {
        let record: ImageRecord = read_record(&self.folders.image(digest))?;
        record.diff_ids.iter().all(|id| self.has_layer(id)).then_some(record)
    }

    /// The folders of an image's layers, top first. Overlayfs takes no folder twice; of equal layers the upper one counts.
    pub(crate) fn lower(&self, diff_ids: &[Digest]) -> Vec<PathBuf> {
        let mut lower = Vec::new();
        for id in diff_ids.iter().rev() {
            let path = self.folders.layer_root(id);
            if !lower.contains(&path) {
                lower.push(path);
            }
        }
        lower
    }

    pub(crate) fn name(&self) -> String {
        crate::error::shown(self.dir().as_os_str().as_encoded_bytes())
    }
}

/// By what pulls of one image find each other.
pub(crate) fn pull_key(source: &Source) -> Digest {
    Digest::of(source.to_string().as_bytes())
}
