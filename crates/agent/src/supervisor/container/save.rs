//! `--container-save`: the files of a container as an image, when the tasks of its step have ended. A process of the step
//! that is in the container all along does it, with the rights of the user: in the place that the user named root makes,
//! writes and removes nothing.

use super::assembly::{COVERED, MOUNT_POINT};
use super::holder::close_all_but;
use super::{ContainerSpec, OciProcess, files, node_programs};
use crate::supervisor::mount_calls::{Tree, open_plain};
use crate::supervisor::process::credentials::{as_user, become_user};
use model::os_text;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open, openat, renameat};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, UnlinkatFlags, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork,
    read, setgroups, setresgid, setresuid, unlink, unlinkat,
};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::order::UserIds;

/// The byte on standard input that says that the tasks have ended.
pub(crate) const SAVE: &[u8; 1] = b"s";
/// Begins the name of a record of a partial file, in the folder of its container.
const PARTIAL_RECORD: &str = "partial";
/// How long the removal of a partial file is waited for.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const REMOVAL_POLL: Duration = Duration::from_millis(5);
/// The memory that the packer may use, which is the step's.
const PACKER_MEMORY: &str = "64M";

/// Where the container of a step with this working directory is saved to. Both are texts that stand for bytes.
pub(crate) fn save_path(work_dir: &str, path: &str) -> PathBuf {
    Path::new(&*os_text::to_os(work_dir)).join(&*os_text::to_os(path))
}

/// The place of the image, opened with the user's rights before anything of the container is mounted over it.
pub(super) struct SaveTarget {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl SaveTarget {
    pub fn open(path: &str, spec: &ContainerSpec) -> Result<SaveTarget, String> {
        let path = save_path(spec.work_dir, path);
        let failed = |why: &str| format!("cannot save the container to {}: {why}", path.display());
        let name = path.file_name().map(OsStr::to_os_string);
        let (Some(name), Some(folder)) = (name, path.parent()) else {
            return Err(failed("expected the path of a file"));
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let folder = as_user(spec.user, || open_plain(folder, flags)).and_then(|opened| opened);
        let folder = folder.map_err(|e| failed(e.desc()))?;
        Ok(SaveTarget { folder, name, path })
    }

    /// A file beside the place, which takes it when the image is whole.
    fn partial(&self) -> OsString {
        partial_name(&self.name, Pid::this())
    }

    pub fn partial_path(&self) -> PathBuf {
        self.path.with_file_name(self.partial())
    }

    fn create(&self, user: &UserIds, mask: u32) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666 & !mask);
        as_user(user, || openat(&self.folder, self.partial().as_os_str(), flags, mode))?
    }

    fn finish(&self, user: &UserIds) -> nix::Result<()> {
        let (partial, name) = (self.partial(), self.name.as_os_str());
        as_user(user, || renameat(&self.folder, partial.as_os_str(), &self.folder, name))?
    }

    fn remove_partial(&self, user: &UserIds) {
        let partial = self.partial();
        let remove = || unlinkat(&self.folder, partial.as_os_str(), UnlinkatFlags::NoRemoveDir);
        // What cannot be removed is the user's to remove.
        let _ = as_user(user, remove);
    }
}

fn partial_name(name: &OsStr, saver: Pid) -> OsString {
    let mut partial = name.to_os_string();
    partial.push(format!(".partial-{saver}"));
    partial
}

/// Removes what a process that was killed while it saved to this path has left, with the user's rights. Nobody waits for
/// it: the path may be of a file system that hangs. Should it not come to that, the job's end removes the file
/// ([`remove_partial_files`]).
pub(crate) fn remove_partial(saver: Pid, path: &Path, user: &UserIds) {
    let Some(name) = path.file_name() else { return };
    let partial = path.with_file_name(partial_name(name, saver));
    // SAFETY: a supervisor has one thread, and the child ends below.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        let _ = become_user(user).and_then(|()| unlink(&partial));
        // SAFETY: ends the child without the exit handlers of its parent.
        unsafe { libc::_exit(0) }
    }
}

