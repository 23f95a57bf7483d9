//! What associations and QOS have used: charged when a job ends and at each period, decayed at each period.
//!
//! Usage of the period that runs is added as it is; what was there before decays. So `U = u + D·U'`, as Slurm has it.

use model::account::AssociationKey;
use model::raw_usage::RawUsage;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was spent, up to the last period.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChargedUsage {
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
