//! The BPF program that allows or denies each opening of a device on v2. It is a list of comparisons, assembled here.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::device_rule::{DeviceKind, DeviceRule};

const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// The programs of parent groups run as well, and each must allow.
const ALLOW_MULTI: u32 = 2;

const LICENSE: &[u8] = b"Apache-2.0\0";

/// Offsets in `struct bpf_cgroup_dev_ctx`.
const AT_ACCESS: i16 = 0;
const AT_MAJOR: i16 = 4;
const AT_MINOR: i16 = 8;

/// Registers: the answer, the context, and what is read from it.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// One BPF instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The register written in the low four bits, the one read in the high four.
    registers: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    const fn load(to: u8, offset: i16) -> Instruction {
        Instruction { code: 0x61, registers: to | (CONTEXT << 4), offset, value: 0 }
    }

    const fn and(register: u8, value: i32) -> Instruction {
        Instruction { code: 0x54, registers: register, offset: 0, value }
    }

    /// Skips so many instructions unless the register holds the value.
    const fn skip_unless(register: u8, value: i32, skipped: i16) -> Instruction {
        Instruction { code: 0x55, registers: register, offset: skipped, value }
    }

    const fn answer(value: i32) -> [Instruction; 2] {
        let set = Instruction { code: 0xb7, registers: ANSWER, offset: 0, value };
        [set, Instruction { code: 0x95, registers: 0, offset: 0, value: 0 }]
    }
}

fn instructions(rules: &[DeviceRule]) -> Vec<Instruction> {
    let mut program = vec![
        Instruction::load(KIND, AT_ACCESS),
        Instruction::load(MAJOR, AT_MAJOR),
        Instruction::load(MINOR, AT_MINOR),
        // The high half is read, write or mknod, which are allowed or denied together.
        Instruction::and(KIND, 0xffff),
    ];
    for rule in rules {
        let kind = match rule.kind {
            DeviceKind::Block => 1,
            DeviceKind::Char => 2,
        };
        let mut tests = vec![(KIND, kind), (MAJOR, rule.major)];
        tests.extend(rule.minor.map(|minor| (MINOR, minor)));
        let length = tests.len();
        for (at, (register, value)) in tests.into_iter().enumerate() {
            // The remaining comparisons of the rule, and the two instructions of its answer.
            let skipped = (length - at - 1 + 2) as i16;
            program.push(Instruction::skip_unless(register, value as i32, skipped));
        }
        program.extend(Instruction::answer(1));
    }
    program.extend(Instruction::answer(0));
    program
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
struct LoadRequest {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that attaches a program.
#[repr(C)]
struct AttachRequest {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// A loaded program. Once attached it lives as long as the group, also after this is dropped.
pub(super) struct DeviceProgram {
    fd: OwnedFd,
}

impl DeviceProgram {
    pub fn load(rules: &[DeviceRule]) -> Result<DeviceProgram, Errno> {
        let instructions = instructions(rules);
        let request = LoadRequest {
            program_type: TYPE_CGROUP_DEVICE,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buffer: 0,
            kernel_version: 0,
            flags: 0,
        };
        // SAFETY: the request and what it points at live until the call is over, and the kernel only reads them.
        let fd = unsafe { bpf(PROG_LOAD, &request) }?;
        let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else holds its number.
        Ok(DeviceProgram { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    pub fn attach(&self, group: BorrowedFd) -> Result<(), Errno> {
        let request = AttachRequest {
            target: group.as_raw_fd() as u32,
            program: self.fd.as_raw_fd() as u32,
            attach_type: ATTACH_CGROUP_DEVICE,
            flags: ALLOW_MULTI,
        };
        // SAFETY: the request is four numbers, and the kernel only reads them.
        unsafe { bpf(PROG_ATTACH, &request) }.map(drop)
    }
}

/// # Safety
/// `request` is what the command takes, and all it points at is alive.
unsafe fn bpf<T>(command: libc::c_long, request: &T) -> Result<libc::c_long, Errno> {
    let (pointer, size) = (std::ptr::from_ref(request), std::mem::size_of::<T>());
    // SAFETY: as the caller promises; the size is that of the request.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program.
    fn run(program: &[Instruction], access: u32, major: u32, minor: u32) -> i64 {
        let context = [access, major, minor];
        let mut registers = [0_i64; 5];
        let mut at = 0;
        loop {
            let Instruction { code, registers: both, offset, value } = program[at];
            let to = usize::from(both & 0xf);
            at += 1;
            match code {
                0x61 => registers[to] = i64::from(context[offset as usize / 4]),
                0x54 => registers[to] &= i64::from(value),
                0x55 if registers[to] != i64::from(value) => at += offset as usize,
                0x55 => {}
                0xb7 => registers[to] = i64::from(value),
                0x95 => return registers[0],
                other => panic!("code {other:#x}"),
            }
        }
    }

    #[test]
    fn only_listed_devices_are_allowed() {
        let rules = [
            DeviceRule::char(1, Some(3)),
            DeviceRule::block(7, Some(1)),
            DeviceRule::char(136, None),
        ];
        let program = instructions(&rules);
        const READ_CHAR: u32 = (2 << 16) | 2;
        const WRITE_BLOCK: u32 = (4 << 16) | 1;
        const MKNOD_CHAR: u32 = (1 << 16) | 2;
        for (access, major, minor, allowed) in [
            (READ_CHAR, 1, 3, 1),
            (MKNOD_CHAR, 1, 3, 1),
            (READ_CHAR, 1, 5, 0),
            (WRITE_BLOCK, 1, 3, 0),
            (WRITE_BLOCK, 7, 1, 1),
            (WRITE_BLOCK, 7, 0, 0),
            (READ_CHAR, 136, 77, 1),
            (MKNOD_CHAR, 195, 0, 0),
        ] {
            assert_eq!(run(&program, access, major, minor), allowed, "{access:#x} {major}:{minor}");
        }
        assert_eq!(run(&instructions(&[]), READ_CHAR, 1, 3), 0, "no rule, no device");
    }

    #[test]
    fn an_instruction_is_eight_bytes() {
        assert_eq!(std::mem::size_of::<Instruction>(), 8);
    }
}
