//! `srun`: runs a step in an existing allocation, or in one of its own.

mod bcast;
mod het;
mod het_options;
mod input;
mod stages;
mod step_create;
mod task_files;
mod unsupported;

use self::input::input;
use self::step_create::StepCreateError;
use super::query;
use super::step::listener::StepListener;
use super::step::output::{FilenameFields, Files, Outputs, Target};
use super::step::prolog_epilog::Program;
use super::step::server_stream::ServerStreams;
use super::step::taken_signals::take_signals;
use super::step::{Plan, Step, StepOutcome, prolog_epilog, terminal};
use super::submit::caller::{self, ProcessSurroundings};
use super::submit::job_watch::{self, SHORT_STEP, Watch, Watched};
use super::submit::messages::{
    self, FAILURE, failure, print_error, print_line, unexpected, unreachable,
};
use super::submit::registry_auth;
use super::submit::test_only::{check_clusters, tested};
use super::submit::wait_line;
use crate::client::{Client, ClientError, ServerLocation};
use ::slurm::option::invocation::Invocation;
use ::slurm::option::job_options::OpenMode;
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::step::{StepAllocation, launch};
use ::slurm::request::{self, Submitter};
use model::id::{JobId, StepId};
use model::run::ExitStatus;
use model::secret::RegistryAuth;
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, Submission};
use wire::step::{SrunPrologEpilog, StepLaunch};

const COMMAND: Command = Command::Srun;

/// Why an `srun` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it was said")]
    Reported(ExitCode),
}

impl From<StepCreateError> for RunError {
    fn from(why: StepCreateError) -> Self {
        match why {
            StepCreateError::Client(error) => Self::Client(error),
            StepCreateError::Io(error) => Self::Io(error),
            StepCreateError::Reported => Self::Reported(failure()),
            StepCreateError::Unexpected(answer) => Self::Reported(unexpected(COMMAND, &answer)),
        }
    }
}

impl From<nix::Error> for RunError {
    fn from(errno: nix::Error) -> Self {
        Self::Io(errno.into())
    }
}

pub fn run(args: &[String]) -> ExitCode {
    let here = ProcessSurroundings::default();
    let read = match het_options::read(args, &here) {
        Ok(Invocation::Question(question)) => return messages::answer(COMMAND, question),
        Ok(Invocation::Submission(read)) => read,
        Err(error) => return messages::refuse_option(COMMAND, &error),
    };
    let mut parts = Vec::with_capacity(read.len());
    for (options, argv) in read {
        messages::print_defined(COMMAND, &options);
        match SrunComponent::new(options, argv, args, &here) {
            Ok(part) => parts.push(part),
            Err(code) => return code,
        }
    }
    let calls: Vec<StepRequest<'_>> = parts.iter().map(SrunComponent::request).collect();
    let ran = match calls.as_slice() {
        [one] => bcast::check(one, 1).and_then(|()| one.run()),
        several => {
            let checked = several.iter().try_for_each(|one| bcast::check(one, several.len()));
            checked.and_then(|()| het::run(several))
        }
    };
    match ran {
        Ok(code) | Err(RunError::Reported(code)) => code,
        Err(RunError::Client(error)) => unreachable(COMMAND, &error),
        Err(error @ RunError::Io(_)) => {
            print_error(COMMAND, &error.to_string());
            failure()
        }
    }
}

/// One part of the command line: all of it, or what stands between two `:`.
struct SrunComponent {
    options: JobOptions,
    argv: Vec<String>,
    submitter: Submitter,
}

impl SrunComponent {
    /// Checks the options. If `srun` ends here, what there was to say is printed, and the exit code is the error.
    fn new(
        mut options: JobOptions,
        argv: Vec<String>,
        args: &[String],
        here: &ProcessSurroundings,
    ) -> Result<Self, ExitCode> {
        if unsupported::wants_mpi_list(&options) {
            println!("{}", unsupported::MPI_LIST);
            return Err(ExitCode::SUCCESS);
        }
        if let Some(line) = unsupported::refused(&options) {
            print_error(COMMAND, &line);
            return Err(failure());
        }
        unsupported::ignored(&options).iter().for_each(|line| print_error(COMMAND, line));
        if let Err(lines) = task_files::take_host_file(&mut options, here) {
            lines.iter().for_each(|line| print_error(COMMAND, line));
            return Err(failure());
        }
        task_files::count_programs(&mut options, &argv);
        if let Err(line) = step_create::check_relative(&options, options.step.job_id.is_some()) {
            print_line(COMMAND, &line);
            return Err(failure());
        }
        let submitter = caller::submitter(COMMAND, args, &options);
        messages::print_propagated(COMMAND, &options, &submitter);
        Ok(Self { options, argv, submitter })
    }

