//! The state of one attempt, its start, and its reaction to ended processes and to deadlines.

mod cpu_time_limit;
mod ending;
mod folders;
mod orders;
mod owner_lookup;
mod prolog_epilog;
mod prolog_epilog_groups;
mod sampling;
mod script;

use crate::cgroup::{EmptyWatch, JobGroup};
use crate::error::AgentError;
use crate::spool::{AttemptDir, LaunchRecord};
use crate::supervisor::agent_connections::AgentConnections;
use crate::supervisor::container::{self, SCRIPT_STEP};
use crate::supervisor::cpu_time_limit::CpuLimit;
use crate::supervisor::deadlines::{Deadline, Deadlines};
use crate::supervisor::folders::JobFolders;
use crate::supervisor::folders::namespaces::NamespaceError;
use crate::supervisor::job_context::JobContext;
use crate::supervisor::job_log::JobLog;
use crate::supervisor::process::reap::reap_next;
use crate::supervisor::step::Step;
use crate::supervisor::step::input::HeldInput;
use crate::supervisor::step::listener::StepListener;
use crate::supervisor::workspace::RunWorkspace;
use crate::wall_clock;
use ending::Emptying;
use model::array::IndexSet;
use model::id::StepId;
use model::load::LoadSample;
use model::reason::{LaunchFailure, LaunchFault, UserFault};
use model::run::{ExitStatus, SignalBefore, Usage};
use model::time::Timestamp;
use model::usage::{CpuTime, TaskSample};
pub(super) use owner_lookup::{OwnerLookup, load_user_database};
use prolog_epilog::{Hook, SiteHooks};
use script::Leader;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::order::SignalOrder;
use wire::report::ReportEvent;
use wire::supervisor::ToSupervisor;

/// Prefix of the names of step groups inside a job's group.
const STEP_GROUPS: &str = "step_";
const SCRIPT_GROUP: &str = "step_batch";

pub(super) struct Attempt {
    record: LaunchRecord,
    dir: AttemptDir,
    pub agents: AgentConnections,
    group: JobGroup,
    folders: JobFolders,
    /// The script's group, where v2 allows no process in the job's own group.
    leaf: Option<JobGroup>,
    pub watch: Option<EmptyWatch>,
    leader: Option<Leader>,
    /// What is placed for the script before it runs.
    workspace: Option<RunWorkspace>,
    /// Where a script without an output file writes.
    pub log: Option<JobLog>,
    /// The script's standard error, for notices.
    stderr: Option<OwnedFd>,
    pub steps: Vec<Step>,
    held_input: HeldInput,
    pub step_listener: StepListener,
    /// Numbers of all steps that were ever ordered: the same order may come again.
    steps_seen: IndexSet,
    deadlines: Deadlines,
    cpu_limit: Option<CpuLimit>,
    /// The usage of reaped children, for machines without control groups.
    reaped: Usage,
    /// OOM kills that belong to ended steps, and how many of them the job's own group counted.
    oom_of_steps: u64,
    oom_shared: u64,
    cpu_of_steps: CpuTime,
    timed_out: bool,
    suspended: bool,
    /// The exit status that an end order carries.
    ordered_exit: Option<ExitStatus>,
    launch_failed: Option<LaunchFailure>,
    /// Where the lookup of the job's owner leaves its answer.
    owner_answer: Option<File>,
    /// Why this node refuses the job's owner.
    user_fault: Option<UserFault>,
    emptying: Option<Emptying>,
    hooks: SiteHooks,
    /// The usage of the script's processes at the last sample.
    script_used: TaskSample,
    /// When the next sample is due.
    sample_at: Option<Timestamp>,
    /// What the attempt as a whole used, the oldest first; the first is its start.
    samples: VecDeque<LoadSample>,
    /// The usage and the script's OOM kills, read before the epilog begins.
    used: Option<(Usage, u64)>,
    had_containers: bool,
    over: bool,
}

