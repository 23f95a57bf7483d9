//! What a site has done around jobs on its nodes: its programs, its samples of usage, its scratch folders.

use serde::{Deserialize, Serialize};

/// How often usage is looked at if nothing is said.
pub const SAMPLE_S_DEFAULT: u32 = 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// Run by root on each node of a job, before anything of it and after everything: paths, folders or patterns.
    pub prolog: Vec<String>,
    pub epilog: Vec<String>,
    /// Run by the job's user around each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_epilog: Option<String>,
    /// Run by `srun` itself, as its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_epilog: Option<String>,
    /// Run by the server, as its user, before a job's nodes are told of it and after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_epilog: Option<String>,
    /// The prolog comes with the allocation, not with the first thing that is started on the node.
    pub prolog_at_allocation: bool,
    /// One prolog or epilog at a time on a node.
    pub one_at_a_time: bool,
    /// None: a prolog or epilog may take for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// A job whose prolog failed waits held.
    pub hold_on_failure: bool,
    /// Between two looks at what tasks use; 0: only at their ends.
    pub sample_s: u32,
    /// Where each job has a folder of its own while it runs; none: with the node's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateFolders>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            prolog: Vec::new(),
            epilog: Vec::new(),
            task_prolog: None,
            task_epilog: None,
            srun_prolog: None,
            srun_epilog: None,
            controller_prolog: None,
            controller_epilog: None,
            prolog_at_allocation: false,
            one_at_a_time: false,
            timeout_s: None,
            hold_on_failure: true,
            sample_s: SAMPLE_S_DEFAULT,
            scratch: None,
            private: None,
        }
    }
}

impl Site {
    pub fn has_programs(&self) -> bool {
        !self.prolog.is_empty() || !self.epilog.is_empty()
    }
}

/// `job_container.conf`: folders that each job sees a version of its own of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFolders {
    /// Where the jobs' versions are kept while they run.
    pub base: String,
    /// Make `base` if it is not there.
    pub make_base: bool,
    pub dirs: Vec<String>,
}
