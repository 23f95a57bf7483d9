//! The client's side of a running step, for `srun`, `sattach` and `sbcast`: output comes in, input and signals go out, until
//! the step has ended on every node.
//!
//! One thread with one `poll` over the listener, the supervisors' connections, standard input, signals and the job's events.

mod event_poll;
mod frames;
pub mod het;
mod input;
mod link;
pub mod listener;
mod node_links;
mod outcome;
pub mod output;
pub mod prolog_epilog;
pub mod server_stream;
mod signals;
mod stages;
mod start_gate;
pub mod taken_signals;
mod task_ends;
pub mod terminal;

use self::event_poll::ReadyDescriptors;
use self::input::InputChunk;
use self::link::Link;
use self::listener::StepListener;
use self::node_links::StepNode;
use self::output::Outputs;
use self::prolog_epilog::Program;
use self::server_stream::ServerStreams;
use self::signals::Abort;
use self::start_gate::StartGate;
use self::task_ends::TaskEnds;
use super::submit::job_watch::Watch;
use super::submit::messages::{print_error, print_line};
use super::submit::wait_line;
use ::slurm::option::Command;
use model::array::IndexSet;
use model::id::JobId;
use model::reason::Reason;
use model::run::{ExitStatus, Outcome};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use wire::step::{StepLaunch, StepMessage};

/// How long the last output may take to arrive once the job has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the options say of a step.
pub struct Plan {
    pub job: JobId,
    /// `5.0`
    pub name: String,
    /// `None`: the allocation decides.
    pub tasks: Option<u32>,
    pub label: bool,
    pub quiet: bool,
    /// The number of `-v`.
    pub verbose: u32,
    pub terminal: bool,
    /// `-K`: the first task that fails ends the step. `None`: the configuration decides.
    pub kill_on_bad_exit: Option<bool>,
    /// `-X`: an interrupt goes to the tasks at once.
    pub disable_status: bool,
    /// An interrupt ends the step at once.
    pub quit_on_interrupt: bool,
    /// The only task that gets input. `None`: every task that takes any.
    pub input_task: Option<u32>,
    /// `-W`: how long other tasks may run after the first has ended; zero is without limit. `None`: the configuration decides.
    pub wait: Option<Duration>,
    /// The program that `srun` runs before the tasks start.
    pub prolog: Option<Program>,
    /// The step's part in an `srun` over several components; `None` if it is the only one.
    pub het: Option<HetPlacement>,
}

/// One component's step in a het `srun`. Ranks and nodes count over all components.
#[derive(Debug, Clone)]
pub struct HetPlacement {
    pub first_rank: u32,
    pub first_node: u32,
    /// The number of tasks in all components.
    pub tasks: u32,
    /// `NAME=value`, set over the step's own variables.
    pub environment: Vec<String>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOutcome {
    pub code: u8,
    pub exit: ExitStatus,
    /// The job has ended, so there is no allocation to give back.
    pub job_ended: bool,
    /// The job has started without its step: the server refused it.
    pub is_refused: bool,
}

pub struct Step {
    plan: Plan,
    gate: StartGate,
    /// The tasks do not start before those of the other components can.
    held: bool,
    /// Set while the terminal is raw.
    raw: Option<terminal::RawTerminal>,
    /// The command in whose name lines are printed.
    command: Command,
    /// `None` for `sattach`.
    listener: Option<StepListener>,
    streams: ServerStreams,
    /// The launch, to be sent again if the server loses it.
    launch: Option<StepLaunch>,
    nodes: Vec<StepNode>,
    outputs: Outputs,
    input: Option<File>,
    /// Set if input is shared with other components: how many bytes they take now. What is read is passed on to them.
    input_bound: Option<usize>,
    input_passed: Vec<InputChunk>,
    links: Vec<(Link, IndexSet)>,
    ends: TaskEnds,
    started: u64,
    interrupted: Option<Instant>,
    abort: Abort,
    /// The ends of tasks are not reported any more.
    hides_task_ends: bool,
    /// When the ends of tasks are reported.
    report_at: Option<Instant>,
    /// When the step is given up.
    give_up_at: Option<Instant>,
    terminate_at: Option<Instant>,
    first_end: Option<Instant>,
    /// Receives `WaitTime` of the configuration while the server is asked.
    wait_asked: Option<Receiver<Duration>>,
    queued: bool,
    /// The job has its allocation.
    granted: bool,
    /// The lines about the allocation are still to come, those of `-v` or that of a job that waited: no node is heard before them.
    awaits_allocation_lines: bool,
    job_ended: Option<(ExitStatus, Option<Outcome>, Reason)>,
    over: bool,
    /// The job has started without its step: the server refused it.
    is_refused: bool,
}

impl Step {
    /// The step of an `srun`. Its nodes dial the listener.
    pub fn new(
        plan: Plan,
        listener: StepListener,
        streams: ServerStreams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        Self::of(plan, Some(listener), streams, outputs, input)
    }

    /// Prints in the name of another command than `srun`.
    pub fn with_command(mut self, command: Command) -> Self {
        self.command = command;
        self
    }

