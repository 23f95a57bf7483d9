//! Lines of the log about budgets: one when the part of a month's budget is spent from which on it warns, and one when all of
//! it is.

use cluster::State;
use model::month::month_of;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often budgets are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct BudgetWarning {
    looked: Option<Timestamp>,
    /// What was said: the account, the month, and whether all was spent.
    said: BTreeSet<(String, String, bool)>,
}

impl BudgetWarning {
    /// The lines that are due, each once in a month.
    pub fn due(&mut self, state: &State, now: Timestamp) -> Vec<String> {
        if self.looked.is_some_and(|last| last + INTERVAL > now && last <= now) {
            return Vec::new();
        }
        self.looked = Some(now);
        let month = month_of(now);
        self.said.retain(|(_, of, _)| *of == month);
        let mut lines = Vec::new();
        for (budget, spent) in state.budgets_at(now) {
            if !budget.is_warned(spent.month) {
                continue;
            }
            let is_spent = budget.percent(spent.month) >= 100;
            if self.said.insert((budget.account.clone(), month.clone(), is_spent)) {
                let (account, percent) = (&budget.account, budget.percent(spent.month));
                let what = if is_spent { ": no machine is made for its jobs" } else { "" };
                lines.push(format!(
                    "budget of account {account}: {} of {} are spent in {month} ({percent} %){what}",
                    spent.month, budget.month
                ));
            }
        }
        lines
    }
}
