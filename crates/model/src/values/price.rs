//! The price of a node in an hour, and what comes of it in a time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

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

    /// As the TRES `cost` counts it: ten-thousandths of a dollar an hour.
    pub fn units(self) -> u64 {
        self.0
    }

    pub fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// The price of `part` of `whole`, rounded.
    pub fn part(self, part: u64, whole: u64) -> Self {
        let whole = u128::from(whole.max(1));
        let units = (u128::from(self.0) * u128::from(part) + whole / 2) / whole;
        Self(u64::try_from(units).unwrap_or(u64::MAX))
    }

    /// What so long a time costs.
    pub fn for_time(self, length: Duration) -> Cost {
        let micros = u128::from(self.0) * MICROS_PER_PART * length.as_millis() / MILLIS_PER_HOUR;
        Cost(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl Add for Price {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self::default(), Add::add)
    }
}

const MICROS_PER_PART: u128 = 100;
const MILLIS_PER_HOUR: u128 = 3_600_000;

/// Millionths of a dollar: a second of the cheapest machine is not nothing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cost(u64);

impl Cost {
    /// The highest budget, dollars.
    pub const DOLLARS_MAX: f64 = 1e9;

    /// `None` for what is no amount: below zero, beyond the highest one, no number.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let is_amount = (0.0..=Self::DOLLARS_MAX).contains(&dollars);
        is_amount.then(|| Self((dollars * 1e6).round() as u64))
    }

    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// `$0.0125`: four places, as prices have them.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}", self.dollars())
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

    #[test]
    fn cost_is_price_by_time_and_never_wraps() {
        let price = Price::from_dollars(3.6).expect("a price");
        let cost = |length| price.for_time(length).to_string();
        assert_eq!(cost(Duration::from_secs(3600)), "$3.6000");
        assert_eq!(cost(Duration::from_secs(1)), "$0.0010");
        assert_eq!(cost(Duration::ZERO), "$0.0000");
        let most = price.for_time(Duration::MAX);
        assert_eq!(most + most, most, "the sum of more than there can be stays there");
        assert_eq!(Cost::default().less(most), Cost::default());
        for wrong in [-1.0, f64::NAN, 2e9] {
            assert_eq!(Cost::from_dollars(wrong), None);
        }
    }
}
