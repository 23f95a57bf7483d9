//! The associations as the scheduler is shown them: the tree with raw usage and fair share.

use crate::state::State;
use crate::state::association_tree::AssociationTree;
use crate::state::priority_totals::PriorityTotals;
use model::account::Association;
use model::raw_usage::RawUsage;
use sched::accounting::{Accounting, Enforce, Member};
use sched::order::fair_tree::{self, Branch, BranchRank};
use std::sync::Arc;

impl State {
    pub fn tree(&self) -> Arc<AssociationTree> {
        self.tree.get(|| AssociationTree::of(&self.accounts, &self.associations))
    }

    pub(super) fn priority_totals(&self) -> Arc<PriorityTotals> {
        self.priority_totals
            .get(|| PriorityTotals::of(&self.nodes, &self.partitions, &self.qos, &self.tree()))
    }

    /// The associations as the scheduler is shown them.
    pub fn accounting(&self) -> Arc<Accounting> {
        self.accounting.get(|| {
            let tree = self.tree();
            let parameters = &self.config.parameters;
            let fair_share_ranks = self.fair_share_ranks();
            let raw_usage = self.raw_usage_with_children(&tree);
            let member =
                |((at, (association, parent)), raw_usage): ((usize, &(_, _)), RawUsage)| Member {
                    association: Arc::clone(association),
                    parent: *parent,
                    raw_usage,
                    fair_share: fair_share_ranks[at].fair_share,
                };
            Accounting {
                enforce: Enforce {
                    limits: parameters.enforces_limits(),
                    safe: parameters.enforce_safe,
                },
                members: tree.members.iter().enumerate().zip(raw_usage).map(member).collect(),
                raw_usage_by_qos: self.charged_usage.qos.clone(),
                max_tres: parameters.priority.flags.max_tres,
            }
        })
    }

    /// The raw usage of each association with all below it.
    pub fn raw_usage_with_children(&self, tree: &AssociationTree) -> Vec<RawUsage> {
        let own = |(association, _): &(Arc<Association>, Option<u32>)| {
            self.charged_usage.associations.get(&association.key()).cloned().unwrap_or_default()
        };
        let mut raw_usage: Vec<RawUsage> = tree.members.iter().map(own).collect();
        for at in (1..raw_usage.len()).rev() {
            if let Some(parent) = tree.members[at].1 {
                let (above, below) = raw_usage.split_at_mut(at);
                above[parent as usize].add(&below[0]);
            }
        }
        raw_usage
    }

    /// The rank of each association by its billing at the end of the last period; ranks change only then.
    pub fn fair_share_ranks(&self) -> Arc<Vec<BranchRank>> {
        self.fair_share_ranks.get(|| self.rank(&self.tree()))
    }

    fn rank(&self, tree: &AssociationTree) -> Vec<BranchRank> {
        let billed = |association: &Association| {
            self.charged_usage.ranked.get(&association.key()).copied().unwrap_or(0.0)
        };
        let mut branches: Vec<Branch> = tree
            .members
            .iter()
            .map(|(association, parent)| Branch {
                parent: *parent,
                shares: association.shares,
                is_user: association.user.is_some(),
                usage: billed(association),
            })
            .collect();
        for at in (1..branches.len()).rev() {
            if let Some(parent) = branches[at].parent {
                branches[parent as usize].usage += branches[at].usage;
            }
        }
        fair_tree::rank(&branches)
    }
}