    fn of(
        mut plan: Plan,
        listener: Option<StepListener>,
        streams: ServerStreams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        Self {
            gate: StartGate::new(plan.prolog.take()),
            held: plan.het.is_some(),
            awaits_allocation_lines: plan.verbose > 0,
            raw: None,
            plan,
            command: Command::Srun,
            listener,
            streams,
            launch: None,
            nodes: Vec::new(),
            outputs,
            input,
            input_bound: None,
            input_passed: Vec::new(),
            links: Vec::new(),
            ends: TaskEnds::default(),
            started: 0,
            interrupted: None,
            abort: Abort::No,
            hides_task_ends: false,
            report_at: None,
            give_up_at: None,
            terminate_at: None,
            first_end: None,
            wait_asked: None,
            queued: false,
            granted: false,
            job_ended: None,
            over: false,
            is_refused: false,
        }
    }

    /// Sets the nodes of a step that has been created, and the launch that may have to be sent again.
    pub fn placed(mut self, layout: &[(String, Vec<u32>)], launch: StepLaunch) -> Self {
        self.show_launch(layout);
        self.expect_nodes(layout);
        self.launch = Some(launch);
        self.granted = true;
        self
    }

    /// A step that another `srun` runs, for `sattach`.
    pub fn attached(
        plan: Plan,
        layout: &[(String, Vec<u32>)],
        streams: ServerStreams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        let mut step = Self::of(plan, None, streams, outputs, input);
        step.command = Command::Sattach;
        step.granted = true;
        step.expect_nodes(layout);
        step
    }

    /// Passes output, input and signals on until the step is over.
    pub fn run(mut self, watch: &mut Watch, signals: &SignalFd) -> io::Result<StepOutcome> {
        self.begin()?;
        while !self.is_over() {
            watch.begin_if_due()?;
            let (signalled, ready) = self.wait(watch, signals)?;
            if signalled {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.on_signal(signal.ssi_signo as i32);
                }
            }
            self.handle(ready, watch)?;
        }
        self.finish()
    }

    fn begin(&mut self) -> io::Result<()> {
        match self.plan.tasks {
            Some(tasks) => self.expect(tasks)?,
            None if self.plan.label => self.outputs.label_later(),
            None => {}
        }
        if self.granted { self.on_granted() } else { Ok(()) }
    }

    /// Handles what `poll` found.
    fn handle(&mut self, ready: ReadyDescriptors, watch: &mut Watch) -> io::Result<()> {
        if ready.watch {
            while let Some(event) = watch.take() {
                self.on_job_event(event)?;
            }
        }
        if ready.gate {
            self.on_prolog_end()?;
        }
        // Nodes are heard before the watch says that the job has started, if they are quicker.
        if ready.listener || ready.streams || !ready.links.is_empty() {
            wait_line::clear();
        }
        if ready.listener || !ready.links.is_empty() {
            self.take_terminal()?;
        }
        if ready.listener {
            self.on_listener();
        }
        if ready.streams {
            self.on_streams()?;
        }
        for (index, readable) in ready.links {
            self.on_link(index, readable)?;
        }
        if ready.input {
            self.on_input();
        }
        self.on_deadlines();
        self.ask_for_streams()?;
        self.links.retain(|(link, _)| link.is_open() || link.peer.is_some());
        Ok(())
    }

    fn finish(mut self) -> io::Result<StepOutcome> {
        wait_line::clear();
        self.outputs.settle()?;
        self.report_task_ends();
        Ok(self.outcome())
    }

    /// Whether this step prints the lines that are printed once for all components.
    fn is_leader(&self) -> bool {
        self.plan.het.as_ref().is_none_or(|among| among.first_rank == 0)
    }

    /// Whether tasks may be running.
    fn has_begun(&self) -> bool {
        self.started > 0 || self.plan.het.is_some() && !self.held
    }

    fn is_over(&self) -> bool {
        let silent = |link: &Link| {
            link.gone || link.peer.is_none() || !(link.is_open() || link.may_resume())
        };
        let quiet = self.links.iter().all(|(link, _)| silent(link));
        self.over || (self.all_ended() || self.job_ended.is_some()) && quiet
    }

    fn all_ended(&self) -> bool {
        self.plan.tasks.is_some_and(|tasks| self.ends.count() >= u64::from(tasks))
    }

    /// `-K`, or `KillOnBadExit` of the configuration, which is asked for only when a task fails while others run.
    fn kills_on_bad_exit(&mut self) -> bool {
        if self.listener.is_none() {
            return false;
        }
        *self.plan.kill_on_bad_exit.get_or_insert_with(|| self.streams.kill_on_bad_exit())
    }

    fn expect(&mut self, tasks: u32) -> io::Result<()> {
        self.plan.tasks = Some(tasks);
        let of_all = self.plan.het.as_ref().map_or(tasks, |among| among.tasks);
        if self.plan.label { self.outputs.label(of_all) } else { Ok(()) }
    }

    fn print_unless_quiet(&self, line: &str) {
        if !self.plan.quiet {
            print_line(self.command, line);
        }
    }

    fn send(&mut self, message: &StepMessage) {
        self.links.iter_mut().for_each(|(link, _)| link.send(message));
    }
}

#[cfg(test)]
mod tests;
