//! The raw usage of associations and QOS: charged when a job ends and at each period, decayed at each period.

use crate::billing::charged_tres;
use crate::state::State;
use crate::state::job::Phase;
use model::account::{AssociationKey, AssociationLimits, Qos, QosFlag};
use model::id::JobId;
use model::raw_usage::{UsageOwner, decay_factor};
use model::time::Timestamp;

impl State {
    /// Charges an active job for the time up to `until` that it was not charged for.
    pub(crate) fn charge(&mut self, id: JobId, until: Timestamp) {
        let Some(attempt) = self.jobs[&id].attempt() else { return };
        if attempt.suspended {
            return;
        }
        let from = attempt.charged_until.unwrap_or(attempt.start);
        let seconds = until.since(from).as_secs_f64();
        if seconds > 0.0 {
            self.charge_for(id, from, seconds);
            self.charge_cost(id, from, until);
        }
        if let Phase::Active(attempt) = &mut self.job_mut(id).phase {
            attempt.charged_until = Some(until.max(from));
        }
    }

    fn charge_for(&mut self, id: JobId, from: Timestamp, seconds: f64) {
        let job = &self.jobs[&id];
        let Some(attempt) = job.attempt() else { return };
        let tres = charged_tres(self, &attempt.allocation);
        let partition = &attempt.allocation.partition;
        let of_partition = self.partition(partition).and_then(|p| p.qos.clone());
        let own = job.qos.to_string();
        let factor = self.qos.get(&own).map_or(1.0, |qos| qos.usage_factor.value());
        let user = &job.spec.owner.name;
        let member = self.tree().find(&job.account, user, Some(partition));
        let key = member.map(|at| self.tree().key(at));
        let charged_usage = &mut self.charged_usage;
        charged_usage.as_of.get_or_insert(from);
        if let Some(key) = key {
            charged_usage.associations.entry(key).or_default().charge(&tres, seconds, factor);
        }
        for name in of_partition.filter(|name| *name != own).into_iter().chain([own]) {
            charged_usage.qos.entry(name).or_default().charge(&tres, seconds, factor);
        }
        // It is made anew for the next plan, of all associations: not for each job that ends, where nobody compares it with anything.
        if self.has_limits_of_raw_usage() {
            self.accounting.invalidate();
        }
    }

    /// Whether a limit is compared with what was used. No other reads raw usage of the tree that the scheduler is shown; where the first
    /// such limit is set, the tree is made anew.
    fn has_limits_of_raw_usage(&self) -> bool {
        let of_qos = |qos: &Qos| qos.group_wall.is_some() || !qos.group_tres_minutes.is_empty();
        let of_members =
            |of: &AssociationLimits| of.group_wall.is_some() || !of.group_tres_minutes.is_empty();
        self.qos.values().any(|qos| of_qos(qos))
            || self.associations.iter().any(|association| of_members(&association.limits))
    }

    /// Ends a period: raw usage decays or is reset, and running jobs are charged.
    pub(crate) fn end_usage_period(&mut self, at: Timestamp, reset: bool) {
        let policy = self.config.parameters.priority.clone();
        let passed = self.charged_usage.as_of.map_or(0.0, |last| at.since(last).as_secs_f64());
        let kept = if reset { 0.0 } else { decay_factor(policy.half_life_s, passed) };
        for (name, raw_usage) in &mut self.charged_usage.qos {
            let lasting = self.qos.get(name).is_some_and(|qos| qos.has(QosFlag::NoDecay));
            if !lasting {
                raw_usage.scale(kept);
            }
        }
        self.charged_usage.associations.values_mut().for_each(|raw_usage| raw_usage.scale(kept));
        let active: Vec<JobId> = self.active.iter().copied().collect();
        active.into_iter().for_each(|id| self.charge(id, at));
        let charged_usage = &mut self.charged_usage;
        charged_usage.as_of = Some(at);
        if reset || charged_usage.reset.is_none() {
            charged_usage.reset = Some(at);
        }
        let billed =
            charged_usage.associations.iter().map(|(key, raw_usage)| (key.clone(), raw_usage));
        charged_usage.ranked =
            billed.map(|(key, raw_usage)| (key, raw_usage.billing_s())).collect();
        self.typical_jobs.invalidate();
        self.fair_share_ranks.invalidate();
        self.accounting.invalidate();
    }

    pub(crate) fn forget_usage(&mut self, of: &UsageOwner) {
        let tree = self.tree();
        let meant = |key: &AssociationKey| match of {
            UsageOwner::Account(name) => {
                let user = key.user.as_deref().unwrap_or_default();
                let at = tree.find(&key.account, user, key.partition.as_deref());
                at.is_some_and(|at| tree.chain(at).any(|a| a.account == *name))
            }
            UsageOwner::User { account, user } => {
                key.account == *account && key.user.as_ref() == Some(user)
            }
            UsageOwner::Qos(_) => false,
        };
        self.charged_usage.associations.retain(|key, _| !meant(key));
        self.charged_usage.ranked.retain(|key, _| !meant(key));
        if let UsageOwner::Qos(name) = of {
            self.charged_usage.qos.remove(name);
        }
        self.fair_share_ranks.invalidate();
        self.accounting.invalidate();
    }
}
