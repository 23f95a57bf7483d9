//! What associations and QOS have used: charged when a job ends and at each period, decayed at each period.
//!
//! Usage of the period that runs is added as it is; what was there before decays. So `U = u + D·U'`, as Slurm has it.

use crate::state::State;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use model::account::{AssociationKey, QosFlag};
use model::id::JobId;
use model::priority::{PriorityPolicy, UsageReset, billing};
use model::raw_usage::{RawUsage, UsageOwner, decay_factor};
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was spent, up to the last period.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spending {
    /// The end of the last period.
    pub as_of: Option<Timestamp>,
    /// Of each association its own; an account's users are not in it.
    #[serde(with = "entries")]
    pub associations: BTreeMap<AssociationKey, RawUsage>,
    pub qos: BTreeMap<String, RawUsage>,
    /// What each had been billed at the end of the last period, which the ranking goes by.
    #[serde(with = "entries")]
    pub ranked: BTreeMap<AssociationKey, f64>,
    /// When usage last began from nothing.
    pub reset: Option<Timestamp>,
}

/// A map whose keys are no strings, as a list of pairs.
mod entries {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map.iter())
    }

    pub fn deserialize<
        'de,
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    >(
        from: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// What an allocation is charged for: all that is counted, with the typed resources and the billing.
pub fn charged_tres(state: &State, allocation: &model::allocation::Allocation) -> Tres {
    let mut tres = allocation.tres();
    let typed = allocation.nodes.iter().flat_map(|share| &share.gres);
    for gres in typed.filter(|gres| gres.kind.is_some()) {
        tres.add(TresKind::gres(&gres.name, gres.kind.as_deref()), gres.count);
    }
    let cost = bill(state, &allocation.partition, &tres);
    tres.set(TresKind::Billing, cost);
    tres
}

/// The billing of so much in a partition, whole.
pub fn bill(state: &State, partition: &str, tres: &Tres) -> u64 {
    let largest = state.config.parameters.priority.flags.max_tres;
    match state.partition(partition) {
        Some(partition) => billing(tres, &partition.billing_weights, largest) as u64,
        None => tres.amount(&TresKind::Cpu),
    }
}

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
        }
        if let crate::job::Phase::Active(attempt) = &mut self.job_mut(id).phase {
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
        let spending = &mut self.spending;
        spending.as_of.get_or_insert(from);
        if let Some(key) = key {
            spending.associations.entry(key).or_default().charge(&tres, seconds, factor);
        }
        for name in of_partition.filter(|name| *name != own).into_iter().chain([own]) {
            spending.qos.entry(name).or_default().charge(&tres, seconds, factor);
        }
        self.accounting.forget();
    }

    /// The end of a period: what was spent decays or is forgotten, and what runs is charged.
    pub(crate) fn settle(&mut self, at: Timestamp, reset: bool) {
        let policy = self.config.parameters.priority.clone();
        let passed = self.spending.as_of.map_or(0.0, |last| at.since(last).as_secs_f64());
        let kept = if reset { 0.0 } else { decay_factor(policy.half_life_s, passed) };
        for (name, raw_usage) in &mut self.spending.qos {
            let lasting = self.qos.get(name).is_some_and(|qos| qos.has(QosFlag::NoDecay));
            if !lasting {
                raw_usage.scale(kept);
            }
        }
        self.spending.associations.values_mut().for_each(|raw_usage| raw_usage.scale(kept));
        let active: Vec<JobId> = self.active.iter().copied().collect();
        active.into_iter().for_each(|id| self.charge(id, at));
        let spending = &mut self.spending;
        spending.as_of = Some(at);
        if reset || spending.reset.is_none() {
            spending.reset = Some(at);
        }
        let billed = spending.associations.iter().map(|(key, raw_usage)| (key.clone(), raw_usage));
        spending.ranked = billed.map(|(key, raw_usage)| (key, raw_usage.billing_s())).collect();
        self.standings.forget();
        self.accounting.forget();
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
        self.spending.associations.retain(|key, _| !meant(key));
        self.spending.ranked.retain(|key, _| !meant(key));
        if let UsageOwner::Qos(name) = of {
            self.spending.qos.remove(name);
        }
        self.standings.forget();
        self.accounting.forget();
    }

    /// Whether a period has ended, and usage begins from nothing with the next.
    pub(crate) fn due_settlement(&self, now: Timestamp) -> Option<bool> {
        let policy = &self.config.parameters.priority;
        let idle = self.active.is_empty() && self.spending.associations.is_empty();
        let waits = policy.multifactor && self.jobs.len() > self.ended.len();
        if idle && !waits {
            return None;
        }
        let last = self.spending.as_of;
        let due = last.is_none_or(|last| now.since(last).as_secs() >= policy.calc_period_s.max(1));
        due.then(|| self.spending.reset.is_some_and(|reset| resets(policy, reset, now)))
    }
}

/// Whether a boundary of the reset's period lies between the two.
fn resets(policy: &PriorityPolicy, last: Timestamp, now: Timestamp) -> bool {
    let Some((before, after)) = date(policy, last).zip(date(policy, now)) else { return false };
    let quarter = |date: Date| (date.year(), (date.month() - 1) / 3);
    // Weeks begin on Sunday.
    let week = |date: Date| {
        date.checked_sub(jiff::Span::new().days(date.weekday().to_sunday_zero_offset())).ok()
    };
    match policy.reset {
        UsageReset::None | UsageReset::Now => false,
        UsageReset::Daily => before != after,
        UsageReset::Weekly => week(before) != week(after),
        UsageReset::Monthly => before.first_of_month() != after.first_of_month(),
        UsageReset::Quarterly => quarter(before) != quarter(after),
        UsageReset::Yearly => before.year() != after.year(),
    }
}

fn date(policy: &PriorityPolicy, at: Timestamp) -> Option<Date> {
    let offset = Offset::from_seconds(policy.utc_offset_s).ok()?;
    let at = jiff::Timestamp::from_second(at.secs()).ok()?;
    Some(TimeZone::fixed(offset).to_datetime(at).date())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_reset_at_the_boundaries_of_the_calendar() {
        let day = 24 * 3600;
        // Thursday, the first of January 1970, and later.
        let at = |days: i64| Timestamp::from_secs(days * day + 60);
        let table = [
            (UsageReset::Daily, 0, 1, true),
            (UsageReset::Weekly, 0, 2, false),
            (UsageReset::Weekly, 2, 3, true),
            (UsageReset::Monthly, 0, 30, false),
            (UsageReset::Monthly, 30, 31, true),
            (UsageReset::Quarterly, 31, 89, false),
            (UsageReset::Quarterly, 89, 90, true),
            (UsageReset::Yearly, 90, 364, false),
            (UsageReset::Yearly, 364, 365, true),
            (UsageReset::None, 0, 365, false),
        ];
        for (reset, last, now, expected) in table {
            let policy = PriorityPolicy { reset, ..PriorityPolicy::default() };
            assert_eq!(resets(&policy, at(last), at(now)), expected, "{reset:?} {last} {now}");
        }
        // An hour east of Greenwich the day begins an hour earlier.
        let east = PriorityPolicy {
            reset: UsageReset::Daily,
            utc_offset_s: 3600,
            ..PriorityPolicy::default()
        };
        let eve = Timestamp::from_secs(day - 3700);
        assert!(resets(&east, eve, Timestamp::from_secs(day - 3500)));
    }
}
