//! A job's group in one control-group tree. A machine may have several trees: one of v2, one for each v1 controller.

use std::sync::Arc;

use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::{ControllerSet, Version};

pub(super) struct TreeGroup {
    pub version: Version,
    pub controllers: ControllerSet,
    pub dir: Arc<GroupDir>,
    pub parent: Arc<GroupDir>,
    /// Whether the directory is the group's own. A child group without limits in this tree uses its parent's.
    pub owned: bool,
}

impl TreeGroup {
    /// The same directory, as a child group has it that has no limits in this tree.
    pub fn shared(&self) -> TreeGroup {
        let (dir, parent) = (self.dir.clone(), self.parent.clone());
        TreeGroup {
            version: self.version,
            controllers: self.controllers,
            dir,
            parent,
            owned: false,
        }
    }

    /// Delegates controllers to child groups, which v2 needs before a child can be limited.
    pub fn pass_on(&self, controllers: ControllerSet) -> Result<(), CgroupError> {
        if self.version == Version::V1 {
            return Ok(());
        }
        controllers
            .both(ControllerSet::DELEGATED)
            .names()
            .try_for_each(|(_, name)| self.dir.write("cgroup.subtree_control", &format!("+{name}")))
    }
}
