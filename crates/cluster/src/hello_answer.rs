//! What a node that says hello must do to agree with the state. The server's dispatcher and the fault simulator carry it out.

use crate::membership::JoinRecord;
use crate::state::State;
use crate::state::job::Job;
use model::id::AttemptId;
use model::run::Outcome;
use std::collections::HashSet;

/// About one attempt that the node is to hold, or holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloAnswer {
    /// The node does not have it: it is launched, with its steps; where it is suspended, once it is resumed.
    Launch(AttemptId),
    /// The node does not have it any more, and it is not launched again.
    Missing(AttemptId),
    /// It is to end so; the order may have been lost.
    End(AttemptId, Outcome),
    /// It goes on: its limit, and whether it is suspended, may have been lost.
    GoOn(AttemptId),
    /// Nobody waits for it, and nothing of it is left.
    Forget(AttemptId),
}

impl State {
    /// What follows from the attempts that the node holds, and whether each is alive. `is_sent` says whether the attempt's launch is on
    /// its way on the same link: the hello was sent before it.
    pub fn hello_answers(
        &self,
        node: &str,
        held: &[(AttemptId, bool)],
        is_sent: impl Fn(AttemptId) -> bool,
    ) -> Vec<HelloAnswer> {
        let Some(known) = self.nodes.get(node) else { return Vec::new() };
        let here: HashSet<AttemptId> = held.iter().map(|(attempt, _)| *attempt).collect();
        let of_holder = |attempt: &AttemptId| {
            let active = self.job(attempt.job).and_then(Job::attempt);
            let ending = active.and_then(|active| active.ending);
            match (here.contains(attempt), ending) {
                (false, _) if is_sent(*attempt) => None,
                (false, None) if !self.may_have_been_launched(node, *attempt) => {
                    Some(HelloAnswer::Launch(*attempt))
                }
                (false, _) => Some(HelloAnswer::Missing(*attempt)),
                (true, Some(ending)) => Some(HelloAnswer::End(*attempt, ending.outcome)),
                (true, None) => Some(HelloAnswer::GoOn(*attempt)),
            }
        };
        let is_over = |(attempt, alive): &&(AttemptId, bool)| {
            !alive && !known.holders.contains(attempt) && !known.stale.contains(attempt)
        };
        let over = held.iter().filter(is_over).map(|(attempt, _)| HelloAnswer::Forget(*attempt));
        known.holders.iter().filter_map(of_holder).chain(over).collect()
    }

    /// Whether an agent that this one knows nothing of may have started the attempt: it is not launched twice under one number.
    fn may_have_been_launched(&self, node: &str, attempt: AttemptId) -> bool {
        let of_former_agent = |join: &JoinRecord| join.former_attempts.contains(&attempt);
        self.was_launched_before_restore(attempt)
            || self.joins.get(node).is_some_and(of_former_agent)
    }

    /// Whether the attempt was launched before the backup that the state was restored from, or before the journal lost its end: it
    /// ended after it, or its node was lost too. It may have run to its end, and is not launched once more under the same number.
    fn was_launched_before_restore(&self, attempt: AttemptId) -> bool {
        let start = self.job(attempt.job).and_then(Job::attempt).map(|active| active.start);
        start.is_some_and(|start| self.restored.is_some_and(|at| start < at))
    }
}
