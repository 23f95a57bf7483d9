//! A program that runs containers with the rights of the job's user, as Enroot and Apptainer do: what it is given to mount,
//! where its working directory is, and how a process becomes it.

use super::assembly::{SCRIPT, STATE_VARIABLE, ShownMounts};
use super::runtime_config::set_rlimit;
use super::{ContainerError, ContainerSpec, files};
use crate::socket_folder;
use crate::supervisor::mount_calls::open_plain;
use crate::supervisor::process::credentials::{as_user, become_user};
use model::container::{Mount, Variables};
use model::os_text;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{execve, mkdir};
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::order::UserIds;

/// What a process of the job's user is, beside its groups.
#[derive(Clone)]
pub(super) struct UsersProcess {
    user: UserIds,
    rlimits: Vec<(String, u64, u64)>,
    no_new_privs: bool,
    umask: u32,
}

impl UsersProcess {
    pub fn of(spec: &ContainerSpec, rlimits: Vec<(String, u64, u64)>) -> UsersProcess {
        UsersProcess {
            user: spec.user.clone(),
            rlimits,
            no_new_privs: spec.no_new_privs,
            umask: spec.umask,
        }
    }

    /// Becomes it for good.
    pub fn begin(&self) -> nix::Result<()> {
        self.rlimits.iter().for_each(|(name, soft, hard)| set_rlimit(name, *soft, *hard));
        become_user(&self.user)?;
        if self.no_new_privs {
            set_no_new_privs()?;
        }
        umask(Mode::from_bits_truncate(self.umask & 0o777));
        Ok(())
    }

    /// Becomes it, and the program.
    pub fn execute(
        &self,
        program: &Path,
        words: &[String],
        environment: &[CString],
    ) -> nix::Result<Infallible> {
        let word = |word: &String| CString::new(os_text::to_bytes(word)).map_err(|_| Errno::EINVAL);
        let words: Vec<CString> = words.iter().map(word).collect::<Result<_, _>>()?;
        let program = CString::new(program.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        self.begin()?;
        execve(&program, &words, environment)
    }
}

/// A new folder of the user's for what is made for one process. `name` is the program's.
pub(super) fn make_own_folder(spec: &ContainerSpec, name: &str) -> Result<PathBuf, String> {
    let scratch = spec.scratch;
    let scratch =
        scratch.ok_or_else(|| format!("there is no scratch folder for what {name} needs"))?;
    let word = name.to_ascii_lowercase();
    let made = Path::new(scratch).join(format!(".sluice-{word}-{}-{}", spec.step, spec.process));
    let mode = Mode::from_bits_truncate(0o700);
    let folder = as_user(spec.user, || mkdir(&made, mode)).and_then(|folder| folder);
    folder.map_err(|e| format!("{}: {}", made.display(), e.desc()))?;
    Ok(made)
}

/// Writes a new file in a folder of the user's, with the user's rights.
pub(super) fn write_as_user(
    user: &UserIds,
    path: &Path,
    text: &[u8],
    mode: u32,
) -> nix::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let write = || options.open(path).and_then(|mut file| file.write_all(text));
    as_user(user, write)?.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// What is mounted. The program mounts the home folder itself. What the user cannot open is refused here, and left out where
/// it is not the user who named it. `made` is the user's folder of what is made for this process.
pub(super) fn mounts(
    spec: &ContainerSpec,
    environment: &[CString],
    made: &Path,
    name: &str,
) -> Result<Vec<Mount>, ContainerError> {
    if let Some(volume) = spec.volumes.first() {
        let why = format!(
            "{name} mounts with its user's rights, who cannot reach the folder of a volume"
        );
        return Err(ContainerError::volume(format!("volume {}: {why}", volume.name)));
    }
    let shown = ShownMounts::list(spec, environment);
    let is_home = |mount: &Mount| shown.with_home && mount.source == shown.home;
    let mut all: Vec<Mount> =
        shown.mounts.iter().filter(|mount| !is_home(mount)).cloned().collect();
    let own = |source: &Path, target: String| Mount {
        source: source.display().to_string(),
        target,
        read_only: true,
        optional: true,
    };
    // The user's own: the program mounts them with the user's rights.
    let bin = made.join("bin");
    let scripts = as_user(spec.user, || files::make_scripts(&bin)).map_err(|e| e.to_string())?;
    scripts.map_err(|e| format!("{}: {e}", bin.display()))?;
    let commands = files::commands(bin)?;
    all.extend(commands.into_iter().map(|(source, target)| own(&source, target)));
    if let Some(script) = &spec.script {
        let copy = made.join("script");
        let text = fs::read(script).map_err(|e| format!("cannot copy the script: {e}"))?;
        write_as_user(spec.user, &copy, &text, 0o500)
            .map_err(|e| format!("cannot copy the script: {}", e.desc()))?;
        all.push(own(&copy, SCRIPT.to_owned()));
    }
    let mut opened = Vec::new();
    for mount in all {
        let open = || open_plain(Path::new(&*os_text::to_os(&mount.source)), OFlag::O_PATH);
        match as_user(spec.user, open).and_then(|opened| opened) {
            Ok(_) => opened.push(mount),
            Err(_) if mount.optional => {}
            Err(e) => {
                let why = format!("mount {}: {}", mount.source, e.desc());
                return Err(ContainerError::volume(why));
            }
        }
    }
    Ok(opened)
}

/// The working directory inside: as asked for, else the job's, which is mounted.
pub(super) fn work_dir<'a>(spec: &'a ContainerSpec) -> Option<&'a str> {
    let of_job = Some(spec.work_dir).filter(|path| !files::is_of_image(path));
    spec.request.work_dir.as_deref().or(of_job)
}

/// The program inside with its arguments: the job's script is at its place there.
pub(super) fn arguments(spec: &ContainerSpec, argv: &[String]) -> Vec<String> {
    match (&spec.script, argv.split_first()) {
        (Some(_), Some((_, rest))) => {
            [SCRIPT.to_owned()].into_iter().chain(rest.iter().cloned()).collect()
        }
        _ => argv.to_vec(),
    }
}

/// The folder of the server's socket that the variable of the job's state folder names.
pub(super) fn socket_folder_of(job: &[CString]) -> Option<String> {
    let entries = job.iter().filter_map(|entry| entry.to_str().ok());
    let state = entries.filter_map(|entry| entry.strip_prefix(STATE_VARIABLE)).next();
    state.map(socket_folder::of_state)
}

pub(super) fn name_of(entry: &CString) -> Option<&str> {
    Some(entry.to_str().ok()?.split_once('=')?.0)
}

/// Whether the job named the variable, so that it wins over the image's.
pub(super) fn wins(spec: &ContainerSpec, name: &str) -> bool {
    spec.request.variables != Variables::All && spec.request.variables.wins(name)
}
