//! Shards: shares of a node's GPUs, divided among the GPUs that they are shares of.

use model::cpuset::CpuSet;
use model::node::NodeGres;

use super::number_through;
use crate::conf::gres_conf::GPUS_PER_NODE_MAX;

/// One GPU of a node.
struct Gpu<'a> {
    index: u32,
    file: Option<&'a String>,
    kind: Option<&'a String>,
    cores: Option<&'a CpuSet>,
}

/// Replaces each `shard` entry by one for every GPU that it is on. Those come last, numbered through.
/// An entry whose files are those of no GPU stays as it is.
pub fn divide(entries: Vec<NodeGres>) -> Vec<NodeGres> {
    let Some(gpus) = gpus_to_share(&entries) else { return entries };
    let (mut others, mut shares) = (Vec::new(), Vec::new());
    for entry in &entries {
        let divided = if entry.name == "shard" { shares_of(entry, &gpus) } else { Vec::new() };
        if divided.is_empty() {
            others.push(entry.clone());
        }
        shares.extend(divided);
    }
    number_through(&mut shares);
    others.extend(shares);
    others
}

/// The GPUs one by one; `None` if there are no shards to divide, or more GPUs than any node has: such a
/// configuration is refused, and a list of them could take all memory.
fn gpus_to_share(entries: &[NodeGres]) -> Option<Vec<Gpu<'_>>> {
    let gpus = || entries.iter().filter(|entry| entry.name == "gpu");
    let count = gpus().fold(0u64, |sum, entry| sum.saturating_add(entry.count));
    if count > GPUS_PER_NODE_MAX || !entries.iter().any(|entry| entry.name == "shard") {
        return None;
    }
    let each = gpus().flat_map(|entry| {
        (0u32..).zip(0..entry.count).map(move |(offset, _)| Gpu {
            index: entry.first_index.saturating_add(offset),
            file: entry.files.get(offset as usize),
            kind: entry.kind.as_ref(),
            cores: entry.cores.as_ref(),
        })
    });
    Some(each.collect())
}

/// The shares of an entry on each of its GPUs: on all, or on those whose files it names. Shares that do not
/// divide evenly go to the first GPUs.
fn shares_of(entry: &NodeGres, gpus: &[Gpu]) -> Vec<NodeGres> {
    let is_on = |gpu: &&Gpu| {
        entry.files.is_empty() || gpu.file.is_some_and(|file| entry.files.contains(file))
    };
    let on: Vec<&Gpu> = gpus.iter().filter(is_on).collect();
    let gpu_count = on.len() as u64;
    let share = |(at, gpu): (u64, &Gpu)| NodeGres {
        count: entry.count / gpu_count + u64::from(at < entry.count % gpu_count),
        kind: entry.kind.as_ref().or(gpu.kind).cloned(),
        files: gpu.file.into_iter().cloned().collect(),
        cores: gpu.cores.cloned(),
        share_of: Some(gpu.index),
        ..entry.clone()
    };
    (0..).zip(on).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(kind: &str, first_index: u32, files: &[&str], cores: CpuSet) -> NodeGres {
        NodeGres {
            first_index,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            cores: Some(cores),
            ..NodeGres::plain("gpu", Some(kind), files.len() as u64)
        }
    }

    fn shards(count: u64, files: &[&str]) -> NodeGres {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        NodeGres { files, ..NodeGres::plain("shard", None, count) }
    }

    /// The entries that are shares: (GPU, count, first index, file).
    fn shares(entries: &[NodeGres]) -> Vec<(u32, u64, u32, &str)> {
        let of_gpus = entries.iter().filter_map(|entry| Some((entry.share_of?, entry)));
        let shown = of_gpus.map(|(gpu, entry)| {
            let file = entry.files.first().map_or("", String::as_str);
            (gpu, entry.count, entry.first_index, file)
        });
        shown.collect()
    }

    #[test]
    fn shards_without_files_are_divided_over_all_gpus_and_come_last() {
        let entries = vec![
            shards(8, &[]),
            gpus("a", 0, &["/dev/g0", "/dev/g1"], CpuSet::first(2)),
            gpus("b", 2, &["/dev/g2"], (2..4).collect()),
        ];
        let divided = divide(entries.clone());
        assert_eq!(divided[..2], entries[1..]);
        let expected = [(0, 3, 0, "/dev/g0"), (1, 3, 3, "/dev/g1"), (2, 2, 6, "/dev/g2")];
        assert_eq!(shares(&divided), expected);
        assert_eq!(divided[4].kind.as_deref(), Some("b"));
        assert_eq!(divided[4].cores, Some((2..4).collect()));
    }

    #[test]
    fn shards_with_files_are_on_those_gpus_only() {
        let divided = divide(vec![
            gpus("a", 0, &["/dev/g0", "/dev/g1", "/dev/g2"], CpuSet::new()),
            shards(5, &["/dev/g2", "/dev/g0"]),
            shards(1, &["/dev/g1"]),
        ]);
        let expected = [(0, 3, 0, "/dev/g0"), (2, 2, 3, "/dev/g2"), (1, 1, 5, "/dev/g1")];
        assert_eq!(shares(&divided), expected);
    }

    #[test]
    fn shards_keep_their_own_type_and_whether_they_are_used_up() {
        let own = NodeGres { kind: Some("half".into()), no_consume: true, ..shards(2, &[]) };
        let divided = divide(vec![NodeGres::plain("gpu", Some("a"), 2), own]);
        assert_eq!(shares(&divided), [(0, 1, 0, ""), (1, 1, 1, "")]);
        assert!(divided[1..].iter().all(|share| share.no_consume));
        assert!(divided[1..].iter().all(|share| share.kind.as_deref() == Some("half")));
    }

    #[test]
    fn a_gpu_without_a_share_has_an_entry_of_none() {
        let divided = divide(vec![NodeGres::plain("gpu", None, 3), shards(2, &[])]);
        assert_eq!(shares(&divided), [(0, 1, 0, ""), (1, 1, 1, ""), (2, 0, 2, "")]);
    }

    #[test]
    fn shards_of_no_gpu_stay_as_they_are() {
        let gpu = || gpus("a", 0, &["/dev/g0"], CpuSet::new());
        for entries in [
            vec![shards(4, &[])],
            vec![gpu(), shards(4, &["/dev/other"])],
            vec![gpu()],
            vec![gpu(), NodeGres::plain("mps", None, 100)],
        ] {
            assert_eq!(divide(entries.clone()), entries);
        }
    }

    #[test]
    fn more_gpus_than_a_node_can_have_are_not_listed() {
        let entries = vec![NodeGres::plain("gpu", None, u64::MAX), shards(4, &[])];
        assert_eq!(divide(entries.clone()), entries);
    }
}
