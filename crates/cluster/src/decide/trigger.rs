//! Commands about triggers. Programs run as the server's own user, so only administrators set them, as in Slurm, where
//! `strigger` is for `SlurmUser`.

use super::activity::noted;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::state::State;
use model::activity::{ActivityKind, ActivityTarget, SiteThing};
use model::bounds;
use model::reason::Refusal;
use model::trigger::{self, Trigger, TriggerFilter, TriggerRequest, TriggerSubject};

impl State {
    pub(super) fn decide_set_trigger(
        &self,
        request: &TriggerRequest,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::SetTriggers)?;
        trigger::check(request).map_err(Refusal::Other)?;
        bounds::TRIGGER_PROGRAM_BYTES.hold(request.program.len())?;
        match &request.subject {
            TriggerSubject::Job(job) => {
                let known = self.job(*job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
                if known.has_ended() {
                    return Err(Refusal::JobEnded(*job));
                }
            }
            TriggerSubject::Nodes(names) => {
                bounds::NODES.hold(names.len())?;
                if let Some(name) = names.iter().find(|name| !self.nodes.contains_key(*name)) {
                    return Err(Refusal::UnknownNode(name.clone()));
                }
            }
        }
        let own = self.triggers.values().filter(|known| known.owner_uid == context.by.uid);
        bounds::TRIGGERS.hold(own.count() + 1)?;
        let trigger = Trigger {
            id: self.last_trigger.checked_add(1).unwrap_or(1),
            owner: context.by.name.clone(),
            owner_uid: context.by.uid,
            set: context.now,
            request: request.clone(),
        };
        let note = noted(context, target(&trigger), ActivityKind::Created);
        Ok(vec![Event::TriggerSet(Box::new(trigger)), note].into())
    }

    /// Removes those that the filter names and the caller may remove.
    pub(super) fn decide_clear_triggers(
        &self,
        filter: &TriggerFilter,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let named: Vec<&Trigger> =
            self.triggers.values().filter(|trigger| filter.admits(trigger)).collect();
        let may = |trigger: &&&Trigger| {
            authorise(self, &context.by, Act::ClearTriggersOf(trigger.owner_uid)).is_ok()
        };
        let cleared: Vec<&&Trigger> = named.iter().filter(may).collect();
        if cleared.is_empty() {
            let name = filter.id.map_or_else(|| "like that".to_owned(), |id| id.to_string());
            return Err(Refusal::UnknownThing { what: "trigger".into(), name });
        }
        let events = cleared.into_iter().flat_map(|trigger| {
            let note = noted(context, target(trigger), ActivityKind::Deleted);
            [Event::TriggerRemoved { id: trigger.id }, note]
        });
        Ok(events.collect::<Vec<_>>().into())
    }

    /// The server's own: a trigger has fired and does not stay, or what it waits for cannot come any more.
    pub(super) fn decide_settle_trigger(&self, id: u32) -> Decision {
        let known = self.triggers.contains_key(&id);
        known.then_some(Event::TriggerRemoved { id }).into_iter().collect::<Vec<_>>().into()
    }
}

fn target(trigger: &Trigger) -> ActivityTarget {
    let request = &trigger.request;
    let program = request.program.split_whitespace().next().unwrap_or_default();
    let name = format!("{} {} {program}", trigger.id, request.event.word());
    ActivityTarget::Site { kind: SiteThing::Trigger, name }
}
