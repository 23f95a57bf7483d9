//! A submission that a client sends again because it has not heard the answer: the job that it has become is answered.

use cluster::{Job, State};
use model::run::JobSpec;
use std::sync::Arc;

/// The job that came of a submission before, by the id of its call and its owner. Of a het job it is the first.
pub fn find<'a>(state: &'a State, spec: &JobSpec) -> Option<&'a Job> {
    let call = spec.call.as_ref()?;
    let is_it = |job: &&Arc<Job>| {
        job.spec.call.as_ref() == Some(call) && job.spec.owner.uid == spec.owner.uid
    };
    // Jobs are in the order of their ids, and a repeat is rare.
    state.jobs.values().find(is_it).map(|job| &**job)
}

#[cfg(test)]
mod tests {
    use crate::http::calls;
    use crate::testing::{TestServer, submission, user};
    use model::id::CallId;
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
        let mut other = user();
        (other.name, other.uid) = ("bob".into(), user().uid + 1);
        assert_ne!(ask(Call::Resubmit(with_id("c1")), other).await, first);
        // A call without an id, or one that is no repeat, is always a job of its own.
        assert_ne!(ask(Call::Submit(with_id("c1")), user()).await, first);
        assert_eq!(server.shared.read().jobs.len(), 4);
    }
}
