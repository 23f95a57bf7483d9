//! The device files that a container shows: those that the job may open, beside the few that every container has.

use super::runtime_config::DeviceFile;
use crate::cdi::DeviceEdits;
use crate::cgroup::DeviceRule;
use crate::device_access::{self, DeviceScope};
use model::limits::DeviceLimits;
use nix::libc::dev_t;
use nix::sys::stat::stat;
use std::fs;
use std::path::Path;

const DEV: &str = "/dev";
/// Folders below `/dev` that are walked into, and files that are looked at.
const DEPTH_MAX: usize = 3;
const FILES_MAX: usize = 16_384;

/// `edits` are what these devices bring along.
pub(super) fn files(
    limits: Option<&DeviceLimits>,
    scope: DeviceScope,
    edits: &DeviceEdits,
) -> Vec<DeviceFile> {
    let rules = device_access::shown(limits, scope);
    let mut found = Vec::new();
    if !rules.is_empty() {
        let dev = stat(DEV).map(|status| status.st_dev).unwrap_or_default();
        walk(Path::new(DEV), DEPTH_MAX, dev, &rules, &mut found, &mut 0);
    }
    for node in &edits.nodes {
        if found.iter().all(|known| known.path != node.inside)
            && let Ok(status) = stat(node.host.as_str())
        {
            let (host, inside) = (node.host.clone(), node.inside.clone());
            found.push(DeviceFile::of(host, inside, node.rule, &status));
        }
    }
    found
}

fn walk(
    folder: &Path,
    depth: usize,
    dev: dev_t,
    rules: &[DeviceRule],
    found: &mut Vec<DeviceFile>,
    seen: &mut usize,
) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        *seen += 1;
        if *seen > FILES_MAX {
            return;
        }
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_symlink() {
            continue;
        }
        let Ok(status) = stat(&path) else { continue };
        if kind.is_dir() {
            // Users make files in what is mounted below, as in /dev/shm.
            if depth > 1 && status.st_dev == dev {
                walk(&path, depth - 1, dev, rules, found, seen);
            }
            continue;
        }
        let Some(rule) = DeviceRule::of_file(&status) else { continue };
        if let Some(path) = path.to_str()
            && rules.iter().any(|allowed| allowed.covers(&rule))
        {
            found.push(DeviceFile::of(path.to_owned(), path.to_owned(), rule, &status));
        }
    }
}
