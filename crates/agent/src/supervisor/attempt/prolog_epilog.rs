//! When the site's programs run: InitScript and prolog before the job starts, task epilog after the script, epilog and
//! cleanup when the job's group is empty. Each is a child process that the event loop reaps like any other.

use super::Attempt;
use crate::cgroup::JobGroup;
use crate::supervisor::process::binding::ProcessBinding;
use crate::supervisor::process::reap::EndedChild;
use crate::supervisor::process::spawn::{Argv0, ProcessSpec, Stream, spawn};
use crate::supervisor::prolog_epilog::programs;
use crate::wall_clock;
use model::run::{ExitStatus, Rlimits};
use model::time::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Pid, getgid, getuid};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::order::{Notices, PrologEpilogVariable, StepOrder, UserIds};
use wire::report::ReportEvent;

/// How long the task epilog of the script may take: the job keeps its resources meanwhile.
const TASK_EPILOG_TIMEOUT: Duration = Duration::from_secs(60);
/// Reasons of the node's drain, in Slurm's words.
const LOOKUP_ERROR: &str = "User lookup failed";
const PROLOG_ERROR: &str = "Prolog error";
const INIT_ERROR: &str = "InitScript error";
const EPILOG_ERROR: &str = "Epilog error";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// Not a program: the lookup of the job's owner, which comes before all others.
    OwnerLookup,
    /// Runs before the job's private folders are mounted.
    InitScript,
    Prolog,
    /// Runs after the script, as its user.
    TaskEpilog,
    Epilog,
    Cleanup,
}

/// A hook that runs now.
pub(super) struct RunningHook {
    hook: Hook,
    rest: VecDeque<PathBuf>,
    pub pid: Option<Pid>,
    pub group: Option<JobGroup>,
    until: Option<Timestamp>,
    /// The node's lock, where only one prolog or epilog may run at a time.
    lock: Option<Flock<File>>,
}

impl RunningHook {
    /// Whether the job starts after it.
    pub fn is_before_job(&self) -> bool {
        matches!(self.hook, Hook::OwnerLookup | Hook::InitScript | Hook::Prolog)
    }

    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// A hook of one process, in no group of its own.
    pub fn child(hook: Hook, pid: Pid, until: Option<Timestamp>) -> RunningHook {
        RunningHook { hook, rest: VecDeque::new(), pid: Some(pid), group: None, until, lock: None }
    }
}

/// Stages of an attempt's end, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndStage {
    #[default]
    JobRuns,
    Epilog,
    Cleanup,
    Done,
}

/// The state of the site's programs around the job, and of a start that waits for them.
#[derive(Default)]
pub(super) struct SiteHooks {
    pub running: Option<RunningHook>,
    prolog_begun: bool,
    /// Whether a deferred script may start, and whether it waits only for that order.
    pub may_begin: bool,
    pub waits_to_begin: bool,
    /// Steps that were ordered while the prolog ran.
    pub delayed_steps: Vec<StepOrder>,
    pub end_stage: EndStage,
    /// Why the launch failed by the node's fault: the reason of its drain.
    pub unfit: Option<String>,
    /// Groups of ended programs in which processes still run.
    pub leftover_groups: Vec<JobGroup>,
}

impl SiteHooks {
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// When the running hook times out.
    pub fn due(&self) -> Option<Timestamp> {
        self.running.as_ref()?.until
    }

    /// Whether a hook waits for the node's lock, which no descriptor reports.
    pub fn waits_for_lock(&self) -> bool {
        self.running.as_ref().is_some_and(|hook| hook.pid.is_none())
    }

    /// Whether the job itself has ended, so that a kill would only hit the epilog.
    pub fn is_after_job(&self) -> bool {
        self.end_stage != EndStage::JobRuns
    }
}

impl Attempt {
    /// Begins the prolog if it has not run yet. Returns whether the start must wait: the prolog runs, or has failed.
    pub(super) fn waits_for_prolog(&mut self) -> bool {
        if self.prolog_runs() {
            return true;
        }
        if !self.hooks.prolog_begun && self.hooks.unfit.is_none() {
            self.hooks.prolog_begun = true;
            if !self.record.site.prolog.is_empty() {
                self.begin_hook(Hook::Prolog);
            }
        }
        self.prolog_runs() || self.hooks.unfit.is_some()
    }

    pub(super) fn prolog_runs(&self) -> bool {
        self.hooks.running.as_ref().is_some_and(RunningHook::is_before_job)
    }

