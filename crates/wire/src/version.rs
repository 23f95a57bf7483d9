//! The protocol's version, and which neighbours it works with.

/// The version that this program speaks.
pub const PROTOCOL: u32 = 1;

/// The oldest that it still answers: one release apart.
pub const PROTOCOL_OLDEST: u32 = 1;

/// Whether two sides, each naming its own version, work together.
pub fn compatible(theirs: u32) -> bool {
    (PROTOCOL_OLDEST..=PROTOCOL + 1).contains(&theirs)
}
