//! The supervisor of one attempt: a small process of one thread, forked by the launcher.
//!
//! It makes the job's group, starts the script or waits for steps, carries the steps' bytes, keeps the time, and stays
//! until the group is empty. Agents come and go: what it has to tell is kept until one has taken it, and at the end it
//! is in the attempt's folder. It waits in one place only, the `poll` below, and never for a single thing.

mod attempt;
mod audience;
mod clock;
mod control;
mod cpu_limit;
mod hold;
mod nice;
mod notice;
mod plan;
pub(crate) mod private;
mod program;
pub(crate) mod quota;
mod reap;
pub(crate) mod remove_tree;
mod rlimit;
mod sample;
pub(crate) mod scratch;
mod shared_memory;
mod spawn;
mod step;
mod step_door;
mod step_limits;
mod step_link;
mod strays;
mod task;
mod task_prolog;

pub(crate) use private::Inside;

use crate::cgroup::{GroupLimits, Hierarchy, JobGroup, Plugin};
use crate::devices;
use crate::error::AgentError;
use crate::launcher::{LaunchRequest, discover};
use crate::spool::{AttemptDir, LaunchRecord};
use crate::wall_clock;
use attempt::Attempt;
use control::Control;
use model::id::AttemptId;
use model::limits::Limits;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::setsid;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use step_link::StepLink;
use task::Which;
use wire::report::ReportEvent;

/// The pause between two tries to be found by the next agent.
const DEAF_TICK: Duration = Duration::from_secs(1);

/// What a ready descriptor belongs to.
#[derive(Debug, Clone, Copy)]
enum Token {
    Children,
    Listener,
    Agents,
    GroupEmpty,
    LeaderReady,
    StepDoor,
    StepLink(usize),
    StepLookers(usize),
    TaskReady(usize, usize),
    TaskOutput(usize, usize, Which),
    TaskInput(usize, usize),
}

/// The whole life of a supervisor; the value is the process's exit code.
pub(crate) fn run(request: &LaunchRequest, agent: UnixStream, hierarchy: Option<Hierarchy>) -> i32 {
    match prepare(request, agent, hierarchy) {
        Ok(mut attempt) => {
            attempt.start();
            let code = watch(&mut attempt);
            // The process ends here; the kernel tidies up faster than we do.
            std::mem::forget(attempt);
            code
        }
        // Another holds the attempt, or its folder is gone: there is nobody to tell, and nothing was started.
        Err(_) => 1,
    }
}

fn prepare(
    request: &LaunchRequest,
    agent: UnixStream,
    hierarchy: Option<Hierarchy>,
) -> Result<Attempt, AgentError> {
    become_reaper().map_err(|e| AgentError::Link(e.desc().into()))?;
    let dir = AttemptDir::open(&request.folder)?;
    // Fails if anybody has the attempt, or had it.
    let claim = dir.claim()?;
    let record = claim.read_launch(&dir)?;
    let mut control = Control::new(record.attempt, claim, &dir, agent);
    let title = title(record.attempt);
    // Only for people who look at a list of processes.
    let _ = std::ffi::CString::new(title).map(|title| prctl::set_name(&title));
    match make_group(request, &record, hierarchy) {
        Ok(group) => Attempt::new(record, dir, control, group),
        Err(what) => {
            // Where one group cannot be made, others cannot either: the next job shall not meet the same.
            let unfit = Some(what.clone());
            control.tell(ReportEvent::LaunchFailed { what, unfit, hold: false });
            control.write_down(&dir)?;
            control.flush();
            Err(AgentError::Link("the job's group could not be made".into()))
        }
    }
}

/// How a list of processes shows a supervisor.
fn title(attempt: AttemptId) -> String {
    format!("sluice:{attempt}")
}

/// Orphans of the job come to this process, and the end of a child wakes it.
fn become_reaper() -> nix::Result<()> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    // SAFETY: the default disposition runs no code of ours.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

