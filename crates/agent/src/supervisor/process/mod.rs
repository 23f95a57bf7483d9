//! The processes of a job: how each is started, with what limits and environment, what it uses, and how it is reaped.

pub(crate) mod binding;
pub(crate) mod credentials;
pub(crate) mod descendants;
pub(crate) mod environment;
mod execute;
mod login_environment;
pub(crate) mod nice;
pub(crate) mod path_variable;
pub(crate) mod pipe;
pub(crate) mod readiness;
pub(crate) mod reap;
pub(crate) mod rlimits;
pub(crate) mod spawn;
pub(crate) mod usage;
