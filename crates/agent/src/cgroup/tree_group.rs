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
    /// A child group without limits of its own in this tree lives in its parent's directory.
    pub owned: bool,
}

impl TreeGroup {
    /// v2 lets a child group be limited only after its parent has passed the controller on.
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
