//! Whole folders of configuration, read from memory.

mod bad_input;
mod documented_keys;
mod gres;
mod lab;
mod nodes;
mod partitions;
mod power;
mod preemption;
mod shapes;
mod tolerated;
mod topology;
mod used_keys;

use std::path::Path;

use super::{Conf, ConfError, MemoryFiles, load_dir};

fn load(files: &[(&str, &str)]) -> Result<Conf, Vec<ConfError>> {
    let memory = files.iter().fold(MemoryFiles::default(), |memory, (name, text)| {
        memory.with(format!("/c/{name}"), *text)
    });
    load_dir(&memory, Path::new("/c"))
}

/// A configuration that must be accepted.
fn accepted(files: &[(&str, &str)]) -> Conf {
    load(files).unwrap_or_else(|errors| panic!("refused: {}", lines(&errors)))
}

/// The errors of a configuration that must be refused, each on its line.
fn refused(files: &[(&str, &str)]) -> String {
    match load(files) {
        Ok(_) => panic!("accepted: {files:?}"),
        Err(errors) => lines(&errors),
    }
}

fn lines(errors: &[ConfError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
