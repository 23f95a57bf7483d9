//! The folders that a job has to itself on its node: scratch, private `/tmp` and `/dev/shm`, their disk quota and their
//! removal; and the volumes that it is shown.

pub(crate) mod default_private;
pub(crate) mod internode_ssh;
pub(crate) mod namespaces;
pub(crate) mod quota;
pub(crate) mod remove_tree;
pub(crate) mod scratch;
pub(crate) mod shared_memory;
mod volumes;

use namespaces::Namespaces;
use scratch::Scratch;

/// The folders that the supervisor has made for its job.
#[derive(Default)]
pub(crate) struct JobFolders {
    /// For files that need not outlive the job.
    pub scratch: Option<Scratch>,
    /// Holds the job's own versions of the folders that are private to it.
    pub private: Option<Scratch>,
    /// Files that were written for the run: what tells its nodes of one another.
    pub run_files: Option<Scratch>,
    /// Variables that name them, `NAME=path` each.
    pub variables: Vec<String>,
    /// In which the job's processes see their private folders.
    pub namespaces: Option<Namespaces>,
}

impl JobFolders {
    /// The path of the scratch folder, where it can be written in an environment variable.
    pub fn scratch_path(&self) -> Option<&str> {
        self.scratch.as_ref()?.path().to_str()
    }

    /// The folder of the run's files, which has programs too: it comes first in `PATH`.
    pub fn run_files_path(&self) -> Option<&str> {
        self.run_files.as_ref()?.path().to_str()
    }

    pub fn all(&self) -> impl Iterator<Item = &Scratch> {
        self.scratch.iter().chain(&self.private).chain(&self.run_files)
    }
}
