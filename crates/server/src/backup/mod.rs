//! Backups: `archive` is the file's format, `write` copies the state of a running server into one, `restore` makes a state
//! folder from one. `config_secrets` takes the passwords out of the copy of the configuration.

pub mod archive;
mod config_secrets;
pub mod restore;
#[cfg(test)]
mod tests;
pub mod write;
