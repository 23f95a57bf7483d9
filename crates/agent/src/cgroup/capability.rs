//! What this machine can enforce, and why not the rest: shown by `sluice doctor` and in the node's state.

use super::mounts::{Controller, ControllerSet, Version, absence};
use super::plugin::Plugin;
use super::root_group::RootGroup;
use crate::privilege;

/// How the processes of a job are kept together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// No control groups: members are found by ancestry and by a mark in their environment.
    #[default]
    Tracked,
    V1,
    V2,
    /// v1 controllers beside a v2 tree.
    Hybrid,
}

impl Layout {
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Tracked => "disabled",
            Layout::V1 => "cgroup/v1",
            Layout::V2 => "cgroup/v2",
            Layout::Hybrid => "cgroup/v1 with v2",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub layout: Layout,
    pub memory_hard: bool,
    pub swap: bool,
    pub cpuset: bool,
    pub devices: bool,
    pub freeze: bool,
    /// A kill reaches every member, however it forks.
    pub kill: bool,
    pub pids: bool,
    /// A quota of CPU time.
    pub cpu_time: bool,
    pub usage_cpu: bool,
    pub usage_memory: bool,
    /// For each `false` above: what is missing, and why.
    pub why_not: Vec<(&'static str, String)>,
}

/// Findings of discovery besides the root groups that it could make.
pub(super) struct Findings<'a> {
    pub plugin: Plugin,
    pub proc_cgroups: &'a str,
    /// Trees that exist but cannot be used: their controllers, and the error.
    pub refusals: Vec<(ControllerSet, String)>,
}

impl Findings<'_> {
    fn reason(&self, controller: Controller, name: &str) -> String {
        if self.plugin == Plugin::Disabled {
            return format!("CgroupPlugin={}", self.plugin.as_str());
        }
        let refused = |(set, _): &&(ControllerSet, String)| set.has(controller);
        match self.refusals.iter().find(refused) {
            Some((_, answer)) => answer.clone(),
            None => absence(self.proc_cgroups, name),
        }
    }
}

impl Capabilities {
    pub(super) fn assess(roots: &[RootGroup], found: &Findings) -> Capabilities {
        let unified = roots.iter().find(|root| root.version == Version::V2);
        let v1 = roots.iter().any(|root| root.version == Version::V1);
        let holder = |one| roots.iter().find(move |root| root.controllers.has(one));
        let memory = holder(Controller::Memory);
        let freezer = holder(Controller::Freezer);
        let mut can = Capabilities {
            layout: match (unified.is_some(), v1) {
                (true, true) => Layout::Hybrid,
                (true, false) => Layout::V2,
                (false, true) => Layout::V1,
                (false, false) => Layout::Tracked,
            },
            memory_hard: memory.is_some(),
            swap: memory.is_some_and(|root| match root.version {
                Version::V1 => root.dir.has("memory.memsw.limit_in_bytes"),
                Version::V2 => root.dir.has("memory.swap.max"),
            }),
            cpuset: holder(Controller::Cpuset).is_some(),
            devices: holder(Controller::Devices).is_some(),
            freeze: freezer.is_some() || unified.is_some_and(|root| root.dir.has("cgroup.freeze")),
            kill: freezer.is_some() || unified.is_some_and(|root| root.dir.has("cgroup.kill")),
            pids: holder(Controller::Pids).is_some(),
            cpu_time: holder(Controller::Cpu).is_some_and(|root| match root.version {
                Version::V1 => root.dir.has("cpu.cfs_quota_us"),
                Version::V2 => root.dir.has("cpu.max"),
            }),
            usage_cpu: unified.is_some() || holder(Controller::Cpuacct).is_some(),
            usage_memory: memory.is_some(),
            why_not: Vec::new(),
        };
        can.why_not = can.explain(found);
        can
    }

    fn explain(&self, found: &Findings) -> Vec<(&'static str, String)> {
        let by = |one, name| found.reason(one, name);
        let memory = || by(Controller::Memory, "memory");
        let mut reasons = Vec::new();
        let mut note = |able: bool, what, reason: &dyn Fn() -> String| {
            if !able {
                reasons.push((what, reason()));
            }
        };
        note(self.layout != Layout::Tracked, "containment", &|| {
            format!("processes are only tracked by ancestry: {}", memory())
        });
        note(self.memory_hard, "memory", &memory);
        note(self.swap, "swap", &|| {
            if self.memory_hard {
                "the kernel does not account swap (boot with swapaccount=1)".to_owned()
            } else {
                memory()
            }
        });
        note(self.cpuset, "cpuset", &|| by(Controller::Cpuset, "cpuset"));
        note(self.devices, "devices", &|| {
            if privilege::is_root() {
                by(Controller::Devices, "devices")
            } else {
                "only root can restrict devices".to_owned()
            }
        });
        note(self.freeze, "freeze", &|| by(Controller::Freezer, "freezer"));
        note(self.kill, "kill", &|| by(Controller::Freezer, "freezer"));
        note(self.pids, "pids", &|| by(Controller::Pids, "pids"));
        note(self.cpu_time, "cpu_time", &|| by(Controller::Cpu, "cpu"));
        note(self.usage_cpu, "usage_cpu", &|| by(Controller::Cpuacct, "cpuacct"));
        note(self.usage_memory, "usage_memory", &memory);
        reasons
    }

    /// Why `what` (a key of [`Capabilities::why_not`]) cannot be enforced; `None` if it can.
    pub fn reason_against(&self, what: &str) -> Option<&str> {
        self.why_not.iter().find(|(word, _)| *word == what).map(|(_, reason)| reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_groups_every_missing_capability_has_a_reason() {
        let refused = ControllerSet::of(&[Controller::Memory]);
        let found = Findings {
            plugin: Plugin::Auto,
            proc_cgroups: "cpuset\t3\t1\t0\n",
            refusals: vec![(refused, "cannot create /x: Permission denied".into())],
        };
        let can = Capabilities::assess(&[], &found);
        assert_eq!(can.layout, Layout::Tracked);
        for (what, words) in [
            ("containment", "Permission denied"),
            ("memory", "Permission denied"),
            ("swap", "Permission denied"),
            ("cpuset", "disabled at boot"),
            ("devices", ""),
            ("freeze", "no freezer"),
            ("kill", "no freezer"),
            ("pids", "no pids"),
            ("cpu_time", "no cpu"),
            ("usage_cpu", "no cpuacct"),
            ("usage_memory", "Permission denied"),
        ] {
            let reason = can.reason_against(what).unwrap_or_else(|| panic!("{what}: no reason"));
            assert!(reason.contains(words), "{what}: {reason}");
        }
        let off = Findings { plugin: Plugin::Disabled, refusals: Vec::new(), ..found };
        let can = Capabilities::assess(&[], &off);
        assert_eq!(can.reason_against("memory"), Some("CgroupPlugin=disabled"));
    }
}
