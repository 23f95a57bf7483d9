//! A submission that a client sends again because it has not heard the answer: the job that it has become is answered. The first of
//! the two may come last, over a connection that was held up: it is the same job then.

use cluster::{Job, State};
use model::id::CallId;
use model::run::JobSpec;
use model::time::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long after a submission it may come again. A command that has lost its server asks again for ten seconds.
const REPEAT_MAX: Duration = Duration::from_secs(60);

/// The job that came of a submission before, by the id of its call and its owner. Of a het job it is the first.
pub fn find<'a>(state: &'a State, spec: &JobSpec, now: Timestamp) -> Option<&'a Job> {
    let call = spec.call.as_ref()?;
    let is_it = |job: &&Arc<Job>| {
        job.spec.call.as_ref() == Some(call) && job.spec.owner.uid == spec.owner.uid
    };
    // Jobs are in the order of their ids: the newest come first, and older ones are not looked through while all other commands
    // wait. A task of an array has an id of its start and the time of its array.
    let oldest = now - REPEAT_MAX;
    let is_recent = |job: &&Arc<Job>| job.task.is_some() || job.submit >= oldest;
    let recent = state.jobs.values().rev().take_while(is_recent);
    recent.filter(is_it).last().map(|job| &**job)
}

/// The most repeated submissions that are remembered. The oldest is forgotten for one more.
const REPEATS_MAX: usize = 10_000;

/// The submissions that came again, by their call and their owner, as long as the first of them may still come.
#[derive(Default)]
pub struct Repeats(VecDeque<(Timestamp, u32, CallId)>);

impl Repeats {
    pub fn note(&mut self, spec: &JobSpec, now: Timestamp) {
        let Some(call) = &spec.call else { return };
        let oldest = now - REPEAT_MAX;
        while self.0.len() >= REPEATS_MAX || self.0.front().is_some_and(|(at, ..)| *at < oldest) {
            self.0.pop_front();
        }
        self.0.push_back((now, spec.owner.uid, call.clone()));
    }

    /// Whether this submission came again before.
    pub fn has(&self, spec: &JobSpec) -> bool {
        let is_it = |(_, uid, call): &(Timestamp, u32, CallId)| {
            *uid == spec.owner.uid && spec.call.as_ref() == Some(call)
        };
        self.0.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::{REPEAT_MAX, REPEATS_MAX, Repeats, find};
    use crate::clock;
    use crate::http::calls;
    use crate::testing::{TestServer, submission, user};
    use model::id::CallId;
    use std::time::Duration;
    use wire::client::{Answer, Call, Submission};

    #[tokio::test(flavor = "multi_thread")]
    async fn submission_that_is_repeated_is_one_job_and_another_users_is_not_it() {
        let server = TestServer::start().await;
        let with_id = |id: &str| {
            let mut made: Submission = submission("name: once");
            made.spec.call = CallId::parse(id);
            Box::new(made)
        };
        let ask = async |call: Call, by| match calls::answer(&server.shared, by, call).await {
            Ok(Answer::Submitted { job, run, .. }) => (job, run),
            other => panic!("{other:?}"),
        };
        let first = ask(Call::Submit(with_id("c1")), user()).await;
        assert_eq!(ask(Call::Resubmit(with_id("c1")), user()).await, first);
        // The first may be what was lost.
        let second = ask(Call::Resubmit(with_id("c2")), user()).await;
        assert_ne!(second, first);
        assert_eq!(ask(Call::Resubmit(with_id("c2")), user()).await, second);
        let only = |id: &str| {
            let mut made = with_id(id);
            made.is_only_of_call = true;
            made
        };
        assert_eq!(ask(Call::Submit(only("c2")), user()).await, second, "the first came last");
        let third = ask(Call::Submit(only("c3")), user()).await;
        assert_eq!(ask(Call::Resubmit(only("c3")), user()).await, third);
        let mut other = user();
        (other.name, other.uid) = ("bob".into(), user().uid + 1);
        assert_ne!(ask(Call::Resubmit(with_id("c1")), other).await, first);
        // A call without an id, or one that is no repeat, is always a job of its own.
        assert_ne!(ask(Call::Submit(with_id("c1")), user()).await, first);
        let state = server.shared.read();
        assert_eq!(state.jobs.len(), 5);
        let repeat = &state.jobs[&first.0].spec;
        let found = |at| find(&state, repeat, at).map(|job| job.id);
        assert_eq!(found(clock::now()), Some(first.0), "the first of those with this id");
        assert_eq!(found(clock::now() + REPEAT_MAX + Duration::from_secs(60)), None);
    }

    #[test]
    fn repeats_are_remembered_for_a_while_and_only_so_many() {
        let spec = |id: &str| {
            let mut spec = submission("name: once").spec;
            spec.call = CallId::parse(id);
            spec
        };
        let (now, mut repeats) = (clock::now(), Repeats::default());
        repeats.note(&spec("first"), now);
        assert!(repeats.has(&spec("first")) && !repeats.has(&spec("second")));
        repeats.note(&spec("second"), now + REPEAT_MAX + Duration::from_secs(1));
        assert!(!repeats.has(&spec("first")) && repeats.has(&spec("second")));
        let third = spec("third");
        for _ in 0..REPEATS_MAX {
            repeats.note(&third, now);
        }
        assert!(!repeats.has(&spec("second")));
        assert_eq!(repeats.0.len(), REPEATS_MAX);
    }
}
