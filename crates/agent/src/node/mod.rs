//! One node of an agent: its spool, its control groups and its policy. An agent may be several nodes on one machine.

pub(crate) mod facts;
pub(crate) mod health_check;
mod image_environment;

use crate::cgroup::{Capabilities, Hierarchy, JobGroup, Plugin};
use crate::cpu_frequency::SetFrequency;
use crate::detect::CpuTopology;
use crate::detect::cpu_map;
use crate::error::AgentError;
use crate::launch_request::LaunchRequest;
use crate::privilege;
use crate::spool::{LaunchRecord, Spool, group_name, site_group_names};
use crate::supervisor::container;
use crate::supervisor::folders::scratch::{self, ScratchLocation};
use crate::supervisor::folders::{default_private, namespaces};
use crate::wall_clock::Skew;
use model::id::AttemptId;
use model::limits::{CgroupPolicy, Limits};
use model::run::Usage;
use model::site::Site;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::byte_text::ByteText;
use wire::link::NodePolicy;
use wire::order::JobLaunch;
use wire::version::PROTOCOL;

/// How long the processes of a lost supervisor may take to die.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// The group of logins inside a job's group.
const LOGIN_GROUP: &str = "step_extern";

pub(crate) struct Node {
    pub name: String,
    pub spool: Spool,
    pub folder: PathBuf,
    pub policy: NodePolicy,
    host: Arc<Host>,
    group_root: String,
}

/// What all nodes of an agent have in common, since they are on one machine. It and not each node has descriptors open:
/// an agent may be ten thousand nodes.
pub(crate) struct Host {
    state: PathBuf,
    /// The folder of all nodes.
    nodes: Arc<OwnedFd>,
    cpus: CpuTopology,
    can: Capabilities,
    /// The agent is in a pod: which CPUs its jobs get is the pod's to say.
    in_pod: bool,
}

impl Host {
    /// `first` is the name of a node: what control groups can do is found by making its root groups.
    pub fn open(state: &Path, first: &str, in_pod: bool) -> Result<Arc<Host>, AgentError> {
        check_name(first)?;
        let trees = Hierarchy::discover(Plugin::Auto, &group_root(state, first))?;
        Ok(Arc::new(Host {
            state: state.to_owned(),
            nodes: Spool::open_nodes(state)?,
            cpus: CpuTopology::read(Path::new("/"))?,
            can: trees.capabilities().clone(),
            in_pod,
        }))
    }

    /// The root groups that there are of nodes of this state folder, by their names.
    pub fn existing_groups(&self) -> Result<BTreeSet<String>, AgentError> {
        Ok(Hierarchy::existing_roots(&group_root(&self.state, ""))?)
    }
}

/// The policy before the server sends one: everything that can be enforced is.
fn default_policy() -> NodePolicy {
    NodePolicy {
        limits: CgroupPolicy::default(),
        cgroup_plugin: Plugin::Auto.to_string(),
        cpus: 0,
        site: Default::default(),
    }
}

impl Node {
    pub fn open(host: &Arc<Host>, name: &str) -> Result<Node, AgentError> {
        check_name(name)?;
        let state = &host.state;
        Ok(Node {
            spool: Spool::open(state, &host.nodes, name)?,
            folder: state.join("nodes").join(name),
            policy: default_policy(),
            host: host.clone(),
            group_root: group_root(state, name),
            name: name.to_owned(),
        })
    }

    /// What control groups can do here.
    pub fn capabilities(&self) -> &Capabilities {
        &self.host.can
    }

    /// All control-group trees of the machine, whatever the policy uses, with the node's root group in each.
    pub fn hierarchy(&self) -> Result<Hierarchy, AgentError> {
        Ok(Hierarchy::discover(Plugin::Auto, &self.group_root)?)
    }

    /// Whether its root group is among these.
    pub fn has_group(&self, existing: &BTreeSet<String>) -> bool {
        existing.contains(&self.group_root)
    }

    /// The state folder, which all nodes of an agent share.
    pub fn state(&self) -> Option<&Path> {
        self.folder.ancestors().nth(2)
    }

