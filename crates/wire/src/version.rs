//! The protocol's version, and which neighbours it works with.

/// The version that this program speaks.
pub const PROTOCOL: u32 = 1;

/// The oldest version that it still answers: one release apart.
pub const PROTOCOL_OLDEST: u32 = 1;

/// Whether two sides, each naming its own version, work together.
pub fn compatible(theirs: u32) -> bool {
    (PROTOCOL_OLDEST..=PROTOCOL + 1).contains(&theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_versions_work_together_and_no_others_do() {
        assert!(compatible(PROTOCOL) && compatible(PROTOCOL_OLDEST));
        assert!(compatible(PROTOCOL + 1), "the next release answers this one");
        assert!(!compatible(PROTOCOL + 2) && !compatible(PROTOCOL_OLDEST - 1));
    }
}
