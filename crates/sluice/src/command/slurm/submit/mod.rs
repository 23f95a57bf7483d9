//! What `sbatch`, `salloc` and `srun` share.

pub mod caller;
pub mod het_components;
pub mod job_watch;
pub mod messages;
pub mod test_only;
