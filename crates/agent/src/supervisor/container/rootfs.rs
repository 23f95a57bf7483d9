//! The root file system that a container names: a bundle, a folder, or an image of the node's store.

use super::ContainerSpec;
use super::files::is_folder;
use crate::supervisor::mount_calls::{open_plain, open_plain_at};
use crate::supervisor::process::credentials::as_user;
use image::{
    FileUser, ImageConfig, Phase, Progress, Pull, RegistryConfig, Root, Source, SquashImage, Store,
    StoreOptions,
};
use model::site::ContainerSite;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::order::UserIds;

/// A bundle's configuration file.
const CONFIG: &str = "config.json";
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// A file of an image in OCI's own layout.
const LAYOUT: &str = "oci-layout";
/// Between two lines about a pull.
const TELL_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct RootFs {
    pub layers: Layers,
    pub settings: ImageConfig,
    /// Kept open while the container runs.
    pub in_use: Vec<OwnedFd>,
}

pub(super) enum Layers {
    /// A folder that the user named. Its owners are not mapped: root's files in it are not the user's.
    Folder(OwnedFd),
    /// Layers of an image, the topmost first: the container writes above them.
    Under(Vec<OwnedFd>),
    /// One layer, in a file that is mounted first.
    Squash(SquashImage),
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

/// Finds the root file system: a path with the rights of the job's user, an image in the node's store or its registry.
pub(super) fn find(
    spec: &ContainerSpec,
    image: Option<&str>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<RootFs, String> {
    let Some(name) = image else {
        return Err("the container has no image: expected --container-image".into());
    };
    let mut source: Source = name.parse().map_err(|e: image::Error| e.to_string())?;
    let mut opened = None;
    if let Source::Path { path, .. } = &mut source {
        *path = Path::new(spec.work_dir).join(&*path);
        let found = as_user(spec.user, || open_path(path)).map_err(|e| e.to_string())?;
        match found.map_err(|why| format!("container {name}: {why}"))? {
            OpenedPath::Folder(rootfs) => return Ok(*rootfs),
            OpenedPath::Other(file) => opened = Some(file),
        }
    }
    pull(spec, &source, opened, progress)
}

pub(super) fn open_store(folder: &Path, site: &ContainerSite) -> image::Result<Store> {
    let bounded = StoreOptions::bounded(site.store_size.0);
    Store::open_with(folder, StoreOptions { pulls_max: site.pulls as usize, ..bounded })
}

fn pull(
    spec: &ContainerSpec,
    source: &Source,
    opened: Option<OwnedFd>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<RootFs, String> {
    let words = |e: image::Error| e.to_string();
    let store = open_store(&spec.store, spec.site).map_err(words)?;
    let registry = RegistryConfig {
        mirrors: spec.site.mirrors.clone(),
        insecure: spec.site.insecure.iter().cloned().collect(),
        ca_file: spec.site.authorities.clone().map(Into::into),
        ..RegistryConfig::default()
    };
    let told = Mutex::new((progress, None::<Instant>));
    let tell = |now: &Progress| {
        let mut told = told.lock().unwrap_or_else(|held| held.into_inner());
        let due = told.1.is_none_or(|at| at.elapsed() >= TELL_PAUSE);
        if let Some(line) = progress_line(source, now).filter(|_| due) {
            told.1 = Some(Instant::now());
            (told.0)(&line);
        }
    };
    let mut pull = Pull::new(&registry);
    pull.opened = opened;
    let UserIds { uid, gid, .. } = *spec.user;
    pull.file_user = Some(FileUser { uid, gid, groups: spec.user.groups.clone() });
    pull.on_progress = Some(&tell);
    pull.credentials = spec.credentials.clone();
    let image = store.pull(source, pull).map_err(words)?;
    let handle = |path: PathBuf| {
        open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("{}: {}", path.display(), e.desc()))
    };
    let layers = match image.root {
        Root::Layers(paths) => {
            Layers::Under(paths.into_iter().map(handle).collect::<Result<_, _>>()?)
        }
        Root::Folder { handle, .. } => Layers::Folder(handle),
        Root::Squash(squash) => Layers::Squash(squash),
    };
    let in_use = image.in_use.into_iter().map(OwnedFd::from).collect();
    Ok(RootFs { layers, settings: image.config, in_use })
}

/// The line for who waits; none for what takes no time.
fn progress_line(source: &Source, now: &Progress) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    let what = match now.phase {
        Phase::Waiting => "waiting for another pull".to_owned(),
        Phase::Downloading => {
            format!("pulling, {} of {} MiB", mib(now.bytes_done), mib(now.bytes_total))
        }
        Phase::Unpacking => {
            format!("unpacking, {} of {} layers", now.layers_done, now.layers_total)
        }
        Phase::Resolving | Phase::Done => return None,
    };
    Some(format!("sluice: image {source}: {what}"))
}

enum OpenedPath {
    /// A bundle, or a folder that is a root file system.
    Folder(Box<RootFs>),
    Other(OwnedFd),
}

fn open_path(path: &Path) -> Result<OpenedPath, String> {
    let words = |e: Errno| e.desc().to_owned();
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let opened = open_plain(path, flags).map_err(words)?;
    let has = |name: &str| open_plain_at(Some(&opened), Path::new(name), flags);
    let config = match has(CONFIG) {
        // An image in OCI's own layout is no bundle.
        Ok(config) if has(LAYOUT).is_err() => config,
        _ if is_folder(&opened).map_err(words)? && has(LAYOUT).is_err() => {
            let layers = Layers::Folder(opened);
            let (settings, in_use) = (ImageConfig::default(), Vec::new());
            return Ok(OpenedPath::Folder(Box::new(RootFs { layers, settings, in_use })));
        }
        _ => return Ok(OpenedPath::Other(opened)),
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
    let root = open_plain_at(Some(&opened), Path::new(root), flags | OFlag::O_DIRECTORY)
        .map_err(|e| format!("its root {root}: {}", e.desc()))?;
    let (env, working_dir) = (config.process.env, config.process.cwd);
    let settings = ImageConfig { env, working_dir, ..ImageConfig::default() };
    let (layers, in_use) = (Layers::Folder(root), Vec::new());
    Ok(OpenedPath::Folder(Box::new(RootFs { layers, settings, in_use })))
}