fn make_group(
    request: &LaunchRequest,
    record: &LaunchRecord,
    hierarchy: Option<Hierarchy>,
) -> Result<JobGroup, String> {
    let create = |hierarchy: &Hierarchy| {
        let limits = group_limits(record, hierarchy, &request.plugin)?;
        JobGroup::create(hierarchy, &record.group_name(), &limits).map_err(|e| e.to_string())
    };
    match hierarchy.as_ref().map(create) {
        Some(Ok(group)) => Ok(group),
        // What the launcher remembers of the trees may be out of date: look once more.
        Some(Err(_)) | None => create(&discover(request)?),
    }
}

/// The job's limits as the group takes them. With `CgroupPlugin=autodetect` or `disabled` what the machine cannot
/// enforce is left out, and the node says so; with a named plugin it is an error.
fn group_limits(
    record: &LaunchRecord,
    hierarchy: &Hierarchy,
    plugin: &str,
) -> Result<GroupLimits, String> {
    let (limits, can): (&Limits, _) = (&record.limits, hierarchy.capabilities());
    let strict = matches!(plugin.parse(), Ok(Plugin::V1 | Plugin::V2));
    let allowed = |able: bool| able || strict;
    let memory = limits.memory.filter(|_| allowed(can.memory_hard));
    let swap = limits.memory_and_swap.zip(memory).filter(|_| allowed(can.swap));
    let guarded = limits.devices.as_ref().filter(|_| allowed(can.devices));
    let devices = guarded.map(|limits| devices::allowed(limits, record.launch.nodes > 1));
    Ok(GroupLimits {
        memory_bytes: memory.map(|bytes| bytes.0),
        swap_bytes: swap.map(|(both, memory)| both.0.saturating_sub(memory.0)),
        soft_memory_bytes: limits.memory_soft.filter(|_| memory.is_some()).map(|bytes| bytes.0),
        swappiness: limits.swappiness.filter(|_| memory.is_some()),
        count_memory: can.usage_memory,
        cpuset: limits.cpus.as_ref().filter(|_| allowed(can.cpuset)).map(ToString::to_string),
        cpu_time: limits.cpu_time.filter(|_| allowed(can.cpu_time)),
        pids_max: match limits.pids {
            Some(most) => Some(most).filter(|_| allowed(can.pids)),
            None => MACHINE_PIDS.filter(|_| can.pids),
        },
        devices: devices.transpose()?,
    })
}

/// The processes that one job may have where nobody said: half of those that the machine can, so that a job that forks
/// without end leaves the node usable.
static MACHINE_PIDS: LazyLock<Option<u64>> = LazyLock::new(|| {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let most = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(number);
    most.into_iter().flatten().min().map(|most| (most / 2).max(1))
});

/// For the launcher, before it forks the first: what every supervisor would otherwise find out by itself.
pub(crate) fn learn_machine() {
    LazyLock::force(&MACHINE_PIDS);
    // Asking the processor what it can is, in a virtual machine, a call to its host.
    #[cfg(target_arch = "x86_64")]
    let _ = std::arch::is_x86_feature_detected!("avx2");
}

/// The loop. Ends when nothing of the attempt is left and everybody who can be told has been.
fn watch(attempt: &mut Attempt) -> i32 {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let Ok(children) = mask.thread_block().and_then(|()| SignalFd::with_flags(&mask, flags)) else {
        return 1;
    };
    // A child may have ended before its signal was blocked.
    attempt.reap();
    loop {
        // Looking arms the watch: what happens from here on wakes the sleep below.
        let gone = attempt.watch.as_ref().is_some_and(|watch| watch.is_gone());
        attempt.settle();
        if attempt.is_over() {
            return 0;
        }
        if gone {
            // Somebody took the group away: there is nothing left to look after, and a descriptor
            // that is always ready must not be waited on.
            return 1;
        }
        for token in wait(attempt, &children) {
            dispatch(attempt, token, &children);
        }
        attempt.on_time(wall_clock::now());
    }
}

