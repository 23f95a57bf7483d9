//! `PATH` of programs that are run for nobody's shell.

/// The machine's own folders and no user's: most of these programs run as root.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
