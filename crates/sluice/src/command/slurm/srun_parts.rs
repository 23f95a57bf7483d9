//! One `srun` over several components of a heterogeneous job: a step in each, run as one.

use super::caller::{FAILURE, complain, failure, refused, say, unexpected};
use super::components::{self, Component};
use super::sbatch::{check_clusters, tested};
use super::srun::{Invoked, RunError, run_epilog, take_signals};
use super::srun_input::is_own_input;
use super::srun_programs;
use super::step::crowd::{Crowd, Part};
use super::step::door::Door;
use super::step::output::Files;
use super::step::stream::Streams;
use super::step::{Among, Outturn, Step};
use super::step_create;
use super::watch::{self, Notice, Watch};
use crate::connect::Client;
use ::slurm::environment::component;
use ::slurm::environment::parts::{self, Part as Placed};
use ::slurm::option::Command;
use ::slurm::request;
use ::slurm::request::step::Within;
use ::slurm::words::refusal;
use model::change::{JobFilter, JobRef};
use model::id::{JobId, StepId};
use model::run::{ExitStatus, Outcome};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use wire::client::{Answer, Call, Cancel};
use wire::step::{SrunPrologEpilog, StepLaunch, StepStart};

const COMMAND: Command = Command::Srun;

/// A step that its job has given, and whose tasks wait for the others.
struct Created {
    job: JobId,
    step: StepId,
    nodes: Vec<(String, Vec<u32>)>,
    door: Door,
    input: Option<File>,
    launch: StepLaunch,
    programs: SrunPrologEpilog,
}

impl Created {
    fn tasks(&self) -> u32 {
        self.nodes.iter().map(|(_, tasks)| tasks.len() as u32).sum()
    }
}

