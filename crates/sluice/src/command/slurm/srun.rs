//! `srun`: a step in an allocation that is there, or in one of its own.

use super::ask;
use super::caller::{
    self, FAILURE, Here, complain, failure, refused, say, unexpected, unreachable,
};
use super::het_group;
use super::sbatch::{check_clusters, tested};
use super::srun_input::input;
use super::srun_options;
use super::srun_parts;
use super::srun_programs::{self, Program};
use super::step::door::Door;
use super::step::output::{Files, Names, Outputs, Target};
use super::step::stream::Streams;
use super::step::{Outturn, Plan, Step, terminal};
use super::step_create::{self, NoStep};
use super::step_files;
use super::watch::{self, Watch};

use crate::connect::{Client, ClientError};
use ::slurm::option::invocation::Invocation;
use ::slurm::option::job_options::OpenMode;
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::step::{Within, launch};
use ::slurm::request::{self, Submitter};
use model::id::{JobId, StepId};
use model::run::ExitStatus;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::step::{SrunPrologEpilog, StepLaunch};

const COMMAND: Command = Command::Srun;

/// What goes to the tasks instead of to `srun`; interrupts and ends are judged first.
const SIGNALS: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// Why an `srun` came to nothing, already said or still to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it was said")]
    Said(ExitCode),
}

impl From<NoStep> for RunError {
    fn from(why: NoStep) -> Self {
        match why {
            NoStep::Client(error) => Self::Client(error),
            NoStep::Io(error) => Self::Io(error),
            NoStep::Said => Self::Said(failure()),
            NoStep::Unexpected(answer) => Self::Said(unexpected(COMMAND, &answer)),
        }
    }
}

impl From<nix::Error> for RunError {
    fn from(errno: nix::Error) -> Self {
        Self::Io(errno.into())
    }
}

pub fn run(args: &[String]) -> ExitCode {
    let here = Here::default();
    let read = match het_group::read(args, &here) {
        Ok(Invocation::Question(question)) => return caller::answer(COMMAND, question),
        Ok(Invocation::Submission(read)) => read,
        Err(error) => return caller::refuse_option(COMMAND, &error),
    };
    let mut parts = Vec::with_capacity(read.len());
    for (options, argv) in read {
        match Part::new(options, argv, args, &here) {
            Ok(part) => parts.push(part),
            Err(code) => return code,
        }
    }
    let calls: Vec<Invoked<'_>> = parts.iter().map(Part::invoked).collect();
    let ran = match calls.as_slice() {
        [one] => one.go(),
        several => srun_parts::go(several),
    };
    match ran {
        Ok(code) | Err(RunError::Said(code)) => code,
        Err(RunError::Client(error)) => unreachable(COMMAND, &error),
        Err(error @ RunError::Io(_)) => {
            complain(COMMAND, &error.to_string());
            failure()
        }
    }
}

/// What stands on the command line, or between two `:` of it.
struct Part {
    options: JobOptions,
    argv: Vec<String>,
    submitter: Submitter,
}

impl Part {
    /// Looks through the options; the code of one that ends here, after it was said why.
    fn new(
        mut options: JobOptions,
        argv: Vec<String>,
        args: &[String],
        here: &Here,
    ) -> Result<Self, ExitCode> {
        if srun_options::wants_mpi_list(&options) {
            println!("{}", srun_options::MPI_LIST);
            return Err(ExitCode::SUCCESS);
        }
        if let Some(line) = srun_options::refused(&options) {
            complain(COMMAND, &line);
            return Err(failure());
        }
        srun_options::ignored(&options).iter().for_each(|line| complain(COMMAND, line));
        if let Err(lines) = step_files::take_host_file(&mut options, here) {
            lines.iter().for_each(|line| complain(COMMAND, line));
            return Err(failure());
        }
        step_files::count_programs(&mut options, &argv);
        if let Err(line) = step_create::check_relative(&options, options.step.job_id.is_some()) {
            say(COMMAND, &line);
            return Err(failure());
        }
        let submitter = caller::submitter(COMMAND, args, &options);
        Ok(Self { options, argv, submitter })
    }

