//! Container images for nodes: references, registries, unpacking, and a store that the processes of a node share.
//! Plain blocking code without a daemon; the locks between processes are `flock`s, which die with their holder.
//!
//! ```ignore
//! let store = Store::open(Path::new("/var/lib/sluice/images"), 200 << 30)?;
//! let source: Source = "nvcr.io#nvidia/pytorch:24.01-py3".parse()?;
//! let registries = RegistryConfig::default();                      // mirrors, insecure hosts, an authority
//! let mut pull = Pull::new(&registries);
//! pull.credentials = Some(Credentials { username, password });     // for this pull only
//! pull.policy = PullPolicy::IfNotPresent;                          // a tag is otherwise asked for again
//! pull.opened = Some(fd);                                          // of a path: opened with its user's rights
//! let image = store.pull(&source, pull)?;                          // blocks; the work is one process's, others wait
//!
//! match &image.root {
//!     Root::Layers(lower) => …,              // lower layers of overlayfs, top first
//!     Root::Folder { handle, .. } => …,      // a root file system in place
//!     Root::Squash(squash) => …,             // file, offset, size
//! }
//! let digest = image.digest;                 // what a child that pulled tells its parent
//! drop(image.in_use);                        // when the container is gone: it may be evicted then
//!
//! store.image("name", &digest)?;             // the parent: the same image, held in use, no network
//! store.progress(&source);                   // how far any process of the node is with it
//! store.sync()?;                             // in an idle moment: layers survive a loss of power
//! ```
//!
//! - `reference.rs`, `digest.rs`, `platform.rs`, `manifest.rs`, `config.rs`: what images are named and made of.
//! - `registry/`: the client. `local/`: files of this machine. `unpack/`: layers. `store/`: what a node keeps.
//! - `pull.rs`: from a name to an image; `image.rs`: the image; `error.rs`: what can go wrong.

mod config;
mod digest;
mod error;
mod image;
mod local;
mod manifest;
mod platform;
mod pull;
mod reference;
mod registry;
mod store;
mod unpack;

pub use config::ImageConfig;
pub use digest::Digest;
pub use error::{Error, ErrorKind, Result};
pub use image::{Image, ImageInUse, Root};
pub use local::{FileUser, SquashImage};
pub use manifest::LAYERS_MAX;
pub use platform::Platform;
pub use pull::{Pull, PullPolicy};
pub use reference::{Reference, Source, Version};
pub use registry::{Credentials, RegistryConfig, Timeouts, machine_authorities};
pub use store::{ImageRecord, OnProgress, Phase, Progress, Store, StoreOptions};
pub use unpack::{Limits, Unpacked, unpack};
