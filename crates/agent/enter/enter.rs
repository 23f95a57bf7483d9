//! Runs in a container between the runtime and a task, as the task's user: enters the working directory and executes the
//! task's program there, which Sluice's own program (`container-exec`) does too. That one is large and is started by a loader,
//! and takes longer than all that it does there. This one is a page of code without a library: three system calls.
//!
//! Its arguments are the whole command line of that verb, of which it takes the working directory and the program. If
//! anything fails, it executes that command line, which tries again and says what is wrong.
//!
//! `build.rs` compiles it beside the agent, which has the file in itself.

#![no_std]
#![no_main]
// The compiler would make calls of `strlen` or `memcpy` from loops, and there is no library that has them.
#![no_builtins]

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use core::panic::PanicInfo;

/// The places of the words: the program that is started instead where something fails (a loader), then its arguments.
const WHOLE: usize = 1;
const WORK_DIR: usize = 6;
const PROGRAM: usize = 7;
/// The longest path that the kernel takes, with its last NUL.
const PATH_BYTES_MAX: usize = 4096;
/// The exit code of a shell for what cannot be executed.
const NOT_EXECUTED: usize = 126;
/// `ENOENT`, `EACCES` and `ENOTDIR`: the search in `PATH` goes on.
const NOT_HERE: [isize; 3] = [-2, -13, -20];
const VARIABLE: &[u8; 5] = b"PATH=";

#[cfg(target_arch = "x86_64")]
mod number {
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const CHDIR: usize = 80;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const CHDIR: usize = 49;
    pub const EXIT: usize = 93;
    pub const EXECVE: usize = 221;
}

// The kernel starts a program with its number of arguments, the arguments and the variables on the stack.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    "ud2",
    begin = sym begin,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x0, sp",
    "bl {begin}",
    "brk #1",
    begin = sym begin,
);

/// A list of C strings that a null pointer ends.
type Words = *const *const u8;

/// # Safety
/// `stack` is where the kernel has put the arguments of this process.
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: the kernel's layout is the number of arguments, the arguments, a null pointer, the variables, a null pointer.
    unsafe {
        let count = *stack;
        let arguments: Words = stack.add(1).cast();
        let variables: Words = arguments.add(count + 1);
        if count > PROGRAM {
            if call(number::CHDIR, *arguments.add(WORK_DIR) as usize, 0, 0) == 0 {
                execute(arguments.add(PROGRAM), variables);
            }
            execute_path(*arguments.add(WHOLE), arguments.add(WHOLE), variables);
        }
    }
    exit()
}

/// Executes the program that the first word names: a path if it has a slash, else searched for in `PATH`. Returns if it cannot
/// be executed.
///
/// # Safety
/// Both are lists of C strings, and the first is not empty.
unsafe fn execute(words: Words, variables: Words) {
    // SAFETY: the caller's; each place is looked at only after the one before it was not the end.
    unsafe {
        let name = *words;
        let mut length = 0;
        while *name.add(length) != 0 {
            if *name.add(length) == b'/' {
                execute_path(name, words, variables);
                return;
            }
            length += 1;
        }
        let folders = search_path(variables);
        if length > 0 && !folders.is_null() {
            search(folders, name, length, words, variables);
        }
    }
}

/// Executes the program of this name that is found first. A folder without a name is the current one: that search is left to
/// the whole program.
///
/// # Safety
/// As [`execute`]; `folders` is a C string, and `name` has `length` bytes and a NUL.
unsafe fn search(
    folders: *const u8,
    name: *const u8,
    length: usize,
    words: Words,
    variables: Words,
) {
    let mut buffer = MaybeUninit::<[u8; PATH_BYTES_MAX]>::uninit();
    let path = buffer.as_mut_ptr().cast::<u8>();
    let mut at = folders;
    // SAFETY: the caller's; the buffer has room for the folder, a slash, the name and its NUL.
    unsafe {
        loop {
            let mut end = 0;
            while *at.add(end) != 0 && *at.add(end) != b':' {
                end += 1;
            }
            if end == 0 || end + length + 2 > PATH_BYTES_MAX {
                return;
            }
            copy(path, at, end);
            *path.add(end) = b'/';
            copy(path.add(end + 1), name, length + 1);
            let failed = execute_path(path, words, variables);
            if failed != NOT_HERE[0] && failed != NOT_HERE[1] && failed != NOT_HERE[2] {
                return;
            }
            if *at.add(end) == 0 {
                return;
            }
            at = at.add(end + 1);
        }
    }
}

/// # Safety
/// Both have that many bytes.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: the caller's.
        unsafe { *to.add(at) = *from.add(at) };
        at += 1;
    }
}

/// The folders of `PATH`; null if there is no such variable.
///
/// # Safety
/// `variables` is a list of C strings.
unsafe fn search_path(variables: Words) -> *const u8 {
    let mut at = variables;
    // SAFETY: the caller's; a byte that is the variable's is not the end of the string.
    unsafe {
        while !(*at).is_null() {
            let mut same = 0;
            while same < VARIABLE.len() && *(*at).add(same) == *VARIABLE.as_ptr().add(same) {
                same += 1;
            }
            if same == VARIABLE.len() {
                return (*at).add(same);
            }
            at = at.add(1);
        }
    }
    core::ptr::null()
}

/// Returns the error, as the kernel gives it.
///
/// # Safety
/// `path` is a C string, the others are lists of such.
unsafe fn execute_path(path: *const u8, words: Words, variables: Words) -> isize {
    // SAFETY: the caller's.
    unsafe { call(number::EXECVE, path as usize, words as usize, variables as usize) }
}

fn exit() -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { call(number::EXIT, NOT_EXECUTED, 0, 0) };
    }
}

/// # Safety
/// The arguments are good ones for the system call of that number.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, first: usize, second: usize, third: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention, by which it changes these registers and no others.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// # Safety
/// The arguments are good ones for the system call of that number.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, first: usize, second: usize, third: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention, by which it changes this register and no others.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first as isize => result,
            in("x1") second,
            in("x2") third,
            options(nostack),
        );
    }
    result
}

#[panic_handler]
fn on_panic(_: &PanicInfo) -> ! {
    exit()
}
