//! Raw usage (Slurm's RawUsage): amounts times seconds that an account or a QOS has used, as they decay.

use crate::tres::{Tres, TresKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Usage of an association or a QOS.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RawUsage {
    /// Amount times seconds; `billing` is what fair share goes by.
    pub tres_s: BTreeMap<TresKind, f64>,
    /// Seconds that jobs ran, whatever they held.
    pub wall_s: f64,
}

impl RawUsage {
    /// `tres` held for so many seconds, of which each counts for `factor`.
    pub fn charge(&mut self, tres: &Tres, seconds: f64, factor: f64) {
        for (kind, amount) in tres.iter() {
            *self.tres_s.entry(kind.clone()).or_insert(0.0) += amount as f64 * seconds * factor;
        }
        self.wall_s += seconds * factor;
    }

    pub fn add(&mut self, other: &RawUsage) {
        for (kind, amount) in &other.tres_s {
            *self.tres_s.entry(kind.clone()).or_insert(0.0) += amount;
        }
        self.wall_s += other.wall_s;
    }

    /// Multiplies all usage by a factor from 0 to 1.
    pub fn scale(&mut self, part: f64) {
        self.tres_s.values_mut().for_each(|amount| *amount *= part);
        self.wall_s *= part;
    }

    pub fn seconds(&self, kind: &TresKind) -> f64 {
        self.tres_s.get(kind).copied().unwrap_or(0.0)
    }

    /// Whole minutes of this kind.
    pub fn minutes(&self, kind: &TresKind) -> u64 {
        (self.seconds(kind) / 60.0) as u64
    }

    pub fn billing_s(&self) -> f64 {
        self.seconds(&TresKind::Billing)
    }

    pub fn is_empty(&self) -> bool {
        self.tres_s.is_empty() && self.wall_s == 0.0
    }
}

/// An association or QOS that usage is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageOwner {
    /// The account and all below it.
    Account(String),
    User {
        account: String,
        user: String,
    },
    Qos(String),
}

/// The factor that usage decays by in `passed_s` seconds.
pub fn decay_factor(half_life_s: Option<u64>, passed_s: f64) -> f64 {
    match half_life_s {
        Some(half) if half > 0 => 0.5_f64.powf(passed_s / half as f64),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_amount_times_seconds_times_factor() {
        let mut spent = RawUsage::default();
        spent.charge(&Tres::parse("cpu=4,billing=7").expect("a list"), 90.0, 0.5);
        // 4 CPUs * 90 s * 0.5 = 180 CPU-seconds: 3 minutes.
        assert_eq!((spent.seconds(&TresKind::Cpu), spent.minutes(&TresKind::Cpu)), (180.0, 3));
        assert_eq!((spent.billing_s(), spent.wall_s), (315.0, 45.0));
    }

    /// A half-life of an hour: 1000 s are 500 after an hour, 250 after two, 1000 * 2^-1/12 after five minutes.
    #[test]
    fn usage_halves_in_its_half_life() {
        let mut spent = RawUsage::default();
        spent.charge(&Tres::parse("billing=1").expect("a list"), 1000.0, 1.0);
        spent.scale(decay_factor(Some(3600), 3600.0));
        assert_eq!(spent.billing_s(), 500.0);
        // Twelve steps of five minutes are the same as one of an hour.
        (0..12).for_each(|_| spent.scale(decay_factor(Some(3600), 300.0)));
        assert!((spent.billing_s() - 250.0).abs() < 1e-9);
        assert_eq!(decay_factor(None, 1e9), 1.0);
        assert!((decay_factor(Some(3600), 300.0) - 0.943_874_312_682).abs() < 1e-12);
    }
}
