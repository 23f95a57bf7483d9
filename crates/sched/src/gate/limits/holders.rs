//! Which total a limit is compared with, and which running jobs make it up.

use super::claimant::Claimant;
use super::table::CountedOver;
use super::usage::JobUsage;
use crate::view::{RunningJob, View};
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope};
use model::time::Timestamp;
use model::tres::Tres;
use std::cmp::Reverse;

/// The name of one total that limits are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Total<'a> {
    Qos(&'a str),
    QosUser(&'a str, u32),
    QosAccount(&'a str, &'a str),
    /// An association with all below it, by its index.
    Association(u32),
}

impl<'a> Total<'a> {
    /// Every total that a job of this claimant counts in.
    pub fn counting(view: &'a View, claimant: Claimant<'a>) -> impl Iterator<Item = Self> + 'a {
        let of_qos = claimant
            .qos_names()
            .flat_map(move |qos| CountedOver::EACH.map(|over| Self::of_qos(qos, over, claimant)));
        let above = view.accounting.chain(claimant.association);
        of_qos.chain(above.map(|(at, _)| Self::Association(at)))
    }

    fn of_qos(qos: &'a str, over: CountedOver, claimant: Claimant<'a>) -> Self {
        match over {
            CountedOver::All => Self::Qos(qos),
            CountedOver::User => Self::QosUser(qos, claimant.uid),
            CountedOver::Account => Self::QosAccount(qos, claimant.account),
        }
    }

    /// The total that this limit is compared with when a job of the claimant asks to start. `None` for a limit on what
    /// one job may ask for by itself.
    pub fn compared_with(view: &'a View, limit: &Limit, claimant: Claimant<'a>) -> Option<Self> {
        let of_qos = |over| {
            let qos = claimant.qos_names().find(|name| *name == limit.holder)?;
            Some(Self::of_qos(qos, over, claimant))
        };
        match limit.scope {
            LimitScope::QosGroup => of_qos(CountedOver::All),
            LimitScope::QosPerUser => of_qos(CountedOver::User),
            LimitScope::QosPerAccount => of_qos(CountedOver::Account),
            LimitScope::AssociationGroup => {
                let mut chain = view.accounting.chain(claimant.association);
                let (at, _) = chain.find(|(_, member)| member.name() == limit.holder)?;
                Some(Self::Association(at))
            }
            // Whichever association carries the limit, the jobs of the job's own association are counted.
            LimitScope::AssociationPerJob if limit.kind == LimitKind::Jobs => {
                claimant.association.map(Self::Association)
            }
            _ => None,
        }
    }
}

/// The running jobs that count against this limit, with how much each counts for; the most first.
pub fn holders(
    view: &View,
    now: Timestamp,
    limit: &Limit,
    claimant: Claimant<'_>,
) -> Vec<(JobId, u64)> {
    let Some(total) = Total::compared_with(view, limit, claimant) else { return Vec::new() };
    let counted = |running: &RunningJob| {
        let claimant = Claimant::running(view, running, now);
        let counts = Total::counting(view, claimant).any(|other| other == total);
        counts.then(|| usage_of(view, claimant, running).amount(&limit.kind, &view.accounting))
    };
    let mut holders: Vec<(JobId, u64)> = view
        .running
        .iter()
        .filter_map(|running| Some((running.job, counted(running).filter(|amount| *amount > 0)?)))
        .collect();
    holders.sort_by_key(|(job, amount)| (Reverse(*amount), *job));
    holders
}

/// For each association the minutes that running jobs of it and of all below it may still use.
pub fn run_minutes(view: &View, now: Timestamp) -> Vec<Tres> {
    let mut minutes = vec![Tres::new(); view.accounting.members.len()];
    for running in &view.running {
        let claimant = Claimant::running(view, running, now);
        let usage = usage_of(view, claimant, running);
        for (at, _) in view.accounting.chain(claimant.association) {
            minutes[at as usize].merge(&usage.run_minutes);
        }
    }
    minutes
}

pub fn usage_of(view: &View, claimant: Claimant<'_>, running: &RunningJob) -> JobUsage {
    let shares = running.shares.iter().map(|(_, share)| share);
    JobUsage::of_shares(view, claimant, shares, claimant.time)
}
