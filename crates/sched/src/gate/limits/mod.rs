//! Limits of QOS and associations: what users, accounts and all together hold, and what one job may ask for.
//!
//! The same limit may be said in several places. Of these the first holds: the QOS of the partition, that of the job
//! (before the partition's with `OverPartQOS`), the association, the accounts above it. Group limits of accounts are the
//! exception: each account above keeps its own.

mod check;
mod table;

use crate::accounting::Accounting;
use crate::gate;
use crate::place::demand::Demand;
use crate::view::{PendingJob, RunningJob, View};
use check::{JobClaim, LimitCheck};
use model::account::{Qos, QosFlag};
use model::allocation::NodeShare;
use model::priority::billing;
use model::reason::{Limit, Reason};
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use std::collections::HashMap;

/// What an unlimited job is taken to need: a year.
const UNLIMITED_MIN: u64 = 365 * 24 * 60;

/// What is held under each limited QOS and association, by running jobs and by those that this plan starts.
pub struct Usage<'a> {
    view: &'a View,
    qos: HashMap<&'a str, QosUsage<'a>>,
    /// For each association, with all below it; empty where none has a limit.
    members: Vec<UsageTotals>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct UsageTotals {
    tres: Tres,
    /// What the time limits still allow.
    run_minutes: Tres,
    jobs: u32,
    /// A node counts once, however many jobs are on it: so many.
    nodes: HashMap<String, u32>,
}

impl UsageTotals {
    fn add(&mut self, load: &JobUsage) {
        self.tres.merge(&load.tres);
        self.run_minutes.merge(&load.run_minutes);
        self.jobs += 1;
        for node in &load.nodes {
            *self.nodes.entry(node.clone()).or_default() += 1;
        }
    }

    fn remove(&mut self, load: &JobUsage) {
        self.tres.subtract(&load.tres);
        self.run_minutes.subtract(&load.run_minutes);
        self.jobs = self.jobs.saturating_sub(1);
        for node in &load.nodes {
            let Some(jobs) = self.nodes.get_mut(node) else { continue };
            *jobs -= 1;
            if *jobs == 0 {
                self.nodes.remove(node);
            }
        }
    }
}

/// What one job holds, or would.
pub struct JobUsage {
    tres: Tres,
    run_minutes: Tres,
    /// Empty while it is not placed.
    nodes: Vec<String>,
}

struct QosUsage<'a> {
    qos: &'a Qos,
    together: UsageTotals,
    users: HashMap<u32, UsageTotals>,
    accounts: HashMap<&'a str, UsageTotals>,
}

/// Who would start, or runs, under what: the job's own QOS, that of its partition, its association.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub uid: u32,
    pub account: &'a str,
    pub qos: &'a str,
    pub partition: u32,
    pub partition_qos: Option<&'a str>,
    /// Index into the associations of the view.
    pub association: Option<u32>,
    pub time: TimeLimit,
    pub licenses: &'a [(String, u32)],
}

impl<'a> Claimant<'a> {
    pub fn of(view: &'a View, waiting: &'a PendingJob, partition: u32) -> Self {
        let info = view.partitions.get(partition as usize);
        let time = info.map(|info| gate::time_limit(waiting.spec.request(), &info.partition));
        Self {
            uid: waiting.spec.owner.uid,
            account: &waiting.account,
            qos: &waiting.qos,
            partition,
            partition_qos: partition_qos(view, partition),
            association: waiting.association,
            time: time.unwrap_or(TimeLimit::Unlimited),
            licenses: &waiting.spec.request().licenses,
        }
    }

    pub fn running(view: &'a View, running: &'a RunningJob, now: Timestamp) -> Self {
        let left_s = running.end.map(|end| (end.secs() - now.secs()).max(0) as u64);
        let left = left_s.map(|s| TimeLimit::Minutes((s / 60).min(UNLIMITED_MIN) as u32));
        Self {
            uid: running.uid,
            account: &running.account,
            qos: &running.qos,
            partition: running.partition,
            partition_qos: partition_qos(view, running.partition),
            association: running.association,
            time: left.unwrap_or(TimeLimit::Unlimited),
            licenses: &running.licenses,
        }
    }
}

fn partition_qos(view: &View, partition: u32) -> Option<&str> {
    view.partitions.get(partition as usize)?.partition.qos.as_deref()
}

impl<'a> Usage<'a> {
    /// What running jobs hold.
    pub fn of(view: &'a View, now: Timestamp) -> Self {
        let mut usage = Self::nothing(view);
        if usage.has_limits() {
            for running in &view.running {
                let claimant = Claimant::running(view, running, now);
                usage.add(claimant, running.shares.iter().map(|(_, share)| share));
            }
        }
        usage
    }

