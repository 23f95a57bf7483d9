//! How tables are laid out: [`cell`] cuts and pads a text; [`format`] is for `squeue`, `sinfo` and `sprio`, with [`sort_keys`] for
//! their order; [`field_table`] is for `sacct`, `sacctmgr`, `sshare` and `sstat`.

pub mod cell;
pub mod field_table;
pub mod format;
pub mod sort_keys;
