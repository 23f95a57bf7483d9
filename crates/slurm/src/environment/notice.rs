//! The lines that a node writes into a job's error output, in the words of `slurmstepd`.
//!
//! The node fills in `{time}`, `{node}`, `{step}`, `{count}`, `{what}` and `{error}`.

use model::id::JobId;
use wire::order::Notices;

/// Why a job or step is ended before it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A user or operator cancelled it.
    Cancelled,
    TimeLimit,
    CpuTimeLimit,
    Preemption,
    Requeue,
    NodeFailure,
}

impl Cause {
    fn words(self) -> &'static str {
        match self {
            Cause::Cancelled => "",
            Cause::TimeLimit => " DUE TO TIME LIMIT",
            Cause::CpuTimeLimit => " DUE TO CPU TIME LIMIT",
            Cause::Preemption => " DUE TO PREEMPTION",
            Cause::Requeue => " DUE TO JOB REQUEUE",
            Cause::NodeFailure => " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        }
    }
}

/// `slurmstepd: error: *** JOB 87 ON node1 CANCELLED AT … DUE TO TIME LIMIT ***`; the node fills in `{node}` and `{time}`.
pub fn job(job: JobId, cause: Cause) -> String {
    ended(&format!("JOB {job}"), cause)
}

/// The line for a step; the node fills in `{step}` as well.
pub fn step(cause: Cause) -> String {
    ended("STEP {step}", cause)
}

fn ended(what: &str, cause: Cause) -> String {
    format!("slurmstepd: error: *** {what} ON {{node}} CANCELLED AT {{time}}{} ***", cause.words())
}

/// The lines that a node is sent with a launch.
pub fn launch_notices(id: JobId) -> Notices {
    Notices {
        time_limit: job(id, Cause::TimeLimit),
        out_of_memory: "slurmstepd: error: Detected {count} oom-kill event(s) in StepId={step}. \
                        Some of your processes may have been killed by the cgroup out-of-memory handler."
            .to_owned(),
        node_failure: job(id, Cause::NodeFailure),
        step_time_limit: step(Cause::TimeLimit),
        cpu_time_limit: job(id, Cause::CpuTimeLimit),
        step_cpu_time_limit: step(Cause::CpuTimeLimit),
        step_cancelled: step(Cause::Cancelled),
        exec_failed: "slurmstepd: error: execve(): {what}: {error}".to_owned(),
        limit_refused: "slurmstepd: error: Can't propagate {what} from submit host: {error}".to_owned(),
        nice_refused: "slurmstepd: error: setpriority(PRIO_PROCESS, {what}): {error}".to_owned(),
        cpu_frequency_refused: "slurmstepd: error: --cpu-freq: {error}".to_owned(),
        work_dir_failed:
            "slurmstepd: error: couldn't chdir to `{what}': {error}: going to /tmp instead"
                .to_owned(),
        task_prolog_failed: "slurmstepd: error: TaskProlog failed status={error}".to_owned(),
        own_prolog_failed: "slurmstepd: error: --task-prolog failed status={error}".to_owned(),
    }
}
