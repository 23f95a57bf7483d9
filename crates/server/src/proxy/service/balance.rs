//! Which replica gets the next request.

/// The replica with the fewest requests that are not answered yet, and among equals the next one from `turn` on. Those in `left_out`
/// are not chosen, which are in order, nor those that have `most` already.
pub fn least_busy(
    outstanding: &[usize],
    left_out: &[usize],
    turn: usize,
    most: usize,
) -> Option<usize> {
    let count = outstanding.len();
    let distance = |at: usize| (at + count - turn % count) % count;
    let is_open = |at: &usize| left_out.binary_search(at).is_err() && outstanding[*at] < most;
    (0..count).filter(is_open).min_by_key(|at| (outstanding[*at], distance(*at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_busy_replica_is_chosen_and_equals_take_turns() {
        type Row<'t> = (&'t [usize], &'t [usize], usize, Option<usize>);
        let most = 10;
        let table: [Row<'_>; 11] = [
            (&[], &[], 3, None),
            (&[0], &[], 7, Some(0)),
            (&[2, 0, 1], &[], 0, Some(1)),
            (&[1, 1, 1], &[], 0, Some(0)),
            (&[1, 1, 1], &[], 1, Some(1)),
            (&[1, 1, 1], &[], 5, Some(2)),
            (&[1, 1, 1], &[1], 1, Some(2)),
            (&[2, 0, 1], &[1], 0, Some(2)),
            (&[0, 0], &[0, 1], 0, None),
            (&[10, 10], &[], 0, None),
            (&[10, 9], &[], 0, Some(1)),
        ];
        for (outstanding, left_out, turn, chosen) in table {
            let found = least_busy(outstanding, left_out, turn, most);
            assert_eq!(found, chosen, "{outstanding:?} {left_out:?} {turn}");
        }
    }

    #[test]
    fn requests_one_after_another_go_round() {
        let chosen: Vec<_> = (0..6).filter_map(|turn| least_busy(&[0; 3], &[], turn, 1)).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }
}
