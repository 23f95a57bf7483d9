//! What came out of a walk: the plan, the estimates, the reasons.

use super::{Known, Planner};
use crate::backfill::Ground;
use crate::shape::Shape;
use crate::view::{Estimate, Plan};
use model::id::JobId;
use model::reason::Reason;
use std::collections::{HashMap, HashSet};

impl<'a> Planner<'a> {
    /// Walks until the job's estimate is known.
    pub fn expect(&mut self, job: JobId) -> Option<Estimate> {
        let places = &self.line.places;
        let last = places.iter().rposition(|place| place.job() == job)?;
        for at in 0..=last {
            self.turn(at);
        }
        let found = self.estimates.iter().find(|estimate| estimate.job == job).cloned();
        found.or_else(|| {
            let start = self.starts.iter().find(|start| start.job == job)?;
            let nodes = start.allocation.node_names().map(str::to_string).collect();
            Some(Estimate { job, start: self.now, nodes })
        })
    }

    /// Walks up to the job's first turn; how many entries had theirs before it in its partition.
    pub fn walk_to(&mut self, job: JobId) -> u32 {
        let places = &self.line.places;
        let Some(first) = places.iter().position(|place| place.job() == job) else { return 0 };
        for at in 0..first {
            self.turn(at);
        }
        let partition = places[first].turn.partition;
        let ahead = places[..first].iter().filter(|place| place.turn.partition == partition);
        ahead.count() as u32
    }

    /// The shape that the job has in the nth of its partitions.
    pub fn ground_of(
        &mut self,
        job: JobId,
        nth: usize,
    ) -> Option<(&mut Shape<'a>, Ground<'_, 'a>)> {
        let mut mine = self.line.places.iter().filter(|place| place.job() == job);
        let place = mine.find(|place| place.key.4 as usize == nth)?;
        Some(self.ground(place.shape as usize))
    }

    /// Of the reasons in several partitions the one nearest to a start stands.
    pub(super) fn note(&mut self, waiting: u32, reason: Reason) {
        let entry = &self.line.entries[waiting as usize];
        if entry.turns <= 1 {
            self.reasons.push((entry.job, reason));
            return;
        }
        let distance = |reason: &Reason| match reason {
            Reason::Resources => 0,
            Reason::Priority => 1,
            _ => 2,
        };
        match self.reason_at.get(&waiting) {
            None => {
                self.reason_at.insert(waiting, self.reasons.len());
                self.reasons.push((entry.job, reason));
            }
            Some(&at) => {
                let known = &mut self.reasons[at].1;
                if distance(&reason) < distance(known) {
                    *known = reason;
                }
            }
        }
    }

    /// For each entry, in order, when it is expected: now where it starts.
    pub fn into_estimates(self) -> Vec<Estimate> {
        let starting = self.starts.into_iter().map(|start| {
            let nodes = start.allocation.nodes.into_iter().map(|share| share.node).collect();
            Estimate { job: start.job, start: self.now, nodes }
        });
        let mut by_job: HashMap<JobId, Estimate> = HashMap::new();
        for estimate in starting.chain(self.estimates) {
            by_job.entry(estimate.job).or_insert(estimate);
        }
        self.line.places.iter().filter_map(|place| by_job.remove(&place.job())).collect()
    }

    pub fn finish(mut self) -> (Plan, Known) {
        // One that is in no partition had no turn.
        let mut turnless = self.line.turnless.clone();
        turnless.sort_unstable_by_key(|&at| self.view.queue[at as usize].job);
        for &waiting in &turnless {
            self.note(waiting, Reason::NotPlanned);
        }
        // A reason of one turn is void if the rest started at another.
        let started = |(waiting, _): &(&u32, &usize)| self.left[**waiting as usize] == 0;
        let void: HashSet<usize> =
            self.reason_at.iter().filter(started).map(|(_, at)| *at).collect();
        if !void.is_empty() {
            let mut at = 0..;
            self.reasons.retain(|_| at.next().is_none_or(|at| !void.contains(&at)));
        }
        let plan = Plan {
            starts: self.starts,
            reasons: self.reasons,
            estimates: self.estimates,
            preemptions: self.preemptions,
            resumes: self.resumes,
        };
        (plan, self.known)
    }
}
