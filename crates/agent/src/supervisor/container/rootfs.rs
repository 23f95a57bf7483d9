//! The root file system that a container names: a bundle, a folder, or an image of the node's store.

use super::ContainerSpec;
use crate::supervisor::process::credentials::as_user;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A bundle's configuration file.
const CONFIG: &str = "config.json";
const CONFIG_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageConfig {
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub working_dir: String,
    pub user: String,
}

pub(super) struct RootFs {
    pub layers: Layers,
    pub settings: ImageConfig,
    /// Kept open while the container runs.
    pub in_use: Vec<OwnedFd>,
}

pub(super) enum Layers {
    /// A folder of the user's own, which the container writes to.
    InPlace(OwnedFd),
    /// Layers of an image, the topmost first: the container writes above them.
    Under(Vec<OwnedFd>),
}

/// A bundle's configuration, as far as it is taken over. What it says of rights, devices, mounts and programs around the
/// container is not: the site decides these.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BundleConfig {
    process: BundleProcess,
    root: BundleRoot,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BundleProcess {
    env: Vec<String>,
    cwd: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BundleRoot {
    path: String,
}

/// Finds the root file system, with the rights of the job's user.
pub(super) fn find(spec: &ContainerSpec, progress: &mut dyn FnMut(&str)) -> Result<RootFs, String> {
    let Some(name) = spec.request.image.as_deref() else {
        return Err("the container has no image: expected --container-image".into());
    };
    let _ = progress;
    let path = Path::new(spec.work_dir).join(name);
    let found = as_user(spec.user, || open_folder(&path)).map_err(|e| e.to_string())?;
    found.map_err(|why| format!("container {name}: {why}"))
}

fn open_folder(path: &Path) -> Result<RootFs, String> {
    let words = |e: Errno| e.desc().to_owned();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = open(path, flags, Mode::empty()).map_err(words)?;
    let file = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let config = match openat(&folder, CONFIG, file, Mode::empty()) {
        Ok(config) => config,
        Err(Errno::ENOENT) => {
            let layers = Layers::Under(vec![folder]);
            return Ok(RootFs { layers, settings: ImageConfig::default(), in_use: Vec::new() });
        }
        Err(e) => return Err(format!("{CONFIG}: {}", e.desc())),
    };
    let mut text = String::new();
    File::from(config)
        .take(CONFIG_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("{CONFIG}: {e}"))?;
    let config: BundleConfig =
        serde_json::from_str(&text).map_err(|e| format!("{CONFIG} is no bundle's: {e}"))?;
    let root = match config.root.path.as_str() {
        "" => "rootfs",
        path => path,
    };
    // A path from the root is taken as the user's own, as every other path here.
    let root = openat(&folder, root, flags, Mode::empty())
        .map_err(|e| format!("its root {root}: {}", e.desc()))?;
    let (env, working_dir) = (config.process.env, config.process.cwd);
    let settings = ImageConfig { env, working_dir, ..ImageConfig::default() };
    Ok(RootFs { layers: Layers::InPlace(root), settings, in_use: Vec::new() })
}