impl Attempt {
    pub fn new(
        mut record: LaunchRecord,
        dir: AttemptDir,
        agents: AgentConnections,
        group: JobGroup,
    ) -> Result<Attempt, AgentError> {
        let leaf = if record.has_script { group.leaf(SCRIPT_GROUP)? } else { None };
        let watch = group.wait_empty_fd()?;
        let deadlines = Deadlines::new(
            record.launch.end_limit,
            record.launch.over_time_s,
            record.launch.signal,
        );
        let cpu_limit = CpuLimit::of(&record, wall_clock::now());
        let held_input = HeldInput::of_job(record.limits.memory);
        let git_credentials = record.launch.git_credentials.take();
        let workspace = record.launch.workspace.take();
        let workspace = workspace.map(|brought| RunWorkspace {
            workspace: *brought,
            git_credentials,
            cloned: None,
        });
        Ok(Attempt {
            record,
            dir,
            agents,
            group,
            folders: JobFolders::default(),
            leaf,
            watch,
            leader: None,
            workspace,
            log: None,
            stderr: None,
            steps: Vec::new(),
            held_input,
            step_listener: StepListener::default(),
            steps_seen: IndexSet::new(),
            deadlines,
            cpu_limit,
            reaped: Usage::default(),
            oom_of_steps: 0,
            oom_shared: 0,
            cpu_of_steps: CpuTime::default(),
            timed_out: false,
            suspended: false,
            ordered_exit: None,
            launch_failed: None,
            owner_answer: None,
            user_fault: None,
            emptying: None,
            hooks: SiteHooks::default(),
            script_used: TaskSample::default(),
            sample_at: None,
            samples: VecDeque::new(),
            used: None,
            had_containers: false,
            over: false,
        })
    }

    /// Starts the job once its owner was looked up on this node.
    pub fn start(&mut self, lookup: nix::Result<Option<OwnerLookup>>) {
        self.await_owner(lookup);
    }

    /// Makes the job's folders, runs the InitScript and the prolog, and starts the script or the first step.
    fn start_as_owner(&mut self) {
        if let Err(why) = self.make_folders() {
            return self.fail_for_node(why);
        }
        if self.folders.private.is_some() && self.has_init_script() {
            self.begin_hook(Hook::InitScript);
            if self.hooks.is_busy() || self.hooks.unfit.is_some() {
                return;
            }
        }
        self.start_shown();
    }

    /// Fails the launch by the node's fault: it is reported unfit.
    fn fail_for_node(&mut self, why: String) {
        self.hooks.unfit = Some(why.clone());
        self.fail_launch(why);
    }

    /// Mounts the private folders, then runs the prolog and starts the job.
    fn start_shown(&mut self) {
        match self.show_private() {
            Ok(()) => {}
            Err(NamespaceError::Node(why)) => return self.fail_for_node(why),
            // A job asks for nothing here but its volumes.
            Err(NamespaceError::Job(why)) => {
                return self.fail_launch(LaunchFailure::new(LaunchFault::Volume, why));
            }
        }
        let first_step = self.record.launch.first_step.is_some();
        let at_once = self.record.has_script || first_step || self.record.site.prolog_at_allocation;
        if at_once && self.waits_for_prolog() {
            return;
        }
        self.start_own();
    }

    /// Starts the script or the first step. An allocation without either waits for steps.
    fn start_own(&mut self) {
        if self.record.launch.deferred && !self.hooks.may_begin {
            self.hooks.waits_to_begin = true;
            self.agents.report(ReportEvent::Started);
            return self.agents.flush();
        }
        let period = self.sample_s();
        let first = wall_clock::now() + Duration::from_secs(u64::from(period));
        self.sample_at = (period > 0).then_some(first);
        let at = wall_clock::now();
        self.samples.push_back(LoadSample { at, cpu_us: 0, memory: 0, resident: 0 });
        if self.record.has_script {
            match self.start_script() {
                Ok(leader) => self.leader = Some(leader),
                Err(what) => return self.fail_launch(what),
            }
        } else {
            self.agents.report(ReportEvent::Started);
        }
        if let Some(order) = self.record.launch.first_step.take() {
            self.start_step(*order);
        }
        for order in std::mem::take(&mut self.hooks.delayed_steps) {
            self.begin_or_delay_step(order);
        }
        self.agents.flush();
    }

