//! Which jobs and nodes an event changed, for the next view.

use crate::event::Event;
use crate::state::State;

impl State {
    /// Notes what the event, which is applied, changed of what views show. The frequent events name their jobs and nodes; after any
    /// other the next view is compared with the whole state.
    pub(super) fn note_changes(&mut self, event: &Event) {
        let log = &mut self.change_log;
        match event {
            Event::Submitted(submitted) => log.note_job(submitted.job),
            Event::Started(started) => {
                if let Some((array, _)) = started.task {
                    log.note_job(array);
                }
                log.note_job(started.attempt.job);
                started.allocation.node_names().for_each(|name| log.note_node(name));
            }
            Event::Held { job, .. }
            | Event::Released { job }
            | Event::Changed { job, .. }
            | Event::Ending { job, .. }
            | Event::Ended { job, .. } => log.note_job(*job),
            Event::PrologEndedOnNode { attempt, .. } => log.note_job(attempt.job),
            // A node that left the configuration goes with its last job: a view that does not find it is compared with the whole state.
            Event::AttemptEndedOnNode { attempt, node, .. } => {
                log.note_job(attempt.job);
                log.note_node(node);
            }
            // Views show no steps and networks, nothing of jobs that have ended, and not who did what. They see by themselves that a
            // period ended: it changes priorities alone.
            Event::StepStarted { .. }
            | Event::StepEndedOnNode { .. }
            | Event::NetworkMade { .. }
            | Event::Purged { .. }
            | Event::UsagePeriodEnded { .. }
            | Event::Noted(_) => {}
            _ => log.note_anything(),
        }
    }
}
