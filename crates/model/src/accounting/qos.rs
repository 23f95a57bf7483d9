//! Qualities of service (QOS): named sets of limits, priority and rights for jobs.

use crate::grammar::GrammarError;
use crate::time::TimeLimit;
use crate::tres::Tres;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// The QOS that every job has when none is named.
pub const NORMAL_QOS: &str = "normal";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qos {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub priority: u32,
    #[serde(default)]
    pub group_tres: Tres,
    #[serde(default)]
    pub group_tres_minutes: Tres,
    #[serde(default)]
    pub group_tres_run_minutes: Tres,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_jobs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_jobs_accrue: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_submit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_wall: Option<TimeLimit>,
    #[serde(default)]
    pub max_tres_per_job: Tres,
    #[serde(default)]
    pub max_tres_per_node: Tres,
    #[serde(default)]
    pub max_tres_minutes_per_job: Tres,
    #[serde(default)]
    pub max_tres_per_user: Tres,
    #[serde(default)]
    pub max_tres_per_account: Tres,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_per_user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_per_account: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_accrue_per_user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_accrue_per_account: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_per_user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_per_account: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall: Option<TimeLimit>,
    /// The minimum that each job must ask for.
    #[serde(default)]
    pub min_tres_per_job: Tres,
    /// The priority below which a job gets no reservation in the backfill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_priority_threshold: Option<u32>,
    /// The factor by which usage of such jobs is multiplied.
    #[serde(default)]
    pub usage_factor: Factor,
    /// The fair share below which a job does not start, with [`QosFlag::EnforceUsageThreshold`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_threshold: Option<Factor>,
    /// Multiplies the TRES limits of associations for jobs of this QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_factor: Option<Factor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preempt: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_mode: Option<String>,
    /// How long a job runs before it may be preempted; `None` for the cluster's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_exempt_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_flags")]
    pub flags: Vec<QosFlag>,
    #[serde(default)]
    pub grace_time_s: u32,
}

impl Qos {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_string(),
            description: name.to_string(),
            priority: 0,
            group_tres: Tres::default(),
            group_tres_minutes: Tres::default(),
            group_tres_run_minutes: Tres::default(),
            group_jobs: None,
            group_jobs_accrue: None,
            group_submit: None,
            group_wall: None,
            max_tres_per_job: Tres::default(),
            max_tres_per_node: Tres::default(),
            max_tres_minutes_per_job: Tres::default(),
            max_tres_per_user: Tres::default(),
            max_tres_per_account: Tres::default(),
            max_jobs_per_user: None,
            max_jobs_per_account: None,
            max_jobs_accrue_per_user: None,
            max_jobs_accrue_per_account: None,
            max_submit_per_user: None,
            max_submit_per_account: None,
            max_wall: None,
            min_tres_per_job: Tres::default(),
            min_priority_threshold: None,
            usage_factor: Factor::ONE,
            usage_threshold: None,
            limit_factor: None,
            preempt: Vec::new(),
            preempt_mode: None,
            preempt_exempt_s: None,
            flags: Vec::new(),
            grace_time_s: 0,
        }
    }

    pub fn has(&self, flag: QosFlag) -> bool {
        self.flags.contains(&flag)
    }
}

/// In the order in which Slurm prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum QosFlag {
    DenyOnLimit,
    EnforceUsageThreshold,
    NoDecay,
    NoReserve,
    OverPartQos,
    PartitionMaxNodes,
    PartitionMinNodes,
    PartitionTimeLimit,
    RequiresReservation,
    UsageFactorSafe,
}

const FLAGS: [(&str, QosFlag); 10] = [
    ("DenyOnLimit", QosFlag::DenyOnLimit),
    ("EnforceUsageThreshold", QosFlag::EnforceUsageThreshold),
    ("NoDecay", QosFlag::NoDecay),
    ("NoReserve", QosFlag::NoReserve),
    ("OverPartQOS", QosFlag::OverPartQos),
    ("PartitionMaxNodes", QosFlag::PartitionMaxNodes),
    ("PartitionMinNodes", QosFlag::PartitionMinNodes),
    ("PartitionTimeLimit", QosFlag::PartitionTimeLimit),
    ("RequiresReservation", QosFlag::RequiresReservation),
    ("UsageFactorSafe", QosFlag::UsageFactorSafe),
];

impl fmt::Display for QosFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = FLAGS.iter().find(|(_, flag)| flag == self);
        f.write_str(row.map_or("", |(word, _)| word))
    }
}

impl FromStr for QosFlag {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let row = FLAGS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        row.map(|(_, flag)| *flag).ok_or_else(|| {
            let words: Vec<&str> = FLAGS.iter().map(|(word, _)| *word).collect();
            GrammarError::new("QOS flag", text, format!("one of {}", words.join(", ")))
        })
    }
}

impl TryFrom<String> for QosFlag {
    type Error = GrammarError;

    fn try_from(text: String) -> Result<Self, GrammarError> {
        text.parse()
    }
}

impl From<QosFlag> for String {
    fn from(flag: QosFlag) -> Self {
        flag.to_string()
    }
}

/// An earlier release stored any word; those that name no flag had no effect and are dropped.
fn known_flags<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<QosFlag>, D::Error> {
    let words: Vec<String> = Vec::deserialize(from)?;
    Ok(words.iter().filter_map(|word| word.parse().ok()).collect())
}

/// A factor of zero or more, kept in millionths: it is compared and printed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(pub u64);

impl Factor {
    pub const ONE: Factor = Factor(1_000_000);

    /// The most that is taken in.
    const MAX: f64 = 1e9;

    pub fn parse(text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok()?;
        let fits = value.is_finite() && (0.0..=Self::MAX).contains(&value);
        fits.then(|| Self((value * 1e6).round() as u64))
    }

    pub fn value(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_any_case_and_written_in_slurms() {
        assert_eq!("overpartqos".parse::<QosFlag>().expect("a flag").to_string(), "OverPartQOS");
        assert!("Bogus".parse::<QosFlag>().is_err());
        let old = r#"{"name":"q","flags":["DenyOnLimit","whatever"]}"#;
        let qos: Qos = serde_json::from_str(old).expect("reads");
        assert_eq!(qos.flags, [QosFlag::DenyOnLimit]);
        assert_eq!(qos.usage_factor, Factor::ONE);
    }

    #[test]
    fn factors_are_exact_to_the_millionth() {
        assert_eq!(Factor::parse("0.5").expect("a factor").to_string(), "0.500000");
        assert_eq!(Factor::parse("2").expect("a factor").value(), 2.0);
        for bad in ["-1", "x", "nan", "inf", "1e30", ""] {
            assert_eq!(Factor::parse(bad), None, "{bad}");
        }
    }
}
