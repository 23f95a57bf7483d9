//! Fair tree: users are ranked level by level, by the shares of each branch over its usage.
//!
//! At each level an association's *level fair share* is its part of the shares over its part of the usage. Siblings are
//! visited from the highest to the lowest, accounts with all below them; a user's rank in that walk, over the count of
//! users, is its fair share. Equals share a rank, and accounts that are equal are walked as one.

use model::account::Shares;

/// An association, as far as it matters for the ranking. Parents come before their children.
#[derive(Debug, Clone, Copy)]
pub struct Branch {
    pub parent: Option<u32>,
    pub shares: Shares,
    pub is_user: bool,
    /// The usage of the association and all below it.
    pub usage: f64,
}

/// The rank of an association.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BranchRank {
    /// Its part of the shares of its level.
    pub shares: f64,
    /// Its part of the usage of its level.
    pub usage: f64,
    /// The shares over the usage; infinite without usage.
    pub level: f64,
    /// From 0 to 1; for users only.
    pub fair_share: Option<f64>,
}

/// The rank of each branch, in the same order.
pub fn rank(branches: &[Branch]) -> Vec<BranchRank> {
    let mut ranking = Ranking {
        branches,
        children: children(branches),
        ranks: vec![BranchRank::default(); branches.len()],
        users: branches.iter().filter(|branch| branch.is_user).count() as u64,
    };
    if let Some(root) = ranking.ranks.first_mut() {
        root.usage = 1.0;
    }
    for at in 0..branches.len() {
        ranking.level(at);
    }
    let mut left = ranking.users;
    if !branches.is_empty() {
        ranking.walk(vec![0], &mut left);
    }
    ranking.ranks
}

struct Ranking<'a> {
    branches: &'a [Branch],
    children: Vec<Vec<usize>>,
    ranks: Vec<BranchRank>,
    users: u64,
}

/// The children of each branch. The children of an account with its parent's shares count as the parent's.
fn children(branches: &[Branch]) -> Vec<Vec<usize>> {
    let mut above: Vec<Option<usize>> = Vec::with_capacity(branches.len());
    let mut children = vec![Vec::new(); branches.len()];
    for (at, branch) in branches.iter().enumerate() {
        let parent = branch.parent.map(|parent| parent as usize).filter(|parent| *parent < at);
        let transparent =
            |of: usize| matches!(branches[of].shares, Shares::Parent(_)) && above[of].is_some();
        let found = parent.map(|parent| match above[parent] {
            Some(higher) if transparent(parent) => higher,
            _ => parent,
        });
        if let Some(parent) = found {
            children[parent].push(at);
        }
        above.push(found);
    }
    children
}

