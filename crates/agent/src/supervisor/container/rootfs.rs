//! The root file system that a container names: a bundle, a folder, or an image of the node's store.

use super::ContainerSpec;
use super::container_error::no_image;
use super::files::is_folder;
use crate::supervisor::mount_calls::{open_plain, open_plain_at};
use crate::supervisor::process::credentials::as_user;
use crate::trusted_dir::TrustedDir;
use image::{
    FileUser, ImageConfig, Phase, Progress, Pull, PullPolicy, RegistryConfig, Root, Source,
    SquashImage, Store, StoreOptions,
};
use model::os_text;
use model::site::{ContainerSite, ImagePull};
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
/// Where a bundle has its root file system, unless it says another place.
const BUNDLE_ROOT: &str = "rootfs";
/// A file of an image in OCI's own layout.
const LAYOUT: &str = "oci-layout";
/// A container that starts waits for no look through all images so long after the last one: the end of each job has one.
const CLEAN_PAUSE: Duration = Duration::from_secs(300);
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
    /// Every bundle says it; a file of that name in a root file system does not.
    #[serde(rename = "ociVersion")]
    oci_version: Option<String>,
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
        return Err(no_image(spec.request.name.as_ref()));
    };
    let mut source: Source = name.parse().map_err(|e: image::Error| e.to_string())?;
    let mut opened = None;
    if let Source::Path { path, .. } = &mut source {
        let joined = Path::new(spec.image_dir).join(&*path);
        // Both are text, which may stand for other bytes.
        *path = PathBuf::from(os_text::to_os(&joined.to_string_lossy()).into_owned());
        let found = as_user(spec.user, || open_path(path)).map_err(|e| e.to_string())?;
        match found.map_err(|why| format!("container {name}: {why}"))? {
            OpenedPath::Folder(rootfs) => return Ok(*rootfs),
            OpenedPath::Other(file) => opened = Some(file),
        }
    }
    pull(spec, &source, opened, progress)
}

/// The node's images. What killed pulls left is looked for where that was not done within `clean_pause`. A folder that a user
/// could write to or replace is refused: that user would choose what runs in the containers of others.
pub(super) fn open_store(
    folder: &Path,
    site: &ContainerSite,
    clean_pause: Duration,
) -> Result<Store, String> {
    let failed = |e: std::io::Error| format!("the image store {}: {e}", folder.display());
    let is_new = !folder.exists();
    let trusted = TrustedDir::make(folder).map_err(failed)?;
    if is_new {
        trusted.set_mode(0o700).map_err(failed)?;
    }
    let bounded = StoreOptions::bounded(site.store_size.0);
    let pulls_max = site.pulls as usize;
    let options = StoreOptions { pulls_max, clean_pause, ..bounded };
    Store::open_with(trusted.path(), options).map_err(|e| e.to_string())
}

fn pull(
    spec: &ContainerSpec,
    source: &Source,
    opened: Option<OwnedFd>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<RootFs, String> {
    let store = open_store(&spec.store, spec.site, CLEAN_PAUSE)?;
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
    pull.policy = match spec.site.pull {
        ImagePull::Always => PullPolicy::Always,
        ImagePull::Missing => PullPolicy::IfNotPresent,
    };
    let image = store.pull(source, pull).map_err(|error| {
        let is_there = spec.site.pull == ImagePull::Always && store.has_public_image(source);
        let hint = "; the node has an image of that name, which pull = \"missing\" would run";
        format!("{error}{}", if is_there { hint } else { "" })
    })?;
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

/// The line for who waits; none for what takes no time. What is not known yet is not counted.
fn progress_line(source: &Source, now: &Progress) -> Option<String> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let what = match now.phase {
        Phase::Waiting => "waiting until other images are pulled".to_owned(),
        Phase::Downloading if now.bytes_total == 0 => "pulling".to_owned(),
        Phase::Downloading => {
            format!("pulling, {} of {} MiB", mib(now.bytes_done), mib(now.bytes_total))
        }
        Phase::Unpacking if now.layers_total == 0 => "unpacking".to_owned(),
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
        Ok(config) if has(LAYOUT).is_err() => Some(read_bundle_config(config)?),
        _ => None,
    };
    let is_bundle = |config: &Result<BundleConfig, String>| match config {
        Ok(config) => config.oci_version.is_some() || has(BUNDLE_ROOT).is_ok(),
        Err(_) => has(BUNDLE_ROOT).is_ok(),
    };
    let config = match config.filter(is_bundle) {
        Some(config) => config?,
        None if is_folder(&opened).map_err(words)? && has(LAYOUT).is_err() => {
            let layers = Layers::Folder(opened);
            let (settings, in_use) = (ImageConfig::default(), Vec::new());
            return Ok(OpenedPath::Folder(Box::new(RootFs { layers, settings, in_use })));
        }
        None => return Ok(OpenedPath::Other(opened)),
    };
    let root = match config.root.path.as_str() {
        "" => BUNDLE_ROOT,
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

/// The outer error is of the file, the inner one of what is in it.
fn read_bundle_config(file: OwnedFd) -> Result<Result<BundleConfig, String>, String> {
    let mut text = Vec::new();
    let read = File::from(file).take(CONFIG_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|e| format!("{CONFIG}: {e}"))?;
    Ok(serde_json::from_slice(&text).map_err(|e| format!("{CONFIG} is no bundle's: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_is_the_agents_own_or_refused() {
        use std::os::unix::fs::PermissionsExt;
        let made = tempfile::tempdir().expect("scratch folder");
        let open = |name: &str| {
            open_store(&made.path().join(name), &ContainerSite::default(), Duration::ZERO)
        };
        let mode = |name: &str| {
            let found = std::fs::metadata(made.path().join(name)).expect("a folder");
            found.permissions().mode() & 0o777
        };
        open("new/images").expect("made");
        assert_eq!(mode("new/images"), 0o700);
        let shared = made.path().join("shared");
        std::fs::create_dir(&shared).expect("made");
        std::fs::write(shared.join("note"), "").expect("written");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&shared, all).expect("open to all");
        for name in ["shared", "shared/images"] {
            let refused = open(name).expect_err(name);
            assert!(refused.starts_with("the image store "), "{refused}");
        }
        assert!(!shared.join("images").exists() && !shared.join("layers").exists());
    }

    #[test]
    fn progress_counts_only_what_is_known() {
        let source: Source = "lab/tool:1".parse().expect("a reference");
        let of = |phase, bytes: (u64, u64), layers: (u32, u32)| Progress {
            phase,
            bytes_done: bytes.0,
            bytes_total: bytes.1,
            layers_done: layers.0,
            layers_total: layers.1,
        };
        let mib = 1 << 20;
        let table = [
            (of(Phase::Resolving, (0, 0), (0, 0)), None),
            (of(Phase::Waiting, (0, 0), (0, 0)), Some("waiting until other images are pulled")),
            (of(Phase::Downloading, (0, 0), (0, 0)), Some("pulling")),
            (of(Phase::Downloading, (mib / 2, 2 * mib), (0, 3)), Some("pulling, 1 of 2 MiB")),
            (of(Phase::Unpacking, (0, 0), (0, 0)), Some("unpacking")),
            (of(Phase::Unpacking, (mib, mib), (1, 3)), Some("unpacking, 1 of 3 layers")),
            (of(Phase::Done, (mib, mib), (3, 3)), None),
        ];
        for (progress, expected) in table {
            let said = progress_line(&source, &progress);
            let said = said.as_deref().map(|line| line.rsplit(": ").next().unwrap_or(line));
            assert_eq!(said, expected, "{progress:?}");
        }
    }
}
