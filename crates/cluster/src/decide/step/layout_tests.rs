//! Rank by rank what a real Slurm 22.05 answered, in allocations of four nodes.

use super::*;

const BLOCK: TaskDistribution = TaskDistribution::Block;
const CYCLIC: TaskDistribution = TaskDistribution::Cyclic;

fn plane(size: u32) -> TaskDistribution {
    TaskDistribution::Plane(size)
}

/// The node of each rank, counted from 1, as it was dumped.
fn shown(slots: &[u32], tasks: u32, how: LayoutPolicy) -> String {
    let Some(nodes) = lay_out(slots, tasks, how) else { return "refused".into() };
    let mut places: Vec<(u32, usize)> = Vec::new();
    for (index, ranks) in nodes.iter().enumerate() {
        places.extend(ranks.iter().map(|rank| (*rank, index + 1)));
    }
    places.sort_unstable();
    assert!(places.iter().enumerate().all(|(at, (rank, _))| at as u32 == *rank), "{places:?}");
    places.iter().map(|(_, node)| node.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn tasks_are_laid_out_as_slurm_does() {
    let table: [(&[u32], u32, TaskDistribution, bool, &str); 32] = [
        (&[4; 4], 16, BLOCK, false, "1 1 1 1 2 2 2 2 3 3 3 3 4 4 4 4"),
        (&[4; 4], 8, BLOCK, false, "1 1 2 2 3 3 4 4"),
        (&[4; 3], 7, BLOCK, false, "1 1 1 2 2 3 3"),
        (&[4; 2], 8, BLOCK, false, "1 1 1 1 2 2 2 2"),
        (&[4; 4], 9, BLOCK, false, "1 1 1 2 2 3 3 4 4"),
        (&[4; 4], 10, BLOCK, false, "1 1 1 2 2 2 3 3 4 4"),
        (&[4; 4], 14, BLOCK, false, "1 1 1 1 2 2 2 2 3 3 3 4 4 4"),
        (&[4; 4], 5, BLOCK, false, "1 1 2 3 4"),
        (&[2; 4], 6, BLOCK, false, "1 1 2 2 3 4"),
        (&[4; 4], 17, BLOCK, false, "refused"),
        (&[4; 4], 8, CYCLIC, false, "1 2 3 4 1 2 3 4"),
        (&[4; 4], 5, CYCLIC, false, "1 2 3 4 1"),
        (&[4; 4], 10, CYCLIC, false, "1 2 3 4 1 2 3 4 1 2"),
        (&[4; 4], 8, plane(2), false, "1 1 2 2 3 3 4 4"),
        (&[4; 3], 9, plane(2), false, "1 1 2 2 3 3 1 1 2"),
        (&[4; 4], 8, plane(3), false, "1 1 1 2 2 2 3 4"),
        (&[4; 4], 16, plane(3), false, "1 1 1 2 2 2 3 3 3 4 4 4 1 2 3 4"),
        (&[4; 4], 11, plane(4), false, "1 1 1 1 2 2 2 2 3 3 4"),
        (&[4; 4], 6, plane(4), false, "1 1 1 2 3 4"),
        (&[13, 1, 1, 1], 8, BLOCK, false, "1 1 1 1 1 2 3 4"),
        (&[13, 1], 8, BLOCK, false, "1 1 1 1 1 1 1 2"),
        (&[13, 1, 1, 1], 8, CYCLIC, false, "1 2 3 4 1 1 1 1"),
        (&[13, 1, 1, 1], 8, plane(2), false, "1 1 2 3 4 1 1 1"),
        (&[13, 1, 1], 9, plane(2), false, "1 1 2 3 1 1 1 1 1"),
        (&[13, 1, 1, 1], 8, plane(3), false, "1 1 1 2 3 4 1 1"),
        (&[13, 1, 1, 1], 6, CYCLIC, false, "1 2 3 4 1 1"),
        (&[13, 1, 1, 1], 17, BLOCK, false, "refused"),
        (&[4; 2], 6, BLOCK, true, "1 1 1 1 2 2"),
        (&[4; 2], 6, CYCLIC, true, "1 2 1 2 1 2"),
        (&[4; 3], 9, BLOCK, true, "1 1 1 1 2 2 2 2 3"),
        (&[4; 4], 5, BLOCK, true, "1 1 2 3 4"),
        (&[13, 1], 6, BLOCK, true, "1 1 1 1 1 2"),
    ];
    for (slots, tasks, distribution, pack, expected) in table {
        let how = LayoutPolicy { distribution, pack, overcommit: false };
        assert_eq!(shown(slots, tasks, how), expected, "{tasks} of {slots:?} by {distribution:?}");
    }
}

#[test]
fn overcommitted_tasks_go_round_robin() {
    let how = LayoutPolicy { distribution: BLOCK, pack: false, overcommit: true };
    let counts = |slots: &[u32], tasks| -> Vec<usize> {
        lay_out(slots, tasks, how).expect("overcommitted").iter().map(Vec::len).collect()
    };
    assert_eq!(counts(&[13, 1, 1, 1], 40), [19, 7, 7, 7]);
    assert_eq!(counts(&[4, 4, 4, 4], 40), [10, 10, 10, 10]);
    assert_eq!(counts(&[4, 4, 4, 4], 17), [5, 4, 4, 4]);
    assert_eq!(counts(&[4, 4], 18), [9, 9]);
}

#[test]
fn arbitrary_distribution_follows_the_named_hosts() {
    assert_eq!(arbitrary(&[1, 0, 1], 2), [vec![1], vec![0, 2]]);
}
