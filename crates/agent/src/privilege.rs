//! Whether this process may act as every user and over its machine. The agent of a pod in which jobs are root is root too, and acts
//! as an agent without root does all the same: for one user, as itself.

use nix::unistd::Uid;
use std::sync::OnceLock;

/// Whose jobs a pod is for, where they are root in it.
static POD_USER: OnceLock<u32> = OnceLock::new();

/// Says for whose jobs the pod is. It is to be said before the launcher is started: supervisors are forks of it.
pub fn set_pod_user(uid: u32) {
    // The first word counts; there is no second one.
    let _ = POD_USER.set(uid);
}

/// Whose jobs the pod is for, where they are root in it.
pub(crate) fn pod_user() -> Option<u32> {
    POD_USER.get().copied()
}

/// Whether it may act as every user.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root() && pod_user().is_none()
}

/// The only user whose jobs it runs; `None` for one that runs every user's.
pub(crate) fn only_user() -> Option<u32> {
    let own = Uid::effective();
    pod_user().or_else(|| (!own.is_root()).then(|| own.as_raw()))
}
