//! Budgets: what the jobs of an account may cost in a calendar month (UTC).

use crate::price::Cost;
use serde::{Deserialize, Serialize};

/// The part of a budget that says nothing of it, in percent, from which on a warning is logged.
pub const WARN_PERCENT: u32 = 80;

/// The budget of an account, which is also for the accounts below it. A project of dstack's language is an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub account: String,
    /// Beyond it no machine is made for its jobs; what is there goes on.
    pub month: Cost,
    /// The part of it, in percent, from which on a warning is logged.
    pub warn_percent: u32,
}

impl Budget {
    /// The part of the budget that is spent, in whole percent.
    pub fn percent(&self, spent: Cost) -> u32 {
        percent_of(self.month, spent)
    }

    pub fn is_warned(&self, spent: Cost) -> bool {
        self.percent(spent) >= self.warn_percent
    }
}

/// The part of `most` that is spent, in whole percent. Where nothing may be spent, all is.
pub fn percent_of(most: Cost, spent: Cost) -> u32 {
    if most == Cost::default() {
        return 100;
    }
    (100.0 * spent.dollars() / most.dollars()).min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_that_is_spent_is_whole_percent() {
        let money = |dollars: f64| Cost::from_dollars(dollars).expect("money");
        let budget = Budget { account: "lab".into(), month: money(200.0), warn_percent: 80 };
        for (spent, percent, is_warned) in
            [(0.0, 0, false), (159.0, 79, false), (160.0, 80, true), (500.0, 250, true)]
        {
            assert_eq!(budget.percent(money(spent)), percent);
            assert_eq!(budget.is_warned(money(spent)), is_warned, "{spent}");
        }
        let none = Budget { month: Cost::default(), ..budget };
        assert!(none.is_warned(Cost::default()), "nothing may be spent");
    }
}