impl Ranking<'_> {
    /// Divides shares and usage among the children of one branch.
    fn level(&mut self, parent: usize) {
        let children = std::mem::take(&mut self.children[parent]);
        let count = |at: &usize| match self.branches[*at].shares {
            Shares::Count(count) => f64::from(count),
            Shares::Parent(_) => 0.0,
        };
        let shares: f64 = children.iter().map(count).sum();
        let usage: f64 = children.iter().map(|at| self.branches[*at].usage).sum();
        for at in &children {
            let own = match self.branches[*at].shares {
                Shares::Parent(_) => self.ranks[parent].shares,
                Shares::Count(count) if shares > 0.0 => f64::from(count) / shares,
                Shares::Count(_) => 0.0,
            };
            let used = if usage > 0.0 { self.branches[*at].usage / usage } else { 0.0 };
            let level = match self.branches[*at].shares {
                // An association without shares of its own ranks before all that have used anything.
                Shares::Parent(_) => f64::INFINITY,
                Shares::Count(0) => 0.0,
                Shares::Count(_) if used == 0.0 => f64::INFINITY,
                Shares::Count(_) => own / used,
            };
            self.ranks[*at] = BranchRank { shares: own, usage: used, level, fair_share: None };
        }
        self.children[parent] = children;
    }

    /// Ranks everything below these accounts, which are taken as one.
    fn walk(&mut self, accounts: Vec<usize>, left: &mut u64) {
        let mut level: Vec<usize> =
            accounts.iter().flat_map(|at| self.children[*at].iter().copied()).collect();
        level.sort_by(|a, b| {
            let (a_level, b_level) = (self.ranks[*a].level, self.ranks[*b].level);
            b_level.total_cmp(&a_level).then(a.cmp(b))
        });
        let mut rest = level.as_slice();
        while let Some(first) = rest.first() {
            let height = self.ranks[*first].level;
            let equal = rest.iter().take_while(|at| self.ranks[**at].level == height).count();
            let (group, after) = rest.split_at(equal);
            rest = after;
            let (users, accounts): (Vec<usize>, Vec<usize>) =
                group.iter().partition(|at| self.branches[**at].is_user);
            let rank = *left as f64 / self.users as f64;
            for user in &users {
                self.ranks[*user].fair_share = Some(rank);
            }
            // An equal account's best user has the same rank, so the walk below begins with it.
            if !accounts.is_empty() {
                self.walk(accounts, left);
            }
            *left = left.saturating_sub(users.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(parent: u32, shares: u32, usage: f64) -> Branch {
        Branch { parent: Some(parent), shares: Shares::Count(shares), is_user: false, usage }
    }

    fn user(parent: u32, shares: u32, usage: f64) -> Branch {
        Branch { is_user: true, ..account(parent, shares, usage) }
    }

    const ROOT: Branch =
        Branch { parent: None, shares: Shares::Count(1), is_user: false, usage: 0.0 };

    fn check(tree: &[Branch], expected: &[(&str, &str, &str, &str)]) {
        let shown = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
        let found: Vec<[String; 4]> = rank(tree)
            .iter()
            .map(|s| [Some(s.shares), Some(s.usage), Some(s.level), s.fair_share].map(shown))
            .collect();
        let expected: Vec<[String; 4]> =
            expected.iter().map(|row| [row.0, row.1, row.2, row.3].map(str::to_owned)).collect();
        for (found, expected) in found[1..].iter().zip(&expected) {
            // A level is as exact as the usage that the capture shows.
            assert!(found[2].starts_with(&expected[2]), "{found:?} {expected:?}");
            assert_eq!((&found[..2], &found[3]), (&expected[..2], &expected[3]));
        }
        assert_eq!(found.len(), expected.len() + 1);
    }

    /// `sshare -a -l` of a real Slurm: root 1, chem 5 (bob), physics 10 (alice), of 16 shares.
    #[test]
    fn the_captured_cluster_is_ranked_as_slurm_ranked_it() {
        let tree = [
            Branch { usage: 811.6899, ..ROOT },
            user(0, 1, 0.0),
            account(0, 5, 21.991_884),
            user(2, 1, 21.991_884),
            account(0, 10, 789.698),
            user(4, 1, 789.698),
        ];
        let expected = [
            ("0.062500", "0.000000", "inf", "1.000000"),
            // 5/16 over 21.99/811.69
            ("0.312500", "0.027094", "11.533941", ""),
            ("1.000000", "1.000000", "1.000000", "0.666667"),
            // 10/16 over 789.70/811.69
            ("0.625000", "0.972906", "0.642405", ""),
            ("1.000000", "1.000000", "1.000000", "0.333333"),
        ];
        check(&tree, &expected);
    }

    /// Another capture: accounts three deep, users with an association for each partition, one with its parent's shares.
    #[test]
    fn a_deep_tree_is_ranked_as_slurm_ranked_it() {
        let tree = [
            Branch { usage: 1614.977, ..ROOT },
            user(0, 1, 75.986),
            account(0, 1, 0.0),
            account(0, 1, 540.0),
            user(3, 1, 540.0),
            account(0, 3, 998.991),
            user(5, 1, 60.0),
            user(5, 9, 120.0),
            user(5, 2, 0.0),
            Branch { shares: Shares::PARENT, ..user(5, 1, 240.0) },
            account(5, 1, 578.991),
            user(10, 1, 518.991),
            account(10, 7, 60.0),
            user(12, 2, 60.0),
        ];
        let expected = [
            ("0.166667", "0.047051", "3.542", "1.000000"),
            ("0.166667", "0.000000", "inf", ""),
            ("0.166667", "0.334370", "0.4984", ""),
            ("1.000000", "1.000000", "1.000000", "0.125000"),
            ("0.500000", "0.618579", "0.808", ""),
            ("0.076923", "0.060061", "1.2807", "0.500000"),
            ("0.692308", "0.120121", "5.7634", "0.625000"),
            ("0.153846", "0.000000", "inf", "0.875000"),
            ("0.500000", "0.240242", "inf", "0.875000"),
            ("0.076923", "0.579576", "0.1327", ""),
            ("0.125000", "0.896371", "0.1394", "0.250000"),
            ("0.875000", "0.103629", "8.443", ""),
            ("1.000000", "1.000000", "1.000000", "0.375000"),
        ];
        check(&tree, &expected);
    }

    /// Users of a higher account are all before those of a lower one, whatever they used themselves.
    #[test]
    fn users_of_a_higher_account_rank_before_those_of_a_lower_one() {
        let tree = [
            Branch { usage: 100.0, ..ROOT },
            account(0, 1, 20.0),
            user(1, 1, 20.0),
            user(1, 1, 0.0),
            account(0, 1, 80.0),
            user(4, 1, 0.0),
            user(4, 9, 80.0),
        ];
        let fair: Vec<_> = rank(&tree).iter().filter_map(|s| s.fair_share).collect();
        // Account 1 has half the shares for a fifth of the usage: its users come first.
        assert_eq!(fair, [0.75, 1.0, 0.5, 0.25]);
    }

    #[test]
    fn equal_users_share_a_rank_and_equal_accounts_are_ranked_as_one() {
        let tree = [
            Branch { usage: 40.0, ..ROOT },
            account(0, 1, 20.0),
            user(1, 1, 5.0),
            user(1, 1, 15.0),
            account(0, 1, 20.0),
            user(4, 1, 5.0),
            user(4, 1, 15.0),
            user(0, 0, 0.0),
        ];
        let fair: Vec<_> = rank(&tree).iter().filter_map(|s| s.fair_share).collect();
        // The level of both accounts is 1/3 over 1/2 … equal; of their users 2, 2/3, 2, 2/3.
        assert_eq!(fair, [1.0, 0.6, 1.0, 0.6, 0.2]);
    }
}
