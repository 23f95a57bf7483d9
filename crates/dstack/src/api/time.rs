//! Times as dstack writes them: `2026-11-15T01:17:17.888532Z`, in UTC, to the microsecond.

use model::time::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(jiff::Timestamp);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(jiff::Timestamp::from_millisecond(time.0).unwrap_or_default())
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        Timestamp::from_millis(time.0.as_millisecond())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_microsecond() {
            0 => serializer.collect_str(&format_args!("{:.0}", self.0)),
            _ => serializer.collect_str(&format_args!("{:.6}", self.0)),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}
