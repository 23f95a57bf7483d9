//! Licenses: how many exist, are used and are reserved.

use crate::state::State;
use model::reason::Refusal;
use model::time::Timestamp;
use std::collections::BTreeMap;

/// The usage of one kind of license.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LicenseUsage {
    pub name: String,
    pub total: u64,
    /// Held by running jobs.
    pub used: u64,
    /// Held by reservations that are active.
    pub reserved: u64,
}

impl State {
    /// How many of each license active jobs hold.
    pub(crate) fn licenses_used(&self) -> BTreeMap<&str, u64> {
        let mut used: BTreeMap<&str, u64> = BTreeMap::new();
        // Most clusters have no licenses.
        if self.config.parameters.licenses.is_empty() {
            return used;
        }
        for job in self.active.iter().filter_map(|id| self.job(*id)) {
            for (name, count) in &job.spec.request().licenses {
                *used.entry(name).or_default() += u64::from(*count);
            }
        }
        used
    }

    /// How many of each license are free, for the scheduler.
    pub(crate) fn licenses_free(&self) -> Vec<(String, u64)> {
        let used = self.licenses_used();
        let free = |(name, total): (&String, &u64)| {
            let held = used.get(name.as_str()).copied().unwrap_or(0);
            (name.clone(), total.saturating_sub(held))
        };
        self.config.parameters.licenses.iter().map(free).collect()
    }

    pub fn licenses(&self, now: Timestamp) -> Vec<LicenseUsage> {
        let used = self.licenses_used();
        let active: Vec<_> = self.reservations.values().filter(|r| r.is_active(now)).collect();
        let usage_of = |(name, total): (&String, &u64)| LicenseUsage {
            name: name.clone(),
            total: *total,
            used: used.get(name.as_str()).copied().unwrap_or(0),
            reserved: active
                .iter()
                .flat_map(|r| &r.licenses)
                .filter(|(n, _)| n == name)
                .map(|(_, c)| u64::from(*c))
                .sum(),
        };
        self.config.parameters.licenses.iter().map(usage_of).collect()
    }

    /// Refuses a job that asks for more licenses than exist.
    pub(crate) fn check_licenses(&self, asked: &[(String, u32)]) -> Result<(), Refusal> {
        for (name, count) in asked {
            let total = self.config.parameters.licenses.get(name);
            if total.is_none_or(|total| u64::from(*count) > *total) {
                return Err(Refusal::UnknownLicense(name.clone()));
            }
        }
        Ok(())
    }

    /// Refuses a start for which too few licenses are free.
    pub(crate) fn check_licenses_free(&self, asked: &[(String, u32)]) -> Result<(), Refusal> {
        if asked.is_empty() {
            return Ok(());
        }
        let free: BTreeMap<String, u64> = self.licenses_free().into_iter().collect();
        let there = |(name, count): &(String, u32)| {
            free.get(name).is_some_and(|free| u64::from(*count) <= *free)
        };
        if asked.iter().all(there) { Ok(()) } else { Err(Refusal::NoCapacityNow) }
    }
}
