//! The control group of one job or step: made with its limits, entered, counted, removed. Its processes are signalled
//! and killed in `control`.

use std::sync::Arc;

use nix::fcntl::OFlag;

use super::dir::{GroupDir, check_name, keyed_value, unless_gone};
use super::entry::EntryFds;
use super::error::CgroupError;
use super::hierarchy::Hierarchy;
use super::limits::GroupLimits;
use super::mounts::{Controller, ControllerSet, Version};
use super::tracked_processes::{MARKER_VARIABLE, ProcessSet};
use super::tree_group::TreeGroup;
use super::usage::{Usage, oom_kills_of, oom_kills_outside};
use super::watch::EmptyWatch;

enum Backing {
    /// Never empty; the first tree decides which processes are members.
    Groups(Vec<TreeGroup>),
    Processes(ProcessSet),
}

pub struct JobGroup {
    name: Box<str>,
    backing: Backing,
}

impl JobGroup {
    /// Makes the group with its limits, or makes nothing. `name` must be new for every attempt. Where groups are not
    /// available, the job's supervisor itself must call this.
    pub fn create(
        hierarchy: &Hierarchy,
        name: &str,
        limits: &GroupLimits,
    ) -> Result<JobGroup, CgroupError> {
        check_name(name)?;
        limits.check(hierarchy.capabilities())?;
        let roots = hierarchy.roots();
        if roots.is_empty() {
            let set = ProcessSet::own(hierarchy.root_name(), name)?;
            return Ok(JobGroup { name: name.into(), backing: Backing::Processes(set) });
        }
        let useful = limits.controllers().with(Controller::Freezer).with(Controller::Cpuacct);
        let parents = roots.iter().enumerate().filter_map(|(index, root)| {
            let used = root.controllers.both(useful);
            let needed = index == 0 || !used.is_empty();
            // A v2 group has all controllers that were delegated to it, limited or not.
            let counted = if root.version == Version::V2 { root.controllers } else { used };
            needed.then_some((root.version, counted, &root.dir))
        });
        let mut group = JobGroup { name: name.into(), backing: Backing::Groups(Vec::new()) };
        for (version, controllers, parent) in parents {
            if let Err(error) = group.add_member(version, controllers, parent, limits) {
                // The first error is returned; the trees made so far are empty.
                let _ = group.remove();
                return Err(error);
            }
        }
        Ok(group)
    }

    fn add_member(
        &mut self,
        version: Version,
        controllers: ControllerSet,
        parent: &Arc<GroupDir>,
        limits: &GroupLimits,
    ) -> Result<(), CgroupError> {
        let Backing::Groups(members) = &mut self.backing else { return Ok(()) };
        let dir = parent.make_child(&self.name)?.shared();
        let member = TreeGroup { version, controllers, dir, parent: parent.clone(), owned: true };
        members.push(member);
        members.last().map_or(Ok(()), |member| limits.apply(&member.dir, version, controllers))
    }

    /// Opens a group that an earlier process made.
    pub fn open(hierarchy: &Hierarchy, name: &str) -> Result<JobGroup, CgroupError> {
        check_name(name)?;
        let missing =
            || CgroupError::NotFound { name: name.to_owned(), root: hierarchy.location() };
        if hierarchy.roots().is_empty() {
            let set = ProcessSet::marked(hierarchy.root_name(), name);
            if set.pids()?.is_empty() {
                return Err(missing());
            }
            return Ok(JobGroup { name: name.into(), backing: Backing::Processes(set) });
        }
        let mut members = Vec::new();
        for root in hierarchy.roots() {
            if let Some(dir) = unless_gone(root.dir.open_child(name))? {
                members.push(TreeGroup {
                    version: root.version,
                    controllers: root.controllers,
                    dir: dir.shared(),
                    parent: root.dir.clone(),
                    owned: true,
                });
            }
        }
        if members.is_empty() {
            return Err(missing());
        }
        Ok(JobGroup { name: name.into(), backing: Backing::Groups(members) })
    }