/// The partial file of a process that saves, on record while there may be one.
#[derive(Serialize, Deserialize)]
struct PartialFile {
    /// Text that stands for bytes (`model::os_text`), which JSON has no other form of.
    path: String,
    user: UserIds,
}

impl PartialFile {
    fn write(&self, record: &Path) -> Result<(), String> {
        let text = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        fs::write(record, text).map_err(|e| format!("{}: {e}", record.display()))
    }

    /// Removes it with the user's rights. A file system that hangs is not waited for.
    fn remove(&self) {
        let Some(program) = node_programs::find("rm") else { return };
        let mut command = Command::new(program);
        command.args(["-f", "--"]).arg(os_text::to_os(&self.path)).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let user = self.user.clone();
        // SAFETY: becoming the user asks the kernel alone.
        unsafe { command.pre_exec(move || become_user(&user).map_err(Into::into)) };
        let Ok(mut child) = command.spawn() else { return };
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(REMOVAL_POLL);
        }
    }
}

/// Removes the partial files that killed processes of an attempt have left, whose folder this is: their supervisor may have
/// been killed with them.
pub(super) fn remove_partial_files(attempt: &Path) {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries(attempt).flat_map(|container| entries(&container.path())) {
        if !entry.file_name().as_bytes().starts_with(PARTIAL_RECORD.as_bytes()) {
            continue;
        }
        let left = fs::read(entry.path()).ok();
        let left = left.and_then(|text| serde_json::from_slice::<PartialFile>(&text).ok());
        if let Some(left) = left {
            left.remove();
        }
    }
}

/// Waits until standard input says that the tasks have ended, has the container packed to the target's partial file, and
/// ends this process. The reason of a failure is written to standard error. `kept` stays open.
pub(super) fn save_when_told(
    target: Option<&Result<SaveTarget, String>>,
    spec: &ContainerSpec,
    kept: Option<RawFd>,
    pack: impl FnOnce(&SaveTarget) -> Result<(), String>,
) -> ! {
    let code = match target {
        Some(Ok(target)) => save_to(target, spec, kept, pack),
        Some(Err(why)) => {
            eprintln!("sluice: {why}");
            1
        }
        None => 0,
    };
    // SAFETY: ends this process without destructors: what they would close is closed already.
    unsafe { libc::_exit(code) }
}

/// Returns the exit code.
fn save_to(
    target: &SaveTarget,
    spec: &ContainerSpec,
    kept: Option<RawFd>,
    pack: impl FnOnce(&SaveTarget) -> Result<(), String>,
) -> i32 {
    // The supervisor's end of the tasks' input is among the rest, which would never be closed.
    close_all_but([0, 1, 2, target.folder.as_raw_fd()].into_iter().chain(kept));
    let mut word = [0];
    if read(std::io::stdin(), &mut word) != Ok(1) || word != *SAVE {
        return 1;
    }
    let path = os_text::from_os(target.partial_path().into_os_string());
    let left = PartialFile { path, user: spec.user.clone() };
    let record = spec.folder.join(format!("{PARTIAL_RECORD}-{}", Pid::this()));
    let saved = left
        .write(&record)
        .and_then(|()| pack(target))
        .and_then(|()| target.finish(spec.user).map_err(|e| e.desc().to_owned()));
    if saved.is_err() {
        target.remove_partial(spec.user);
    }
    let _ = fs::remove_file(record);
    match saved {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("sluice: cannot save the container to {}: {why}", target.path.display());
            1
        }
    }
}

impl OciProcess {
    /// Saves the container when its tasks have ended, and ends this process.
    pub fn save_and_exit(&self, spec: &ContainerSpec) -> ! {
        let users = self.users.as_ref().map(|users| users.as_fd().as_raw_fd());
        save_when_told(self.save_target.as_ref(), spec, users, |target| self.pack(spec, target))
    }

