//! Programs of the node that containers need: runtimes, packers, makers of file systems.

use std::path::{Path, PathBuf};

const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A program in one of the node's own folders.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    paths.into_iter().find(|path| path.is_file())
}
