//! The OCI runtime of the node: which program it is, and how it is called.

use super::mount_calls::open_in_root;
use model::site::ContainerSite;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::execve;
use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Tried in this order.
const RUNTIMES: [&str; 2] = ["runc", "crun"];
const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The runtime that the site names, or the first that is here.
pub(super) fn find(site: &ContainerSite) -> Result<PathBuf, String> {
    let at = |name: &str| {
        let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        paths.into_iter().find(|path| path.is_file())
    };
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

/// Whether the container has the program, by its `PATH`.
pub(super) fn find_program(
    root: &OwnedFd,
    program: &str,
    environment: &[String],
    work_dir: &str,
) -> nix::Result<()> {
    let check = |path: &str| {
        let file = open_in_root(root, path, OFlag::O_PATH)?;
        let status = fstat(&file)?;
        let is_file = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        if is_file && status.st_mode & 0o111 != 0 { Ok(()) } else { Err(Errno::EACCES) }
    };
    if program.is_empty() {
        return Err(Errno::ENOENT);
    }
    if program.contains('/') {
        let path = if program.starts_with('/') {
            program.to_owned()
        } else {
            format!("{work_dir}/{program}")
        };
        return check(&path);
    }
    let path = environment.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
    let found: Vec<_> = path
        .split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| check(&format!("{folder}/{program}")))
        .collect();
    match found.iter().any(|one| one.is_ok()) {
        true => Ok(()),
        false if found.contains(&Err(Errno::EACCES)) => Err(Errno::EACCES),
        false => Err(Errno::ENOENT),
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
