//! How a job is ended from outside: what its output says, and how long it has.

use cluster::{Job, State};
use model::attempt::EndCause;
use model::run::{LaunchKind, Outcome};
use slurm::environment::notice::{self, Cause};

/// The lines for the output of a job that is ended from outside: one for its script, one for its steps.
pub fn end_notices(job: &Job, outcome: Outcome) -> Option<(String, String)> {
    let cause = match outcome {
        Outcome::Cancelled { .. } => Cause::Cancelled,
        Outcome::Requeued => Cause::Requeue,
        Outcome::Preempted => Cause::Preemption,
        Outcome::NodeFail => Cause::NodeFailure,
        Outcome::Deadline => Cause::TimeLimit,
        // The limit of time itself is kept, and told, by each node.
        Outcome::Timeout if is_out_of_cpu_time(job) => Cause::CpuTimeLimit,
        _ => return None,
    };
    Some((notice::job(job.id, cause), notice::step(cause)))
}

fn is_out_of_cpu_time(job: &Job) -> bool {
    let ending = job.attempt().and_then(|attempt| attempt.ending.as_ref());
    ending.is_some_and(|ending| ending.cause == EndCause::CpuTimeExhausted)
}

/// The line for the output of a step that is cancelled.
pub fn step_notice() -> String {
    notice::step(Cause::Cancelled)
}

/// Seconds between the signal that ends a job and the kill. A task has dstack's own where it says nothing.
pub fn stop_s(state: &State, job: &Job) -> u32 {
    let unsaid = match job.spec.launch.kind {
        LaunchKind::Task => dstack::configuration::policy::STOP_S,
        LaunchKind::Batch | LaunchKind::Interactive => state.config.parameters.kill_wait_s,
    };
    job.spec.launch.stop_s.unwrap_or(unsaid)
}

/// The same for an end that others wait for, and that is no stop: a task then has as long as any job unless it says more.
pub fn interruption_s(state: &State, job: &Job) -> u32 {
    job.spec.launch.stop_s.unwrap_or(state.config.parameters.kill_wait_s)
}
