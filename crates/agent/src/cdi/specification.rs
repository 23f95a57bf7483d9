//! One CDI specification: what it says of devices, as far as it is applied.

use model::container::is_plain_path;
use nix::sys::stat::stat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// The version that has every field of the specifications that are made here.
const CDI_VERSION: &str = "0.5.0";
/// Devices of a file, and everything that it asks for.
const DEVICES_MAX: usize = 4096;
const EDITS_MAX: usize = 4_096;
/// Places in a container that are the runtime's and Sluice's own.
pub(crate) const OWN_PLACES: [&str; 4] = ["/proc", "/sys", "/dev", "/run/sluice"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Specification {
    cdi_version: String,
    /// `VENDOR/CLASS`
    pub kind: String,
    pub devices: Vec<Device>,
    /// For every device of the file.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub name: String,
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<FileMount>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceNode {
    /// In the container.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileMount {
    pub host_path: String,
    pub container_path: String,
    #[serde(default)]
    options: Vec<String>,
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    kind: String,
}

impl DeviceNode {
    /// A node that has another path on the machine than in the container has that as `host_path`.
    pub fn new(path: &str, host_path: Option<String>) -> DeviceNode {
        DeviceNode { path: path.to_owned(), host_path }
    }

    pub fn host(&self) -> &str {
        self.host_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(&self.path)
    }
}

impl FileMount {
    pub fn read_only(host_path: String, container_path: String) -> FileMount {
        let options = ["ro", "nosuid", "nodev", "rbind"].map(str::to_owned).to_vec();
        FileMount { host_path, container_path, options, kind: String::new() }
    }

    /// Other file systems are not made for a vendor's file.
    pub fn is_bind(&self) -> bool {
        matches!(self.kind.as_str(), "" | "none" | "bind" | "rbind")
    }

    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

impl Specification {
    /// One of our own making.
    pub fn new(kind: &str, devices: Vec<Device>, container_edits: ContainerEdits) -> Specification {
        let (cdi_version, kind) = (CDI_VERSION.to_owned(), kind.to_owned());
        Specification { cdi_version, kind, devices, container_edits }
    }

    pub fn read(tree: Value) -> Result<Specification, String> {
        let read: Specification = serde_json::from_value(tree).map_err(|e| e.to_string())?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), String> {
        let version = &self.cdi_version;
        if !["0.", "1."].iter().any(|known| version.starts_with(known)) {
            return Err(format!("cdiVersion {version:?}: expected 0.x or 1.x"));
        }
        let parts = self.kind.split_once('/');
        if !parts.is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty()) {
            return Err(format!("kind {:?}: expected VENDOR/CLASS", self.kind));
        }
        let count = |edits: &ContainerEdits| {
            edits.env.len() + edits.device_nodes.len() + edits.mounts.len()
        };
        if self.devices.len() > DEVICES_MAX || self.edits().map(count).sum::<usize>() > EDITS_MAX {
            return Err(format!("expected at most {DEVICES_MAX} devices and {EDITS_MAX} edits"));
        }
        self.edits().try_for_each(ContainerEdits::check)
    }

    /// The devices without `all`, by custom the sum of the others, where there are others.
    pub fn single_devices(&self) -> impl Iterator<Item = &Device> {
        let is_sum = |device: &Device| device.name == "all" && self.devices.len() > 1;
        self.devices.iter().filter(move |device| !is_sum(device))
    }

    fn edits(&self) -> impl Iterator<Item = &ContainerEdits> {
        let devices = self.devices.iter().map(|device| &device.container_edits);
        devices.chain([&self.container_edits])
    }

    /// Paths of the machine that the file names and that are not there, each once.
    pub fn missing_paths(&self) -> Vec<&str> {
        let nodes = self.edits().flat_map(|edits| edits.device_nodes.iter().map(DeviceNode::host));
        let mounts = self.edits().flat_map(|edits| &edits.mounts).map(|m| m.host_path.as_str());
        let mut missing: Vec<&str> =
            nodes.chain(mounts).filter(|path| stat(*path).is_err()).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }
}

impl ContainerEdits {
    fn check(&self) -> Result<(), String> {
        let is_variable = |entry: &&String| {
            let name = entry.split_once('=').map_or("", |(name, _)| name);
            !name.is_empty() && !entry.contains('\0')
        };
        if let Some(entry) = self.env.iter().find(|entry| !is_variable(entry)) {
            return Err(format!("env {entry:?}: expected NAME=VALUE"));
        }
        let nodes = self.device_nodes.iter().flat_map(|node| [node.host(), node.path.as_str()]);
        let mounts =
            self.mounts.iter().flat_map(|m| [m.host_path.as_str(), m.container_path.as_str()]);
        if let Some(path) = nodes.chain(mounts).find(|path| !is_plain_path(path)) {
            return Err(format!("path {path:?}: expected an absolute one without `..`"));
        }
        let below_dev = |node: &&DeviceNode| {
            let path = Path::new(&node.path);
            path.starts_with("/dev") && path != Path::new("/dev")
        };
        if let Some(node) = self.device_nodes.iter().find(|node| !below_dev(node)) {
            return Err(format!("device node {:?}: expected a path below /dev", node.path));
        }
        let is_own = |mount: &&FileMount| {
            let inside = Path::new(&mount.container_path);
            let covers = |own: &&str| inside.starts_with(own) || Path::new(own).starts_with(inside);
            OWN_PLACES.iter().any(covers)
        };
        self.mounts.iter().find(is_own).map_or(Ok(()), |mount| {
            let (inside, own) = (&mount.container_path, OWN_PLACES.join(", "));
            Err(format!("mount on {inside:?}: expected a place outside of {own}"))
        })
    }
}
