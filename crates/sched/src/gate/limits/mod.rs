//! Limits of QOS and associations: on what users, accounts and groups hold together, and on what one job may ask for.
//!
//! The same limit may be set in several places. The first of these counts: the QOS of the partition, the QOS of the job
//! (before the partition's with `OverPartQOS`), the association, the accounts above it. Group limits of accounts are the
//! exception: each account above enforces its own.
//!
//! ```text
//!   claimant   whose limits apply to a job
//!   usage      what a job counts for, and the totals that limits are compared with
//!   table      every limit, as a row
//!   check      the first limit that a job would break
//!   holders    which running jobs make up a total
//! ```

mod check;
mod claimant;
mod holders;
mod table;
mod usage;

pub use claimant::Claimant;
pub use holders::{Total, holders, run_minutes};
pub use usage::{JobUsage, Usage};

use crate::place::demand::Demand;
use crate::view::{PendingJob, View};
use check::{JobClaim, LimitCheck};
use model::account::QosFlag;
use model::allocation::NodeShare;
use model::reason::{Limit, LimitKind, LimitScope};
use model::time::TimeLimit;
use model::tres::Tres;

impl<'a> Usage<'a> {
    /// The first limit that one more job of this size would break.
    pub fn broken_by(
        &self,
        claimant: Claimant<'a>,
        asked: &Tres,
        time: TimeLimit,
    ) -> Option<Limit> {
        if !self.is_limited(claimant) {
            return None;
        }
        let job = JobUsage::new(self.view, claimant, asked.clone(), time, Vec::new());
        LimitCheck::new(self, claimant).broken(&JobClaim { job: &job, time })
    }

    /// The first limit that a job whose usage is known would break.
    pub fn broken_by_usage(&self, claimant: Claimant<'a>, job: &JobUsage) -> Option<Limit> {
        LimitCheck::new(self, claimant).broken(&JobClaim { job, time: claimant.time })
    }

    /// The first limit that this placement would break. It may be more than was asked, because cores and the memory of
    /// a node are granted whole; and some limits depend on the nodes.
    pub fn broken_by_shares<'s>(
        &self,
        claimant: Claimant<'a>,
        shares: impl Iterator<Item = &'s NodeShare> + Clone,
        time: TimeLimit,
    ) -> Option<Limit> {
        if !self.is_limited(claimant) {
            return None;
        }
        let check = LimitCheck::new(self, claimant);
        let job = JobUsage::of_shares(self.view, claimant, shares.clone(), time);
        check.broken(&JobClaim { job: &job, time }).or_else(|| {
            let mut shares = shares.into_iter();
            shares.find_map(|share| check.broken_on_node(usage::tres_of([share].into_iter())))
        })
    }
}

/// The limit that a job breaks by itself, where its QOS refuses such jobs at submit.
pub fn limit_denied(view: &View, waiting: &PendingJob, partition: u32) -> Option<Limit> {
    let claimant = Claimant::pending(view, waiting, partition);
    let named = |name: Option<&str>| view.qos.iter().find(|qos| Some(qos.name.as_str()) == name);
    let denies = [named(Some(claimant.qos)), named(claimant.partition_qos)]
        .into_iter()
        .flatten()
        .any(|qos| qos.has(QosFlag::DenyOnLimit));
    if denies { limit_broken_alone(view, waiting, partition) } else { None }
}

/// The limit that a job breaks by itself in every partition that it asks for: it cannot start until the job or a limit is changed.
pub fn limit_never_met(view: &View, waiting: &PendingJob) -> Option<Limit> {
    let broken = |partition: &u32| {
        limit_broken_alone(view, waiting, *partition).filter(|limit| outlasts_decay(view, limit))
    };
    let mut limits = waiting.partitions.iter().map(broken);
    let first = limits.next()??;
    limits.all(|other| other.is_some()).then_some(first)
}

/// Whether the limit stays broken when what was used has decayed. A group's limit of minutes is compared with what was used alone,
/// without the job, unless limits are enforced safely.
fn outlasts_decay(view: &View, limit: &Limit) -> bool {
    let of_group = matches!(limit.scope, LimitScope::QosGroup | LimitScope::AssociationGroup);
    let is_spent = of_group && matches!(limit.kind, LimitKind::TresMinutes(_));
    !is_spent || view.accounting.enforce.safe
}

/// The limit that a job breaks by itself in this partition, as if nothing ran and nothing had been used.
fn limit_broken_alone(view: &View, waiting: &PendingJob, partition: u32) -> Option<Limit> {
    let claimant = Claimant::pending(view, waiting, partition);
    let info = view.partitions.get(partition as usize)?;
    let request = waiting.spec.request();
    let asked = Demand::new(request, &info.partition, &view.policy, claimant.uid).least();
    let usage = Usage::empty(view);
    if !usage.is_limited(claimant) {
        return None;
    }
    let most_nodes = request.nodes.max.map(u64::from);
    let on_one = most_nodes.map(|nodes| divided_by(&asked, nodes.max(1)));
    let job = JobUsage::new(view, claimant, asked, claimant.time, Vec::new());
    let check = LimitCheck::new(&usage, claimant);
    let on_node = on_one.and_then(|tres| check.broken_on_node(tres));
    on_node.or_else(|| check.broken_alone(&JobClaim { job: &job, time: claimant.time }))
}

/// The least that one of so many nodes holds.
fn divided_by(tres: &Tres, nodes: u64) -> Tres {
    tres.map(|amount| amount.div_ceil(nodes))
}

#[cfg(test)]
mod tests;