    /// Makes a group inside this one, for a step. It has directories only in the trees that its limits need.
    pub fn child(&self, name: &str, limits: &GroupLimits) -> Result<JobGroup, CgroupError> {
        check_name(name)?;
        let members = match &self.backing {
            Backing::Groups(members) => members,
            Backing::Processes(set) => {
                let backing = Backing::Processes(set.child(name));
                return Ok(JobGroup { name: name.into(), backing });
            }
        };
        let mut child = JobGroup { name: name.into(), backing: Backing::Groups(Vec::new()) };
        for (index, member) in members.iter().enumerate() {
            let used = member.controllers.both(limits.controllers());
            let step = if index == 0 || !used.is_empty() {
                member
                    .pass_on(used)
                    .and_then(|()| child.add_member(member.version, used, &member.dir, limits))
            } else {
                child.share_member(member);
                Ok(())
            };
            if let Err(error) = step {
                let _ = child.remove();
                return Err(error);
            }
        }
        Ok(child)
    }

    /// The group of this name inside this one, which has no limits of its own; whoever needs it first makes it.
    pub fn shared_child(&self, name: &str) -> Result<JobGroup, CgroupError> {
        check_name(name)?;
        let members = match &self.backing {
            Backing::Groups(members) => members,
            Backing::Processes(_) => return self.child(name, &GroupLimits::default()),
        };
        let mut shared: Vec<TreeGroup> = members.iter().map(TreeGroup::shared).collect();
        if let Some(first) = shared.first_mut() {
            let dir = first.dir.make_or_open_child(name)?.shared();
            let parent = std::mem::replace(&mut first.dir, dir);
            (first.parent, first.controllers, first.owned) =
                (parent, ControllerSet::default(), true);
        }
        Ok(JobGroup { name: name.into(), backing: Backing::Groups(shared) })
    }

    /// Makes a group without limits next to this one, for prolog and epilog. It is only in the first tree; in the
    /// others its processes stay in their parent's group. `None` where processes are only tracked, and nothing is
    /// limited.
    pub fn sibling(&self, name: &str) -> Result<Option<JobGroup>, CgroupError> {
        check_name(name)?;
        let Some(first) = self.members().first() else { return Ok(None) };
        let mut group = JobGroup { name: name.into(), backing: Backing::Groups(Vec::new()) };
        let no_limits = GroupLimits::default();
        group.add_member(first.version, first.controllers, &first.parent, &no_limits)?;
        Ok(Some(group))
    }

    /// Makes a group inside this one for the job's own processes, where v2 delegates controllers to the steps: the
    /// delegating group may have no processes itself. `None` if the processes may be in this group.
    pub fn leaf(&self, name: &str) -> Result<Option<JobGroup>, CgroupError> {
        let Some(first) = self.members().first().filter(|first| first.version == Version::V2)
        else {
            return Ok(None);
        };
        let passed = first.controllers.both(ControllerSet::OF_STEPS);
        if passed.is_empty() {
            return Ok(None);
        }
        first.pass_on(passed)?;
        let counted = GroupLimits { count_memory: true, ..GroupLimits::default() };
        self.child(name, &counted).map(Some)
    }

    /// Whether the group counts its own memory.
    pub fn counts_memory(&self) -> bool {
        self.owned_members().any(|member| member.controllers.has(Controller::Memory))
    }

