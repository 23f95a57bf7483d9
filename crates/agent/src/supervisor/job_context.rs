//! The parts of a job that its steps use: its launch record, its group and its folders.

use super::folders::JobFolders;
use crate::cgroup::JobGroup;
use crate::spool::{AttemptDir, LaunchRecord};

#[derive(Clone, Copy)]
pub(crate) struct JobContext<'a> {
    pub record: &'a LaunchRecord,
    pub group: &'a JobGroup,
    pub folders: &'a JobFolders,
    pub dir: &'a AttemptDir,
}
