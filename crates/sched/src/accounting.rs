//! The tree of associations that jobs are charged to, with what each has spent.

use model::account::Association;
use model::raw_usage::RawUsage;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The associations and what was spent, as limits and fair share look at them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accounting {
    pub enforce: Enforce,
    /// Every parent before its children; the root of the tree first.
    pub members: Vec<Member>,
    pub raw_usage_by_qos: BTreeMap<String, RawUsage>,
    /// `PriorityFlags=MAX_TRES`: a job is billed for the most expensive TRES of a node, not for the sum.
    pub max_tres: bool,
}

/// `AccountingStorageEnforce`, as far as it is about limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforce {
    pub limits: bool,
    /// A job starts only if its whole time fits into what is left of a limit of minutes.
    pub safe: bool,
}

impl Default for Enforce {
    fn default() -> Self {
        Self { limits: true, safe: false }
    }
}

/// One association.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub association: Arc<Association>,
    /// Index into [`Accounting::members`]; `None` for the root.
    pub parent: Option<u32>,
    /// The usage of the association and all below it. It may be that of before where no limit is compared with raw usage.
    pub raw_usage: RawUsage,
    /// The fair share of a user, from 0 to 1; `None` for accounts.
    pub fair_share: Option<f64>,
}

impl Member {
    /// The user, or the account where the association is an account's own.
    pub fn name(&self) -> &str {
        self.association.user.as_deref().unwrap_or(&self.association.account)
    }
}

impl Accounting {
    /// The association and those above it, up to the root.
    pub fn chain(&self, member: Option<u32>) -> impl Iterator<Item = (u32, &Member)> + '_ {
        let get = |at: u32| self.members.get(at as usize).map(|member| (at, member));
        // The filter bounds the walk: every parent comes before its child.
        std::iter::successors(member.and_then(get), move |(at, member)| {
            member.parent.filter(|parent| parent < at).and_then(get)
        })
    }
}
