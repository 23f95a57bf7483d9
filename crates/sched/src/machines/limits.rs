//! What sources, fleets and accounts may still have while machines are ordered. Limits only become tighter.

use super::{HOUR, MachineView, Source};
use model::machine::{HoldCause, Offer};
use model::price::{Cost, Price};
use std::collections::BTreeMap;

/// What one source has, with what was ordered of it here.
struct Tally {
    machines: u32,
    price_hour: Price,
    budget_left: Option<Cost>,
}

pub(super) struct Limits<'a> {
    there: &'a MachineView,
    /// By the names of sources: one may be there for several fleets.
    tallies: BTreeMap<&'a str, Tally>,
    /// Instances that fleets have, with those that were ordered here.
    instances: BTreeMap<&'a str, u32>,
    /// What is left of the budgets of accounts.
    budgets: BTreeMap<&'a str, Cost>,
    /// How many more nodes there may be.
    room: u32,
}

impl<'a> Limits<'a> {
    pub(super) fn new(there: &'a MachineView) -> Self {
        let tally = |of: &Source| Tally {
            machines: of.machines,
            price_hour: of.price_hour,
            budget_left: of.budget_left,
        };
        let fleets = there.sources.iter().filter_map(|of| of.fleet.as_deref());
        Self {
            there,
            tallies: there.sources.iter().map(|of| (of.name.as_str(), tally(of))).collect(),
            instances: fleets.map(|fleet| (fleet.name.as_str(), fleet.machines)).collect(),
            budgets: there.budgets.iter().map(|(name, of)| (name.as_str(), of.left)).collect(),
            room: there.room,
        }
    }

    /// The accounts that have a budget, each once.
    pub(super) fn budgeted<'n>(&self, accounts: impl Iterator<Item = &'n str>) -> Vec<&'a str> {
        let known = |name: &'n str| self.budgets.get_key_value(name).map(|(name, _)| *name);
        let mut names: Vec<&str> = accounts.filter_map(known).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What keeps the source from making so many more machines of this offer for a job of these accounts.
    pub(super) fn held_back(
        &self,
        of: &Source,
        offer: &Offer,
        count: u32,
        accounts: &[&str],
    ) -> Option<HoldCause> {
        if let Some(pause) = of.failed.iter().find(|pause| pause.is_of(&offer.id)) {
            return Some(pause.cause());
        }
        self.reached(of, offer.price, count, accounts)
    }

    /// Whether the source can make not one machine of this price or a higher one.
    pub(super) fn is_closed(&self, of: &Source, price: Price, accounts: &[&str]) -> bool {
        of.failed.iter().any(|pause| pause.offer.is_none())
            || self.reached(of, price, 1, accounts).is_some()
    }

    fn reached(
        &self,
        of: &Source,
        price: Price,
        count: u32,
        accounts: &[&str],
    ) -> Option<HoldCause> {
        let tally = self.tallies.get(of.name.as_str())?;
        if tally.machines + count > of.machines_max {
            return Some(HoldCause::Machines { most: of.machines_max });
        }
        if let Some(fleet) = &of.fleet {
            let there = self.instances.get(fleet.name.as_str()).copied().unwrap_or(0);
            if let Some(most) = fleet.cloud.max.filter(|most| there + count > *most) {
                return Some(HoldCause::Fleet { fleet: fleet.name.clone(), most });
            }
        }
        let price: Price = (0..count).map(|_| price).sum();
        let hour = price.for_time(HOUR);
        if let Some(most) = of.price_hour_max.filter(|most| tally.price_hour + price > *most) {
            return Some(HoldCause::PriceHour { most });
        }
        if tally.budget_left.is_some_and(|left| hour > left) {
            return Some(HoldCause::Budget);
        }
        let is_spent = |name: &&&str| self.budgets.get(**name).is_some_and(|left| hour > *left);
        if let Some(account) = accounts.iter().find(is_spent) {
            let month = self.there.budgets.get(*account).map(|of| of.month).unwrap_or_default();
            return Some(HoldCause::AccountBudget { account: (*account).to_owned(), month });
        }
        (count > self.room).then_some(HoldCause::NodeCount)
    }

    /// A machine of this price is ordered.
    pub(super) fn take(&mut self, of: &Source, price: Price, accounts: &[&str]) {
        let hour = price.for_time(HOUR);
        if let Some(tally) = self.tallies.get_mut(of.name.as_str()) {
            tally.machines += 1;
            tally.price_hour = tally.price_hour + price;
            tally.budget_left = tally.budget_left.map(|left| left.less(hour));
        }
        let fleet = of.fleet.as_ref().map(|fleet| fleet.name.as_str());
        if let Some(there) = fleet.and_then(|name| self.instances.get_mut(name)) {
            *there += 1;
        }
        for name in accounts {
            if let Some(left) = self.budgets.get_mut(*name) {
                *left = left.less(hour);
            }
        }
        self.room = self.room.saturating_sub(1);
    }
}
