//! The nodes that the server did not take from this agent when it answered last, in a file of the agent's folder: `sluice doctor`
//! shows them on this machine, where the server's log is not.

use crate::trusted_dir::TrustedDir;
use nix::fcntl::OFlag;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::link::RefusedNode;

const FOLDER: &str = "agent";
const FILE: &str = "refused.json";
/// More than one welcome says.
const BYTES_MAX: u64 = 1 << 20;

/// The nodes that the server refuses the agent of this state folder; empty where that cannot be read.
pub fn read(state: &Path) -> Vec<RefusedNode> {
    let mut text = Vec::new();
    // Root may look at the folder of another user, who could have put a pipe or a link there.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
    let path = state.join(FOLDER).join(FILE);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let read = file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Keeps what [`read`] finds. Where it cannot be kept the log has it all the same.
pub fn keep(state: &Path, refused: &[RefusedNode]) {
    if read(state) == refused {
        return;
    }
    if let Err(error) = write(state, refused) {
        tracing::warn!(%error, "the list of refused nodes is not kept");
    }
}

fn write(state: &Path, refused: &[RefusedNode]) -> io::Result<()> {
    TrustedDir::open(&state.join(FOLDER))?.replace(FILE, 0o644, &serde_json::to_vec(refused)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_kept_until_the_server_refuses_nothing() {
        let state = tempfile::tempdir().expect("a folder");
        TrustedDir::make(&state.path().join(FOLDER)).expect("made");
        assert!(read(state.path()).is_empty());
        let refused = [RefusedNode { node: "n2".into(), why: "it has joined again".into() }];
        keep(state.path(), &refused);
        assert_eq!(read(state.path()), refused);
        keep(state.path(), &[]);
        assert!(read(state.path()).is_empty());
        std::fs::write(state.path().join(FOLDER).join(FILE), "[{").expect("written");
        assert!(read(state.path()).is_empty(), "a torn file says nothing");
    }
}