    /// As if nothing ran.
    pub fn nothing(view: &'a View) -> Self {
        let enforced = view.accounting.enforce.limits;
        let limited = view.qos.iter().filter(|qos| enforced && table::is_limited(qos));
        let held = |qos: &'a Qos| QosUsage {
            qos,
            together: UsageTotals::default(),
            users: HashMap::new(),
            accounts: HashMap::new(),
        };
        let members = &view.accounting.members;
        let any = enforced && members.iter().any(|m| table::has_limits(&m.association.limits));
        Self {
            view,
            qos: limited.map(|qos| (qos.name.as_str(), held(qos))).collect(),
            members: vec![UsageTotals::default(); if any { members.len() } else { 0 }],
        }
    }

    pub fn has_limits(&self) -> bool {
        !self.qos.is_empty() || !self.members.is_empty()
    }

    /// Counts what a job holds, and tells what that was, if it is under a limit at all.
    pub fn add<'s>(
        &mut self,
        claimant: Claimant<'a>,
        shares: impl Iterator<Item = &'s NodeShare> + Clone,
    ) -> Option<JobUsage> {
        if !self.is_limited(claimant) {
            return None;
        }
        let load = self.job_usage(claimant, tres_of(shares.clone()), claimant.time, shares);
        self.for_each_total(claimant, |held| held.add(&load));
        Some(load)
    }

    /// What a job of so much on these nodes counts for.
    pub fn usage_of(&self, claimant: Claimant<'a>, tres: Tres, nodes: Vec<String>) -> JobUsage {
        JobUsage { nodes, ..self.job_usage(claimant, tres, claimant.time, [].into_iter()) }
    }

    pub fn add_usage(&mut self, claimant: Claimant<'a>, load: &JobUsage) {
        self.for_each_total(claimant, |held| held.add(load));
    }

    /// The job is over.
    pub fn remove_usage(&mut self, claimant: Claimant<'a>, load: &JobUsage) {
        self.for_each_total(claimant, |held| held.remove(load));
    }

    fn for_each_total(&mut self, claimant: Claimant<'a>, change: impl Fn(&mut UsageTotals)) {
        for name in qos_names(claimant) {
            let Some(held) = self.qos.get_mut(name) else { continue };
            change(&mut held.together);
            change(held.users.entry(claimant.uid).or_default());
            change(held.accounts.entry(claimant.account).or_default());
        }
        if !self.members.is_empty() {
            for (at, _) in self.view.accounting.chain(claimant.association) {
                change(&mut self.members[at as usize]);
            }
        }
    }

    fn job_usage<'s>(
        &self,
        claimant: Claimant<'a>,
        tres: Tres,
        time: TimeLimit,
        shares: impl Iterator<Item = &'s NodeShare>,
    ) -> JobUsage {
        let mut tres = tres;
        for (name, count) in claimant.licenses {
            tres.add(TresKind::License(name.clone()), u64::from(*count));
        }
        let tres = self.with_billing(claimant, tres);
        JobUsage {
            run_minutes: times(&tres, minutes(time), self.factor(claimant)),
            nodes: shares.map(|share| share.node.clone()).collect(),
            tres,
        }
    }

    /// The first limit that one more job of so much would break.
    pub fn broken_by(
        &self,
        claimant: Claimant<'a>,
        asked: &Tres,
        time: TimeLimit,
    ) -> Option<Limit> {
        if !self.is_limited(claimant) {
            return None;
        }
        let load = self.job_usage(claimant, asked.clone(), time, [].into_iter());
        self.limit_check(claimant).broken(&JobClaim { load: &load, time })
    }

    /// The same for a job that was weighed before.
    pub fn broken_by_load(&self, claimant: Claimant<'a>, load: &JobUsage) -> Option<Limit> {
        self.limit_check(claimant).broken(&JobClaim { load, time: claimant.time })
    }

    /// The first limit that this placement would break: whole cores and the node's memory may make it more than was
    /// asked, and which nodes it is on counts too.
    pub fn broken_by_shares<'s>(
        &self,
        claimant: Claimant<'a>,
        shares: impl Iterator<Item = &'s NodeShare> + Clone,
        time: TimeLimit,
    ) -> Option<Limit> {
        if !self.is_limited(claimant) {
            return None;
        }
        let judge = self.limit_check(claimant);
        let load = self.job_usage(claimant, tres_of(shares.clone()), time, shares.clone());
        judge.broken(&JobClaim { load: &load, time }).or_else(|| {
            let mut shares = shares.into_iter();
            shares.find_map(|share| judge.broken_on_node(tres_of([share].into_iter())))
        })
    }

    /// What the job's QOS asks of the job's owner, whatever runs.
    pub fn threshold_reason(&self, claimant: Claimant<'a>) -> Option<Reason> {
        let qos = self.qos.get(claimant.qos)?.qos;
        let threshold = qos.usage_threshold.filter(|_| qos.has(QosFlag::EnforceUsageThreshold))?;
        let member = self.view.accounting.members.get(claimant.association? as usize)?;
        (member.fair_share? < threshold.value()).then_some(Reason::UsageThreshold)
    }

    /// Whether the job's QOS lets it go beyond this limit of its partition.
    pub fn lifts(&self, claimant: Claimant<'a>, reason: &Reason) -> bool {
        let has = |flag| self.qos.get(claimant.qos).is_some_and(|held| held.qos.has(flag));
        match reason {
            Reason::PartitionTimeLimit => has(QosFlag::PartitionTimeLimit),
            Reason::PartitionNodeLimit => {
                has(QosFlag::PartitionMaxNodes) || has(QosFlag::PartitionMinNodes)
            }
            _ => false,
        }
    }

    /// Whether a job of this priority may have a reservation in the backfill.
    pub fn may_reserve(&self, claimant: Claimant<'a>, priority: u64) -> bool {
        let named = |name: &str| self.view.qos.iter().find(|qos| qos.name == name);
        let Some(own) = named(claimant.qos) else { return true };
        let of_members = || {
            let mut chain = self.view.accounting.chain(claimant.association);
            chain.find_map(|(_, m)| m.association.limits.min_priority_threshold)
        };
        let threshold = own.min_priority_threshold.or_else(of_members);
        !own.has(QosFlag::NoReserve) && threshold.is_none_or(|least| priority >= u64::from(least))
    }

    /// Whether anything that a limit is set on could hold this job back.
    pub fn is_limited(&self, claimant: Claimant<'a>) -> bool {
        self.has_limits()
            && ((claimant.association.is_some() && !self.members.is_empty())
                || qos_names(claimant).any(|name| self.qos.contains_key(name)))
    }

    fn limit_check(&self, claimant: Claimant<'a>) -> LimitCheck<'_, 'a> {
        LimitCheck::new(self, claimant)
    }

    fn accounting(&self) -> &'a Accounting {
        &self.view.accounting
    }

    fn with_billing(&self, claimant: Claimant<'a>, mut tres: Tres) -> Tres {
        let Some(info) = self.view.partitions.get(claimant.partition as usize) else { return tres };
        let cost = billing(&tres, &info.partition.billing_weights, self.view.accounting.max_tres);
        tres.set(TresKind::Billing, cost as u64);
        tres
    }

    /// What a minute of the job counts for.
    fn factor(&self, claimant: Claimant<'a>) -> f64 {
        self.qos.get(claimant.qos).map_or(1.0, |held| held.qos.usage_factor.value())
    }
}

