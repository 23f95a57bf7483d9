//! Compiles the small program that enters a container's working directory (`enter/enter.rs`), which the agent has in itself.
//!
//! It is compiled by a call of the compiler, and not as a crate of the workspace: it has no library, aborts where others
//! unwind, and must be there before the agent is compiled. Where it cannot be made, an empty file says so, and containers are
//! entered by the whole program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "enter/enter.rs";
/// No library, no relocations, nothing that is not used.
const OPTIONS: [&str; 20] = [
    "--crate-type",
    "bin",
    "--crate-name",
    "enter",
    "--edition",
    "2024",
    "-C",
    "opt-level=s",
    "-C",
    "panic=abort",
    "-C",
    "relocation-model=static",
    "-C",
    "target-feature=+crt-static",
    "-C",
    "link-arg=-nostartfiles",
    "-C",
    "link-arg=-nostdlib",
    "-C",
    "strip=symbols",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SOURCE}");
    let folder = env::var_os("OUT_DIR").expect("Cargo says where files are made");
    let program = PathBuf::from(folder).join("enter");
    if let Err(why) = compile(&program) {
        println!("cargo:warning=containers are entered by the whole program: {SOURCE}: {why}");
        fs::write(&program, "").expect("Cargo's own folder can be written to");
    }
}

fn compile(program: &Path) -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).ok_or(format!("{name} is not set"));
    let mut command = Command::new(variable("RUSTC")?);
    command.args(OPTIONS).arg("--target").arg(variable("TARGET")?);
    if let Ok(linker) = variable("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    let said = command.arg("-o").arg(program).arg(SOURCE).output().map_err(|e| e.to_string())?;
    if said.status.success() {
        let file = fs::read(program).map_err(|e| e.to_string())?;
        return if is_static(&file) { Ok(()) } else { Err("it was not linked statically".into()) };
    }
    let errors = String::from_utf8_lossy(&said.stderr);
    let first = errors.lines().find(|line| line.starts_with("error"));
    Err(first.unwrap_or("the compiler failed").to_owned())
}

/// The kind of an ELF file that is started at fixed addresses.
const EXECUTABLE: usize = 2;
/// The parts of one that needs a loader: what is to be linked at its start, and the loader's path.
const NEEDS_LOADER: [usize; 2] = [2, 3];

/// Whether the program starts without a loader. A linker of another kind may not take the options as they are meant, and no
/// image has its loader for sure: no task would start.
fn is_static(file: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)))
    };
    let parts = || -> Option<Vec<usize>> {
        let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|index| number(first.checked_add(index * size)?, 4)).collect()
    };
    let is_fixed = file.starts_with(b"\x7fELF\x02\x01") && number(16, 2) == Some(EXECUTABLE);
    is_fixed && parts().is_some_and(|parts| !parts.iter().any(|part| NEEDS_LOADER.contains(part)))
}
