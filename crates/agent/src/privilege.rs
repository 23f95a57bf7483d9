//! Whether this process may act as every user and over its machine. The agent of a pod in which jobs are root is root too, and acts
//! as an agent without root does all the same: for one user, as itself.

use nix::unistd::Uid;
use std::sync::OnceLock;

/// The user whose jobs the pod of this agent runs, where they are root in it. Unset on a node that is no pod.
static POD_USER: OnceLock<u32> = OnceLock::new();

/// Says for whose jobs the pod is. It is to be said before the launcher is started: supervisors are forks of it.
pub fn set_pod_user(uid: u32) {
    // The first word counts; there is no second one.
    let _ = POD_USER.set(uid);
}

/// The user of the pod, as [`set_pod_user`] said it; `None` on a node that is no pod.
pub(crate) fn pod_user() -> Option<u32> {
    POD_USER.get().copied()
}

/// Whether it may act as every user.
pub(crate) fn is_root() -> bool {
    only_user().is_none()
}

/// The only user whose jobs it runs; `None` for one that runs every user's.
pub(crate) fn only_user() -> Option<u32> {
    only_user_of(Uid::effective(), pod_user())
}

fn only_user_of(own: Uid, pod_user: Option<u32>) -> Option<u32> {
    pod_user.or_else(|| (!own.is_root()).then(|| own.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_outside_of_a_pod_acts_as_every_user() {
        let (root, other) = (Uid::from_raw(0), Uid::from_raw(7));
        assert_eq!(only_user_of(root, None), None);
        assert_eq!(only_user_of(other, None), Some(7));
        // In a pod it is root, or the user of the image.
        assert_eq!(only_user_of(root, Some(1000)), Some(1000));
        assert_eq!(only_user_of(other, Some(1000)), Some(1000));
    }
}