/// The QOS that count a job: that of its partition and its own, each once.
pub fn qos_names<'a>(claimant: Claimant<'a>) -> impl Iterator<Item = &'a str> {
    let own = Some(claimant.qos).filter(|own| claimant.partition_qos != Some(own));
    [claimant.partition_qos, own].into_iter().flatten()
}

fn minutes(time: TimeLimit) -> u64 {
    time.minutes().map_or(UNLIMITED_MIN, u64::from)
}

fn times(tres: &Tres, minutes: u64, factor: f64) -> Tres {
    let product = |amount: u64| (amount as f64 * minutes as f64 * factor) as u64;
    tres.iter().map(|(kind, amount)| (kind.clone(), product(amount))).collect()
}

/// The limit that a job breaks all by itself, where its QOS refuses such jobs at submit.
pub fn limit_broken_alone(view: &View, waiting: &PendingJob, partition: u32) -> Option<Limit> {
    let claimant = Claimant::of(view, waiting, partition);
    let info = view.partitions.get(partition as usize)?;
    let request = waiting.spec.request();
    let asked = Demand::new(request, &info.partition, &view.policy, claimant.uid).least();
    let named = |name: Option<&str>| view.qos.iter().find(|qos| Some(qos.name.as_str()) == name);
    let denies = [named(Some(claimant.qos)), named(claimant.partition_qos)]
        .into_iter()
        .flatten()
        .any(|qos| qos.has(QosFlag::DenyOnLimit));
    if !denies {
        return None;
    }
    let usage = Usage::nothing(view);
    if !usage.is_limited(claimant) {
        return None;
    }
    let most_nodes = request.nodes.max.map(u64::from);
    let on_one = most_nodes.map(|nodes| shared_out(&asked, nodes.max(1)));
    let load = usage.job_usage(claimant, asked, claimant.time, [].into_iter());
    let judge = usage.limit_check(claimant);
    let on_node = on_one.and_then(|tres| judge.broken_on_node(tres));
    on_node.or_else(|| judge.broken_alone(&JobClaim { load: &load, time: claimant.time }))
}

/// What one of so many nodes holds at least.
fn shared_out(tres: &Tres, nodes: u64) -> Tres {
    tres.iter().map(|(kind, amount)| (kind.clone(), amount.div_ceil(nodes))).collect()
}

/// What shares count for against limits: a GRES under its name, and under its name and kind.
pub fn tres_of<'s>(shares: impl Iterator<Item = &'s NodeShare>) -> Tres {
    let mut tres = Tres::new();
    for share in shares {
        tres.add(TresKind::Node, 1);
        tres.merge(&share.tres());
        for gres in share.gres.iter().filter(|gres| gres.kind.is_some()) {
            tres.add(TresKind::gres(&gres.name, gres.kind.as_deref()), gres.count);
        }
    }
    tres
}

#[cfg(test)]
mod tests;
