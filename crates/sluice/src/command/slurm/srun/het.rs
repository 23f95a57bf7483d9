//! One `srun` over several components of a het job: a step in each, run as one.

use super::input::is_own_input;
use super::{RunError, StepRequest, relinquish, run_epilog, step_create, take_signals};
use crate::client::Client;
use crate::command::slurm::step::het::{HetStep, HetStepRunner};
use crate::command::slurm::step::listener::StepListener;
use crate::command::slurm::step::output::Files;
use crate::command::slurm::step::server_stream::ServerStreams;
use crate::command::slurm::step::{HetPlacement, Step, StepOutcome, prolog_epilog};
use crate::command::slurm::submit::het_components::{self, Component};
use crate::command::slurm::submit::job_watch::{self, JobEvent, Watch, Watched};
use crate::command::slurm::submit::messages::{self, failure, print_error, unexpected};
use crate::command::slurm::submit::test_only::{check_clusters, tested};
use crate::command::slurm::submit::wait_line;
use ::slurm::environment::het_job;
use ::slurm::environment::het_step::{self, HetStepComponent as Placed};
use ::slurm::option::Command;
use ::slurm::request;
use ::slurm::request::step::StepAllocation;
use ::slurm::words::refusal;
use model::change::{JobFilter, JobRef};
use model::id::{JobId, StepId};
use model::run::Outcome;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, Cancel};
use wire::step::{SrunPrologEpilog, StepLaunch, StepStart};

const COMMAND: Command = Command::Srun;

/// A step that was created and whose tasks wait for those of the other components.
struct CreatedStep {
    job: JobId,
    step: StepId,
    nodes: Vec<(String, Vec<u32>)>,
    listener: StepListener,
    input: Option<File>,
    launch: StepLaunch,
    programs: SrunPrologEpilog,
}

impl CreatedStep {
    fn tasks(&self) -> u32 {
        self.nodes.iter().map(|(_, tasks)| tasks.len() as u32).sum()
    }
}

