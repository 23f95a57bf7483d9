//! The OCI runtime of the node: which program it is, and how it is called.

use model::site::ContainerSite;
use nix::errno::Errno;
use nix::unistd::execve;
use std::convert::Infallible;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Tried in this order.
const RUNTIMES: [&str; 2] = ["runc", "crun"];
const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A program in one of the node's own folders.
pub(super) fn find_on_node(name: &str) -> Option<PathBuf> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    paths.into_iter().find(|path| path.is_file())
}

/// The runtime that the site names, or the first that is here.
pub(super) fn find(site: &ContainerSite) -> Result<PathBuf, String> {
    let at = find_on_node;
    match site.runtime.as_deref() {
        Some(path) if path.contains('/') => {
            let path = PathBuf::from(path);
            let missing = format!("container runtime {}: no such file", path.display());
            Some(path).filter(|path| path.is_file()).ok_or(missing)
        }
        Some(name) => {
            at(name).ok_or_else(|| format!("container runtime {name} is not on this node"))
        }
        None => RUNTIMES.iter().find_map(|name| at(name)).ok_or_else(|| {
            "no container runtime on this node: install runc, or name one in sluice.toml".to_owned()
        }),
    }
}

/// Becomes the runtime, which runs the bundle and ends with its exit code.
pub(super) fn execute(
    runtime: &Path,
    state: &Path,
    bundle: &Path,
    id: &str,
) -> nix::Result<Infallible> {
    let word = |text: &[u8]| CString::new(text).map_err(|_| Errno::EINVAL);
    let program = word(runtime.as_os_str().as_bytes())?;
    let log = bundle.join("runtime.log");
    let words = [
        program.clone(),
        // Its warnings are not the job's output.
        word(b"--log")?,
        word(log.as_os_str().as_bytes())?,
        word(b"--root")?,
        word(state.as_os_str().as_bytes())?,
        word(b"run")?,
        word(b"--bundle")?,
        word(bundle.as_os_str().as_bytes())?,
        word(id.as_bytes())?,
    ];
    // The runtime's own environment; the container's is in its configuration.
    let environment = [c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
    execve(&program, &words, &environment)
}
