//! Calls that wait: for a job to start or to end, or for anything to change.

use crate::clock;
use crate::shared::Shared;
use crate::show::job_view::{JobViews, ShownSteps};
use crate::task_groups;
use cluster::State;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use model::change::JobRef;
use model::id::{JobId, RunId};
use model::principal::Principal;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, JobState, Outcome, RunKind, TaskEnds};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, Detail};

/// The longest that one call waits for a job; the client asks again.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub async fn await_start(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    timeout_ms: u64,
    ready: bool,
) -> Result<Answer, Refusal> {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    loop {
        {
            let state = shared.read();
            let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
            authorise(&state, by, Act::ManageJob(found))?;
            let runs = found.attempt().is_some_and(|active| active.ending.is_none());
            let prepares = || runs && task_groups::is_preparing(&state, found);
            let waiting = found.is_waiting() || (ready && prepares());
            if !waiting || tokio::time::Instant::now() >= deadline {
                let cache = RefCell::default();
                let views = JobViews::new(shared, &state, clock::now(), Detail::Full, &cache);
                let view = views.with_steps(ShownSteps::First).job(found, None);
                return Ok(Answer::Start {
                    state: view.state,
                    reason: view.reason.clone(),
                    allocation: found.attempt().map(|a| (*a.allocation).clone()),
                    view: Box::new(view),
                });
            }
        }
        let _ = tokio::time::timeout_at(deadline, commits.changed()).await;
    }
}

pub async fn await_end(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    timeout_ms: u64,
) -> Result<Answer, Refusal> {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    let mut awaited = AwaitedEnd { job, alive: None };
    loop {
        if let Some(end) = awaited.look(&shared.read(), by)? {
            return Ok(end);
        }
        if tokio::time::Instant::now() >= deadline {
            let (exit, reason) = (ExitStatus::default(), Reason::None);
            return Ok(Answer::End { ended: false, exit, outcome: None, reason });
        }
        let _ = tokio::time::timeout_at(deadline, commits.changed()).await;
    }
}

/// The number of commits, once it is another than `seen`, or the time has passed.
pub async fn await_commit(shared: &Shared, seen: Option<u64>, timeout_ms: u64) -> Answer {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    // The sender lives as long as the server: only the time can end this wait otherwise.
    let _ = tokio::time::timeout_at(deadline, commits.wait_for(|count| Some(*count) != seen)).await;
    let count = *commits.borrow();
    Answer::Commits { count }
}

/// A job, or all tasks of an array, whose end is waited for. An array may have very many tasks, one user may have thousands of calls
/// that wait, and each looks after each commit: one task that lives says that not all have ended.
struct AwaitedEnd {
    job: JobId,
    /// A task that had not ended at the last look.
    alive: Option<JobId>,
}

impl AwaitedEnd {
    /// The end of the job, or of every task of the array: the highest exit status of them.
    fn look(&mut self, state: &State, by: &Principal) -> Result<Option<Answer>, Refusal> {
        let viewer = Viewer::new(state, by);
        let lives =
            |id: JobId| state.job(id).is_some_and(|job| !job.has_ended() && viewer.job(job));
        if self.alive.is_some_and(lives) {
            return Ok(None);
        }
        let records = viewer.resolve(&JobRef::whole(self.job));
        if records.is_empty() {
            return Err(Refusal::UnknownJob(self.job.to_string()));
        }
        let alive: Vec<JobId> =
            records.iter().filter(|c| !c.job.has_ended()).map(|c| c.job.id).collect();
        // Any of them: whoever ends them in an order of his own does not know which.
        self.alive = alive.get(random_place(alive.len())).copied();
        if self.alive.is_some() {
            return Ok(None);
        }
        let ends: Vec<_> = records.iter().filter_map(|c| c.job.ended()).collect();
        let mut exit = ends.iter().map(|e| e.exit).max().unwrap_or_default();
        let failed = ends.iter().find(|e| e.outcome != Outcome::Completed);
        let mut outcome = failed.map_or(Outcome::Completed, |e| e.outcome);
        let reason = failed.map_or(Reason::None, |e| e.reason.clone());
        // The first tasks of a long array may have left memory: the run keeps how all of them ended.
        if let Some(all) = self.ends_of_array(state, records[0].job.run) {
            exit = exit.max(ExitStatus { code: all.code_max, signal: 0 });
            if failed.is_none() && all.state != Some(JobState::Completed) {
                outcome = Outcome::Failed;
            }
        }
        Ok(Some(Answer::End { ended: true, exit, outcome: Some(outcome), reason }))
    }

