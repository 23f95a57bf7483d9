//! Which replica gets the next request.

/// Of so many replicas the one with the fewest requests that are not answered yet, and among equals the next one from `turn` on.
/// `outstanding`: the requests of each, and `None` of one that is not to be chosen; nor are those that have `most` already.
pub fn least_busy(
    count: usize,
    outstanding: impl Fn(usize) -> Option<usize>,
    turn: usize,
    most: usize,
) -> Option<usize> {
    let distance = |at: usize| (at + count - turn % count) % count;
    let found = (0..count).filter_map(|at| Some((outstanding(at)?, distance(at), at)));
    found.filter(|(outstanding, ..)| *outstanding < most).min().map(|(.., at)| at)
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
            let of = |at| (!left_out.contains(&at)).then(|| outstanding[at]);
            let found = least_busy(outstanding.len(), of, turn, most);
            assert_eq!(found, chosen, "{outstanding:?} {left_out:?} {turn}");
        }
    }

    #[test]
    fn requests_one_after_another_go_round() {
        let chosen: Vec<_> =
            (0..6).filter_map(|turn| least_busy(3, |_| Some(0), turn, 1)).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }
}
