//! What the steps of a job need to know of it.

use super::folders::JobFolders;
use crate::cgroup::JobGroup;
use crate::spool::LaunchRecord;

#[derive(Clone, Copy)]
pub(crate) struct JobContext<'a> {
    pub record: &'a LaunchRecord,
    pub group: &'a JobGroup,
    pub folders: &'a JobFolders,
}