/// The parts are in the order of their components.
pub fn go(calls: &[Invoked<'_>]) -> Result<ExitCode, RunError> {
    let Some(first) = calls.first() else { return Ok(failure()) };
    let mut client = Client::find()?;
    if let Some(code) = check_clusters(COMMAND, &mut client, first.options)? {
        return Ok(code);
    }
    let signals = take_signals()?;
    if first.options.step.job_id.is_none() {
        return with_own(&mut client, calls, first, &signals);
    }
    let jobs: Option<Vec<JobId>> =
        calls.iter().map(|call| call.options.step.job_id.map(JobId)).collect();
    let Some(jobs) = jobs else {
        return Err(unable("SLURM_JOB_ID_HET_GROUP_* does not name every component"));
    };
    let variable = |name: &str| std::env::var(name).ok();
    let whole = component::of_component(variable, "SLURM_JOB_ID", 0);
    let whole = whole.and_then(|id| id.parse().ok()).map_or(jobs[0], JobId);
    let outturn = in_allocation(&mut client, calls, &jobs, whole, Within::Given, &signals)?;
    Ok(ExitCode::from(outturn.code))
}

/// A step in each of the jobs, which have their nodes; `whole` stands for all components.
fn in_allocation(
    client: &mut Client,
    calls: &[Invoked<'_>],
    jobs: &[JobId],
    whole: JobId,
    within: Within,
    signals: &SignalFd,
) -> Result<Outturn, RunError> {
    let mut created: Vec<Created> = Vec::with_capacity(calls.len());
    for (call, job) in calls.iter().zip(jobs) {
        match create(client, call, *job, within, signals) {
            Ok(one) => created.push(one),
            Err(error) => {
                call_off(client, created.iter().map(|one| (one.job, one.step)));
                return Err(error);
            }
        }
    }
    let steps: Vec<(JobId, StepId)> = created.iter().map(|one| (one.job, one.step)).collect();
    let programs = match (calls.first(), created.first()) {
        (Some(call), Some(one)) => srun_programs::chosen(call.options, &one.programs),
        _ => SrunPrologEpilog::default(),
    };
    let ran = run(client, calls, created, whole, &programs, signals);
    match ran {
        Ok(Some(outturn)) => {
            steps.first().iter().for_each(|(job, step)| run_epilog(&programs, *job, *step));
            Ok(outturn)
        }
        Ok(None) => {
            call_off(client, steps.into_iter());
            Err(RunError::Said(failure()))
        }
        Err(error) => {
            call_off(client, steps.into_iter());
            Err(error)
        }
    }
}

fn create(
    client: &mut Client,
    call: &Invoked<'_>,
    job: JobId,
    within: Within,
    signals: &SignalFd,
) -> Result<Created, RunError> {
    let (door, input, mut launch) = call.launch(within)?;
    launch.starts = StepStart::OnGo;
    let layout = step_create::create(client, job, &launch, call.options, signals)?;
    let nodes = layout.nodes.into_iter().map(|node| (node.node, node.tasks)).collect();
    let (step, programs) = (layout.step, layout.srun_prolog_epilog);
    Ok(Created { job, step, nodes, door, input, launch, programs })
}

/// Ends steps whose tasks never started.
fn call_off(client: &mut Client, steps: impl Iterator<Item = (JobId, StepId)>) {
    for (job, step) in steps {
        let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
        let cancel =
            Cancel { filter, step: Some(step), signal: None, batch_only: false, full: false };
        // Were it lost, the nodes would end the step by themselves, for want of its srun.
        let _ = client.call(Call::Cancel(cancel));
    }
}

/// Runs them as one; none if they were called off before they started.
fn run(
    client: &mut Client,
    calls: &[Invoked<'_>],
    created: Vec<Created>,
    whole: JobId,
    programs: &SrunPrologEpilog,
    signals: &SignalFd,
) -> Result<Option<Outturn>, RunError> {
    let dir = calls.first().map_or("", |call| call.submitter.work_dir.as_str());
    let components = components::ask(client, whole, dir)?;
    let environment = environment(&components, &created);
    let mut among = Among {
        first_rank: 0,
        first_node: 0,
        tasks: created.iter().map(Created::tasks).sum(),
        environment,
    };
    let (files, mut input) = (Files::default(), None);
    let mut steps = Vec::with_capacity(created.len());
    for (call, one) in calls.iter().zip(created) {
        let place = client.place().clone();
        let none = SrunPrologEpilog::default();
        let first = if steps.is_empty() { programs } else { &none };
        let mut plan = call.plan(one.job, one.step, Some(one.tasks()), first);
        plan.among = Some(among.clone());
        among.first_rank += one.tasks();
        among.first_node += one.nodes.len() as u32;
        let outputs = call.outputs(&plan, files.clone())?;
        let key = one.launch.key.clone();
        let streams = Streams::new(place.clone(), one.job, one.step, Some(key))?;
        let own = is_own_input(call.options.input.as_deref(), call.options.ntasks);
        let shares_input = own && one.input.is_some();
        let (shared, file) = if shares_input { (one.input, None) } else { (None, one.input) };
        input = input.or(shared);
        let watch = Watch::begin(place, one.job, false)?;
        let step = Step::new(plan, one.door, streams, outputs, file);
        let step = step.placed(&one.nodes, one.launch);
        steps.push(Part { step, watch, shares_input });
    }
    Ok(Crowd::new(steps, input).run(signals)?)
}

/// What the tasks are told of all of it.
fn environment(components: &[Component], created: &[Created]) -> Vec<String> {
    let placed = created.iter().filter_map(|one| {
        let of = components.iter().find(|component| component.job == one.job)?;
        Some(Placed { job: &of.variables, job_nodes: &of.nodes, nodes: &one.nodes })
    });
    let of_each: Vec<_> = components.iter().map(|component| component.variables.clone()).collect();
    parts::variables(&placed.collect::<Vec<_>>(), &of_each).to_entries()
}

/// A heterogeneous allocation of its own, with the steps in it.
fn with_own(
    client: &mut Client,
    calls: &[Invoked<'_>],
    first: &Invoked<'_>,
    signals: &SignalFd,
) -> Result<ExitCode, RunError> {
    let drafted = request::allocation(first.options, first.argv, first.submitter);
    let drafted = drafted.and_then(|mut draft| {
        let others = calls.iter().skip(1).map(|call| (call.options, name(call.argv)));
        draft.join(others, first.submitter)?;
        Ok(draft)
    });
    let draft =
        drafted.map_err(|error| RunError::Said(super::caller::refuse_option(COMMAND, &error)))?;
    first.note(&draft.notes);
    let submission = Box::new(draft.submission);
    if first.options.test_only {
        return Ok(tested(COMMAND, client.call(Call::TestSubmit(submission))?));
    }
    let job = match client.call(Call::Submit(submission))? {
        Answer::Submitted { job, .. } => job,
        Answer::Refused(why) => return Ok(refused(COMMAND, &why)),
        other => return Ok(unexpected(COMMAND, &other)),
    };
    watch::hold(client.place().clone(), job)?;
    let mut watch = Watch::begin(client.place().clone(), job, true)?;
    let granted = await_grant(job, &mut watch, first, signals);
    let outturn = granted.and_then(|()| {
        let jobs: Vec<JobId> = (job.0..).map(JobId).take(calls.len()).collect();
        in_allocation(client, calls, &jobs, job, Within::Own, signals)
    });
    let exit = match &outturn {
        Ok(outturn) if outturn.job_ended => None,
        Ok(outturn) => Some(outturn.exit),
        Err(_) => Some(ExitStatus { code: i32::from(FAILURE), signal: 0 }),
    };
    if let Some(exit) = exit {
        // Were it refused, the job is at its end by itself; were it lost, so is the hold.
        let _ = client.call(Call::Relinquish { job, exit });
    }
    Ok(ExitCode::from(outturn?.code))
}

/// What a component is called that says nothing: as its program.
fn name(argv: &[String]) -> &str {
    argv.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default()
}

/// Waits until the job has its nodes. Whoever interrupts wants none of it.
fn await_grant(
    job: JobId,
    watch: &mut Watch,
    first: &Invoked<'_>,
    signals: &SignalFd,
) -> Result<(), RunError> {
    let mut queued = false;
    loop {
        while let Some(notice) = watch.take() {
            match notice {
                Notice::Queued => {
                    queued = true;
                    first.note(&[format!("job {job} queued and waiting for resources")]);
                }
                Notice::Started(_) => {
                    let line = format!("job {job} has been allocated resources");
                    first.note(if queued { std::slice::from_ref(&line) } else { &[] });
                    return Ok(());
                }
                Notice::Ended { outcome, .. } => return Err(not_granted(outcome)),
                Notice::Refused(why) => return Err(unable(&refusal::text(&why))),
                Notice::Unreachable(error) => return Err(error.into()),
                Notice::Ready => {}
            }
        }
        let mut fds = [
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            if step_create::ENDING.contains(&(signal.ssi_signo as i32)) {
                first.note(&[
                    format!("Job allocation {job} has been revoked"),
                    format!("Force Terminated JobId={job}"),
                ]);
                return Err(RunError::Said(failure()));
            }
        }
    }
}

fn not_granted(outcome: Option<Outcome>) -> RunError {
    if outcome == Some(Outcome::NoCapacity) {
        return unable("Requested nodes are busy");
    }
    say(COMMAND, "Job has been cancelled");
    unable("Job/step already completing or completed")
}

fn unable(why: &str) -> RunError {
    complain(COMMAND, &format!("{}: {why}", COMMAND.refusal_prefix()));
    RunError::Said(failure())
}