    /// How all tasks ended, where the whole array is waited for.
    fn ends_of_array(&self, state: &State, run: RunId) -> Option<TaskEnds> {
        let run = state.runs.get(&run)?;
        let is_whole = run.kind == RunKind::Array && run.job == self.job && !run.ends.is_none();
        is_whole.then_some(run.ends)
    }
}

/// A place among so many; 0 of none.
fn random_place(count: usize) -> usize {
    let random = RandomState::new().hash_one(count);
    random.checked_rem(count as u64).unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};
    use cluster::Command;
    use cluster::command::CancelJobs;
    use model::change::JobFilter;

    #[tokio::test]
    async fn array_that_is_waited_for_is_looked_through_only_when_the_task_that_lived_has_ended() {
        let server = TestServer::start().await;
        let one = server.submit("name: one").await.expect("a job");
        let other = server.submit("name: other").await.expect("a job");
        let by = user();
        let mut awaited = AwaitedEnd { job: one, alive: None };
        let lives = |found: Result<Option<Answer>, Refusal>| matches!(found, Ok(None));
        assert!(lives(awaited.look(&server.shared.read(), &by)));
        assert_eq!(awaited.alive, Some(one));
        // What it stands for is not looked up as long as that one lives.
        awaited.job = JobId(999);
        awaited.alive = Some(other);
        assert!(lives(awaited.look(&server.shared.read(), &by)));
        let cancel = CancelJobs {
            filter: JobFilter { jobs: vec![JobRef::whole(other)], ..JobFilter::default() },
            step: None,
            signal: None,
            batch_only: false,
            full: false,
        };
        server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
        let unknown = awaited.look(&server.shared.read(), &by);
        assert!(matches!(unknown, Err(Refusal::UnknownJob(_))), "{unknown:?}");
        awaited.job = other;
        let end = awaited.look(&server.shared.read(), &by);
        assert!(matches!(end, Ok(Some(Answer::End { ended: true, .. }))), "{end:?}");
    }

    #[tokio::test]
    async fn end_of_an_array_is_that_of_the_tasks_too_that_have_left_memory() {
        let server = TestServer::start().await;
        let job = server.submit("name: both\narray: 0-1").await.expect("an array");
        let cancel = CancelJobs {
            filter: JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() },
            step: None,
            signal: None,
            batch_only: false,
            full: false,
        };
        server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
        let mut state = server.shared.read().clone();
        let run = state.jobs[&job].run;
        let mut ends = TaskEnds::default();
        let first = ExitStatus { code: 7, signal: 0 };
        ends.add(1, Outcome::Failed, first);
        ends.add(1, Outcome::Completed, ExitStatus::default());
        state.runs.get_mut(&run).expect("a run").ends = ends;
        let end = AwaitedEnd { job, alive: None }.look(&state, &user());
        let Ok(Some(Answer::End { exit, .. })) = end else { panic!("{end:?}") };
        assert_eq!(exit, first);
    }

    #[test]
    fn place_is_one_of_those_that_there_are() {
        assert_eq!((random_place(0), random_place(1)), (0, 0));
        assert!((0..100).all(|_| random_place(3) < 3));
    }

    #[tokio::test]
    async fn whoever_has_seen_every_commit_waits_for_the_next() {
        let server = TestServer::start().await;
        let count =
            async |seen, timeout_ms| match await_commit(&server.shared, seen, timeout_ms).await {
                Answer::Commits { count } => count,
                other => panic!("{other:?}"),
            };
        let before = count(None, 60_000).await;
        let later = async {
            server.submit("name: one").await.expect("a job");
        };
        let (after, ()) = tokio::join!(count(Some(before), 60_000), later);
        assert!(after > before, "{before}, {after}");
        assert_ne!(count(Some(before), 60_000).await, before, "it has moved already");
    }
}
