//! The program: `sluice`, and by links every Slurm command.
//!
//! - `command/`: the commands and verbs
//! - `client/`: the HTTP client with which they ask the server
//! - `printing`: standard output and standard error of all of them

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[macro_use]
mod printing;

mod client;
mod command;

use std::process::ExitCode;

/// The release, and the commit where the build knew it.
fn version() -> String {
    match option_env!("SLUICE_COMMIT") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn main() -> ExitCode {
    wire::version::set_program(version());
    let mut args = std::env::args_os().map(model::os_text::from_os);
    let called_as = args.next().unwrap_or_default();
    let name = called_as.rsplit('/').next().unwrap_or_default().to_string();
    let args: Vec<String> = args.collect();
    printing::run(|| command::run(&name, args))
}
