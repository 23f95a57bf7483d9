//! The associations as a tree: who is below whom, and whom a job is charged to.

use foldhash::fast::RandomState;
use model::account::{Account, Association, AssociationKey, ROOT_ACCOUNT};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The associations of each user, with the partition that each is for.
type ByUser = HashMap<String, Vec<(Option<String>, u32)>, RandomState>;

/// Every association, parents before children: an account's users first, then the accounts below it.
#[derive(Debug, Default)]
pub struct AssociationTree {
    pub members: Vec<(Arc<Association>, Option<u32>)>,
    accounts: HashMap<String, u32, RandomState>,
    /// By account and user, with the partition that the association is for.
    users: HashMap<String, ByUser, RandomState>,
}

impl AssociationTree {
    pub fn of(accounts: &BTreeMap<String, Account>, associations: &[Association]) -> Self {
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for account in accounts.values().filter(|account| account.name != ROOT_ACCOUNT) {
            let parent = account.parent.as_deref().unwrap_or(ROOT_ACCOUNT);
            below.entry(parent).or_default().push(&account.name);
        }
        let mut of_account: BTreeMap<&str, Vec<&Association>> = BTreeMap::new();
        for association in associations {
            of_account.entry(&association.account).or_default().push(association);
        }
        let mut tree = AssociationTree::default();
        // Children are pushed in reverse: the stack pops them in order.
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
        // Slurm's order: a user's associations for a partition before the one for all partitions.
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

    /// The association that a job is charged to: the user's for the partition, else the user's, else the account's.
    pub fn find(&self, account: &str, user: &str, partition: Option<&str>) -> Option<u32> {
        self.find_user(account, user, partition).or_else(|| self.accounts.get(account).copied())
    }

    /// As [`AssociationTree::find`], without the account's own association.
    pub fn find_user(&self, account: &str, user: &str, partition: Option<&str>) -> Option<u32> {
        let own = self.users.get(account)?.get(user)?;
        let of = |wanted: Option<&str>| own.iter().find(|(p, _)| p.as_deref() == wanted);
        partition.and_then(|name| of(Some(name))).or_else(|| of(None)).map(|(_, at)| *at)
    }

    /// Whether the user has an association with the account, for whatever partition.
    pub fn is_member(&self, account: &str, user: &str) -> bool {
        self.users.get(account).is_some_and(|users| users.contains_key(user))
    }

    pub fn key(&self, at: u32) -> AssociationKey {
        self.members[at as usize].0.key()
    }

    /// The association and its parents up to the root.
    pub fn chain(&self, at: u32) -> impl Iterator<Item = &Association> {
        self.places(at).map(|(_, association)| association)
    }

    /// As [`AssociationTree::chain`], with their indices in the tree.
    pub fn places(&self, at: u32) -> impl Iterator<Item = (u32, &Association)> {
        let mut next = Some(at);
        std::iter::from_fn(move || {
            let at = next?;
            let (association, parent) = self.members.get(at as usize)?;
            next = *parent;
            Some((at, &**association))
        })
    }

    /// The value that the association sets, or the nearest parent that sets one.
    pub fn nearest<T>(&self, at: u32, get: impl Fn(&Association) -> Option<T>) -> Option<T> {
        self.chain(at).find_map(get)
    }
}
