//! Machines on demand and money, for operators alone.

use super::exposition::Exposition;
use super::snapshot::Snapshot;

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    let shown = &snapshot.machines;
    if !shown.sources.is_empty() {
        let mut machines = text.gauge("sluice_machines", "Machines that there are or may be.");
        for source in &shown.sources {
            machines.sample(&[("source", source.name.as_str())], source.machines);
        }
        let help = "What the machines of a source cost in an hour.";
        let mut prices = text.gauge("sluice_machines_price_dollars_per_hour", help);
        for source in &shown.sources {
            prices.sample(&[("source", source.name.as_str())], source.price_hour.dollars());
        }
        let help = "What the machines of a source have cost in this month.";
        let mut costs = text.gauge("sluice_machines_month_dollars", help);
        for source in &shown.sources {
            costs.sample(&[("source", source.name.as_str())], source.month.dollars());
        }
        let help =
            "What the machines of a source have cost in this month that no job was charged for.";
        let mut idle = text.gauge("sluice_machines_idle_month_dollars", help);
        for source in &shown.sources {
            let cost = source.idle.unwrap_or_default();
            idle.sample(&[("source", source.name.as_str())], cost.dollars());
        }
    }
    if !snapshot.account_costs.is_empty() {
        let help = "What the jobs of an account have cost in this month.";
        let mut costs = text.gauge("sluice_account_month_dollars", help);
        for (account, cost) in &snapshot.account_costs {
            costs.sample(&[("account", account.as_str())], cost.month.dollars());
        }
    }
    if !shown.budgets.is_empty() {
        let help = "What the jobs of an account may cost in a month.";
        let mut budgets = text.gauge("sluice_account_budget_dollars", help);
        for budget in &shown.budgets {
            budgets.sample(&[("account", budget.account.as_str())], budget.month.dollars());
        }
    }
}