    /// Writes an accepted launch to the spool. Returns the request to the launcher.
    pub fn accept(
        &self,
        attempt: AttemptId,
        mut launch: JobLaunch,
        skew: Skew,
    ) -> Result<LaunchRequest, AgentError> {
        let script = launch.script.take();
        if self.host.in_pod {
            let of_image = image_environment::of_this_process();
            image_environment::add(&mut launch.environment, of_image);
            image_environment::add_commands(&mut launch.environment, &launch.user.name);
        }
        let mut limits = Limits::of(&launch.share, &self.policy.limits);
        let places = if self.policy.limits.declared || self.host.in_pod {
            Vec::new()
        } else {
            cpu_map::places(&self.host.cpus, self.policy.cpus, &launch.share.cpus)
        };
        if !places.is_empty() {
            limits.cpus = limits.cpus.map(|_| cpu_map::kernel_cpus(&places));
        }
        let machine_cpus = self.host.cpus.cpus.len() as u32;
        launch.end_limit = launch.end_limit.map(|end| skew.to_own(end));
        let mut site = self.policy.site.clone();
        let own = default_private::of_launch(&launch, &site, &self.folder);
        let own = own.filter(|_| privilege::is_root());
        let private_by_default = own.is_some();
        site.private = site.private.or(own);
        let record = LaunchRecord {
            version: PROTOCOL,
            attempt,
            node: self.name.clone(),
            group_root: self.group_root.clone(),
            plugin: self.policy.cgroup_plugin.clone(),
            limits,
            places,
            node_cpus: if self.policy.cpus > 0 { self.policy.cpus } else { machine_cpus },
            machine_cpus,
            has_script: script.is_some(),
            launch,
            site,
            private_by_default,
        };
        let dir = self.spool.create(&record, script.as_ref().map(ByteText::as_bytes))?;
        Ok(LaunchRequest {
            folder: dir.path().to_path_buf(),
            group_root: self.group_root.clone(),
            without_cpuset: record.limits.cpus.is_none(),
            plugin: record.plugin,
        })
    }

    /// Begins to remove what attempts that are not in the spool left in files.
    pub fn clear_leftover_files(&self, held: &[AttemptId]) {
        SetFrequency::release_lost(&self.folder, |attempt| !held.contains(&attempt));
        let left = container::folders_of_others(&self.folder, held);
        if left.is_empty() {
            return;
        }
        // An engine may not answer now either.
        let remove = move || left.iter().for_each(|folder| container::remove(folder, &[]));
        if let Err(error) = std::thread::Builder::new().spawn(remove) {
            tracing::warn!(node = self.name, %error, "containers of ended attempts stay until the next start");
        }
    }

    /// Kills every group of this node that belongs to no attempt in the spool.
    pub fn clear_leftover_groups(&self, held: &[AttemptId]) -> Result<(), AgentError> {
        let names = |attempt: &AttemptId| {
            site_group_names(*attempt).into_iter().chain([group_name(*attempt)])
        };
        let known: HashSet<String> = held.iter().flat_map(names).collect();
        // The policy may have changed since: both the trees and the tracked processes are searched.
        let tracked = Hierarchy::discover(Plugin::Disabled, &self.group_root)?;
        for hierarchy in [&self.hierarchy()?, &tracked] {
            for name in hierarchy.leftovers()?.iter().filter(|name| !known.contains(*name)) {
                tracing::warn!(
                    node = self.name,
                    group = name,
                    "killing what an unknown attempt left"
                );
                let group = JobGroup::open(hierarchy, name)?;
                group.kill_all(KILL_TIMEOUT)?;
                group.remove()?;
            }
        }
        Ok(())
    }

    /// Where its jobs may have folders.
    pub fn folders(&self, site: &Site) -> Vec<ScratchLocation> {
        scratch::locations(site, &self.folder, &self.group_root)
    }

    /// Removes the node's root groups, if no job is in them.
    pub fn remove_root(&self) -> Result<(), AgentError> {
        // A policy with a named plugin may have made root groups in further trees.
        if let Ok(plugin @ (Plugin::V1 | Plugin::V2)) = self.policy.cgroup_plugin.parse()
            && let Ok(named) = Hierarchy::discover(plugin, &self.group_root)
        {
            named.remove_root()?;
        }
        Ok(self.hierarchy()?.remove_root()?)
    }

    /// The groups of one attempt.
    pub fn attempt_groups(&self, attempt: AttemptId) -> AttemptGroups {
        let record = self.spool.open_attempt(attempt).and_then(|dir| dir.read_launch());
        let plugin = record.as_ref().ok().and_then(|record| record.plugin.parse().ok());
        AttemptGroups {
            attempt,
            plugin: plugin.unwrap_or(Plugin::Auto),
            group_root: self.group_root.clone(),
            node: self.folder.clone(),
            folders: self.folders(record.as_ref().map_or(&self.policy.site, |record| &record.site)),
            is_private: record.is_ok_and(|record| record.has_namespaces()),
            supervisor: None,
        }
    }
}

