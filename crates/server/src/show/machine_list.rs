//! Sources, machines on demand and budgets, as `sluice machine` and `/metrics` show them.

use crate::shared::source_status::SourceStatuses;
use crate::source_notice;
use cluster::State;
use model::machine::{Machine, MachinePhase};
use model::time::Timestamp;
use wire::machine::{BudgetView, GONE_SHOWN_MAX, MachineView, MachinesView, SourceView};

/// `bound`: the addresses of the agents' port.
pub fn view(
    state: &State,
    statuses: &SourceStatuses,
    bound: &[String],
    now: Timestamp,
) -> MachinesView {
    let sources = state.sources().map(|source| {
        let live = || state.live_machines_of(&source.name);
        let status = statuses.of(&source.name);
        SourceView {
            name: source.name.clone(),
            kind: source.kind.name().to_owned(),
            project: state.backends.get(&source.name).map(|backend| backend.project.clone()),
            regions: source.kind.cloud().map_or_else(Vec::new, |cloud| cloud.regions.clone()),
            offers: state.offers.get(&source.name).map_or(0, |offers| offers.len()) as u32,
            machines: live().count() as u32,
            machines_max: source.machines_max,
            price_hour: live().map(|machine| machine.offer.price).sum(),
            month: state.machine_costs(&source.name, now),
            idle: Some(state.idle_cost(&source.name, now)),
            budget: source.budget_month,
            failure: status.failure().map(str::to_owned),
            notices: source_notice::notices(state, source, bound),
            paused: state
                .source_pauses(&source.name, now)
                .into_iter()
                .find(|pause| pause.offer.is_none()),
            strangers: status.strangers,
        }
    });
    let mut machines: Vec<&Machine> = state.machines.values().collect();
    machines.sort_unstable_by_key(|machine| machine.number);
    let gone = machines.iter().filter(|machine| !machine.is_live()).count();
    let mut left_out = gone.saturating_sub(GONE_SHOWN_MAX);
    machines.retain(|machine| {
        let is_out = !machine.is_live() && left_out > 0;
        left_out -= usize::from(is_out);
        !is_out
    });
    let shown = machines.into_iter().map(|machine| {
        let node = state.nodes.get(&machine.node);
        let has_no_job = node.is_some_and(|node| node.holders.is_empty());
        MachineView {
            machine: machine.clone(),
            idle: machine.phase == MachinePhase::Joined && has_no_job,
            cost: machine.cost(now),
        }
    });
    let budgets = state.budgets_at(now).into_iter().map(|(budget, cost)| BudgetView {
        account: budget.account.clone(),
        month: budget.month,
        spent: cost.month,
        price_hour: cost.price_hour,
        warned: budget.is_warned(cost.month),
    });
    MachinesView {
        sources: sources.collect(),
        machines: shown.collect(),
        budgets: budgets.collect(),
    }
}