    fn context(&self) -> JobContext<'_> {
        JobContext {
            record: &self.record,
            group: &self.group,
            folders: &self.folders,
            dir: &self.dir,
        }
    }

    /// Carries out every message of the connected agents.
    pub fn on_agents(&mut self) {
        for message in self.agents.read() {
            match message {
                ToSupervisor::Acknowledge { number } => self.agents.drop_taken(number),
                ToSupervisor::ClientGone { step, stream } => {
                    let steps = self.steps.iter_mut().filter(|one| one.id() == step);
                    steps.for_each(|one| one.client_gone(stream));
                }
                ToSupervisor::Measure { request: ask } => self.measure(ask),
                ToSupervisor::Notice { line } => self.tell_all(&line),
                ToSupervisor::Warn => {
                    if let Some(warning) = self.deadlines.take_warning() {
                        self.warn(warning);
                    }
                }
                ToSupervisor::Execute(action) => self.carry_out(action),
            }
        }
    }

    pub fn on_step_link(&mut self, index: usize) {
        let (record, group, folders, dir) = (&self.record, &self.group, &self.folders, &self.dir);
        self.steps[index].on_link(JobContext { record, group, folders, dir });
        if let Some(at_once) = self.steps[index].take_end_request() {
            self.end_on_request(self.steps[index].id(), at_once);
        }
    }

    /// Takes streams that the agent forwards to steps.
    pub fn on_step_listener(&mut self) {
        let (record, group, folders, dir) = (&self.record, &self.group, &self.folders, &self.dir);
        let job = JobContext { record, group, folders, dir };
        for joined in self.step_listener.advance() {
            let id = joined.ask.step;
            match self.steps.iter_mut().find(|step| step.id() == id) {
                Some(step) => step.join(joined, job),
                None => {
                    let seen = matches!(id, StepId::Number(n) if self.steps_seen.contains(n));
                    let again = !seen && self.emptying.is_none();
                    joined.refuse("no such step runs here", again);
                }
            }
        }
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        let around = self.hooks.due().into_iter().chain(self.sample_due()).chain(self.cpu_due());
        let of_steps = self.steps.iter().filter_map(|step| step.next_due(self.suspended));
        of_steps.chain(self.deadlines.earliest()).chain(around).min()
    }

    pub fn on_time(&mut self, now: Timestamp) {
        self.on_hook_timeout(now);
        self.on_sample_time(now);
        self.on_cpu_time(now);
        while let Some(due) = self.deadlines.take_expired(now) {
            match due {
                Deadline::Warn(warning) => self.warn(warning),
                // Only the epilog runs, which is not the job's time.
                Deadline::TimeLimit if self.is_past_ending() => {}
                Deadline::TimeLimit => {
                    self.timed_out = true;
                    let grace = Duration::from_secs(u64::from(self.record.launch.kill_wait_s));
                    let notices = self.record.launch.notices.clone();
                    self.begin_end(&notices.time_limit, &notices.step_time_limit, now + grace, now);
                }
                // The epilog is not the job's, and has a timeout of its own.
                Deadline::Kill if self.hooks.is_after_job() => {}
                Deadline::Kill => {
                    let _ = self.group.kill();
                    self.kill_prolog();
                    if self.emptying.is_some() {
                        self.empty(true);
                    }
                }
            }
        }
        self.end_steps_out_of_time(now);
        for step in self.steps.iter_mut().filter(|step| step.kill_at().is_some_and(|at| at <= now))
        {
            step.kill();
        }
        let dialling = |step: &Step| {
            step.clients().srun().deadline().is_some_and(|until| until <= Instant::now())
        };
        for index in 0..self.steps.len() {
            if dialling(&self.steps[index]) {
                self.on_step_link(index);
            }
        }
    }

    /// Sends the warning signal. Slurm's rule: with `B:` to the script alone, without it to the steps alone.
    fn warn(&mut self, warning: SignalBefore) {
        self.signal(&SignalOrder {
            step: None,
            signal: warning.signal,
            leader_only: warning.batch_only,
            steps_only: !warning.batch_only,
        });
    }

    /// Reaps every ended child: programs of the site, the script, tasks, and orphans of the job.
    pub fn reap(&mut self) {
        while let Some(dead) = reap_next() {
            if self.on_hook_ended(&dead) {
                continue;
            }
            self.reaped.absorb(&dead.usage);
            if self.leader.as_ref().is_some_and(|leader| leader.pid == Some(dead.pid)) {
                self.on_leader_ready();
                self.script_used.update(&dead.used);
                if let Some(leader) = &mut self.leader {
                    leader.pid = None;
                    leader.exit = Some(dead.exit);
                }
                if self.record.launch.container.is_some() {
                    let folder = container::folder_of_attempt(&self.dir);
                    container::on_process_ended(&folder, SCRIPT_STEP, 0, dead.exit);
                }
                // The job ends with its script; processes that it leaves running are killed.
                self.script_over();
                continue;
            }
            let (record, group, folders, dir) =
                (&self.record, &self.group, &self.folders, &self.dir);
            let job = JobContext { record, group, folders, dir };
            let _ =
                self.steps.iter_mut().any(|step| step.on_child_ended(&dead, || own_kills(group)));
            self.steps.iter_mut().for_each(|step| step.begin_epilogs(job));
        }
    }

    /// OOM kills that belong to no step.
    fn script_kills(&self) -> u64 {
        let counted = match &self.leaf {
            Some(leaf) => leaf.oom_kills().unwrap_or(0),
            None => own_kills(&self.group).saturating_sub(self.oom_shared),
        };
        let folder = self.record.launch.container.as_ref();
        let folder = folder.map(|_| container::folder_of_attempt(&self.dir));
        counted + folder.map_or(0, |folder| container::oom_kills(&folder, SCRIPT_STEP))
    }
}

/// OOM kills in the job's own group, without those in the groups of steps.
fn own_kills(group: &JobGroup) -> u64 {
    group.own_oom_kills(STEP_GROUPS).unwrap_or(0)
}
