//! The raw usage of associations and QOS. Usage of the current period is added as it is, earlier usage decays:
//! `U = u + D·U'`, as in Slurm.

use model::account::AssociationKey;
use model::raw_usage::RawUsage;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The raw usage of associations and QOS, up to the end of the last period.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChargedUsage {
    /// The end of the last period.
    pub as_of: Option<Timestamp>,
    /// Each association's own usage; an account's does not include its users'.
    #[serde(with = "entries")]
    pub associations: BTreeMap<AssociationKey, RawUsage>,
    pub qos: BTreeMap<String, RawUsage>,
    /// What each association had been billed at the end of the last period; fair share ranks by it.
    #[serde(with = "entries")]
    pub ranked: BTreeMap<AssociationKey, f64>,
    /// When usage was last reset.
    pub reset: Option<Timestamp>,
}

/// JSON keys are strings: a map with other keys is stored as a list of pairs.
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
