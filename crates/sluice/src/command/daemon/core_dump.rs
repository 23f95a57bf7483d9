//! The daemons leave no core dumps and cannot be traced but by root: their memory holds keys and tokens.

use crate::command::verb::VerbError;
use nix::sys::prctl;

/// Forbids dumps of this process, and tracing by its own user. A fork inherits it, the supervisors of jobs among them. A
/// program that is executed does not, nor does a process that gives up root: those call it again.
pub fn forbid() -> Result<(), VerbError> {
    prctl::set_dumpable(false)
        .map_err(|e| VerbError::Message(format!("core dumps cannot be forbidden: {e}")))
}
