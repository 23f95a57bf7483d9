//! The name that the program was called by, with which its lines on standard error begin.

use std::sync::OnceLock;

/// The name of the program, and the one that a link for people who know dstack gives it.
const OWN: &str = "sluice";
const LINK: &str = "dstack";

static CALLED: OnceLock<&'static str> = OnceLock::new();

/// Notes the last part of the path that the program was called by; any other name than the link's counts as the program's own.
pub fn note(name: &str) -> &'static str {
    CALLED.get_or_init(|| if name == LINK { LINK } else { OWN })
}

/// `dstack` under that link, else `sluice`.
pub fn program_name() -> &'static str {
    CALLED.get().copied().unwrap_or(OWN)
}