fn dispatch(attempt: &mut Attempt, token: Token, children: &SignalFd) {
    match token {
        Token::Children => {
            // Several ends may stand behind one signal: the signals only wake, the reaping counts.
            while let Ok(Some(_)) = children.read_signal() {}
            attempt.reap();
        }
        Token::Listener => attempt.control.accept(),
        Token::Agents => attempt.on_agents(),
        Token::GroupEmpty => attempt.on_group_event(),
        Token::LeaderReady => attempt.on_leader_ready(),
        Token::StepDoor => attempt.on_step_door(),
        Token::StepLink(step) => attempt.on_step_link(step),
        Token::StepLookers(step) => attempt.steps[step].on_lookers(),
        Token::TaskReady(step, task) => attempt.steps[step].on_ready(task),
        Token::TaskOutput(step, task, which) => attempt.steps[step].on_output(task, which),
        Token::TaskInput(step, task) => attempt.steps[step].on_input_room(task),
    }
}

/// Sleeps until something is ready or due; says what is ready.
fn wait(attempt: &Attempt, children: &SignalFd) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut fds: Vec<PollFd> = Vec::new();
    let mut add = |token: Token, fd, flags: PollFlags| {
        tokens.push(token);
        fds.push(PollFd::new(fd, flags));
    };
    let output_if = |write: bool| match write {
        true => PollFlags::POLLIN | PollFlags::POLLOUT,
        false => PollFlags::POLLIN,
    };
    add(Token::Children, children.as_fd(), PollFlags::POLLIN);
    if let Some(listener) = attempt.control.listener() {
        add(Token::Listener, listener, PollFlags::POLLIN);
    }
    for (fd, write) in attempt.control.connections() {
        add(Token::Agents, fd, output_if(write));
    }
    for fd in attempt.door.fds() {
        add(Token::StepDoor, fd, PollFlags::POLLIN);
    }
    if let Some(watch) = &attempt.watch {
        add(Token::GroupEmpty, watch.as_fd(), PollFlags::POLLPRI);
    }
    if let Some(ready) = attempt.leader_ready() {
        add(Token::LeaderReady, ready, PollFlags::POLLIN);
    }
    add_steps(attempt, &mut add);
    let timeout = timeout(attempt);
    // Interrupted or not, the caller looks at the time and comes back.
    let _ = poll(&mut fds, timeout);
    let ready = fds.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
    tokens.into_iter().zip(ready).filter_map(|(token, ready)| ready.then_some(token)).collect()
}

fn add_steps<'a>(attempt: &'a Attempt, add: &mut impl FnMut(Token, BorrowedFd<'a>, PollFlags)) {
    for (index, step) in attempt.steps.iter().enumerate() {
        let flags = |write: bool| match write {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        };
        for (fd, write) in step.clients().srun().interests() {
            add(Token::StepLink(index), fd, flags(write));
        }
        for (fd, write) in step.clients().lookers().flat_map(StepLink::interests) {
            add(Token::StepLookers(index), fd, flags(write));
        }
        for (number, task) in step.tasks().iter().enumerate() {
            if let Some(ready) = &task.ready {
                add(Token::TaskReady(index, number), ready.as_fd(), PollFlags::POLLIN);
            }
            if let Some(fd) = task.wanting_input() {
                add(Token::TaskInput(index, number), fd, PollFlags::POLLOUT);
            }
            for which in [Which::Stdout, Which::Stderr] {
                if let Some(fd) = task.output(which).filter(|_| step.clients().srun().has_room()) {
                    add(Token::TaskOutput(index, number, which), fd, PollFlags::POLLIN);
                }
            }
        }
    }
}

fn timeout(attempt: &Attempt) -> PollTimeout {
    let now = wall_clock::now();
    let due = attempt.next_due().map(|at| at.since(now) + Duration::from_millis(1));
    let dial = attempt.steps.iter().filter_map(|step| step.clients().srun().deadline()).min();
    let dial = dial.map(|until| until.saturating_duration_since(Instant::now()));
    let deaf = attempt.control.is_deaf().then_some(DEAF_TICK);
    let tick = attempt.tick().into_iter().chain(deaf).min();
    let shortest = [due, dial, tick].into_iter().flatten().min();
    let millis = |length: Duration| i32::try_from(length.as_millis()).unwrap_or(i32::MAX);
    shortest.map_or(PollTimeout::NONE, |length| {
        PollTimeout::try_from(millis(length)).unwrap_or(PollTimeout::MAX)
    })
}
