//! Terms of servers. Each start of a server has the next one; orders of an older term are refused.
//!
//! The upper half of a term is its epoch. A state that was restored from a backup begins a new one, at the time of the
//! restore: it is beyond every term that an agent has seen, however often the lost server had started, and beyond that of
//! every restore before it.

use model::time::Timestamp;

const EPOCH_SHIFT: u32 = 32;

pub fn epoch(term: u64) -> u64 {
    term >> EPOCH_SHIFT
}

/// The term of a state that ends at `term` and is restored now.
pub fn of_restored(term: u64, now: Timestamp) -> u64 {
    let seconds = u64::try_from(now.secs()).unwrap_or(0);
    seconds.max(epoch(term) + 1) << EPOCH_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_state_has_a_term_beyond_all_before() {
        let (early, late) = (Timestamp(1_000_000_000), Timestamp(1_001_000_000));
        let first = of_restored(17, early);
        assert!(first > u64::from(u32::MAX) && epoch(first) == 1_000_000);
        // The same backup, restored a second time, after many starts of the first restore's server.
        assert!(of_restored(17, late) > first + 100_000);
        // A clock that went back.
        assert!(of_restored(first + 3, Timestamp(5_000)) > first + 100_000);
    }
}
