//! Backups: `archive` is the file's format, `write` copies the state of a running server into one, `restore` makes a state
//! folder from one.

pub mod archive;
pub mod restore;
pub mod write;