    fn invoked(&self) -> Invoked<'_> {
        Invoked { options: &self.options, argv: &self.argv, submitter: &self.submitter }
    }
}

/// One step of this `srun`, as it was asked for.
pub(super) struct Invoked<'a> {
    pub options: &'a JobOptions,
    pub argv: &'a [String],
    pub submitter: &'a Submitter,
}

impl Invoked<'_> {
    fn go(&self) -> Result<ExitCode, RunError> {
        let mut client = Client::find()?;
        if let Some(code) = check_clusters(COMMAND, &mut client, self.options)? {
            return Err(RunError::Said(code));
        }
        let signals = take_signals()?;
        match self.options.step.job_id {
            Some(job) => self.in_allocation(client, JobId(job), &signals),
            None => self.with_own(client, &signals),
        }
    }

    /// A step of an allocation that was there before.
    fn in_allocation(
        &self,
        mut client: Client,
        job: JobId,
        signals: &SignalFd,
    ) -> Result<ExitCode, RunError> {
        let (door, input, launch) = self.launch(Within::Given)?;
        let layout = step_create::create(&mut client, job, &launch, self.options, signals)?;
        let programs = srun_programs::chosen(self.options, &layout.srun_prolog_epilog);
        let number = layout.step;
        let tasks: usize = layout.nodes.iter().map(|node| node.tasks.len()).sum();
        let plan = self.plan(job, number, Some(tasks as u32), &programs);
        let mut watch = Watch::begin(client.place().clone(), job, false)?;
        let key = launch.key.clone();
        let streams = Streams::new(client.place().clone(), job, number, Some(key))?;
        let step = self.step(plan, door, streams, input)?;
        let nodes: Vec<_> = layout.nodes.into_iter().map(|node| (node.node, node.tasks)).collect();
        let outturn = step.placed(&nodes, launch).run(&mut watch, signals)?;
        run_epilog(&programs, job, number);
        Ok(ExitCode::from(outturn.code))
    }

    /// An allocation of its own, with the step in it.
    fn with_own(&self, mut client: Client, signals: &SignalFd) -> Result<ExitCode, RunError> {
        let draft = request::allocation(self.options, self.argv, self.submitter)
            .map_err(|error| RunError::Said(caller::refuse_option(COMMAND, &error)))?;
        self.note(&draft.notes);
        let mut submission = draft.submission;
        if self.options.test_only {
            return Ok(tested(COMMAND, client.call(Call::TestSubmit(Box::new(submission)))?));
        }
        let (door, input, launch) = self.launch(Within::Own)?;
        let key = launch.key.clone();
        submission.first_step = Some(Box::new(launch));
        let (job, site) = match client.call(Call::Submit(Box::new(submission)))? {
            Answer::Submitted { job, srun_prolog_epilog, .. } => (job, srun_prolog_epilog),
            Answer::Refused(why) => return Err(RunError::Said(refused(COMMAND, &why))),
            other => return Err(RunError::Said(unexpected(COMMAND, &other))),
        };
        let programs = srun_programs::chosen(self.options, &site);
        let outturn = self.first_step(&client, job, key, (door, input), signals, &programs);
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

    /// The step that starts with its job, from the waiting in the queue on.
    fn first_step(
        &self,
        client: &Client,
        job: JobId,
        key: String,
        (door, input): (Door, Option<File>),
        signals: &SignalFd,
        programs: &SrunPrologEpilog,
    ) -> Result<Outturn, RunError> {
        let (place, first) = (client.place().clone(), StepId::Number(0));
        watch::hold(place.clone(), job)?;
        let mut watch = Watch::begin(place.clone(), job, true)?;
        let plan = self.plan(job, first, self.options.ntasks, programs);
        let streams = Streams::new(place, job, first, Some(key))?;
        let step = self.step(plan, door, streams, input)?;
        let outturn = step.run(&mut watch, signals)?;
        run_epilog(programs, job, first);
        Ok(outturn)
    }

    pub(super) fn launch(
        &self,
        within: Within,
    ) -> Result<(Door, Option<File>, StepLaunch), RunError> {
        let options = self.options;
        let (wanted, input) = input(options.input.as_deref(), options.ntasks, options.step.pty)?;
        let door = Door::open()?;
        let endpoint = door.endpoint()?;
        let (launch, notes) =
            launch(self.options, self.argv, self.submitter, within, endpoint, wanted);
        self.note(&notes);
        let mut launch = launch;
        launch.window = terminal::size().filter(|_| options.step.pty);
        if self.options.step.multi_prog
            && let Err(lines) = step_files::set_programs(&mut launch, self.options, self.argv)
        {
            return Err(said(&lines));
        }
        Ok((door, input, launch))
    }

    pub(super) fn note(&self, notes: &[String]) {
        if !self.options.quiet {
            notes.iter().for_each(|line| say(COMMAND, line));
        }
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
            terminal: options.pty,
            kill_on_bad_exit: options.kill_on_bad_exit,
            disable_status: options.disable_status,
            quit_on_interrupt: options.quit_on_interrupt,
            input_task: None,
            wait: options.wait_secs.map(|secs| Duration::from_secs(secs.into())),
            prolog: Program::new(programs.prolog.as_deref(), "prolog_srun", job, step),
            among: None,
        }
    }

    fn step(
        &self,
        plan: Plan,
        door: Door,
        streams: Streams,
        input: Option<File>,
    ) -> Result<Step, RunError> {
        let outputs = self.outputs(&plan, Files::default())?;
        Ok(Step::new(plan, door, streams, outputs, input))
    }

    pub(super) fn outputs(&self, plan: &Plan, files: Files) -> io::Result<Outputs> {
        let options = self.options;
        let names = Names {
            job_id: plan.job.0,
            array: array_of_environment(),
            step: plan.name.rsplit('.').next().unwrap_or_default().to_owned(),
            user: std::env::var("USER").unwrap_or_else(|_| ask::me()),
            job_name: options.job_name.clone().unwrap_or_else(|| self.argv[0].clone()),
            work_dir: self.submitter.work_dir.clone(),
        };
        let target = |text: &str| Target::parse(Some(text), plan.tasks);
        let output = options.output.as_deref().map_or(Target::Own, target);
        let error = options.error.as_deref().map(target);
        let append = options.open_mode == Some(OpenMode::Append);
        let mut outputs = Outputs::new(output, error, append, names)?;
        outputs.join(files, plan.among.as_ref().map_or(0, |among| among.first_rank));
        outputs.open_common()?;
        let at_once = options.step.unbuffered || options.step.pty;
        Ok(if at_once { outputs.unbuffered() } else { outputs })
    }
}

pub(super) fn run_epilog(programs: &SrunPrologEpilog, job: JobId, step: StepId) {
    if let Some(program) = Program::new(programs.epilog.as_deref(), "epilog_srun", job, step) {
        program.run();
    }
}

/// The array and its task, where this is run by one.
fn array_of_environment() -> Option<(u32, u32)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    Some((number("SLURM_ARRAY_JOB_ID")?, number("SLURM_ARRAY_TASK_ID")?))
}

/// Signals are read as they come instead of striking; the threads that follow inherit that.
pub(super) fn take_signals() -> nix::Result<SignalFd> {
    let set: SigSet = SIGNALS.into_iter().collect();
    set.thread_block()?;
    // A terminal that is lost while it is read is then an error of the read, and stops nobody.
    SigSet::from(Signal::SIGTTIN).thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Lines of error, and the end of it.
fn said(lines: &[String]) -> RunError {
    lines.iter().for_each(|line| complain(COMMAND, line));
    RunError::Said(failure())
}
