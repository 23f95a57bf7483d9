//! How tables are laid out: [`cell`] cuts and pads a text, [`format`] is the tables of `squeue`, `sinfo` and `sprio`, and
//! [`field_table`] those of `sacct`, `sacctmgr`, `sshare` and `sstat`.

pub mod cell;
pub mod field_table;
pub mod format;
