//! CDI files (Container Device Interface), in which a vendor's toolkit says what a container needs for a device: further
//! device nodes, mounts, variables. A device of such a file is applied where the job was granted the device nodes that it
//! names. The programs that a file names as hooks are not run: root would run them, inside what a user made.
//!
//! - `specification`: one file; `yaml`: its tree, where it is not JSON.
//! - `nvidia`: the specification of NVIDIA's GPUs that is made here; `driver_files`, `loader_cache`: the files in it.

mod driver_files;
mod loader_cache;
mod nvidia;
mod specification;
mod yaml;

use crate::cgroup::DeviceRule;
use crate::detect::gpu;
use crate::trusted_dir::TrustedDir;
pub(crate) use driver_files::{LIBRARIES as DRIVER_LIBRARIES, PROGRAMS as DRIVER_PROGRAMS};
use model::limits::DeviceLimits;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, stat};
use nix::unistd::Uid;
pub(crate) use specification::OWN_PLACES;
use specification::{ContainerEdits, Specification};
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Files that are read of a folder, and bytes of a file.
const FILES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// What the files say about the granted devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceEdits {
    pub nodes: Vec<EditedNode>,
    pub mounts: Vec<EditedMount>,
    /// `NAME=VALUE`, each name once.
    pub variables: Vec<String>,
    /// The files of NVIDIA's driver are among the mounts, in the folders of [`DRIVER_LIBRARIES`] and [`DRIVER_PROGRAMS`].
    pub has_driver: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditedNode {
    pub host: String,
    pub inside: String,
    pub rule: DeviceRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditedMount {
    pub host: PathBuf,
    pub inside: String,
    pub read_only: bool,
}

impl DeviceEdits {
    /// Without limits every device was granted. A file that is not good is left out: the agent has said so.
    pub fn find(folders: &[String], limits: Option<&DeviceLimits>) -> DeviceEdits {
        if limits.is_some_and(|limits| limits.files().next().is_none()) {
            return DeviceEdits::default();
        }
        let grant = Grant::of(limits);
        let (mut found, mut named) = (DeviceEdits::default(), HashSet::new());
        for (_, specification) in read_all(folders).into_iter().flatten() {
            let fresh = |name: &str| !named.contains(&format!("{}={name}", specification.kind));
            let devices = specification.single_devices().filter(|device| fresh(&device.name));
            let (granted, others): (Vec<_>, Vec<_>) =
                devices.map(|device| &device.container_edits).partition(|edits| grant.holds(edits));
            if !granted.is_empty() {
                let grant = grant.without(&others, &granted);
                let all = std::iter::once(&specification.container_edits).chain(granted);
                all.for_each(|edits| found.add(edits, &grant));
            }
            let names = specification.devices.iter().map(|device| &device.name);
            named.extend(names.map(|name| format!("{}={name}", specification.kind)));
        }
        found
    }

    /// What a container gets for its devices: what the files say, and what NVIDIA's GPUs need by the specification that is
    /// made here. Beside a file of the vendor's toolkit the latter adds what that leaves to hooks.
    pub fn for_container(folders: &[String], limits: Option<&DeviceLimits>) -> DeviceEdits {
        let mut found = DeviceEdits::find(folders, limits);
        let has_devices = limits.is_none_or(|limits| limits.files().next().is_some());
        if let Some(own) = has_devices.then(|| nvidia::specification(&gpu::root())).flatten() {
            found.add_own(&own, &Grant::of(limits));
        }
        found
    }

    /// Adds the specification that is made here, where the job was granted one of its devices or a part of one. Each device
    /// names every node that it has, so that nothing is added which was not granted as a whole.
    fn add_own(&mut self, own: &Specification, grant: &Grant) {
        let devices = || own.devices.iter().map(|device| &device.container_edits);
        if devices().any(|edits| grant.holds_part(edits)) {
            let whole = devices().filter(|edits| grant.holds_whole(edits));
            let all = std::iter::once(&own.container_edits).chain(whole);
            all.for_each(|edits| self.add(edits, grant));
            self.has_driver = true;
        }
    }

    fn add(&mut self, edits: &ContainerEdits, grant: &Grant) {
        for node in &edits.device_nodes {
            let Some(rule) = rule_of(node.host()) else { continue };
            let (host, inside) = (node.host().to_owned(), node.path.clone());
            if !grant.withholds(&rule) && self.nodes.iter().all(|known| known.inside != inside) {
                self.nodes.push(EditedNode { host, inside, rule });
            }
        }
        for mount in edits.mounts.iter().filter(|mount| mount.is_bind()) {
            let (host, inside) = (PathBuf::from(&mount.host_path), mount.container_path.clone());
            if is_roots(&host) && self.mounts.iter().all(|known| known.inside != inside) {
                self.mounts.push(EditedMount { host, inside, read_only: mount.is_read_only() });
            }
        }
        edits.env.iter().for_each(|entry| set_variable(&mut self.variables, entry));
    }
}

/// Sets a variable of a list of `NAME=VALUE`.
pub(crate) fn set_variable(variables: &mut Vec<String>, entry: &str) {
    let name = |entry: &str| entry.split_once('=').map_or(entry, |(name, _)| name).to_owned();
    variables.retain(|known| name(known) != name(entry));
    variables.push(entry.to_owned());
}

/// Whether root put this file or folder where it is: one that a user could have put there may lead anywhere.
fn is_roots(path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let Ok(parent) = TrustedDir::open(parent) else { return false };
    let found = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    found.is_ok_and(|status| [0, Uid::effective().as_raw()].contains(&status.st_uid))
}

/// The devices that a job was granted, and those that can be granted to others.
#[derive(Clone)]
struct Grant {
    /// `None`: every device.
    granted: Option<Vec<DeviceRule>>,
    guarded: Vec<DeviceRule>,
}

impl Grant {
    fn of(limits: Option<&DeviceLimits>) -> Grant {
        let guarded = limits.into_iter().flat_map(|limits| &limits.guarded);
        Grant {
            granted: limits.map(|limits| limits.files().filter_map(rule_of).collect()),
            guarded: guarded.filter_map(|file| rule_of(file)).collect(),
        }
    }

    /// The same, where the nodes of these devices of a file are others' unless a granted device has them too: a file may
    /// name every device of the machine for all containers, also one that the site has not declared.
    fn without(&self, others: &[&ContainerEdits], granted: &[&ContainerEdits]) -> Grant {
        let rules = |edits: &[&ContainerEdits]| -> Vec<DeviceRule> {
            let nodes = edits.iter().flat_map(|edits| &edits.device_nodes);
            nodes.filter_map(|node| rule_of(node.host())).collect()
        };
        let shared = rules(granted);
        let mut grant = self.clone();
        grant.guarded.extend(rules(others).into_iter().filter(|rule| !shared.contains(rule)));
        grant
    }

    /// Whether the device is others' to be granted.
    fn withholds(&self, rule: &DeviceRule) -> bool {
        let granted = self.granted.as_ref();
        self.guarded.contains(rule) && granted.is_some_and(|granted| !granted.contains(rule))
    }

    /// Whether a device is the job's: one of its nodes was granted, and none is others'.
    fn holds(&self, edits: &ContainerEdits) -> bool {
        self.holds_part(edits) && !rules_of(edits).any(|rule| self.withholds(&rule))
    }

    /// Whether a node of the device was granted.
    fn holds_part(&self, edits: &ContainerEdits) -> bool {
        rules_of(edits).any(|rule| self.grants(&rule))
    }

    /// Whether every node of the device was granted.
    fn holds_whole(&self, edits: &ContainerEdits) -> bool {
        edits.device_nodes.iter().all(|node| rule_of(node.host()).is_some_and(|r| self.grants(&r)))
    }

    fn grants(&self, rule: &DeviceRule) -> bool {
        self.granted.as_ref().is_none_or(|granted| granted.contains(rule))
    }
}

/// The nodes of a device that are there.
fn rules_of(edits: &ContainerEdits) -> impl Iterator<Item = DeviceRule> {
    edits.device_nodes.iter().filter_map(|node| rule_of(node.host()))
}

/// The specification of this machine's NVIDIA GPUs that containers get, as the text of a CDI file; `None` without a driver,
/// its libraries or a GPU.
pub fn own_text() -> Option<String> {
    serde_json::to_string_pretty(&nvidia::specification(&gpu::root())?).ok()
}

fn rule_of(file: &str) -> Option<DeviceRule> {
    DeviceRule::of_file(&stat(file).ok()?)
}

/// What is wrong with the files of these folders, a line each.
pub(crate) fn faults(folders: &[String]) -> Vec<String> {
    let fault = |read: Result<(PathBuf, Specification), String>| match read {
        Err(why) => Some(why),
        Ok((path, specification)) => {
            let missing = specification.missing_paths();
            let first = missing.first()?;
            let (path, count) = (path.display(), missing.len());
            Some(format!(
                "CDI file {path} names {count} paths that are not on this machine, {first} first: they are left out"
            ))
        }
    };
    read_all(folders).into_iter().filter_map(fault).collect()
}

/// The files of the folders; what a later folder says of a device counts, and comes first here.
fn read_all(folders: &[String]) -> Vec<Result<(PathBuf, Specification), String>> {
    folders.iter().rev().flat_map(|folder| read_folder(Path::new(folder))).collect()
}

fn read_folder(path: &Path) -> Vec<Result<(PathBuf, Specification), String>> {
    let wrong =
        |why: String| vec![Err(format!("CDI folder {}: {why}: it is not used", path.display()))];
    let folder = match TrustedDir::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => return wrong(error.to_string()),
    };
    let again = openat(&folder, ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    let mut entries = match again.and_then(Dir::from_fd) {
        Ok(entries) => entries,
        Err(errno) => return wrong(errno.desc().to_owned()),
    };
    let entries = entries.iter().take(ENTRIES_MAX).flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    let is_named = |name: &String| [".json", ".yaml", ".yml"].iter().any(|e| name.ends_with(e));
    let mut names: Vec<String> = names.filter(is_named).collect();
    names.sort();
    let read = |name: &String| {
        let path = path.join(name);
        let read = read_file(&folder, name)
            .map_err(|why| format!("CDI file {}: {why}: it is not used", path.display()))?;
        Ok((path, read))
    };
    let mut files: Vec<_> = names.iter().take(FILES_MAX).map(read).collect();
    if let Some(first) = names.get(FILES_MAX) {
        let (folder, left_out) = (path.display(), names.len() - FILES_MAX);
        files.push(Err(format!(
            "CDI folder {folder}: {left_out} files from {first:?} on are not used: expected at most {FILES_MAX} in it"
        )));
    }
    files
}

fn read_file(folder: &TrustedDir, name: &str) -> Result<Specification, String> {
    let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(folder, name, how, Mode::empty()).map_err(|e| e.desc().to_owned())?;
    let status = fstat(&file).map_err(|e| e.desc().to_owned())?;
    let is_file = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    let owners = [0, Uid::effective().as_raw()];
    if !is_file || !owners.contains(&status.st_uid) || status.st_mode & 0o022 != 0 {
        return Err("expected a file of root's that nobody else can write to".into());
    }
    let mut text = String::new();
    let read = File::from(file).take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| e.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("expected at most {FILE_BYTES_MAX} bytes"));
    }
    let tree = if name.ends_with(".json") {
        serde_json::from_str(&text).map_err(|e| e.to_string())?
    } else {
        yaml::read(&text)?
    };
    Specification::read(tree)
}

#[cfg(test)]
mod tests;