    pub(super) fn begin_hook(&mut self, hook: Hook) {
        let site = &self.record.site;
        let init = || site.private.as_ref().and_then(|folders| folders.init_script.clone());
        let init: Vec<String> = init().into_iter().collect();
        let patterns = match hook {
            Hook::InitScript => &init,
            Hook::Prolog => &site.prolog,
            _ => &site.epilog,
        };
        let limit = site.timeout_s.map(|s| Duration::from_secs(u64::from(s)));
        let programs = match programs::find(patterns) {
            Ok(programs) if programs.is_empty() => return,
            Ok(programs) => programs,
            Err(what) => return self.hook_failed(hook, &what),
        };
        match self.make_hook_group(hook) {
            Ok(group) => {
                self.hooks.running = Some(RunningHook {
                    hook,
                    rest: programs.into(),
                    pid: None,
                    group: Some(group),
                    until: limit.map(|limit| wall_clock::now() + limit),
                    lock: None,
                });
                self.advance_hook();
            }
            Err(error) => self.hook_failed(hook, &error.to_string()),
        }
    }

    /// Starts the hook's next program, once the node's lock is free.
    pub(super) fn advance_hook(&mut self) {
        let one_at_a_time = self.record.site.one_at_a_time;
        let Some(mut running) = self.hooks.running.take() else { return };
        if running.pid.is_some() {
            self.hooks.running = Some(running);
            return;
        }
        if one_at_a_time && running.lock.is_none() && running.group.is_some() {
            running.lock = lock_node_hooks(self.dir.path());
            if running.lock.is_none() {
                self.hooks.running = Some(running);
                return;
            }
        }
        match running.rest.pop_front() {
            Some(path) => match self.spawn_hook(&running, &path) {
                Ok(pid) => {
                    running.pid = Some(pid);
                    self.hooks.running = Some(running);
                }
                Err(what) => {
                    let hook = running.hook;
                    self.keep_hook_group(running);
                    self.hook_failed(hook, &what);
                }
            },
            None => {
                let hook = running.hook;
                self.keep_hook_group(running);
                self.hook_done(hook);
            }
        }
    }