/// Runs a step on each component; `calls` are in the order of the components.
pub fn run(calls: &[StepRequest<'_>]) -> Result<ExitCode, RunError> {
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
    let leader = het_job::component_variable(variable, "SLURM_JOB_ID", 0);
    let leader = leader.and_then(|id| id.parse().ok()).map_or(jobs[0], JobId);
    let outcome =
        in_allocation(&mut client, calls, &jobs, leader, StepAllocation::Existing, &signals)?;
    Ok(ExitCode::from(outcome.code))
}

/// Runs a step in each of the jobs, which are running. `leader` is the first component, which stands for all.
fn in_allocation(
    client: &mut Client,
    calls: &[StepRequest<'_>],
    jobs: &[JobId],
    leader: JobId,
    allocation: StepAllocation,
    signals: &SignalFd,
) -> Result<StepOutcome, RunError> {
    let mut created: Vec<CreatedStep> = Vec::with_capacity(calls.len());
    for (call, job) in calls.iter().zip(jobs) {
        match create(client, call, *job, allocation, signals) {
            Ok(one) => created.push(one),
            Err(error) => {
                cancel_unstarted(client, created.iter().map(|one| (one.job, one.step)));
                return Err(error);
            }
        }
    }
    let steps: Vec<(JobId, StepId)> = created.iter().map(|one| (one.job, one.step)).collect();
    let programs = match (calls.first(), created.first()) {
        (Some(call), Some(one)) => prolog_epilog::chosen(call.options, &one.programs),
        _ => SrunPrologEpilog::default(),
    };
    let ran = run_created(client, calls, created, leader, &programs, signals);
    match ran {
        Ok(Some(outcome)) => {
            steps.first().iter().for_each(|(job, step)| run_epilog(&programs, *job, *step));
            Ok(outcome)
        }
        Ok(None) => {
            cancel_unstarted(client, steps.into_iter());
            Err(RunError::Reported(failure()))
        }
        Err(error) => {
            cancel_unstarted(client, steps.into_iter());
            Err(error)
        }
    }
}

fn create(
    client: &mut Client,
    call: &StepRequest<'_>,
    job: JobId,
    allocation: StepAllocation,
    signals: &SignalFd,
) -> Result<CreatedStep, RunError> {
    call.show_allocation(client, job)?;
    let (listener, input, mut launch) = call.launch(client.location(), allocation)?;
    launch.starts = StepStart::OnGo;
    let layout = step_create::create(client, job, &launch, call.options, signals)?;
    let nodes = layout.nodes.into_iter().map(|node| (node.node, node.tasks)).collect();
    let (step, programs) = (layout.step, layout.srun_prolog_epilog);
    Ok(CreatedStep { job, step, nodes, listener, input, launch, programs })
}

/// Cancels steps whose tasks were not started.
fn cancel_unstarted(client: &mut Client, steps: impl Iterator<Item = (JobId, StepId)>) {
    for (job, step) in steps {
        let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
        let cancel =
            Cancel { filter, step: Some(step), signal: None, batch_only: false, full: false };
        // If it is lost, the nodes end the step by themselves once its `srun` is gone.
        let _ = client.call(Call::Cancel(cancel));
    }
}

/// Runs the steps as one. `None` if one could not start and so none was.
fn run_created(
    client: &mut Client,
    calls: &[StepRequest<'_>],
    created: Vec<CreatedStep>,
    leader: JobId,
    programs: &SrunPrologEpilog,
    signals: &SignalFd,
) -> Result<Option<StepOutcome>, RunError> {
    let dir = calls.first().map_or("", |call| call.submitter.work_dir.as_str());
    let components = het_components::ask(client, leader, dir)?;
    let environment = environment(&components, &created);
    let mut among = HetPlacement {
        first_rank: 0,
        first_node: 0,
        tasks: created.iter().map(CreatedStep::tasks).sum(),
        environment,
    };
    let (files, mut input) = (Files::default(), None);
    let mut steps = Vec::with_capacity(created.len());
    for (call, one) in calls.iter().zip(created) {
        let location = client.location().clone();
        let none = SrunPrologEpilog::default();
        let first = if steps.is_empty() { programs } else { &none };
        let mut plan = call.plan(one.job, one.step, Some(one.tasks()), first);
        plan.het = Some(among.clone());
        among.first_rank += one.tasks();
        among.first_node += one.nodes.len() as u32;
        let outputs = call.outputs(&plan, files.clone())?;
        let key = one.launch.key.clone();
        let streams = ServerStreams::new(location.clone(), one.job, one.step, Some(key))?;
        let own = is_own_input(call.options.input.as_deref(), call.options.ntasks);
        let shares_input = own && one.input.is_some();
        let (shared, file) = if shares_input { (one.input, None) } else { (None, one.input) };
        input = input.or(shared);
        let watch =
            Watch::begin(Watched { location, job: one.job, from_start: false, explains: false })?;
        let step = Step::new(plan, one.listener, streams, outputs, file);
        let step = step.placed(&one.nodes, one.launch);
        steps.push(HetStep { step, watch, shares_input });
    }
    Ok(HetStepRunner::new(steps, input).run(signals)?)
}

/// The variables that describe all components to the tasks.
fn environment(components: &[Component], created: &[CreatedStep]) -> Vec<String> {
    let placed = created.iter().filter_map(|one| {
        let of = components.iter().find(|component| component.job == one.job)?;
        Some(Placed { job: &of.variables, job_nodes: &of.nodes, nodes: &one.nodes })
    });
    let of_each: Vec<_> = components.iter().map(|component| component.variables.clone()).collect();
    het_step::variables(&placed.collect::<Vec<_>>(), &of_each).to_entries()
}

/// Submits a het job, and runs the steps in it.
fn with_own(
    client: &mut Client,
    calls: &[StepRequest<'_>],
    first: &StepRequest<'_>,
    signals: &SignalFd,
) -> Result<ExitCode, RunError> {
    let drafted = request::allocation(first.options, first.argv, first.submitter);
    let drafted = drafted.and_then(|mut draft| {
        let others = calls.iter().skip(1).map(|call| (call.options, name(call.argv)));
        draft.add_components(others, first.submitter)?;
        Ok(draft)
    });
    let draft =
        drafted.map_err(|error| RunError::Reported(messages::refuse_option(COMMAND, &error)))?;
    first.note(&draft.notes);
    let submission = Box::new(draft.submission);
    if first.options.test_only {
        return Ok(tested(COMMAND, client, submission)?);
    }
    let job = match client.submit(submission)? {
        Answer::Submitted { job, beyond_partition, beyond_time, unknown_names, .. } => {
            let quiet = first.options.quiet;
            let beyond = (beyond_partition.as_ref(), beyond_time.as_ref());
            messages::note_beyond_partition(COMMAND, quiet, beyond.0, beyond.1);
            messages::note_unknown_names(COMMAND, quiet, &unknown_names);
            job
        }
        Answer::Refused(why) => return Ok(messages::refused_submit(COMMAND, client, &why)),
        other => return Ok(unexpected(COMMAND, &other)),
    };
    job_watch::hold(client.location().clone(), job, Duration::ZERO)?;
    let location = client.location().clone();
    let explains = wait_line::is_wanted(first.options.quiet);
    let mut watch = Watch::begin(Watched { location, job, from_start: true, explains })?;
    let granted = await_grant(job, &mut watch, first, signals);
    let outcome = granted.and_then(|()| {
        let jobs: Vec<JobId> = (job.0..).map(JobId).take(calls.len()).collect();
        in_allocation(client, calls, &jobs, job, StepAllocation::Own, signals)
    });
    relinquish(client, job, &outcome);
    Ok(ExitCode::from(outcome?.code))
}

/// The default name of a component's job: that of its program.
fn name(argv: &[String]) -> &str {
    argv.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default()
}

/// Waits until the job is running. An interrupt gives it up.
fn await_grant(
    job: JobId,
    watch: &mut Watch,
    first: &StepRequest<'_>,
    signals: &SignalFd,
) -> Result<(), RunError> {
    let mut queued = false;
    loop {
        while let Some(event) = watch.take() {
            match event {
                JobEvent::Queued => {
                    queued = true;
                    first.note(&[format!("job {job} queued and waiting for resources")]);
                }
                JobEvent::Waits(wait) => wait_line::show(COMMAND, job, &wait),
                JobEvent::Started(_) => {
                    wait_line::clear();
                    let line = format!("job {job} has been allocated resources");
                    first.note(if queued { std::slice::from_ref(&line) } else { &[] });
                    return Ok(());
                }
                JobEvent::Ended { outcome, .. } => return Err(not_granted(outcome, first)),
                JobEvent::Refused(why) => return Err(unable(&refusal::text(&why))),
                JobEvent::Unreachable(error) => return Err(error.into()),
                JobEvent::Ready => {}
            }
        }
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(watch.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            if step_create::ENDING_SIGNALS.contains(&(signal.ssi_signo as i32)) {
                first.note(&[
                    format!("Job allocation {job} has been revoked"),
                    format!("Force Terminated JobId={job}"),
                ]);
                return Err(RunError::Reported(failure()));
            }
        }
    }
}

fn not_granted(outcome: Option<Outcome>, first: &StepRequest<'_>) -> RunError {
    if outcome == Some(Outcome::NoCapacity) {
        return unable("Requested nodes are busy");
    }
    first.note(&["Job has been cancelled".to_owned()]);
    unable("Job/step already completing or completed")
}

fn unable(why: &str) -> RunError {
    print_error(COMMAND, &format!("{}: {why}", COMMAND.refusal_prefix()));
    RunError::Reported(failure())
}
