//! Multifactor priority: the weights of the configuration, and a job's factors.

use crate::tres::{Tres, TresKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most that dstack's `priority` may be.
pub const RUN_PRIORITY_MAX: u8 = 100;

/// `Priority*` of slurm.conf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityPolicy {
    /// `priority/multifactor`.
    pub multifactor: bool,
    /// `priority/sluice`: by expansion factor. Without it and without `multifactor`, the order of submission.
    pub expansion: bool,
    pub weights: Weights,
    /// The wait after which the age counts in full. By expansion factor, of the jobs that have waited so long the few that were
    /// submitted first come first.
    pub max_age_s: u64,
    pub favor_small: bool,
    /// How often usage decays and priorities are worked out anew.
    pub calc_period_s: u64,
    /// `None` if usage does not decay.
    pub half_life_s: Option<u64>,
    pub reset: UsageReset,
    pub flags: PriorityFlags,
    /// Local time's offset east of UTC, for resets at midnight.
    pub utc_offset_s: i32,
}

impl Default for PriorityPolicy {
    fn default() -> Self {
        const WEEK_S: u64 = 7 * 24 * 3600;
        Self {
            multifactor: false,
            expansion: false,
            weights: Weights::default(),
            max_age_s: WEEK_S,
            favor_small: false,
            calc_period_s: 300,
            half_life_s: Some(WEEK_S),
            reset: UsageReset::None,
            flags: PriorityFlags::default(),
            utc_offset_s: 0,
        }
    }
}

impl PriorityPolicy {
    /// Whether priorities are computed, and change as time passes.
    pub fn is_computed(&self) -> bool {
        self.multifactor || self.expansion
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Weights {
    pub age: u32,
    pub association: u32,
    pub fair_share: u32,
    pub job_size: u32,
    pub partition: u32,
    pub qos: u32,
    /// dstack's priority of 0 to [`RUN_PRIORITY_MAX`].
    pub dstack: u32,
    pub tres: Vec<(TresKind, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityFlags {
    pub accrue_always: bool,
    pub max_tres: bool,
    pub no_normal_association: bool,
    pub no_normal_partition: bool,
    pub no_normal_qos: bool,
    pub no_normal_tres: bool,
    pub small_relative_to_time: bool,
}

/// When usage is reset to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageReset {
    #[default]
    None,
    /// At each configuration.
    Now,
    Daily,
    Weekly,
    Monthly,
    Quarterly,
    Yearly,
}

/// The factors of a job's priority in one partition, each from 0 to 1 unless a flag leaves it unscaled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Factors {
    pub age: f64,
    pub association: f64,
    pub fair_share: f64,
    pub job_size: f64,
    pub partition: f64,
    pub qos: f64,
    pub dstack: f64,
    pub tres: Vec<(TresKind, f64)>,
    /// Added without a weight.
    pub site: i64,
    /// Subtracted without a weight.
    pub nice: i64,
}

/// The billing of a job's TRES: their weighted sum, or the largest of those on the nodes plus the sum of the
/// others. Without weights each CPU counts one.
pub fn billing(tres: &Tres, weights: &BTreeMap<String, f64>, largest: bool) -> f64 {
    if weights.is_empty() {
        return tres.amount(&TresKind::Cpu) as f64;
    }
    let (mut on_nodes, mut elsewhere) = (0.0_f64, 0.0);
    for (name, weight) in weights {
        let Ok(kind) = name.parse::<TresKind>() else { continue };
        let cost = tres.amount(&kind) as f64 * weight;
        match kind {
            TresKind::License(_) | TresKind::Bb(_) => elsewhere += cost,
            _ if largest => on_nodes = on_nodes.max(cost),
            _ => on_nodes += cost,
        }
    }
    on_nodes + elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual's example: `TRESBillingWeights=CPU=1.0,Mem=0.25G` on nodes of 16 CPUs and 64 GB.
    #[test]
    fn the_manuals_three_jobs_are_billed_as_it_says() {
        let weights = [("cpu".to_owned(), 1.0), ("mem".to_owned(), 0.25 / 1024.0)].into();
        let job = |cpus: u64, gib: u64| {
            Tres::from_iter([(TresKind::Cpu, cpus), (TresKind::Mem, gib * 1024)])
        };
        let table = [
            // sum: 1*1 + 60*0.25; largest: 60*0.25
            (job(1, 60), 16.0, 15.0),
            // 16*1 + 1*0.25; 16*1
            (job(16, 1), 16.25, 16.0),
            // 16*1 + 60*0.25; 16*1
            (job(16, 60), 31.0, 16.0),
        ];
        for (tres, sum, largest) in table {
            assert_eq!(billing(&tres, &weights, false), sum);
            assert_eq!(billing(&tres, &weights, true), largest);
        }
    }

    #[test]
    fn licences_are_added_to_the_largest_and_without_weights_cpus_count() {
        let weights = [("cpu".to_owned(), 2.0), ("license/ansys".to_owned(), 10.0)].into();
        let tres = Tres::parse("cpu=4,mem=1G,license/ansys=3").expect("a list");
        assert_eq!(billing(&tres, &weights, true), 8.0 + 30.0);
        assert_eq!(billing(&tres, &BTreeMap::new(), false), 4.0);
    }
}
