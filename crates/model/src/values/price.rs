//! The price of a node in an hour.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Ten-thousandths of a dollar for an hour: whole numbers, so that prices are compared exactly.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Price(u64);

const PARTS: f64 = 10_000.0;

impl Price {
    /// The highest price that a node can have, dollars an hour.
    pub const DOLLARS_MAX: f64 = 1_000_000.0;

    /// `None` for what is no price: below zero, beyond the highest one, no number.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let is_price = (0.0..=Self::DOLLARS_MAX).contains(&dollars);
        is_price.then(|| Self((dollars * PARTS).round() as u64))
    }

    /// The highest price that is not above so many dollars.
    pub fn at_most(dollars: f64) -> Self {
        Self((dollars.clamp(0.0, Self::DOLLARS_MAX) * PARTS).floor() as u64)
    }

    pub fn dollars(self) -> f64 {
        self.0 as f64 / PARTS
    }
}

/// `$2.5`: without zeros at the end.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact_and_bounded() {
        let shown = |dollars| Price::from_dollars(dollars).map(|price| price.to_string());
        assert_eq!(shown(0.0).as_deref(), Some("$0"));
        assert_eq!(shown(2.5).as_deref(), Some("$2.5"));
        assert_eq!(shown(0.1 + 0.2).as_deref(), Some("$0.3"));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1_000_001.0] {
            assert_eq!(shown(wrong), None);
        }
        assert!(Price::from_dollars(2.5) <= Some(Price::at_most(2.5)));
        assert!(Price::from_dollars(2.5001) > Some(Price::at_most(2.5)));
    }
}
