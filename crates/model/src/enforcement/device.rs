//! The devices of a node's generic resources: which files a granted unit is.

use crate::allocation::{GresShare, NodeShare};
use crate::node::NodeGres;
use serde::{Deserialize, Serialize};

/// Resources of which several units share one device.
const SHARING: [&str; 2] = ["mps", "shard"];
/// The resource whose devices they share.
const SHARED: &str = "gpu";

/// Units of one line of a node's generic resources, and the files that reach them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLine {
    pub name: String,
    pub first_index: u32,
    pub count: u64,
    /// One a device, with commas where a device has several. Units that share devices are spread over them evenly.
    pub files: Vec<String>,
}

impl DeviceLine {
    /// The lines of a node that are devices. Units that share devices without naming them share the node's GPUs.
    pub fn of_node(gres: &[NodeGres]) -> Vec<DeviceLine> {
        let shared: Vec<String> = gres
            .iter()
            .filter(|line| line.name == SHARED)
            .flat_map(|line| line.files.iter().cloned())
            .collect();
        let line = |line: &NodeGres| DeviceLine {
            name: line.name.clone(),
            first_index: line.first_index,
            count: line.count,
            files: if line.files.is_empty() && SHARING.contains(&line.name.as_str()) {
                shared.clone()
            } else {
                line.files.clone()
            },
        };
        gres.iter().map(line).filter(|line| line.count > 0 && !line.files.is_empty()).collect()
    }

    fn has(&self, index: u32) -> bool {
        index.checked_sub(self.first_index).is_some_and(|at| u64::from(at) < self.count)
    }

    /// The files of one unit.
    fn files_of(&self, index: u32) -> Vec<String> {
        let at = u64::from(index.saturating_sub(self.first_index)) * self.files.len() as u64;
        let device = usize::try_from(at / self.count.max(1)).ok().and_then(|at| self.files.get(at));
        device.into_iter().flat_map(|files| files.split(',')).map(str::to_owned).collect()
    }
}

/// Which devices may be opened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceLimits {
    pub granted: Vec<DeviceUnit>,
    /// The files of every unit of the node, closed to a job unless granted to it.
    pub guarded: Vec<String>,
    /// Files that the site opens to every job; the last part of a path may hold one `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// One granted unit. Units that are only counted have no index, and all of their devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUnit {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    pub files: Vec<String>,
}

impl DeviceLimits {
    pub(crate) fn of(share: &NodeShare, lines: &[DeviceLine], allowed: &[String]) -> DeviceLimits {
        let mut guarded: Vec<String> = lines
            .iter()
            .flat_map(|line| line.files.iter().flat_map(|files| files.split(',')))
            .map(str::to_owned)
            .collect();
        guarded.sort_unstable();
        guarded.dedup();
        let granted = DeviceUnit::granted(share, lines);
        DeviceLimits { granted, guarded, allowed: allowed.to_vec() }
    }

    /// The devices that a step with this share of its job may open.
    pub fn of_step(&self, share: &NodeShare) -> DeviceLimits {
        let has = |unit: &&DeviceUnit| {
            share.gres.iter().any(|gres| {
                gres.name == unit.name
                    && unit.index.is_none_or(|index| gres.indices.contains(&index))
            })
        };
        let granted = self.granted.iter().filter(has).cloned().collect();
        DeviceLimits { granted, ..self.clone() }
    }

    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.granted.iter().flat_map(|unit| &unit.files).map(String::as_str)
    }
}

impl DeviceUnit {
    /// The units of a share that are devices.
    pub fn granted(share: &NodeShare, lines: &[DeviceLine]) -> Vec<DeviceUnit> {
        share.gres.iter().flat_map(|gres| units_of(gres, lines)).collect()
    }
}

fn units_of(gres: &GresShare, lines: &[DeviceLine]) -> Vec<DeviceUnit> {
    let of_name = || lines.iter().filter(|line| line.name == gres.name);
    let unit = |index, files: Vec<String>| DeviceUnit { name: gres.name.clone(), index, files };
    if gres.indices.is_empty() && gres.count > 0 {
        let all = of_name().flat_map(|line| &line.files).flat_map(|files| files.split(','));
        let files: Vec<String> = all.map(str::to_owned).collect();
        return if files.is_empty() { Vec::new() } else { vec![unit(None, files)] };
    }
    let one = |index: &u32| {
        let line = of_name().find(|line| line.has(*index))?;
        Some(unit(Some(*index), line.files_of(*index)))
    };
    gres.indices.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Bytes;
    use crate::limits::{CgroupPolicy, Limits};

    fn share(mib: u64) -> NodeShare {
        NodeShare {
            node: "n1".into(),
            cpus: "0-3".parse().unwrap(),
            memory: Bytes::from_mib(mib),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        }
    }

    fn line(name: &str, first_index: u32, count: u64, files: &[&str]) -> DeviceLine {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        DeviceLine { name: name.into(), first_index, count, files }
    }

    fn gres(name: &str, indices: &[u32]) -> GresShare {
        let count = indices.len() as u64;
        GresShare { name: name.into(), kind: None, count, indices: indices.to_vec() }
    }

    #[test]
    fn granted_units_are_the_files_that_may_be_opened() {
        let devices = vec![
            line("gpu", 0, 2, &["/dev/a0", "/dev/a1"]),
            line("gpu", 2, 1, &["/dev/b0,/dev/caps/1"]),
            line("shard", 0, 8, &["/dev/a0", "/dev/a1"]),
        ];
        let policy = CgroupPolicy { devices, pids_max: Some(9), ..CgroupPolicy::default() };
        let files = |gres: Vec<GresShare>| -> Vec<String> {
            let limits = Limits::of(&NodeShare { gres, ..share(64) }, &policy);
            assert_eq!(limits.pids, Some(9));
            let devices = limits.devices.expect("the node has devices");
            assert_eq!(devices.guarded, ["/dev/a0", "/dev/a1", "/dev/b0", "/dev/caps/1"]);
            devices.files().map(str::to_owned).collect()
        };
        assert_eq!(files(Vec::new()), Vec::<String>::new());
        assert_eq!(files(vec![gres("gpu", &[1, 2])]), ["/dev/a1", "/dev/b0", "/dev/caps/1"]);
        assert_eq!(files(vec![gres("shard", &[3])]), ["/dev/a0"]);
        assert_eq!(files(vec![gres("shard", &[4])]), ["/dev/a1"]);
        assert_eq!(files(vec![gres("gpu", &[7])]), Vec::<String>::new(), "no such unit");
        let counted = GresShare { indices: Vec::new(), ..gres("shard", &[1, 2]) };
        assert_eq!(files(vec![counted]), ["/dev/a0", "/dev/a1"], "which ones is not known");
    }

    #[test]
    fn a_step_opens_what_it_has_of_its_jobs_devices() {
        let devices = vec![line("gpu", 0, 3, &["/dev/a0", "/dev/a1", "/dev/a2"])];
        let policy = CgroupPolicy { devices, ..CgroupPolicy::default() };
        let of_job = |indices: &[u32]| NodeShare { gres: vec![gres("gpu", indices)], ..share(64) };
        let job = Limits::of(&of_job(&[0, 2]), &policy).devices.expect("limited");
        let files =
            |step: &NodeShare| job.of_step(step).files().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(files(&of_job(&[2])), ["/dev/a2"]);
        assert_eq!(files(&of_job(&[1])), Vec::<String>::new(), "not its job's");
        assert_eq!(files(&NodeShare { gres: Vec::new(), ..share(1) }), Vec::<String>::new());
    }
}
