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
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&said.stderr);
    let first = errors.lines().find(|line| line.starts_with("error"));
    Err(first.unwrap_or("the compiler failed").to_owned())
}