    fn share_member(&mut self, member: &TreeGroup) {
        let Backing::Groups(members) = &mut self.backing else { return };
        members.push(member.shared());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The environment variable that the job's processes need where they are only tracked.
    pub fn marker(&self) -> Option<(&'static str, &str)> {
        match &self.backing {
            Backing::Groups(_) => None,
            Backing::Processes(set) => Some((MARKER_VARIABLE, set.mark())),
        }
    }

    /// Moves a running process, with all its threads, into the group.
    pub fn attach(&self, pid: i32) -> Result<(), CgroupError> {
        let pid = pid.to_string();
        self.members().iter().try_for_each(|member| member.dir.write("cgroup.procs", &pid))
    }

    pub fn entry_fds(&self) -> Result<EntryFds, CgroupError> {
        // v1 moves a single thread without the lock that blocks every fork of the machine; a forked child has only one.
        let open = |member: &TreeGroup| member.dir.open_file("tasks", OFlag::O_WRONLY);
        let (unified, others): (Vec<&TreeGroup>, Vec<&TreeGroup>) =
            self.members().iter().partition(|member| member.version == Version::V2);
        let fds = others.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(EntryFds { fds, unified: unified.first().map(|one| one.dir.clone()) })
    }

    /// Puts the calling, single-threaded process into the group.
    pub fn enter_self(&self) -> Result<(), CgroupError> {
        let entry = self.entry_fds()?;
        entry.enter().map_err(|errno| CgroupError::io("enter group", self.name.as_ref(), errno))
    }

    /// A descriptor that polls when the group becomes empty; `None` on v1, which has none.
    pub fn wait_empty_fd(&self) -> Result<Option<EmptyWatch>, CgroupError> {
        match self.members().first() {
            Some(first) if first.version == Version::V2 => EmptyWatch::open(&first.dir).map(Some),
            _ => Ok(None),
        }
    }

    pub fn is_empty(&self) -> Result<bool, CgroupError> {
        self.is_empty_from(0)
    }

    /// Whether the group is empty in the trees after the first, which the watch has just found empty.
    pub fn is_empty_beyond(&self, _first: &EmptyWatch) -> Result<bool, CgroupError> {
        self.is_empty_from(1)
    }

    fn is_empty_from(&self, tree: usize) -> Result<bool, CgroupError> {
        if let Backing::Processes(set) = &self.backing {
            return Ok(set.pids()?.is_empty());
        }
        for member in self.members().iter().skip(tree).filter(|member| member.owned) {
            let populated = match member.version {
                Version::V2 => unless_gone(member.dir.read("cgroup.events"))?
                    .is_some_and(|text| keyed_value(&text, "populated") != Some(0)),
                Version::V1 => !member.dir.pids()?.is_empty(),
            };
            if populated {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The living processes of the group and of all groups inside it, in every tree.
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        let mut pids = match &self.backing {
            Backing::Processes(set) => set.pids()?,
            Backing::Groups(_) => Vec::new(),
        };
        for member in self.owned_members() {
            pids.extend(member.dir.pids()?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// The usage so far. Must be read before [`JobGroup::remove`], which removes the counters.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        let pids_now = Some(self.pids()?.len() as u64);
        Ok(Usage { pids_now, ..Usage::read(self.members()) })
    }

    /// The usage that only grows: CPU time and the peak of memory.
    pub fn consumed(&self) -> Usage {
        Usage::read_consumed(self.members())
    }

    /// OOM kills in the group and below; `None` if they are not counted.
    pub fn oom_kills(&self) -> Option<u64> {
        self.owned_members().find_map(oom_kills_of)
    }

    /// OOM kills in the group without those in groups inside it whose names begin with `inner`; `None` if they are not
    /// counted.
    pub fn own_oom_kills(&self, inner: &str) -> Option<u64> {
        let counting = |member: &&TreeGroup| member.controllers.has(Controller::Memory);
        oom_kills_outside(self.owned_members().find(counting)?, inner)
    }

    /// Removes the empty group and all groups inside it. Succeeds if it does not exist.
    pub fn remove(&self) -> Result<(), CgroupError> {
        let mut result = Ok(());
        for member in self.owned_members() {
            result = result.and(member.parent.remove_child(&self.name));
        }
        result
    }

    /// The folder of the group in each tree.
    pub fn paths(&self) -> Vec<String> {
        self.members().iter().map(|member| member.dir.path().to_owned()).collect()
    }

    pub(super) fn members(&self) -> &[TreeGroup] {
        match &self.backing {
            Backing::Groups(members) => members,
            Backing::Processes(_) => &[],
        }
    }

    fn owned_members(&self) -> impl Iterator<Item = &TreeGroup> {
        self.members().iter().filter(|member| member.owned)
    }
}
