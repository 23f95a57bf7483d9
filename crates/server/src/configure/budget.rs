//! `[[budget]]` of sluice.toml: what the jobs of an account, or of a project, may cost in a month.

use model::budget::{Budget, WARN_PERCENT};
use model::price::Cost;
use model::printable::is_unprintable;
use serde::Deserialize;

const BUDGETS_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetToml {
    account: Option<String>,
    project: Option<String>,
    per_month: f64,
    warn: Option<u32>,
}

/// The budgets, or what is wrong with one.
pub(super) fn budgets(given: &[BudgetToml]) -> Result<Vec<Budget>, String> {
    if given.len() > BUDGETS_MAX {
        let count = given.len();
        return Err(format!(": [[budget]]: {count} of them: expected at most {BUDGETS_MAX}"));
    }
    let mut found: Vec<Budget> = Vec::new();
    for one in given {
        let budget = one.budget().map_err(|why| format!(": [[budget]]: {why}"))?;
        if found.iter().any(|other| other.account == budget.account) {
            return Err(format!(": [[budget]] {:?}: another is for it", budget.account));
        }
        found.push(budget);
    }
    Ok(found)
}

impl BudgetToml {
    fn budget(&self) -> Result<Budget, String> {
        // A project of dstack's language is an account.
        let account = match (&self.account, &self.project) {
            (Some(name), None) | (None, Some(name)) => name,
            _ => return Err("expected account = 'NAME' or project = 'NAME', one of them".into()),
        };
        if account.is_empty() || account.len() > 256 || account.contains(is_unprintable) {
            return Err("account: expected the name of an account".into());
        }
        let dollars = self.per_month;
        let wrong = || format!("{account}: per_month: {dollars}: expected dollars, 0 to 1e9");
        let month = Cost::from_dollars(dollars).ok_or_else(wrong)?;
        let warn_percent = self.warn.unwrap_or(WARN_PERCENT);
        if !(1..=100).contains(&warn_percent) {
            return Err(format!("{account}: warn: {warn_percent}: expected 1 to 100 percent"));
        }
        Ok(Budget { account: account.clone(), month, warn_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        budget: Vec<BudgetToml>,
    }

    fn read(text: &str) -> Result<Vec<Budget>, String> {
        let file: File = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        budgets(&file.budget)
    }

    #[test]
    fn budget_is_of_an_account_or_a_project() {
        let text = "[[budget]]\naccount = 'physics'\nper_month = 500\n[[budget]]\nproject = 'vision'\nper_month = 20.5\nwarn = 50\n";
        let found = read(text).expect("good");
        let shown = found.iter().map(|of| (&*of.account, of.month.dollars(), of.warn_percent));
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown, [("physics", 500.0, 80), ("vision", 20.5, 50)]);
    }

    #[test]
    fn wrong_budgets_are_said_in_a_line() {
        let table = [
            ("per_month = 5", "expected account = 'NAME' or project = 'NAME'"),
            ("account = 'a'\nproject = 'a'\nper_month = 5", "one of them"),
            ("account = 'a'\nper_month = -5", "a: per_month: -5: expected dollars"),
            ("account = 'a'\nper_month = 5\nwarn = 101", "a: warn: 101: expected 1 to 100"),
            ("account = 'a'\nper_month = 5\ncolour = 1", "unknown field `colour`"),
            (
                "account = 'a'\nper_month = 5\n[[budget]]\nproject = 'a'\nper_month = 6",
                "another is for it",
            ),
        ];
        for (text, words) in table {
            let said = read(&format!("[[budget]]\n{text}\n")).expect_err(text);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
