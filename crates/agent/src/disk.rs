//! Disks of clouds that are volumes: found among the node's block devices, given a file system where they are empty, and mounted
//! at the folder of their volume, in the agent's own mount namespace. Jobs that are launched after that find them there.

use crate::ownership::give_to_user;
use crate::trusted_dir::TrustedDir;
use model::search_path::SYSTEM_PATH;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount as mount_call, umount2};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a disk that a cloud has attached may take to be seen, and how often it is looked for.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The device files of one order.
const DEVICES_MAX: usize = 16;

/// How much of a disk is read to see whether it is empty: the marks of every usual file system and partition table are in it.
const HEAD_BYTES: u64 = 1 << 20;

/// The file systems that are tried, the one that empty disks get first.
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const MAKE_FILE_SYSTEM: &str = "mkfs.ext4";

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);
const OWNERS_ALONE: Mode = Mode::S_IRWXU;

/// Mounts the disk at the folder of this name, and gives it to the user. One that is mounted there already is not mounted again.
pub(crate) fn mount(
    home: &TrustedDir,
    name: &str,
    ids: (u32, u32),
    devices: &[String],
) -> Result<(), String> {
    mount_within(home, name, ids, devices, DEVICE_TIMEOUT)
}

fn mount_within(
    home: &TrustedDir,
    name: &str,
    ids: (u32, u32),
    devices: &[String],
    limit: Duration,
) -> Result<(), String> {
    if !is_mounted(home, name)? {
        mount_found(home, name, &find(devices, limit)?)?;
    }
    // A disk that is mounted already is given to its user again: an agent may have ended between the two.
    give(home, name, ids).map_err(|e| format!("cannot be given to its user: {}", e.desc()))
}

fn mount_found(home: &TrustedDir, name: &str, device: &str) -> Result<(), String> {
    if is_empty(device)? {
        make_file_system(device)?;
    }
    let failed = |what: &str, e: Errno| format!("{device}: {what}: {}", e.desc());
    match mkdirat(home, name, OWNERS_ALONE) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(e) => return Err(failed("cannot make its folder", e)),
    }
    let folder = openat(home, name, FOLDER, Mode::empty())
        .map_err(|e| failed("cannot open its folder", e))?;
    let mounted = attach(device, &folder);
    drop(folder);
    if let Err(e) = mounted {
        // An empty folder of root's would be taken for the volume.
        let _ = unlinkat(home, name, UnlinkatFlags::RemoveDir);
        return Err(failed("cannot be mounted", e));
    }
    Ok(())
}

/// Lets go of the disk at the folder of this name; done too where none is mounted.
pub(crate) fn unmount(home: &TrustedDir, name: &str) -> Result<(), String> {
    if is_mounted(home, name)? {
        // Nobody else can put a link into this folder.
        umount2(&home.path().join(name), MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|e| format!("cannot be unmounted: {}", e.desc()))?;
    }
    match unlinkat(home, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(format!("cannot remove its folder: {}", e.desc())),
    }
}

/// Whether the folder of this name is another file system than the one that it is in.
fn is_mounted(home: &TrustedDir, name: &str) -> Result<bool, String> {
    let words = |e: Errno| format!("cannot look at its folder: {}", e.desc());
    let folder = match openat(home, name, FOLDER, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(false),
        folder => folder.map_err(words)?,
    };
    let above = openat(home, ".", FOLDER, Mode::empty()).map_err(words)?;
    Ok(fstat(&folder).map_err(words)?.st_dev != fstat(&above).map_err(words)?.st_dev)
}

