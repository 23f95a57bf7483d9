//! Random histories: no sequence of commands breaks what must hold, and a replay or a snapshot
//! brings back the same state.

use crate::invariants::{replayed, through_a_snapshot};
use crate::random_history::History;
use crate::random_moves::moves;
use crate::testbed::world;
use proptest::prelude::*;

/// The moves of one history. `PROPTEST_CASES` sets how many histories there are.
const MOVES_MAX: usize = 120;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_random_history_breaks_an_invariant(moves in prop::collection::vec(moves(), 1..MOVES_MAX)) {
        let mut history = History::of(world(3));
        for one in &moves {
            history.make(one);
        }
        through_a_snapshot(&history.world.state);
        replayed(&history.world.events, &history.world.state);
    }
}
