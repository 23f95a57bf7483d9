//! The view as it would be if nodes came or went: the same scheduler plans on it.

use crate::view::{Availability, NodeInfo, NodeUse, PartitionInfo, View};
use model::node::NodeConfig;
use std::sync::Arc;

/// Nodes that come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChanges {
    /// How many nodes come, and the node that they are like, in the same partitions.
    pub added: Vec<(u32, String)>,
    /// Jobs on these run to their ends, and nothing more starts there.
    pub removed: Vec<String>,
}

/// The view with these changes; the name of a node that is not in it is the error.
pub fn with_changed_nodes(view: &View, changes: &NodeChanges) -> Result<View, String> {
    let position = |name: &String| {
        let at = view.nodes.iter().position(|node| node.config.name == *name);
        at.ok_or_else(|| name.clone())
    };
    let mut changed = view.clone();
    for name in &changes.removed {
        Arc::make_mut(&mut changed.nodes[position(name)?]).availability = Availability::Drained;
    }
    for (count, like) in &changes.added {
        let at = position(like)?;
        let has_it = |info: &PartitionInfo| info.nodes.contains(&(at as u32));
        let same: Vec<bool> = view.partitions.iter().map(has_it).collect();
        for number in 1..=*count {
            // No node has such a name: it is not one of a host.
            let name = format!("{like}+{number}");
            let config = NodeConfig { name, ..(*view.nodes[at].config).clone() };
            let added = changed.nodes.len() as u32;
            changed.nodes.push(Arc::new(NodeInfo {
                config: Arc::new(config),
                availability: Availability::Available,
                used: NodeUse::default(),
            }));
            let partitions = changed.partitions.iter_mut().zip(&same).filter(|(_, same)| **same);
            partitions.for_each(|(partition, _)| partition.nodes.push(added));
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{Memo, estimates};

    /// The minutes until each job starts, by job.
    fn starts(view: &View) -> Vec<(u32, i64)> {
        let of = |estimate: crate::view::Estimate| {
            (estimate.job.0, (estimate.start.secs() - NOW.secs()) / 60)
        };
        let mut starts: Vec<_> =
            estimates(view, NOW, &mut Memo::default()).into_iter().map(of).collect();
        starts.sort_unstable();
        starts
    }

    /// Two nodes, both busy for an hour, and two jobs of an hour that want one each; a third waits behind them.
    #[test]
    fn jobs_start_earlier_with_more_nodes_and_later_with_fewer() {
        let whole = |id: u32| job(id).cpus(32);
        let mut view = cluster(gpu_nodes(2)).with_jobs([whole(1), whole(2)]);
        let plan = view.plan();
        view.carry_out(&plan);
        let view = view.with_jobs([whole(3), whole(4), whole(5)]);
        assert_eq!(starts(&view), [(3, 60), (4, 60), (5, 120)]);
        let with = |added: &[(u32, String)], removed: &[String]| {
            let changes = NodeChanges { added: added.to_vec(), removed: removed.to_vec() };
            with_changed_nodes(&view, &changes).map(|changed| starts(&changed))
        };
        let like = |count| [(count, "node1".to_string())];
        assert_eq!(with(&like(1), &[]), Ok(vec![(3, 0), (4, 60), (5, 60)]));
        assert_eq!(with(&like(3), &[]), Ok(vec![(3, 0), (4, 0), (5, 0)]));
        let node2 = ["node2".to_string()];
        assert_eq!(with(&[], &node2), Ok(vec![(3, 60), (4, 120), (5, 180)]));
        assert_eq!(with(&[], &["none".to_string()]), Err("none".to_string()));
        assert_eq!(with(&[(1, "none".to_string())], &[]), Err("none".to_string()));
    }
}
