//! What `sbatch`, `salloc` and `srun` share: the caller's process, messages, notes on
//! missing folders, the watch on a job and the line while it waits, `--test-only`.

pub mod caller;
pub mod export_file;
pub mod het_components;
pub mod job_watch;
pub mod messages;
pub mod missing_folders;
pub mod registry_auth;
pub mod test_only;
pub mod wait_line;
