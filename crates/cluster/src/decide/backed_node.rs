//! Nodes of slurm.conf with `State=CLOUD` that a source backs: instead of a call of `ResumeProgram` a machine is made for a
//! node that is powered up, and instead of one of `SuspendProgram` it is deleted when the node is powered down.

use super::machine::new_machine;
use super::power::powered;
use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use model::machine::{Machine, MachinePhase, MachineTerms, SourceConfig};
use model::power::PowerState;
use sched::machines::MachineOrder;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

impl State {
    pub(super) fn backed_node_events(&self, context: &Context) -> Vec<Event> {
        let mut events = Vec::new();
        let mut last = self.last_machine;
        for source in &self.config.sources {
            for name in &source.nodes {
                let Some(node) = self.nodes.get(name) else { continue };
                let machine = self.machines.values().find(|of| of.is_live() && of.node == *name);
                match (node.power, machine) {
                    (PowerState::PoweringUp { .. }, None) => {
                        if let Some(asked) = self.machine_for_node(source, name, last, context) {
                            last = asked.number;
                            events.push(Event::MachineSet(Box::new(asked)));
                        }
                    }
                    (power, Some(machine)) if is_without_machine(power) && is_there(machine) => {
                        let why = "its node is powered down";
                        events.extend(self.machine_leaves(machine.clone(), why, context.now));
                    }
                    _ => {}
                }
                // The call of the site's program is this.
                if let Some(program) = node.power.program_due() {
                    events.push(powered(name, node.power.after_program(program), context.now));
                }
            }
        }
        events
    }

    /// The machine for a node that is powered up, within the limits of the source.
    fn machine_for_node(
        &self,
        source: &SourceConfig,
        node: &str,
        last: u32,
        context: &Context,
    ) -> Option<Machine> {
        let config = &self.nodes.get(node)?.config;
        let limits = self.source_view(source, context.now);
        let offer = self.fitting_offer(source, config, &limits.failed)?;
        let is_held = limits.machines >= limits.machines_max
            || limits.price_hour_max.is_some_and(|most| limits.price_hour + offer.price > most)
            || limits.budget_left.is_some_and(|left| offer.price.for_time(HOUR) > left);
        if is_held {
            return None;
        }
        let holder = self.nodes.get(node)?.holders.first().map(|attempt| attempt.job);
        let order = MachineOrder {
            source: source.name.clone(),
            offer: offer.clone(),
            job: holder,
            fleet: None,
        };
        let number = last.saturating_add(1);
        Some(new_machine(&order, node.to_owned(), number, MachineTerms::default(), context))
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

fn is_there(machine: &Machine) -> bool {
    matches!(machine.phase, MachinePhase::Asked | MachinePhase::Made | MachinePhase::Joined)
}
