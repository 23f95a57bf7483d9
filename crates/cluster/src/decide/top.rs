//! `scontrol top`: puts a job before the others of the same user, partition, account, QOS and dstack `priority`.

use crate::authorise::{Act, authorise};
use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use crate::state::job::Job;
use crate::view::priority::Ranking;
use model::change::JobField;
use model::reason::Refusal;

/// The largest nice value.
const NICE_MAX: i64 = 2_147_483_645;

impl State {
    /// The job gets the highest priority of its kind, and those that were before it are lowered by as little as needed.
    pub(super) fn top(&self, job: &Job, context: &Context) -> Result<Vec<Event>, Refusal> {
        if !self.config.parameters.user_top {
            authorise(self, &context.by, Act::Operate)?;
        }
        if !job.is_waiting() {
            return Err(if job.has_ended() {
                Refusal::JobFinished(job.id)
            } else {
                Refusal::JobNotPending(job.id)
            });
        }
        let ranking = Ranking::new(self, context.now);
        // No nice value leads past a run of a higher dstack `priority`.
        let precedence = |job: &Job| job.run_precedence(&self.config.parameters.priority);
        let kind = |job: &Job| {
            let partitions = job.spec.request().partitions.clone();
            let names = (job.account.clone(), job.qos.clone());
            (job.spec.owner.uid, partitions, names, precedence(job))
        };
        let mine = kind(job);
        if mine.1.len() > 1 || job.hold.is_some() {
            return Ok(Vec::new());
        }
        let like = |other: &&Job| other.id != job.id && kind(other) == mine;
        let own = ranking.shown(job, context.now) as i64;
        let mut others: Vec<(i64, &Job)> = self
            .queue
            .iter()
            .filter_map(|id| self.job(*id))
            .filter(like)
            .map(|other| (ranking.shown(other, context.now) as i64, other))
            .filter(|(priority, _)| *priority >= own)
            .collect();
        others.sort_by_key(|(priority, other)| (-*priority, other.id));
        let Some((highest, _)) = others.first() else { return Ok(Vec::new()) };
        let mut events = vec![moved(job, own - highest, context)];
        let mut below = *highest;
        for (priority, other) in others {
            if priority < below {
                break;
            }
            below -= 1;
            events.push(moved(other, priority - below, context));
        }
        Ok(events)
    }
}

/// Lowers the job's priority by `by`.
fn moved(job: &Job, by: i64, context: &Context) -> Event {
    let nice = (i64::from(job.spec.nice) + by).clamp(-NICE_MAX, NICE_MAX) as i32;
    Event::Changed { job: job.id, fields: vec![JobField::Nice(nice)], at: context.now }
}