/// The first of the device files that there is, once there is one.
fn find(devices: &[String], limit: Duration) -> Result<String, String> {
    let is_device = |path: &&String| {
        let is_plain = path.starts_with("/dev/") && !path.contains("..");
        is_plain && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = devices.iter().take(DEVICES_MAX).find(is_device) {
            return Ok(found.clone());
        }
        if Instant::now() >= until {
            let names = devices.iter().take(DEVICES_MAX).cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("no such disk was seen here: none of {names}"));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Whether nothing was ever written to the head of the disk. Any other disk is mounted as it is, or not at all. A disk that the node
/// uses itself is refused, mounted, swapped to or with a partition that is: it would be given to the user.
fn is_empty(device: &str) -> Result<bool, String> {
    let words = |e: std::io::Error| match e.kind() {
        ErrorKind::ResourceBusy => format!("{device}: the node uses it already"),
        _ => format!("{device}: cannot be read: {e}"),
    };
    let mut head = Vec::new();
    // The kernel opens no block device so that somebody has claimed.
    let opened = File::options().read(true).custom_flags(OFlag::O_EXCL.bits()).open(device);
    opened.map_err(words)?.take(HEAD_BYTES).read_to_end(&mut head).map_err(words)?;
    Ok(head.iter().all(|byte| *byte == 0))
}

fn make_file_system(device: &str) -> Result<(), String> {
    let words = |why: String| format!("{device}: cannot make a file system: {why}");
    let mut command = Command::new(MAKE_FILE_SYSTEM);
    command.args(["-q", "-m", "0", device]).env_clear().env("PATH", SYSTEM_PATH);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    let ended = command.output().map_err(|e| words(format!("{MAKE_FILE_SYSTEM}: {e}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(words(last.unwrap_or("no reason was given").chars().take(200).collect()))
}

/// Mounts the device over the folder, without set-user programs and device files: what a disk holds, a user has written.
fn attach(device: &str, folder: &OwnedFd) -> Result<(), Errno> {
    let target = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let mut last = Errno::EINVAL;
    for kind in FILE_SYSTEMS {
        match mount_call(Some(device), target.as_str(), Some(kind), flags, None::<&str>) {
            Ok(()) => return Ok(()),
            // It is another file system, or one that this kernel does not have.
            Err(e @ (Errno::EINVAL | Errno::ENODEV)) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

fn give(home: &TrustedDir, name: &str, (uid, gid): (u32, u32)) -> Result<(), Errno> {
    let mounted = openat(home, name, FOLDER, Mode::empty())?;
    give_to_user(&mounted, uid, gid)?;
    fchmod(&mounted, OWNERS_ALONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn disk_that_is_not_there_is_named_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = TrustedDir::open(folder.path()).expect("a folder");
        for device in ["/dev/none/such", "/dev/../etc/passwd", "/etc/passwd", "/dev/null"] {
            let devices = [device.to_owned()];
            let said = mount_within(&home, "data.0", (0, 0), &devices, Duration::ZERO);
            let said = said.expect_err("it is no disk");
            assert_eq!(said, format!("no such disk was seen here: none of {device}"));
        }
        assert!(!folder.path().join("data.0").exists());
        assert_eq!(unmount(&home, "data.0"), Ok(()), "nothing is there to be unmounted");
    }

    /// A file as a block device, until it is dropped.
    struct LoopDevice(String);

    impl LoopDevice {
        fn of(file: &std::path::Path) -> Self {
            let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
            let made = made.expect("losetup runs");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Self(String::from_utf8_lossy(&made.stdout).trim().to_owned())
        }
    }

    impl Drop for LoopDevice {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["--detach", &self.0]).status();
        }
    }

    /// In a mount namespace of its own, which ends with the thread.
    #[test]
    fn root_empty_disk_gets_a_file_system_once_is_its_users_and_is_let_go() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let thread = std::thread::spawn(|| {
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount_call(none, "/", none, private, none).expect("private");
            let folder = tempfile::tempdir().expect("a folder");
            let image = folder.path().join("image");
            File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
            let device = LoopDevice::of(&image);
            let path = folder.path().join("volumes");
            let home = TrustedDir::make(&path).expect("a folder");
            let devices = ["/dev/none".to_owned(), device.0.clone()];
            let mounted = || mount(&home, "data.0", (1234, 1234), &devices);
            assert_eq!(mounted(), Ok(()));
            let at = path.join("data.0");
            std::os::unix::fs::chown(&at, Some(0), Some(0)).expect("root's");
            assert_eq!(mounted(), Ok(()), "it is mounted already, and given again");
            let twice = mount(&home, "other.0", (1235, 1235), &devices).expect_err("it is in use");
            assert_eq!(twice, format!("{}: the node uses it already", device.0));
            assert!(!path.join("other.0").exists(), "nothing is taken for the volume");
            let found = std::fs::metadata(&at).expect("it is there");
            assert_eq!((found.uid(), found.permissions().mode() & 0o7777), (1234, 0o700));
            std::fs::write(at.join("kept"), "x").expect("written");
            assert_eq!(unmount(&home, "data.0"), Ok(()));
            assert!(!at.exists(), "nothing is taken for the volume");
            assert_eq!(mounted(), Ok(()));
            assert_eq!(std::fs::read_to_string(at.join("kept")).expect("it is kept"), "x");
            assert_eq!(unmount(&home, "data.0"), Ok(()));
        });
        thread.join().expect("the test");
    }

    #[test]
    fn disk_is_empty_while_nothing_was_written_to_its_head() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let file = File::create(&path).expect("a file");
        file.set_len(4 << 20).expect("a size");
        let path = path.to_str().expect("a path");
        assert_eq!(is_empty(path), Ok(true));
        let mut bytes = vec![0; 4 << 20];
        bytes[1080] = 0x53;
        std::fs::write(path, bytes).expect("written");
        assert_eq!(is_empty(path), Ok(false));
    }
}
