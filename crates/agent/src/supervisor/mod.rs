//! The supervisor of one attempt: a small process of one thread, forked by the launcher.
//!
//! It makes the job's group, starts the script or waits for steps, carries the steps' bytes, enforces the time limit,
//! and stays until the group is empty. Agents come and go: what it has to report is kept until one has taken it, and at
//! the end it is in the attempt's folder.
//!
//! - `event_loop`: the only place where the process waits, one `poll` over everything;
//! - `attempt/`: the state of the attempt: script, orders, prolog and epilog, sampling, time limits, the end;
//! - `step/`: steps and their tasks, and the connections to `srun` and `sattach`;
//! - `process/`: one process: fork and exec, environment, binding, limits, usage, reaping;
//! - `owner`: the job's owner by the node's user database;
//! - `folders/`: scratch, private folders in namespaces, disk quota, removal;
//! - `prolog_epilog/`: finding and trusting the site's programs, and a task's prolog;
//! - `deadlines`, `cpu_time_limit`: what is due when; `notice`: lines added to the job's error output;
//! - `agent_connections`: reports to agents and orders from them; `job_group`: the group's limits;
//! - `mount_calls`: system calls for mounts by handle;
//! - `job_context`: what steps need to know of their job; `process_title`: the supervisor's name in a list of processes.

mod agent_connections;
mod attempt;
pub(crate) mod container;
mod cpu_time_limit;
mod deadlines;
mod event_loop;
pub(crate) mod folders;
mod job_context;
mod job_group;
mod job_log;
mod mount_calls;
mod notice;
pub(crate) mod owner;
mod process;
mod process_title;
pub(crate) mod prolog_epilog;
mod step;
mod workspace;

use crate::cgroup::Hierarchy;
use crate::error::AgentError;
use crate::launch_request::LaunchRequest;
use crate::spool::AttemptDir;
use agent_connections::AgentConnections;
use attempt::{Attempt, OwnerLookup};
use job_group::make_group;
use model::reason::LaunchFault;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::setsid;
use std::os::unix::net::UnixStream;
use wire::report::ReportEvent;

/// Called by the launcher before it forks, so that not every supervisor has to find and load the same again.
pub(crate) fn load_before_forks() {
    job_group::cache_machine_limits();
    let _ = process_title::argument_area();
    attempt::load_user_database();
}

/// Runs a supervisor to its end. Returns the process's exit code.
pub(crate) fn run(request: &LaunchRequest, agent: UnixStream, hierarchy: Option<Hierarchy>) -> i32 {
    match prepare(request, agent, hierarchy) {
        Ok((mut attempt, owner_lookup)) => {
            attempt.start(owner_lookup);
            let code = event_loop::run(&mut attempt);
            attempt.sync_images();
            // The process exits next, and the kernel frees everything faster than destructors do.
            std::mem::forget(attempt);
            code
        }
        // Another supervisor has the attempt, or its folder is gone. Nothing was started, and there is no agent to
        // report to.
        Err(_) => 1,
    }
}

fn prepare(
    request: &LaunchRequest,
    agent: UnixStream,
    hierarchy: Option<Hierarchy>,
) -> Result<(Attempt, nix::Result<Option<OwnerLookup>>), AgentError> {
    become_reaper().map_err(|e| AgentError::Link(e.desc().into()))?;
    let dir = AttemptDir::open(&request.folder)?;
    // Fails if any supervisor has the attempt or had it.
    let claim = dir.claim()?;
    let record = claim.read_launch(&dir)?;
    let mut agents = AgentConnections::new(record.attempt, claim, &dir, agent);
    let title = process_title::title(record.attempt);
    // The name also lets `folders/namespaces` recognise this process.
    let _ = std::ffi::CString::new(title).map(|title| prctl::set_name(&title));
    // Without it `ps` shows the launcher's line, and nothing else changes.
    let _ = process_title::show_line(&process_title::line(record.attempt));
    let owner_lookup = OwnerLookup::begin(&record.launch.user);
    match make_group(request, &record, hierarchy) {
        Ok(group) => Ok((Attempt::new(record, dir, agents, group)?, owner_lookup)),
        Err(what) => {
            // The node is reported unfit: other jobs' groups could not be made either.
            let unfit = Some(what.clone());
            let fault = LaunchFault::Other;
            agents.report(ReportEvent::LaunchFailed {
                what,
                fault,
                unfit,
                hold: false,
                user: None,
            });
            agents.write_status(&dir)?;
            agents.flush();
            Err(AgentError::Link("the job's group could not be made".into()))
        }
    }
}

/// Makes this process the reaper of the job's orphans, and restores SIGCHLD, which the launcher ignores.
fn become_reaper() -> nix::Result<()> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    // SAFETY: the default disposition runs no code of ours.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}
