//! The associations as a tree, and the scheduler's view of them with what each has spent.

use crate::state::State;
use model::account::{Association, AssociationKey, ROOT_ACCOUNT};
use model::raw_usage::RawUsage;
use sched::accounting::{Accounting, Enforce, Member};
use sched::order::fair_tree::{self, Branch, BranchRank};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The associations of each user, with the partition that each is for.
type ByUser = HashMap<String, Vec<(Option<String>, u32)>>;

/// Every association, parents before children: an account's users first, then the accounts below it.
#[derive(Debug, Default)]
pub struct Tree {
    pub members: Vec<(Arc<Association>, Option<u32>)>,
    accounts: HashMap<String, u32>,
    /// By account and user, with the partition it is for.
    users: HashMap<String, ByUser>,
}

impl Tree {
    fn of(state: &State) -> Self {
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for account in state.accounts.values().filter(|account| account.name != ROOT_ACCOUNT) {
            let parent = account.parent.as_deref().unwrap_or(ROOT_ACCOUNT);
            below.entry(parent).or_default().push(&account.name);
        }
        let mut of_account: BTreeMap<&str, Vec<&Association>> = BTreeMap::new();
        for association in &state.associations {
            of_account.entry(&association.account).or_default().push(association);
        }
        let mut tree = Tree::default();
        // The accounts of one parent are taken from the end of the stack.
        let mut stack: Vec<(&str, Option<u32>)> = vec![(ROOT_ACCOUNT, None)];
        while let Some((name, parent)) = stack.pop() {
            if tree.accounts.contains_key(name) {
                continue;
            }
            let known = of_account.remove(name).unwrap_or_default();
            let at = tree.add_account(name, parent, &known);
            let children = below.get(name).into_iter().flatten().rev();
            stack.extend(children.map(|child| (*child, Some(at))));
        }
        tree
    }

    fn add_account(&mut self, name: &str, parent: Option<u32>, known: &[&Association]) -> u32 {
        let at = self.members.len() as u32;
        let own = known.iter().find(|a| a.user.is_none());
        let own = own.map_or_else(|| Association::plain(name, None), |own| (*own).clone());
        self.members.push((Arc::new(own), parent));
        self.accounts.insert(name.to_owned(), at);
        let mut users: Vec<&&Association> = known.iter().filter(|a| a.user.is_some()).collect();
        // As Slurm lists them: those for a partition before the one for all.
        let order = |a: &Association| (a.user.clone(), a.partition.is_none(), a.partition.clone());
        users.sort_by_key(|a| order(a));
        for association in users {
            let index = self.members.len() as u32;
            let user = association.user.clone().unwrap_or_default();
            let of_account = self.users.entry(name.to_owned()).or_default();
            of_account.entry(user).or_default().push((association.partition.clone(), index));
            self.members.push((Arc::new((*association).clone()), Some(at)));
        }
        at
    }

    /// Who a job is charged to: the user's association for the partition, the user's own, the account's.
    pub fn find(&self, account: &str, user: &str, partition: Option<&str>) -> Option<u32> {
        self.find_user(account, user, partition).or_else(|| self.accounts.get(account).copied())
    }

    /// As [`Tree::find`], where the user must have one.
    pub fn find_user(&self, account: &str, user: &str, partition: Option<&str>) -> Option<u32> {
        let own = self.users.get(account)?.get(user)?;
        let of = |wanted: Option<&str>| own.iter().find(|(p, _)| p.as_deref() == wanted);
        partition.and_then(|name| of(Some(name))).or_else(|| of(None)).map(|(_, at)| *at)
    }

    pub fn key(&self, at: u32) -> AssociationKey {
        self.members[at as usize].0.key()
    }

    /// The association and those above it.
    pub fn chain(&self, at: u32) -> impl Iterator<Item = &Association> {
        self.places(at).map(|(_, association)| association)
    }

    /// As [`Tree::chain`], with their places in the tree.
    pub fn places(&self, at: u32) -> impl Iterator<Item = (u32, &Association)> {
        let mut next = Some(at);
        std::iter::from_fn(move || {
            let at = next?;
            let (association, parent) = self.members.get(at as usize)?;
            next = *parent;
            Some((at, &**association))
        })
    }

    /// The value of the nearest that says one.
    pub fn nearest<T>(&self, at: u32, get: impl Fn(&Association) -> Option<T>) -> Option<T> {
        self.chain(at).find_map(get)
    }
}

impl State {
    pub fn tree(&self) -> Arc<Tree> {
        self.tree.get(|| Tree::of(self))
    }

    /// The associations as the scheduler is shown them.
    pub fn accounting(&self) -> Arc<Accounting> {
        self.accounting.get(|| {
            let tree = self.tree();
            let parameters = &self.config.parameters;
            let standings = self.standings();
            let raw_usage = self.raw_usage_with_children(&tree);
            let member =
                |((at, (association, parent)), raw_usage): ((usize, &(_, _)), RawUsage)| Member {
                    association: Arc::clone(association),
                    parent: *parent,
                    raw_usage,
                    fair_share: standings[at].fair_share,
                };
            Accounting {
                enforce: Enforce {
                    limits: parameters.enforces_limits(),
                    safe: parameters.enforce_safe,
                },
                members: tree.members.iter().enumerate().zip(raw_usage).map(member).collect(),
                raw_usage_by_qos: self.spending.qos.clone(),
                max_tres: parameters.priority.flags.max_tres,
            }
        })
    }

    /// What each association and all below it have spent.
    pub fn raw_usage_with_children(&self, tree: &Tree) -> Vec<RawUsage> {
        let own = |(association, _): &(Arc<Association>, Option<u32>)| {
            self.spending.associations.get(&association.key()).cloned().unwrap_or_default()
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

    /// Where each stands by what it had been billed at the end of the last period: until the next it stays there.
    pub fn standings(&self) -> Arc<Vec<BranchRank>> {
        self.standings.get(|| self.rank(&self.tree()))
    }

    fn rank(&self, tree: &Tree) -> Vec<BranchRank> {
        let billed = |association: &Association| {
            self.spending.ranked.get(&association.key()).copied().unwrap_or(0.0)
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
