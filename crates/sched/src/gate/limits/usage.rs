//! What jobs count for against limits: one job, and the totals of QOS, users, accounts and associations.

use super::claimant::{Claimant, minutes};
use super::table::{self, CountedOver};
use crate::accounting::{Accounting, Member};
use crate::view::View;
use foldhash::fast::RandomState;
use model::account::{Qos, QosFlag};
use model::allocation::NodeShare;
use model::priority::billing;
use model::reason::{LimitKind, Reason};
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use std::collections::HashMap;

/// What counts under each limited QOS and association: running jobs, and those that this plan starts.
pub struct Usage<'a> {
    pub(super) view: &'a View,
    pub(super) qos: HashMap<&'a str, QosUsage<'a>, RandomState>,
    /// For each association, with all below it; empty where none has a limit.
    pub(super) members: Vec<UsageTotals>,
    /// For each of these, whether a limit is compared with its total: the others are not added up.
    is_compared: Vec<bool>,
}

/// What several jobs count for together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct UsageTotals {
    pub tres: Tres,
    /// What the time limits still allow.
    pub run_minutes: Tres,
    pub jobs: u32,
    /// The number of jobs on each node: a node counts once, however many jobs are on it.
    pub nodes: HashMap<String, u32, RandomState>,
}

impl UsageTotals {
    fn add(&mut self, job: &JobUsage) {
        self.tres.merge(&job.tres);
        self.run_minutes.merge(&job.run_minutes);
        self.jobs += 1;
        for node in &job.nodes {
            match self.nodes.get_mut(node) {
                Some(jobs) => *jobs += 1,
                None => {
                    self.nodes.insert(node.clone(), 1);
                }
            }
        }
    }

    fn remove(&mut self, job: &JobUsage) {
        debug_assert!(self.jobs > 0, "a job that is removed was added");
        self.tres.subtract(&job.tres);
        self.run_minutes.subtract(&job.run_minutes);
        self.jobs = self.jobs.saturating_sub(1);
        for node in &job.nodes {
            let Some(jobs) = self.nodes.get_mut(node) else { continue };
            *jobs -= 1;
            if *jobs == 0 {
                self.nodes.remove(node);
            }
        }
    }
}

/// What one job counts for, or would.
pub struct JobUsage {
    pub(super) tres: Tres,
    pub(super) run_minutes: Tres,
    /// Empty while it is not placed.
    pub(super) nodes: Vec<String>,
}

impl JobUsage {
    /// What a job on these nodes counts for: its TRES with licences and billing, and those times the minutes of `time`
    /// and the usage factor of its QOS.
    pub fn new(
        view: &View,
        claimant: Claimant<'_>,
        mut tres: Tres,
        time: TimeLimit,
        nodes: Vec<String>,
    ) -> Self {
        for (name, count) in claimant.licenses {
            tres.add(TresKind::License(name.clone()), u64::from(*count));
        }
        if let Some(info) = view.partitions.get(claimant.partition as usize) {
            let weights = &info.partition.billing_weights;
            let cost = billing(&tres, weights, view.accounting.max_tres);
            tres.set(TresKind::Billing, cost as u64);
        }
        let own = view.qos.iter().find(|qos| qos.name == claimant.qos);
        let factor = own.map_or(1.0, |qos| qos.usage_factor.value());
        Self { run_minutes: times(&tres, minutes(time), factor), nodes, tres }
    }

    /// What a job that holds these shares counts for.
    pub fn of_shares<'s>(
        view: &View,
        claimant: Claimant<'_>,
        shares: impl Iterator<Item = &'s NodeShare> + Clone,
        time: TimeLimit,
    ) -> Self {
        let nodes = shares.clone().map(|share| share.node.clone()).collect();
        Self::new(view, claimant, tres_of(shares), time, nodes)
    }

    /// What the job counts for against a limit of this kind; zero where running jobs do not count.
    pub(super) fn amount(&self, kind: &LimitKind, accounting: &Accounting) -> u64 {
        match kind {
            LimitKind::Tres(kind) => self.tres.amount(kind),
            LimitKind::TresRunMinutes(kind) => self.run_minutes.amount(kind),
            // What running jobs may still use is counted as used with `safe` only.
            LimitKind::TresMinutes(kind) if accounting.enforce.safe => {
                self.run_minutes.amount(kind)
            }
            LimitKind::Jobs => 1,
            _ => 0,
        }
    }
}

/// What counts under one QOS.
pub(super) struct QosUsage<'a> {
    pub qos: &'a Qos,
    pub all: UsageTotals,
    pub users: HashMap<u32, UsageTotals, RandomState>,
    pub accounts: HashMap<&'a str, UsageTotals, RandomState>,
}

impl<'a> QosUsage<'a> {
    /// `None` while nothing counts.
    pub fn total(&self, over: CountedOver, claimant: Claimant<'_>) -> Option<&UsageTotals> {
        match over {
            CountedOver::All => Some(&self.all),
            CountedOver::User => self.users.get(&claimant.uid),
            CountedOver::Account => self.accounts.get(claimant.account),
        }
    }