    fn request(&self) -> StepRequest<'_> {
        StepRequest { options: &self.options, argv: &self.argv, submitter: &self.submitter }
    }
}

/// One step of this `srun`, as requested.
pub(super) struct StepRequest<'a> {
    pub options: &'a JobOptions,
    pub argv: &'a [String],
    pub submitter: &'a Submitter,
}

impl StepRequest<'_> {
    fn run(&self) -> Result<ExitCode, RunError> {
        let mut client = Client::find()?;
        if let Some(code) = check_clusters(COMMAND, &mut client, self.options)? {
            return Err(RunError::Reported(code));
        }
        let signals = take_signals()?;
        let job = self.options.step.job_id.map(JobId);
        match (job, self.options.step.bcast.as_deref()) {
            (Some(job), None) => {
                let outcome =
                    self.in_allocation(client, job, StepAllocation::Existing, &signals)?;
                Ok(ExitCode::from(outcome.code))
            }
            (Some(job), Some(to)) => {
                let within = StepAllocation::Existing;
                let outcome = self.with_copy(client, job, to, within, &signals)?;
                Ok(ExitCode::from(outcome.code))
            }
            (None, None) => self.with_own(client, &signals),
            (None, Some(to)) => self.with_own_and_copy(client, to, &signals),
        }
    }

    /// Runs a copy of the program that is made on the nodes of the job first.
    fn with_copy(
        &self,
        mut client: Client,
        job: JobId,
        to: &str,
        within: StepAllocation,
        signals: &SignalFd,
    ) -> Result<StepOutcome, RunError> {
        let argv = self.copy_program(&mut client, job, to)?;
        let copied = StepRequest { options: self.options, argv: &argv, submitter: self.submitter };
        copied.in_allocation(client, job, within, signals)
    }

    /// Submits a job, and runs its step once the program is on its nodes.
    fn with_own_and_copy(
        &self,
        mut client: Client,
        to: &str,
        signals: &SignalFd,
    ) -> Result<ExitCode, RunError> {
        let mut submission = self.draft()?;
        if self.options.test_only {
            return Ok(tested(COMMAND, &mut client, Box::new(submission))?);
        }
        submission.registry_auth = self.registry_auth();
        let job = match client.submit(Box::new(submission))? {
            Answer::Submitted { job, beyond_partition, beyond_time, unknown_names, .. } => {
                let quiet = self.options.quiet;
                let beyond = (beyond_partition.as_ref(), beyond_time.as_ref());
                messages::note_beyond_partition(COMMAND, quiet, beyond.0, beyond.1);
                messages::note_unknown_names(COMMAND, quiet, &unknown_names);
                job
            }
            Answer::Refused(why) => {
                let code = messages::refused_submit(COMMAND, &mut client, &why);
                return Err(RunError::Reported(code));
            }
            other => return Err(RunError::Reported(unexpected(COMMAND, &other))),
        };
        job_watch::hold(client.location().clone(), job, Duration::ZERO)?;
        self.await_nodes(&mut client, job, signals)?;
        let own = Client::at(client.location().clone());
        let outcome = self.with_copy(own, job, to, StepAllocation::Own, signals);
        relinquish(&mut client, job, &outcome);
        Ok(ExitCode::from(outcome?.code))
    }

    /// The job that the options ask for.
    fn draft(&self) -> Result<Submission, RunError> {
        let draft = request::allocation(self.options, self.argv, self.submitter)
            .map_err(|error| RunError::Reported(messages::refuse_option(COMMAND, &error)))?;
        self.note(&draft.notes);
        Ok(draft.submission)
    }

    /// Runs a step in an allocation that is there; `within` says whose it is.
    fn in_allocation(
        &self,
        mut client: Client,
        job: JobId,
        within: StepAllocation,
        signals: &SignalFd,
    ) -> Result<StepOutcome, RunError> {
        if within == StepAllocation::Existing && !self.options.volumes.is_empty() {
            print_error(
                COMMAND,
                "--volume: a step has the volumes of its job: name them where that is made",
            );
            return Err(RunError::Reported(failure()));
        }
        if within == StepAllocation::Existing {
            self.note(&unsupported::of_the_job(self.options));
        }
        self.show_allocation(&mut client, job)?;
        let (listener, input, mut launch) = self.launch(client.location(), within)?;
        launch.registry_auth = self.registry_auth();
        let layout = step_create::create(&mut client, job, &launch, self.options, signals)?;
        let programs = prolog_epilog::chosen(self.options, &layout.srun_prolog_epilog);
        let number = layout.step;
        let tasks: usize = layout.nodes.iter().map(|node| node.tasks.len()).sum();
        self.note_ranks(Some(tasks as u32), &programs);
        let plan = self.plan(job, number, Some(tasks as u32), &programs);
        let watched = Watched {
            location: client.location().clone(),
            job,
            from_start: false,
            explains: false,
        };
        let mut watch = Watch::begin_after(SHORT_STEP, watched)?;
        let key = launch.key.clone();
        let streams = ServerStreams::new(client.location().clone(), job, number, Some(key))?;
        let step = self.step(plan, listener, streams, input)?;
        let nodes: Vec<_> = layout.nodes.into_iter().map(|node| (node.node, node.tasks)).collect();
        let outcome = step.placed(&nodes, launch).run(&mut watch, signals)?;
        run_epilog(&programs, job, number);
        Ok(outcome)
    }

    fn registry_auth(&self) -> Option<RegistryAuth> {
        registry_auth::of_container(COMMAND, self.options.container.as_ref())
    }

    /// Submits a job, and runs the step that starts with it.
    fn with_own(&self, mut client: Client, signals: &SignalFd) -> Result<ExitCode, RunError> {
        let mut submission = self.draft()?;
        if self.options.test_only {
            return Ok(tested(COMMAND, &mut client, Box::new(submission))?);
        }
        let (listener, input, launch) = self.launch(client.location(), StepAllocation::Own)?;
        let key = launch.key.clone();
        // They are kept with the job, encrypted, and not with its first step.
        submission.registry_auth = self.registry_auth();
        submission.first_step = Some(Box::new(launch.clone()));
        let (job, site) = match client.submit(Box::new(submission))? {
            Answer::Submitted {
                job,
                srun_prolog_epilog,
                beyond_partition,
                beyond_time,
                unknown_names,
                ..
            } => {
                let quiet = self.options.quiet;
                let beyond = (beyond_partition.as_ref(), beyond_time.as_ref());
                messages::note_beyond_partition(COMMAND, quiet, beyond.0, beyond.1);
                messages::note_unknown_names(COMMAND, quiet, &unknown_names);
                (job, srun_prolog_epilog)
            }
            Answer::Refused(why) => {
                let code = messages::refused_submit(COMMAND, &mut client, &why);
                return Err(RunError::Reported(code));
            }
            other => return Err(RunError::Reported(unexpected(COMMAND, &other))),
        };
        let programs = prolog_epilog::chosen(self.options, &site);
        self.note_ranks(None, &programs);
        let outcome =
            match self.first_step(&client, job, key, (listener, input), signals, &programs) {
                Ok(outcome) if outcome.is_refused => {
                    self.ask_again(&mut client, job, &launch, signals)
                }
                outcome => outcome,
            };
        relinquish(&mut client, job, &outcome);
        Ok(ExitCode::from(outcome?.code))
    }

    /// Asks for a step that the job has started without: the refusal has the reason, and is printed.
    fn ask_again(
        &self,
        client: &mut Client,
        job: JobId,
        launch: &StepLaunch,
        signals: &SignalFd,
    ) -> Result<StepOutcome, RunError> {
        step_create::create(client, job, launch, self.options, signals)?;
        print_error(COMMAND, &format!("job {job} has started without its step"));
        Err(RunError::Reported(failure()))
    }

    /// Runs the step that starts with its job, from the queue on.
    fn first_step(
        &self,
        client: &Client,
        job: JobId,
        key: String,
        (listener, input): (StepListener, Option<File>),
        signals: &SignalFd,
        programs: &SrunPrologEpilog,
    ) -> Result<StepOutcome, RunError> {
        let (location, first) = (client.location().clone(), StepId::Number(0));
        let explains = wait_line::is_wanted(self.options.quiet);
        let watched = Watched { location: location.clone(), job, from_start: true, explains };
        // Where nodes do not dial, only the watch says which they are; `-v` prints what it says before anything else.
        let at_once = !listener.is_dialled() || self.options.verbose > 0;
        let delay = if at_once { Duration::ZERO } else { SHORT_STEP };
        job_watch::hold(location.clone(), job, delay)?;
        let mut watch = Watch::begin_after(delay, watched)?;
        let plan = self.plan(job, first, self.options.ntasks, programs);
        let streams = ServerStreams::new(location, job, first, Some(key))?;
        let step = self.step(plan, listener, streams, input)?;
        let outcome = step.run(&mut watch, signals)?;
        run_epilog(programs, job, first);
        Ok(outcome)
    }

    pub(super) fn launch(
        &self,
        server: &ServerLocation,
        allocation: StepAllocation,
    ) -> Result<(StepListener, Option<File>, StepLaunch), RunError> {
        let options = self.options;
        let (wanted, input) = input(options.input.as_deref(), options.ntasks, options.step.pty)?;
        let listener = StepListener::open(server)?;
        let endpoint = listener.endpoint()?;
        let (launch, notes) =
            launch(self.options, self.argv, self.submitter, allocation, endpoint, wanted);
        self.note(&notes);
        let mut launch = launch;
        launch.window = terminal::size().filter(|_| options.step.pty);
        if self.options.step.multi_prog
            && let Err(lines) = task_files::set_programs(&mut launch, self.options, self.argv)
        {
            return Err(report(&lines));
        }
        Ok((listener, input, launch))
    }

    pub(super) fn note(&self, notes: &[String]) {
        if !self.options.quiet {
            notes.iter().for_each(|line| print_line(COMMAND, line));
        }
    }

    /// Says that the tasks of an MPI program would not know of one another.
    fn note_ranks(&self, tasks: Option<u32>, site: &SrunPrologEpilog) {
        let line = unsupported::unconnected_ranks(self.options, tasks, site.mpi.as_deref());
        self.note(line.as_slice());
    }

    pub(super) fn plan(
        &self,
        job: JobId,
        step: StepId,
        tasks: Option<u32>,
        programs: &SrunPrologEpilog,
    ) -> Plan {
        let options = &self.options.step;
        Plan {
            job,
            name: format!("{job}.{step}"),
            tasks,
            label: options.label,
            quiet: self.options.quiet,
            verbose: self.options.verbose,
            terminal: options.pty,
            kill_on_bad_exit: options.kill_on_bad_exit,
            disable_status: options.disable_status,
            quit_on_interrupt: options.quit_on_interrupt,
            input_task: None,
            wait: options.wait_secs.map(|secs| Duration::from_secs(secs.into())),
            prolog: Program::new(programs.prolog.as_deref(), "prolog_srun", job, step),
            het: None,
        }
    }

    fn step(
        &self,
        plan: Plan,
        listener: StepListener,
        streams: ServerStreams,
        input: Option<File>,
    ) -> Result<Step, RunError> {
        let outputs = self.outputs(&plan, Files::default())?;
        Ok(Step::new(plan, listener, streams, outputs, input))
    }

    pub(super) fn outputs(&self, plan: &Plan, files: Files) -> io::Result<Outputs> {
        let options = self.options;
        let is_named = options.output.is_some() || options.error.is_some();
        let named = || std::env::var("USER").unwrap_or_else(|_| query::own_user_name());
        let user = if is_named { named() } else { String::new() };
        let names = FilenameFields {
            job_id: plan.job.0,
            array: array_of_environment(),
            step: plan.name.rsplit('.').next().unwrap_or_default().to_owned(),
            user,
            job_name: options.job_name.clone().unwrap_or_else(|| self.argv[0].clone()),
            work_dir: self.submitter.work_dir.clone(),
        };
        let target = |text: &str| Target::parse(Some(text), plan.tasks);
        let output = options.output.as_deref().map_or(Target::Own, target);
        let error = options.error.as_deref().map(target);
        let append = options.open_mode == Some(OpenMode::Append);
        let mut outputs = Outputs::new(output, error, append, names)?;
        outputs.join(files, plan.het.as_ref().map_or(0, |among| among.first_rank));
        outputs.open_common()?;
        let at_once = options.step.unbuffered || options.step.pty;
        Ok(if at_once { outputs.unbuffered() } else { outputs })
    }
}

/// Gives the allocation back, unless its job has ended.
pub(super) fn relinquish(client: &mut Client, job: JobId, result: &Result<StepOutcome, RunError>) {
    let exit = match result {
        Ok(outcome) if outcome.job_ended => return,
        Ok(outcome) => outcome.exit,
        Err(_) => ExitStatus { code: i32::from(FAILURE), signal: 0 },
    };
    // If it is refused, the job has ended by itself. If it is lost, the job ends as one that nobody holds.
    let _ = client.call(Call::Relinquish { job, exit });
}

pub(super) fn run_epilog(programs: &SrunPrologEpilog, job: JobId, step: StepId) {
    if let Some(program) = Program::new(programs.epilog.as_deref(), "epilog_srun", job, step) {
        program.run();
    }
}

/// The array job and array task that this runs in.
fn array_of_environment() -> Option<(u32, u32)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    Some((number("SLURM_ARRAY_JOB_ID")?, number("SLURM_ARRAY_TASK_ID")?))
}

/// Prints the lines as errors.
fn report(lines: &[String]) -> RunError {
    lines.iter().for_each(|line| print_error(COMMAND, line));
    RunError::Reported(failure())
}