/// The groups and folders of one attempt, for work that may block and runs outside the agent's loop.
pub(crate) struct AttemptGroups {
    pub attempt: AttemptId,
    plugin: Plugin,
    group_root: String,
    /// The node's folder.
    node: PathBuf,
    folders: Vec<ScratchLocation>,
    /// Whether the job has private folders.
    is_private: bool,
    /// The pid of its supervisor, which holds the namespaces.
    pub supervisor: Option<i32>,
}

impl AttemptGroups {
    /// Kills the processes of a lost supervisor and removes its folders. Returns the group's usage.
    pub fn clear(self) -> Result<Usage, AgentError> {
        let (used, groups) = self.kill()?;
        // A folder that cannot be removed does no harm: its name is never used again.
        if let Err(errno) = scratch::remove_leftovers(&self.folders, self.attempt) {
            tracing::warn!(attempt = %self.attempt, %errno, "cannot remove a lost job's folders");
        }
        container::remove_leftovers(&self.node, self.attempt, &groups);
        SetFrequency::release_lost(&self.node, |attempt| attempt == self.attempt);
        Ok(used)
    }

    /// Returns the usage, and the folders of the group that is gone.
    fn kill(&self) -> Result<(Usage, Vec<String>), AgentError> {
        let hierarchy = Hierarchy::discover(self.plugin, &self.group_root)?;
        let left = hierarchy.leftovers()?;
        for name in site_group_names(self.attempt).iter().filter(|name| left.contains(name)) {
            let group = JobGroup::open(&hierarchy, name)?;
            group.kill_all(KILL_TIMEOUT)?;
            group.remove()?;
        }
        let name = group_name(self.attempt);
        if !left.contains(&name) {
            return Ok((Usage::default(), Vec::new()));
        }
        let group = JobGroup::open(&hierarchy, &name)?;
        group.kill_all(KILL_TIMEOUT)?;
        let (used, paths) = (group.usage()?, group.paths());
        group.remove()?;
        let used = Usage {
            cpu_user_us: used.cpu_user_us.unwrap_or(0),
            cpu_system_us: used.cpu_system_us.unwrap_or(0),
            memory_peak_bytes: used.memory_peak_bytes.unwrap_or(0),
            oom_kills: used.oom_kills.unwrap_or(0) as u32,
            ..Usage::default()
        };
        Ok((used, paths))
    }

    /// The living processes of the attempt.
    pub fn pids(&self) -> Result<Vec<i32>, AgentError> {
        let hierarchy = Hierarchy::discover(self.plugin, &self.group_root)?;
        Ok(JobGroup::open(&hierarchy, &group_name(self.attempt))?.pids()?)
    }

    /// Moves a login's process into the attempt's group. Returns the namespaces that the process must enter itself.
    pub fn adopt(&self, pid: i32) -> Result<Vec<OwnedFd>, AgentError> {
        let namespaces = match (self.is_private, self.supervisor) {
            (false, _) => Vec::new(),
            (true, Some(supervisor)) => {
                namespaces::open_held_by(supervisor, self.attempt).map_err(AgentError::Login)?
            }
            (true, None) => return Err(AgentError::Login("the job's supervisor is away".into())),
        };
        let hierarchy = Hierarchy::discover(self.plugin, &self.group_root)?;
        JobGroup::open(&hierarchy, &group_name(self.attempt))?.adopt(pid, LOGIN_GROUP)?;
        Ok(namespaces)
    }
}

fn check_name(name: &str) -> Result<(), AgentError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let long = name.len() > 128;
    if name.is_empty() || long || name.starts_with('.') || !name.chars().all(plain) {
        return Err(AgentError::NodeName { name: name.to_owned() });
    }
    Ok(())
}

/// The name of a node's root group. It contains a digest of the state folder, because two clusters on one machine may
/// have nodes of the same name and must not kill each other's jobs.
fn group_root(state: &Path, node: &str) -> String {
    let whole = digest(&SHA256, state.as_os_str().as_bytes());
    let short: String = whole.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("sluice-{short}-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_name_in_two_clusters_have_different_root_groups() {
        let (one, two) = (Path::new("/var/lib/sluice"), Path::new("/tmp/demo"));
        assert_ne!(group_root(one, "node1"), group_root(two, "node1"));
        assert_eq!(group_root(one, "node1"), group_root(one, "node1"));
        assert!(group_root(one, "node1").ends_with("-node1"));
    }

    #[test]
    fn node_name_cannot_be_a_path() {
        let state = tempfile::tempdir().expect("a scratch folder");
        for name in ["", "..", "a/b", ".x", "a b"] {
            let host = Host::open(state.path(), "n1", false).expect("a machine");
            let refused = Node::open(&host, name);
            assert!(matches!(refused, Err(AgentError::NodeName { .. })), "{name:?}");
        }
    }
}
