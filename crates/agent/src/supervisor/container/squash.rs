//! Mounts an image that is one squashfs file, a `.sif` among them, by a loop device of its own.

use image::SquashImage;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount as mount_file_system};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const READ_ONLY: u32 = 1;
/// The device is freed when nothing uses it any more.
const AUTOCLEAR: u32 = 4;
/// Another process may take the device that was free: so often it is tried again.
const TRIES_MAX: usize = 32;

#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// Returns the root of the mounted image.
pub(super) fn mount(image: &SquashImage, at: &str) -> Result<OwnedFd, String> {
    let failed = |e: Errno| format!("{}: cannot be mounted: {}", image.path.display(), e.desc());
    let (path, device) = attach(image).map_err(failed)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let none: Option<&str> = None;
    mount_file_system(Some(path.as_str()), at, Some("squashfs"), flags, none).map_err(failed)?;
    drop(device);
    open(at, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)
}

/// Attaches the part of the file that is the file system. The device stays attached while it is open or mounted.
fn attach(image: &SquashImage) -> nix::Result<(String, File)> {
    let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(io)?;
    for _ in 0..TRIES_MAX {
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        let path = format!("/dev/loop{}", Errno::result(number)?);
        let device = File::open(&path).map_err(io)?;
        let config = LoopConfig {
            fd: image.file.as_raw_fd() as u32,
            block_size: 0,
            info: LoopInfo {
                device: 0,
                inode: 0,
                rdevice: 0,
                offset: image.offset,
                size_limit: image.size,
                number: 0,
                encrypt_type: 0,
                encrypt_key_size: 0,
                flags: READ_ONLY | AUTOCLEAR,
                file_name: [0; 64],
                crypt_name: [0; 64],
                encrypt_key: [0; 32],
                init: [0; 2],
            },
            reserved: [0; 8],
        };
        // SAFETY: the structure is the kernel's own, and lives through the call.
        match Errno::result(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) }) {
            Ok(_) => return Ok((path, device)),
            Err(Errno::EBUSY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EBUSY)
}
