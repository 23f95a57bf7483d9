//! Mounts an image that is one squashfs file, a `.sif` among them, by a loop device of its own.

use super::loop_device::LoopFile;
use image::SquashImage;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount as mount_file_system};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, OwnedFd};

/// Returns the root of the mounted image.
pub(super) fn mount(image: &SquashImage, at: &str) -> Result<OwnedFd, String> {
    let failed = |e: Errno| format!("{}: cannot be mounted: {}", image.path.display(), e.desc());
    let file = LoopFile {
        file: image.file.as_fd(),
        offset: image.offset,
        size: image.size,
        is_read_only: true,
    };
    let (path, device) = file.attach().map_err(failed)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let none: Option<&str> = None;
    mount_file_system(Some(path.as_str()), at, Some("squashfs"), flags, none).map_err(failed)?;
    drop(device);
    open(at, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)
}
