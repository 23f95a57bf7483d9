//! Limits that refuse a job at submit: how many jobs may be submitted, and what a QOS denies outright.

use crate::command::Context;
use crate::state::State;
use crate::state::job::Job;
use crate::view;
use model::account::{Association, Qos, QosFlag};
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope, Refusal};
use model::run::JobSpec;

/// The submitter, with the account, QOS and partitions that apply.
pub(super) struct Submitter<'a> {
    pub spec: &'a JobSpec,
    pub account: &'a str,
    pub qos: &'a str,
    /// The partitions that admit the job.
    pub partitions: &'a [u32],
    /// A waiting job that is to come under these rules, with the number of its tasks that are. They count once.
    pub moved: Option<(JobId, u64)>,
}

impl State {
    pub(super) fn check_submit_limits(
        &self,
        who: &Submitter<'_>,
        asked: u64,
    ) -> Result<(), Refusal> {
        if !self.config.parameters.enforces_limits() {
            return Ok(());
        }
        match self.submit_limit(who, asked) {
            Some(limit) => Err(Refusal::SubmitLimit(limit)),
            None => Ok(()),
        }
    }

    /// The limits of a QOS come before those of associations, the partition's QOS before the job's.
    fn submit_limit(&self, who: &Submitter<'_>, asked: u64) -> Option<Limit> {
        let first = who.partitions.first().map(|at| &self.partitions[*at as usize]);
        let of_partition = first.and_then(|p| p.qos.as_deref()).filter(|name| *name != who.qos);
        let named = |name: Option<&str>| name.and_then(|name| self.qos.get(name));
        let all = [named(of_partition), named(Some(who.qos))];
        let said = |get: fn(&Qos) -> Option<u32>| {
            all.iter().flatten().find_map(|qos| get(qos).map(|most| (qos.name.as_str(), most)))
        };
        let under = |job: &Job, qos: &str| {
            let partition = self.first_partition_qos(job);
            &*job.qos == qos || partition == Some(qos)
        };
        let over = |scope, holder: &str, most: u32, counts: &dyn Fn(&Job) -> bool| {
            let in_use = self.count_tasks(who.moved, counts);
            (in_use + asked > u64::from(most)).then(|| Limit {
                scope,
                kind: LimitKind::SubmitJobs,
                holder: holder.to_owned(),
                limit: u64::from(most),
                in_use,
                asked,
            })
        };
        let uid = who.spec.owner.uid;
        let group = said(|q| q.group_submit);
        let per_account = said(|q| q.max_submit_per_account);
        let per_user = said(|q| q.max_submit_per_user);
        group
            .and_then(|(qos, most)| over(LimitScope::QosGroup, qos, most, &|j| under(j, qos)))
            .or_else(|| {
                let (qos, most) = per_account?;
                let mine = |j: &Job| under(j, qos) && &*j.account == who.account;
                over(LimitScope::QosPerAccount, qos, most, &mine)
            })
            .or_else(|| {
                let (qos, most) = per_user?;
                let mine = |j: &Job| under(j, qos) && j.spec.owner.uid == uid;
                over(LimitScope::QosPerUser, qos, most, &mine)
            })
            .or_else(|| {
                let tree = self.tree();
                let partition = first.map(|p| p.name.as_str());
                let at = tree.find(who.account, &who.spec.owner.name, partition)?;
                let of = |job: &Job| tree.find(&job.account, &job.spec.owner.name, partition);
                let name = |a: &Association| a.user.clone().unwrap_or_else(|| a.account.clone());
                let above = tree.chain(at).filter(|_| group.is_none()).find_map(|association| {
                    let most = association.limits.group_submit?;
                    let key = association.key();
                    let below =
                        |j: &Job| of(j).is_some_and(|at| tree.chain(at).any(|a| a.key() == key));
                    over(LimitScope::AssociationGroup, &name(association), most, &below)
                });
                above.or_else(|| {
                    let holder = tree.chain(at).find(|a| a.limits.max_submit.is_some())?;
                    let most = holder.limits.max_submit.filter(|_| per_user.is_none())?;
                    over(LimitScope::AssociationPerJob, &name(holder), most, &|j| of(j) == Some(at))
                })
            })
    }

    fn first_partition_qos(&self, job: &Job) -> Option<&str> {
        let partition = match job.attempt() {
            Some(attempt) => self.partition(&attempt.allocation.partition),
            None => match job.spec.request().partitions.first() {
                Some(name) => self.partition(name),
                None => self.default_partition(),
            },
        };
        partition?.qos.as_deref()
    }

    /// Counts jobs that wait or run; each task of an array counts.
    fn count_tasks(&self, moved: Option<(JobId, u64)>, counts: &dyn Fn(&Job) -> bool) -> u64 {
        let alive = self.jobs.values().filter(|job| !job.has_ended() && counts(job));
        let tasks = |job: &Job| job.pending.as_ref().map_or(1, |p| p.indices.len());
        let leaving = |job: &Job| moved.filter(|(id, _)| *id == job.id).map_or(0, |(_, n)| n);
        alive.map(|job| tasks(job).saturating_sub(leaving(job))).sum()
    }

    /// Where a QOS refuses what could never run under its limits.
    pub(super) fn check_alone(
        &self,
        spec: &JobSpec,
        account: &str,
        qos: &str,
        partitions: &[u32],
        context: &Context,
    ) -> Result<(), Refusal> {
        // No other QOS refuses at submit, and most sites have none of these.
        if !self.qos.values().any(|qos| qos.has(QosFlag::DenyOnLimit)) {
            return Ok(());
        }
        let waiting = self.probe_entry(spec, account, qos, partitions, context);
        let known = self.hardware().view.partitions.clone();
        let view = sched::View { partitions: known, ..view::site(self) };
        let refused = |at: &u32| sched::limit_denied(&view, &waiting, *at);
        let mut refusals = waiting.partitions.iter().map(refused);
        match refusals.next() {
            Some(Some(limit)) if refusals.all(|other| other.is_some()) => {
                Err(Refusal::SubmitLimit(limit))
            }
            _ => Ok(()),
        }
    }
}
