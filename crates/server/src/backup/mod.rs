//! Backups: `archive` is the file's format, `write` copies the state of a running server into one, `restore` makes a state
//! folder from one, `restored_database` goes on from a dump of the database that was restored; `new_epoch` is what both add to the history.
//! `config_secrets` takes the passwords out of the copy of the configuration.

pub mod archive;
mod config_secrets;
pub mod new_epoch;
pub mod restore;
pub mod restored_database;
#[cfg(test)]
mod tests;
pub mod write;
