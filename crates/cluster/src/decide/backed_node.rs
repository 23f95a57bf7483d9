//! Nodes of slurm.conf with `State=CLOUD` that a source backs: instead of a call of `ResumeProgram` a machine is made for a
//! node that is powered up, and instead of one of `SuspendProgram` it is deleted when the node is powered down.

use super::machine::{is_serving, new_machine};
use super::power::powered;
use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use model::health::HealthSource;
use model::machine::{Machine, MachinePhase, MachineTerms, SourceConfig};
use model::node::SlotState;
use model::power::PowerState;
use sched::machines::{AccountBudget, MachineOrder, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// What sources and accounts have left, with the machines that were asked for in this pass: the state does not have these yet.
struct Left {
    last: u32,
    source: Source,
    budgets: BTreeMap<String, AccountBudget>,
}

impl State {
    pub(super) fn backed_node_events(&self, context: &Context) -> Vec<Event> {
        let mut events = Vec::new();
        let mut last = self.last_machine;
        let mut budgets: Option<BTreeMap<String, AccountBudget>> = None;
        for source in &self.config.sources {
            let mut left: Option<Left> = None;
            for name in &source.nodes {
                let Some(node) = self.nodes.get(name) else { continue };
                let machine = self.machine_of_node(name);
                match (node.power, machine) {
                    (PowerState::PoweringUp { .. }, None) => {
                        let left = left.get_or_insert_with(|| Left {
                            last,
                            source: self.source_view(source, context.now),
                            budgets: budgets.take().unwrap_or_else(|| {
                                self.budget_view_beside(&self.unmade_nodes(), context.now)
                            }),
                        });
                        if let Some(asked) = self.machine_for_node(source, name, left, context) {
                            events.push(Event::MachineSet(Box::new(asked)));
                        }
                    }
                    (power, Some(machine)) if is_without_machine(power) && is_serving(machine) => {
                        let why = "its node is powered down";
                        events.extend(self.machine_leaves(machine.clone(), why, context.now));
                    }
                    (PowerState::On | PowerState::PowerDownPending { .. }, None)
                        if node.slot == SlotState::Down && node.holders.is_empty() =>
                    {
                        events.extend(self.without_machine(name, context));
                    }
                    _ => {}
                }
                // The call of the site's program is this.
                if let Some(program) = node.power.program_due() {
                    events.push(powered(name, node.power.after_program(program), context.now));
                }
            }
            // The numbers and the budgets of accounts are those of all sources.
            if let Some(left) = left {
                last = left.last;
                budgets = Some(left.budgets);
            }
        }
        events
    }

    /// The node's machine was taken back or is lost, and its agent is silent: the node is powered down, so that a job may have
    /// it powered up. What was wrong with that machine is not wrong with the next one; what an administrator set stays.
    fn without_machine(&self, name: &str, context: &Context) -> Vec<Event> {
        let mut events = vec![powered(name, PowerState::PoweredDown, context.now)];
        let is_in_service = self.nodes.get(name).is_some_and(|node| node.admin.is_none());
        if is_in_service {
            events.push(Event::NodeAdmin { node: name.to_owned(), admin: None, reason: None });
        }
        let source = HealthSource::Interruption;
        events.extend(self.decide_node_health(name, source, None, context));
        events
    }

    /// Whether a source backs the node, and has no machine for it any more. Jobs still run on one that leaves.
    pub(super) fn has_lost_machine(&self, node: &str) -> bool {
        if self.backing(node).is_none() {
            return false;
        }
        let mut of_node = self.machines.values().filter(|of| of.node == node).peekable();
        of_node.peek().is_some()
            && !of_node.any(|of| is_serving(of) || of.phase == MachinePhase::Leaving)
    }

    fn machine_of_node(&self, node: &str) -> Option<&Machine> {
        self.machines.values().find(|of| of.is_live() && of.node == node)
    }

    /// The nodes that are powered up and have no machine yet.
    fn unmade_nodes(&self) -> BTreeSet<&str> {
        let names = self.config.sources.iter().flat_map(|source| &source.nodes);
        let is_unmade = |name: &&String| {
            let node = self.nodes.get(*name);
            node.is_some_and(|node| matches!(node.power, PowerState::PoweringUp { .. }))
                && self.machine_of_node(name).is_none()
        };
        names.filter(is_unmade).map(String::as_str).collect()
    }

    /// The machine for a node that is powered up, within the limits of the source and the budgets of the accounts of the job
    /// that holds the node. What is left is less by it.
    fn machine_for_node(
        &self,
        source: &SourceConfig,
        node: &str,
        left: &mut Left,
        context: &Context,
    ) -> Option<Machine> {
        let config = &self.nodes.get(node)?.config;
        let limits = &mut left.source;
        let offer = self.fitting_offer(source, config, &limits.failed)?;
        let hour = offer.price.for_time(HOUR);
        let holder = self.nodes.get(node)?.holders.first().map(|attempt| attempt.job);
        let job = holder.and_then(|holder| self.jobs.get(&holder));
        let accounts = job.map(|job| self.billed_accounts(job)).unwrap_or_default();
        let is_spent =
            |name: &String| left.budgets.get(name).is_some_and(|budget| hour > budget.left);
        let is_held = limits.machines >= limits.machines_max
            || limits.price_hour_max.is_some_and(|most| limits.price_hour + offer.price > most)
            || limits.budget_left.is_some_and(|left| hour > left)
            || accounts.iter().any(is_spent);
        if is_held {
            return None;
        }
        limits.machines += 1;
        limits.price_hour = limits.price_hour + offer.price;
        limits.budget_left = limits.budget_left.map(|left| left.less(hour));
        for name in &accounts {
            if let Some(budget) = left.budgets.get_mut(name) {
                budget.left = budget.left.less(hour);
            }
        }
        let order = MachineOrder {
            source: source.name.clone(),
            offer: offer.clone(),
            job: holder,
            fleet: None,
        };
        left.last = left.last.saturating_add(1);
        Some(new_machine(&order, node.to_owned(), left.last, MachineTerms::default(), context))
    }
}

/// Whether a node in this state has no machine, or is to have none any more.
fn is_without_machine(power: PowerState) -> bool {
    matches!(
        power,
        PowerState::PoweringDown { .. }
            | PowerState::PoweredDown
            | PowerState::PowerUpPending
            | PowerState::ResumeFailed
    )
}