    fn total_mut(&mut self, over: CountedOver, claimant: Claimant<'a>) -> &mut UsageTotals {
        match over {
            CountedOver::All => &mut self.all,
            CountedOver::User => self.users.entry(claimant.uid).or_default(),
            CountedOver::Account => self.accounts.entry(claimant.account).or_default(),
        }
    }
}

impl<'a> Usage<'a> {
    /// What running jobs hold.
    pub fn of_running(view: &'a View, now: Timestamp) -> Self {
        let mut usage = Self::empty(view);
        if usage.has_limits() {
            for running in &view.running {
                let claimant = Claimant::running(view, running, now);
                usage.add(claimant, running.shares.iter().map(|(_, share)| share));
            }
        }
        usage
    }

    /// As if nothing ran.
    pub fn empty(view: &'a View) -> Self {
        let enforced = view.accounting.enforce.limits;
        let limited = view.qos.iter().filter(|qos| enforced && table::is_limited(qos));
        let nothing = |qos: &'a Qos| QosUsage {
            qos,
            all: UsageTotals::default(),
            users: HashMap::default(),
            accounts: HashMap::default(),
        };
        let members = &view.accounting.members;
        let any = enforced && members.iter().any(|m| table::has_limits(&m.association.limits));
        Self {
            view,
            qos: limited.map(|qos| (qos.name.as_str(), nothing(qos))).collect(),
            members: vec![UsageTotals::default(); if any { members.len() } else { 0 }],
            is_compared: if any { compared_members(members) } else { Vec::new() },
        }
    }

    pub fn has_limits(&self) -> bool {
        !self.qos.is_empty() || !self.members.is_empty()
    }

    /// Whether anything that a limit is set on could hold this job back.
    pub fn is_limited(&self, claimant: Claimant<'a>) -> bool {
        self.has_limits()
            && ((claimant.association.is_some() && !self.members.is_empty())
                || claimant.qos_names().any(|name| self.qos.contains_key(name)))
    }

    /// Counts a job that holds these shares. Returns what it counts for, if it is under a limit at all.
    pub fn add<'s>(
        &mut self,
        claimant: Claimant<'a>,
        shares: impl Iterator<Item = &'s NodeShare> + Clone,
    ) -> Option<JobUsage> {
        if !self.is_limited(claimant) {
            return None;
        }
        let job = JobUsage::of_shares(self.view, claimant, shares, claimant.time);
        self.add_usage(claimant, &job);
        Some(job)
    }

    pub fn add_usage(&mut self, claimant: Claimant<'a>, job: &JobUsage) {
        self.for_each_total(claimant, |total| total.add(job));
    }

    /// The job is over.
    pub fn remove_usage(&mut self, claimant: Claimant<'a>, job: &JobUsage) {
        self.for_each_total(claimant, |total| total.remove(job));
    }

    /// Every total that a job of this claimant counts in, those of [`Total::counting`](super::Total::counting), as far as a limit is
    /// compared with it.
    fn for_each_total(&mut self, claimant: Claimant<'a>, change: impl Fn(&mut UsageTotals)) {
        for name in claimant.qos_names() {
            let Some(usage) = self.qos.get_mut(name) else { continue };
            CountedOver::EACH.iter().for_each(|over| change(usage.total_mut(*over, claimant)));
        }
        if !self.members.is_empty() {
            for (at, _) in self.view.accounting.chain(claimant.association) {
                if self.is_compared[at as usize] {
                    change(&mut self.members[at as usize]);
                }
            }
        }
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
        let has = |flag| self.qos.get(claimant.qos).is_some_and(|usage| usage.qos.has(flag));
        match reason {
            Reason::PartitionTimeLimit => has(QosFlag::PartitionTimeLimit),
            Reason::PartitionNodeLimit => {
                has(QosFlag::PartitionMaxNodes) || has(QosFlag::PartitionMinNodes)
            }
            _ => false,
        }
    }

    /// Whether a job of this priority may reserve a backfill slot.
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

    pub(super) fn accounting(&self) -> &'a Accounting {
        &self.view.accounting
    }
}

/// For each association, whether a limit is compared with what its jobs hold: one of its own on all jobs together, or a number of jobs
/// that it, or an account above it, allows each.
fn compared_members(members: &[Member]) -> Vec<bool> {
    let mut caps_jobs = Vec::with_capacity(members.len());
    let mut compared = Vec::with_capacity(members.len());
    for member in members {
        let limits = &member.association.limits;
        // Every parent comes before its children.
        let above = member.parent.and_then(|parent| caps_jobs.get(parent as usize));
        let caps = limits.max_jobs.is_some() || above.copied().unwrap_or(false);
        compared.push(caps || table::limits_group(limits));
        caps_jobs.push(caps);
    }
    compared
}

fn times(tres: &Tres, minutes: u64, factor: f64) -> Tres {
    tres.map(|amount| (amount as f64 * minutes as f64 * factor) as u64)
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
