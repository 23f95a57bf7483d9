//! Creating a step: checked, queued behind other steps of its job where it must wait, and handed to the writer.

use crate::dispatch::launch::srun_prolog_epilog;
use crate::secret::references;
use crate::shared::Shared;
use crate::step::ask::step_ask;
use crate::writer::submission::fits_an_order;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::command::StepPlacement;
use model::id::{JobId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use model::step::StepRefusal;
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, CreateStep};
use wire::step::{StepLaunch, StepLayout, StepNode};

/// How long one call waits; the client asks again.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Creates a step, at once or when its turn has come.
pub async fn create(
    shared: &Arc<Shared>,
    by: Principal,
    create: CreateStep,
) -> Result<Answer, Refusal> {
    let CreateStep { job, launch, wait_ms } = create;
    check_texts(&launch)?;
    may_have_steps(shared, &by, job)?;
    check_secrets(shared, job, &launch)?;
    let (queue, ticket) = (&shared.volatile.step_queue, launch.shape.ticket);
    let placed = create_in_turn(shared, by, job, launch, wait_ms).await;
    match &placed {
        Err(Refusal::Step(StepRefusal::Busy)) => queue.pause(job, ticket),
        _ => queue.leave(job, ticket),
    }
    queue.wake_next(&shared.state, job);
    let placed = placed?;
    if placed.known {
        shared.dispatch.step(job, placed.step);
    }
    let nodes = placed.nodes.iter().map(|(share, ranks)| StepNode {
        node: share.node.clone(),
        tasks: ranks.clone(),
        cpus: share.cpus.len(),
    });
    Ok(Answer::Step(StepLayout {
        job,
        step: placed.step,
        attempt: placed.attempt.number,
        nodes: nodes.collect(),
        cpus_per_task: placed.cpus_per_task,
        srun_prolog_epilog: srun_prolog_epilog(&shared.read()),
    }))
}

/// Creates the step when its turn has come; refuses it when the wait is over.
async fn create_in_turn(
    shared: &Arc<Shared>,
    by: Principal,
    job: JobId,
    launch: StepLaunch,
    wait_ms: u64,
) -> Result<StepPlacement, Refusal> {
    let (queue, ticket) = (&shared.volatile.step_queue, launch.shape.ticket);
    let ask = Arc::new(step_ask(&launch));
    let busy = || Refusal::Step(StepRefusal::Busy);
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(wait_ms));
    loop {
        if !queue.must_wait_for_earlier(&shared.state, job, ticket) {
            let command = Command::CreateStep { job, ask: Box::new((*ask).clone()) };
            match shared.writer.run_step(command, by.clone(), job, launch.clone()).await {
                Err(why) if why == busy() => {}
                answered => return answered,
            }
        }
        if wait_ms == 0 || ticket == 0 {
            return Err(busy());
        }
        let wake = queue.enter(job, by.uid, ticket, &ask).ok_or_else(busy)?;
        // A step that ended before this one was queued has woken nobody.
        queue.wake_next(&shared.state, job);
        if tokio::time::timeout_at(deadline, wake.notified()).await.is_err() {
            return Err(busy());
        }
        // Its position is gone: the client has left the queue, or the job is over.
        if !queue.has(job, ticket) {
            return Err(Refusal::JobEnded(job));
        }
    }
}

/// The client does not want the step any more.
pub fn leave(shared: &Shared, by: &Principal, job: JobId, ticket: u64) -> Result<Answer, Refusal> {
    may_have_steps(shared, by, job)?;
    shared.volatile.step_queue.leave(job, ticket);
    Ok(Answer::Done)
}

/// Takes a step's launch again from its `srun`: the server that had it first is gone.
pub fn resend_launch(
    shared: &Shared,
    by: &Principal,
    job: JobId,
    step: StepId,
    launch: StepLaunch,
) -> Result<Answer, Refusal> {
    check_texts(&launch)?;
    let owner = {
        let state = shared.read();
        let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
        authorise(&state, by, Act::ActAsOwner(found))?;
        let attempt = found.attempt().ok_or(Refusal::JobNotRunning(job))?;
        let known = attempt.steps.iter().any(|s| s.id == step && s.end.is_none());
        if !known || !matches!(step, StepId::Number(_)) {
            return Err(Refusal::UnknownStep(format!("{job}.{step}")));
        }
        found.spec.owner.uid
    };
    shared.volatile.step_launches.check_room(owner, job, &launch)?;
    shared.volatile.step_launches.put(owner, job, step, launch);
    shared.dispatch.step(job, step);
    Ok(Answer::Done)
}

/// Refuses a launch that no order could carry to a node.
fn check_texts(launch: &StepLaunch) -> Result<(), Refusal> {
    let programs = launch.programs.iter().flatten();
    let texts = launch.argv.iter().chain(programs).map(String::as_str);
    fits_an_order(texts.chain([launch.environment.as_str()]).map(str::as_bytes), 0)
}

/// Refuses a step that refers to secrets which its job's project does not have.
fn check_secrets(shared: &Shared, job: JobId, launch: &StepLaunch) -> Result<(), Refusal> {
    let state = shared.read();
    let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
    references::check_step(&state, &found.spec, launch)
}

fn may_have_steps(shared: &Shared, by: &Principal, job: JobId) -> Result<(), Refusal> {
    let state = shared.read();
    let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
    authorise(&state, by, Act::ActAsOwner(found))
}
