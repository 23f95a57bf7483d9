//! Moves a process from outside, such as a login, into a job's group: it shares the job's limits and ends with it.

use nix::errno::Errno;

use super::error::CgroupError;
use super::group::JobGroup;
use super::mounts::Version;

impl JobGroup {
    /// Moves a running process into the group, or into `leaf` inside it where v2 keeps processes out of groups that
    /// pass controllers on. A frozen group is refused: the process would freeze.
    pub fn adopt(&self, pid: i32, leaf: &str) -> Result<(), CgroupError> {
        if self.members().is_empty() {
            return Err(CgroupError::io("enter group", self.name(), Errno::EOPNOTSUPP));
        }
        let frozen = |file, word| {
            let first = self.members().first();
            first.is_some_and(|first| first.dir.read(file).is_ok_and(|text| text.trim() == word))
        };
        if frozen("cgroup.freeze", "1") || frozen("freezer.state", "FROZEN") {
            return Err(CgroupError::io("enter the suspended group", self.name(), Errno::EAGAIN));
        }
        let pid = pid.to_string();
        self.members().iter().try_for_each(|member| {
            let passes_on = member.version == Version::V2
                && !member.dir.read("cgroup.subtree_control")?.trim().is_empty();
            if passes_on {
                member.dir.make_or_open_child(leaf)?.write("cgroup.procs", &pid)
            } else {
                member.dir.write("cgroup.procs", &pid)
            }
        })
    }
}
