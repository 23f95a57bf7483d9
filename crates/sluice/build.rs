//! Links the program so that it starts fast, as it is every `sbatch` and `squeue`, and notes which commit it is built from.
//!
//! A position-independent program of this size has some 28,000 relocations at each start, which takes half as long as
//! everything else that `sbatch` does. Linked to a fixed address it has none. Stack, heap and libraries are still placed at
//! random.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    println!("cargo:rustc-link-arg-bins=-static-libgcc");
    // Its log of where HEAD was changes with every commit; without a repository there is nothing to note.
    if let (Some(log), Some(commit)) =
        (git(&["rev-parse", "--git-path", "logs/HEAD"]), git(&["rev-parse", "--short=10", "HEAD"]))
    {
        println!("cargo:rerun-if-changed={log}");
        println!("cargo:rustc-env=SLUICE_COMMIT={commit}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
