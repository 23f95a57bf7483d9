//! What the grammars promise of every input: what is written is read back, and a set is a set.

use model::array::IndexSet;
use model::hostlist;
use model::time::{TimeLimit, format_limit, format_limit_full, parse_time_limit};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn host_name() -> impl Strategy<Value = String> {
    // Short numbers on few prefixes, so that neighbours, repeats and mixed widths are common.
    prop_oneof!["(node|n0|r1n)[0-9]{1,3}", "[a-c]{1,3}(-ib)?", "gpu[0-9]{1,2}-ib", "x[0-9]{17,21}"]
}

#[derive(Debug, Clone)]
enum Change {
    Insert(u32, u32),
    Remove(u32, u32),
}

fn change() -> impl Strategy<Value = Change> {
    let span = (0u32..200, 0u32..20);
    prop_oneof![
        span.clone().prop_map(|(first, more)| Change::Insert(first, first + more)),
        span.prop_map(|(first, more)| Change::Remove(first, first + more)),
    ]
}

proptest! {
    #[test]
    fn a_compressed_list_expands_to_the_same_names(names in prop::collection::vec(host_name(), 0..60)) {
        let list = hostlist::compress(&names);
        prop_assert_eq!(hostlist::expand(&list), Ok(names));
    }

    #[test]
    fn a_sorted_list_expands_to_the_same_set(names in prop::collection::vec(host_name(), 0..60)) {
        let expanded = hostlist::expand(&hostlist::compress_sorted(&names)).expect("our own list");
        let set: BTreeSet<String> = names.into_iter().collect();
        prop_assert_eq!(expanded.len(), set.len());
        prop_assert_eq!(expanded.into_iter().collect::<BTreeSet<_>>(), set);
    }

    #[test]
    fn no_text_upsets_the_host_list(list in "[a-b0-2,\\[\\]\\- ]{0,24}") {
        if let Ok(names) = hostlist::expand(&list) {
            prop_assert_eq!(hostlist::expand(&hostlist::compress(&names)), Ok(names));
        }
    }

    #[test]
    fn an_index_set_is_a_set(changes in prop::collection::vec(change(), 0..40)) {
        let (mut set, mut plain) = (IndexSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Insert(first, last) => {
                    set.insert_range(first, last);
                    plain.extend(first..=last);
                }
                Change::Remove(first, last) => {
                    set.remove_range(first, last);
                    plain.retain(|index| !(first..=last).contains(index));
                }
            }
        }
        prop_assert_eq!(set.len(), plain.len() as u64);
        prop_assert_eq!((set.first(), set.last()), (plain.first().copied(), plain.last().copied()));
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), plain.clone());
        prop_assert!((0..230).all(|index| set.contains(index) == plain.contains(&index)));
        let ranges: Vec<(u32, u32)> = set.ranges().collect();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "ranges touch: {:?}", ranges);
        if !set.is_empty() {
            prop_assert_eq!(IndexSet::parse(&set.to_string(), 1_000), Ok(set.clone()));
        }
    }

    #[test]
    fn union_difference_and_intersection_agree_with_a_plain_set(
        a in prop::collection::btree_set(0u32..100, 0..50),
        b in prop::collection::btree_set(0u32..100, 0..50),
    ) {
        let set = |plain: &BTreeSet<u32>| plain.iter().copied().collect::<IndexSet>();
        prop_assert_eq!(set(&a).union(&set(&b)), set(&(&a | &b)));
        prop_assert_eq!(set(&a).difference(&set(&b)), set(&(&a - &b)));
        prop_assert_eq!(set(&a).intersection(&set(&b)), set(&(&a & &b)));
    }

    #[test]
    fn a_time_limit_is_read_back(minutes in any::<u32>()) {
        let limit = TimeLimit::Minutes(minutes);
        prop_assert_eq!(parse_time_limit(&format_limit(limit)), Ok(limit));
        prop_assert_eq!(parse_time_limit(&format_limit_full(limit)), Ok(limit));
    }
}
