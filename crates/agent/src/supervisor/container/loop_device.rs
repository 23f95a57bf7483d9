//! Files as block devices, which the kernel mounts.

use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const READ_ONLY: u32 = 1;
/// What is written goes to the disk without a second copy in memory, where the file system of the file can do that.
const DIRECT_IO: u32 = 16;
/// A block of the file systems that are written to.
const BLOCK: u32 = 4096;
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

/// A file, or a part of one, that is a file system.
pub(super) struct LoopFile<'a> {
    pub file: BorrowedFd<'a>,
    pub offset: u64,
    /// 0 for all that follows.
    pub size: u64,
    pub is_read_only: bool,
}

impl LoopFile<'_> {
    /// Attaches the file to a free device, and returns its path. The device stays attached while it is open or mounted.
    pub fn attach(&self) -> nix::Result<(String, File)> {
        let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(io)?;
        let (flags, block_size) =
            if self.is_read_only { (READ_ONLY, 0) } else { (DIRECT_IO, BLOCK) };
        for _ in 0..TRIES_MAX {
            // SAFETY: the request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            let path = format!("/dev/loop{}", Errno::result(number)?);
            let device = OpenOptions::new().read(true).write(!self.is_read_only).open(&path);
            let device = device.map_err(io)?;
            let config = LoopConfig {
                fd: self.file.as_raw_fd() as u32,
                block_size,
                info: LoopInfo {
                    device: 0,
                    inode: 0,
                    rdevice: 0,
                    offset: self.offset,
                    size_limit: self.size,
                    number: 0,
                    encrypt_type: 0,
                    encrypt_key_size: 0,
                    flags: flags | AUTOCLEAR,
                    file_name: [0; 64],
                    crypt_name: [0; 64],
                    encrypt_key: [0; 32],
                    init: [0; 2],
                },
                reserved: [0; 8],
            };
            // SAFETY: the structure is the kernel's own, and lives through the call.
            let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) };
            match Errno::result(done) {
                Ok(_) => return Ok((path, device)),
                Err(Errno::EBUSY) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EBUSY)
    }
}