    fn pack(&self, spec: &ContainerSpec, target: &SaveTarget) -> Result<(), String> {
        let words = |e: Errno| e.desc().to_owned();
        let packer =
            Packer::find(&target.name).ok_or("neither mksquashfs nor tar is on this node")?;
        let folder = show_alone().map_err(words)?;
        let file = target.create(spec.user, spec.umask).map_err(words)?;
        // SAFETY: this process has one thread, and the child executes or exits.
        match unsafe { fork() }.map_err(words)? {
            ForkResult::Child => {
                let failed = self
                    .become_inside(spec)
                    .and_then(|()| packer.execute(&folder, &file))
                    .map_or_else(|errno| errno as i32, |never| match never {});
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(failed) }
            }
            ForkResult::Parent { child } => match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                Ok(WaitStatus::Exited(_, code)) => {
                    Err(format!("{} ended with exit code {code}", packer.path.display()))
                }
                ended => Err(format!("{} was killed ({ended:?})", packer.path.display())),
            },
        }
    }

    /// Becomes the user for good: root of the container where it has a user namespace, so that files of its other users
    /// can be read.
    fn become_inside(&self, spec: &ContainerSpec) -> nix::Result<()> {
        if !self.assembled.has_user_namespace {
            return become_user(spec.user);
        }
        let path = self.assembled.holder.namespace("user");
        let namespace = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        setns(namespace, CloneFlags::CLONE_NEWUSER)?;
        let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
        setgroups(&[])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    }
}

/// Shows the container's own files without what is mounted in them, in a mount namespace of this process. Returns where.
fn show_alone() -> nix::Result<String> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let handle = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let tree = Tree::copy_alone(open(MOUNT_POINT, handle, Mode::empty())?)?;
    tree.restrict(true)?;
    let folder = format!("{COVERED}/saved-{}", std::process::id());
    umask(Mode::from_bits_truncate(0o022));
    fs::create_dir(&folder).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
    tree.show_at(open(folder.as_str(), handle, Mode::empty())?)?;
    Ok(folder)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Squashfs,
    Tarball,
}

/// The program of the node that makes the image.
struct Packer {
    form: Form,
    path: PathBuf,
}

impl Packer {
    /// A squashfs where the node can make one and the name is not that of a tarball.
    fn find(name: &OsStr) -> Option<Packer> {
        let found = |form: Form, program: &str| {
            node_programs::find(program).map(|path| Packer { form, path })
        };
        let squashfs = || found(Form::Squashfs, "mksquashfs");
        let wanted = if name.as_bytes().ends_with(b".tar") { None } else { squashfs() };
        wanted.or_else(|| found(Form::Tarball, "tar"))
    }

    fn words(&self, folder: &str, file: &OwnedFd) -> Vec<String> {
        // Sluice's own files are mounted there; without them it is empty.
        let own = files::OWN.trim_start_matches('/');
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        let words: &[&str] = match self.form {
            Form::Squashfs => &[
                "mksquashfs",
                folder,
                &file,
                "-noappend",
                "-all-root",
                "-no-xattrs",
                "-no-progress",
                "-mem",
                PACKER_MEMORY,
                "-e",
                own,
            ],
            Form::Tarball => &[
                "tar",
                "--create",
                "--file",
                &file,
                "--directory",
                folder,
                "--numeric-owner",
                "--owner=0",
                "--group=0",
                &format!("--exclude=./{own}"),
                ".",
            ],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn execute(&self, folder: &str, file: &OwnedFd) -> nix::Result<std::convert::Infallible> {
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let words: Result<Vec<CString>, _> =
            self.words(folder, file).into_iter().map(CString::new).collect();
        let words = words.map_err(|_| Errno::EINVAL)?;
        let program = CString::new(self.path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        execve(&program, &words, &[c"PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
    }
}
