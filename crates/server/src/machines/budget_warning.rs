//! Lines of the log about budgets of accounts and of sources: one when the part of a month's budget is spent from which on it warns,
//! and one when all of it is.

use cluster::State;
use model::budget::{WARN_PERCENT, percent_of};
use model::month::month_of;
use model::price::Cost;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often budgets are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct BudgetWarning {
    looked: Option<Timestamp>,
    /// What was said: whose budget, the month, and whether all was spent.
    said: BTreeSet<(String, String, bool)>,
}

/// A budget of a month, with what is spent of it.
struct Spending {
    whose: String,
    most: Cost,
    spent: Cost,
    /// From which part on it warns.
    warn_percent: u32,
    /// What follows when all of it is spent.
    effect: &'static str,
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
        for Spending { whose, most, spent, warn_percent, effect } in spendings(state, now) {
            let percent = percent_of(most, spent);
            if percent < warn_percent {
                continue;
            }
            let is_spent = percent >= 100;
            if self.said.insert((whose.clone(), month.clone(), is_spent)) {
                let what = if is_spent { effect } else { "" };
                lines.push(format!(
                    "budget of {whose}: {spent} of {most} are spent in {month} ({percent} %){what}"
                ));
            }
        }
        lines
    }
}

fn spendings(state: &State, now: Timestamp) -> Vec<Spending> {
    let of_accounts = state.budgets_at(now).into_iter().map(|(budget, cost)| Spending {
        whose: format!("account {}", budget.account),
        most: budget.month,
        spent: cost.month,
        warn_percent: budget.warn_percent,
        effect: ": no machine is made for its jobs",
    });
    let of_sources = state.sources().filter_map(|source| {
        let most = source.budget_month?;
        Some(Spending {
            whose: format!("source {}", source.name),
            most,
            spent: state.machine_costs(&source.name, now),
            warn_percent: WARN_PERCENT,
            effect: ": it makes no machine",
        })
    });
    of_accounts.chain(of_sources).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use cluster::Command;
    use model::budget::Budget;
    use model::machine::SourceConfig;

    #[tokio::test(flavor = "multi_thread")]
    async fn spent_budgets_of_accounts_and_sources_are_said_once_a_month() {
        let server = TestServer::start().await;
        let mut config = (*server.shared.read().config).clone();
        let budget = |account: &str, dollars: f64| Budget {
            account: account.into(),
            month: Cost::from_dollars(dollars).expect("money"),
            warn_percent: 80,
        };
        // A budget of zero counts as spent.
        config.budgets = vec![budget("physics", 0.0), budget("vision", 5.0)];
        server.run(Command::Configure(Box::new(config.clone()))).await.expect("configured");
        // The beginning of a month.
        let (mut warning, now) = (BudgetWarning::default(), Timestamp::from_secs(1_793_491_200));
        let due =
            |warning: &mut BudgetWarning, now: Timestamp| warning.due(&server.shared.read(), now);
        let lines = due(&mut warning, now);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let begin = "budget of account physics: $0.0000 of $0.0000 are spent in ";
        let end = " (100 %): no machine is made for its jobs";
        assert!(lines[0].starts_with(begin) && lines[0].ends_with(end), "{lines:?}");
        let month = Some(Cost::default());
        config.sources =
            vec![SourceConfig { budget_month: month, ..SourceConfig::new("cloud", "/opt/make") }];
        server.run(Command::Configure(Box::new(config))).await.expect("configured");
        assert!(due(&mut warning, now).is_empty(), "it was looked at a moment ago");
        let lines = due(&mut warning, now + INTERVAL);
        assert_eq!(lines.len(), 1, "the other was said: {lines:?}");
        assert!(lines[0].starts_with("budget of source cloud: "), "{lines:?}");
        assert!(lines[0].ends_with(": it makes no machine"), "{lines:?}");
        assert!(due(&mut warning, now + 2 * INTERVAL).is_empty());
    }
}