    fn spawn_hook(&self, running: &RunningHook, path: &Path) -> Result<Pid, String> {
        let group = running.group.as_ref().ok_or("the program has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let mut environment = self.hook_environment(running.hook);
        environment.extend(marker);
        let root = UserIds {
            name: "root".into(),
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            groups: vec![getgid().as_raw()],
        };
        let (rlimits, notices) = (Rlimits::default(), Notices::default());
        let spec = ProcessSpec {
            user: &root,
            argv: vec![path.to_string_lossy().into_owned()],
            argv0: Argv0::AsGiven,
            environment,
            pid_variables: Vec::new(),
            work_dir: "/",
            umask: 0o022,
            rlimits: &rlimits,
            limits: None,
            lines: &[],
            nice: None,
            hold: ProcessBinding::default(),
            streams: [Stream::Null, Stream::Null, Stream::SameAsStdout],
            terminal: false,
            namespaces: None,
            login: None,
            prologs: Vec::new(),
            workspace: None,
            container: None,
            entry: &entry,
            notices: &notices,
        };
        // A failure to execute shows in the exit status.
        spawn(spec).map(|spawned| spawned.pid).map_err(|e| format!("cannot fork: {}", e.desc()))
    }

    fn hook_environment(&self, hook: Hook) -> Vec<String> {
        let around = &self.record.launch.prolog_epilog;
        let exit = self.exit();
        let wait_status = if exit.signal > 0 { exit.signal } else { exit.code << 8 };
        let own = around.variables.iter().filter_map(|(name, variable)| {
            let value = match (variable, hook) {
                (PrologEpilogVariable::PrivateFolder, Hook::InitScript) => {
                    self.private_version()?
                }
                (PrologEpilogVariable::PrivateFolder, _) | (_, Hook::InitScript) => return None,
                (PrologEpilogVariable::Context { before, .. }, Hook::Prolog) => before.clone(),
                (PrologEpilogVariable::Context { after, .. }, _) => after.clone(),
                (_, Hook::Prolog) => return None,
                (PrologEpilogVariable::WaitStatus, _) => wait_status.to_string(),
                (PrologEpilogVariable::Exit, _) => exit.to_string(),
            };
            Some(format!("{name}={value}"))
        });
        around.environment.iter().cloned().chain(own).collect()
    }

    /// Handles an ended child if it is the running hook's process. Returns whether it was.
    pub(super) fn on_hook_ended(&mut self, dead: &EndedChild) -> bool {
        let Some(running) = self.hooks.running.as_mut().filter(|hook| hook.pid == Some(dead.pid))
        else {
            return false;
        };
        running.pid = None;
        let hook = running.hook;
        if dead.exit == ExitStatus::default() {
            self.advance_hook()
        } else {
            let what = format!("ended with {}", dead.exit);
            self.hook_failed(hook, &what);
        }
        true
    }

    /// Fails a hook that has reached its timeout.
    pub(super) fn on_hook_timeout(&mut self, now: Timestamp) {
        if self.hooks.due().is_some_and(|until| until <= now)
            && let Some(hook) = self.hooks.running.as_ref().map(|running| running.hook)
        {
            let what = match hook {
                Hook::OwnerLookup => "took too long",
                _ => "took longer than PrologEpilogTimeout",
            };
            self.hook_failed(hook, what);
        }
    }

    pub(super) fn hook_failed(&mut self, hook: Hook, what: &str) {
        if let Some(running) = self.hooks.running.take() {
            if let Some(group) = &running.group {
                // Survivors are killed again at the end of the attempt.
                let _ = group.kill();
            }
            self.keep_hook_group(running);
        }
        match hook {
            // A prolog that was killed because its job ended has not failed.
            Hook::OwnerLookup | Hook::InitScript | Hook::Prolog if self.emptying.is_some() => {
                self.hook_done(hook);
            }
            Hook::OwnerLookup => {
                self.hooks.unfit = Some(LOOKUP_ERROR.into());
                self.fail_launch(format!("the lookup of the user {what}"));
            }
            Hook::InitScript => {
                self.hooks.unfit = Some(INIT_ERROR.into());
                self.fail_launch(format!("the InitScript {what}"));
            }
            Hook::Prolog => {
                self.hooks.unfit = Some(PROLOG_ERROR.into());
                self.fail_launch(format!("the prolog {what}"));
            }
            Hook::Epilog => {
                self.agents.report_refusal(format!("the epilog {what}"));
                self.agents.report(ReportEvent::Unfit { why: EPILOG_ERROR.into() });
                self.hook_done(hook);
            }
            Hook::Cleanup => {
                self.agents.report_refusal("the job's folders could not be removed whole".into());
                self.hook_done(hook);
            }
            Hook::TaskEpilog => self.hook_done(hook),
        }
    }

    fn hook_done(&mut self, hook: Hook) {
        self.hooks.running = None;
        match hook {
            Hook::OwnerLookup if self.emptying.is_none() => self.owner_lookup_done(),
            Hook::InitScript if self.emptying.is_none() => self.start_shown(),
            Hook::Prolog if self.emptying.is_none() => self.start_own(),
            Hook::OwnerLookup | Hook::InitScript | Hook::Prolog => {
                for order in std::mem::take(&mut self.hooks.delayed_steps) {
                    self.begin_step(order);
                }
            }
            Hook::Cleanup => {}
            Hook::TaskEpilog => self.empty(true),
            // Processes that the epilog left in the job's group are killed.
            Hook::Epilog => self.kill_again(),
        }
    }

    /// Runs the task epilog after the script, then kills what the script left running.
    pub(super) fn script_over(&mut self) {
        let Some(program) =
            self.record.site.task_epilog.clone().filter(|_| self.emptying.is_none())
        else {
            return self.empty(true);
        };
        match self.spawn_beside_script(&program) {
            Ok(pid) => {
                let until = wall_clock::now() + TASK_EPILOG_TIMEOUT;
                self.hooks.running = Some(RunningHook::child(Hook::TaskEpilog, pid, Some(until)));
            }
            Err(why) => {
                self.agents.report_refusal(why);
                self.empty(true);
            }
        }
    }
}

/// Takes the lock on the node's spool folder, which only one prolog or epilog holds at a time.
fn lock_node_hooks(attempt: &Path) -> Option<Flock<File>> {
    let spool = File::open(attempt.parent()?).ok()?;
    match Flock::lock(spool, FlockArg::LockExclusiveNonblock) {
        Ok(turn) => Some(turn),
        Err((_, Errno::EWOULDBLOCK)) => None,
        Err(_) => None,
    }
}
