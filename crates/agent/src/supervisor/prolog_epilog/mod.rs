//! The site's programs around jobs and tasks. `programs` finds the node's prolog and epilog and checks that root may run
//! them; `task_prolog` runs a task's prolog. When each of them runs is decided in `attempt/prolog_epilog.rs` and
//! `step/task_epilog.rs`.

pub(crate) mod programs;
pub(crate) mod task_prolog;
