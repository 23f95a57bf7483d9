//! The site's programs around an attempt: its prolog before anything starts, and its epilog when nothing is left. Each is a
//! process of its own that is waited for like any other; only the job's own time goes on meanwhile.

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

/// How long a program after the script may take: the job's resources wait for it.
const TASK_EPILOG_TIMEOUT: Duration = Duration::from_secs(60);
/// What the node's drain and the operators' logs call it, as Slurm does.
const PROLOG_ERROR: &str = "Prolog error";
const INIT_ERROR: &str = "InitScript error";
const EPILOG_ERROR: &str = "Epilog error";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// Before the job's private folders are shown to it.
    InitScript,
    Prolog,
    /// The user's side of the end: a program after the script.
    TaskEpilog,
    Epilog,
    Cleanup,
}

/// A hook that is under way.
pub(super) struct RunningHook {
    hook: Hook,
    rest: VecDeque<PathBuf>,
    pub pid: Option<Pid>,
    pub group: Option<JobGroup>,
    until: Option<Timestamp>,
    /// Held where only one prolog or epilog may run on the node.
    lock: Option<Flock<File>>,
}

impl RunningHook {
    /// Whether the job waits for it.
    pub fn is_before_job(&self) -> bool {
        matches!(self.hook, Hook::InitScript | Hook::Prolog)
    }

    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// One process, in no group of its own.
    pub fn child(hook: Hook, pid: Pid, until: Option<Timestamp>) -> RunningHook {
        RunningHook { hook, rest: VecDeque::new(), pid: Some(pid), group: None, until, lock: None }
    }
}

/// How far the attempt's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndStage {
    #[default]
    JobRuns,
    Epilog,
    Cleanup,
    Done,
}

/// What surrounds the job on this node.
#[derive(Default)]
pub(super) struct SiteHooks {
    pub running: Option<RunningHook>,
    prolog_begun: bool,
    /// Whether a deferred script may start, and whether it waits for that alone.
    pub may_begin: bool,
    pub waits_to_begin: bool,
    /// Steps that came while the prolog ran.
    pub delayed_steps: Vec<StepOrder>,
    pub end_stage: EndStage,
    /// The node's fault, as its drain will call it.
    pub unfit: Option<String>,
    /// Groups of programs that have ended, with what these have left running.
    pub leftover_groups: Vec<JobGroup>,
}

impl SiteHooks {
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// When the hook that is under way must be over.
    pub fn due(&self) -> Option<Timestamp> {
        self.running.as_ref()?.until
    }

    /// Whether it waits for something that no descriptor tells of: its turn.
    pub fn waits_for_lock(&self) -> bool {
        self.running.as_ref().is_some_and(|hook| hook.pid.is_none())
    }

    /// Whether only the site's programs are left: what is killed then would be that.
    pub fn is_after_job(&self) -> bool {
        self.end_stage != EndStage::JobRuns
    }
}

impl Attempt {
    /// Whether what is to be started must wait: the prolog runs, or has failed.
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

    /// Starts the next program, once it is this attempt's turn.
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
            lines: &[],
            nice: None,
            hold: ProcessBinding::default(),
            streams: [Stream::Null, Stream::Null, Stream::SameAsStdout],
            terminal: false,
            namespaces: None,
            prologs: Vec::new(),
            entry: &entry,
            notices: &notices,
        };
        // What it has to say of its start is in its exit.
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

    /// Takes a dead child if it is a program of the site's or the cleaner.
    pub(super) fn on_hook_ended(&mut self, dead: &EndedChild) -> bool {
        let Some(running) = self.hooks.running.as_mut().filter(|hook| hook.pid == Some(dead.pid))
        else {
            return false;
        };
        running.pid = None;
        let hook = running.hook;
        match dead.exit == ExitStatus::default() {
            true => self.advance_hook(),
            false => {
                let what = format!("ended with {}", dead.exit);
                self.hook_failed(hook, &what);
            }
        }
        true
    }

    /// The time of a program is over.
    pub(super) fn on_hook_timeout(&mut self, now: Timestamp) {
        if self.hooks.due().is_some_and(|until| until <= now)
            && let Some(hook) = self.hooks.running.as_ref().map(|running| running.hook)
        {
            self.hook_failed(hook, "took longer than PrologEpilogTimeout");
        }
    }

    pub(super) fn hook_failed(&mut self, hook: Hook, what: &str) {
        if let Some(running) = self.hooks.running.take() {
            if let Some(group) = &running.group {
                // What is left of it is killed again at the end.
                let _ = group.kill();
            }
            self.keep_hook_group(running);
        }
        match hook {
            // A prolog that was killed with its job has not failed.
            Hook::InitScript | Hook::Prolog if self.emptying.is_some() => self.hook_done(hook),
            Hook::InitScript => {
                self.hooks.unfit = Some(INIT_ERROR.into());
                self.fail_launch(format!("the InitScript {what}"));
            }
            Hook::Prolog => {
                self.hooks.unfit = Some(PROLOG_ERROR.into());
                self.fail_launch(format!("the prolog {what}"));
            }
            Hook::Epilog => {
                self.control.refuse(format!("the epilog {what}"));
                self.control.tell(ReportEvent::Unfit { why: EPILOG_ERROR.into() });
                self.hook_done(hook);
            }
            Hook::Cleanup => {
                self.control.refuse("the job's folders could not be removed whole".into());
                self.hook_done(hook);
            }
            Hook::TaskEpilog => self.hook_done(hook),
        }
    }

    fn hook_done(&mut self, hook: Hook) {
        self.hooks.running = None;
        match hook {
            Hook::InitScript if self.emptying.is_none() => self.start_shown(),
            Hook::Prolog if self.emptying.is_none() => self.start_own(),
            Hook::InitScript | Hook::Prolog => {
                for order in std::mem::take(&mut self.hooks.delayed_steps) {
                    self.begin_step(order);
                }
            }
            Hook::Cleanup => {}
            Hook::TaskEpilog => self.empty(true),
            // What the epilog has left behind goes as the job went.
            Hook::Epilog => self.kill_again(),
        }
    }

    /// The script has ended. Its epilog is still its own; what it leaves behind has no claim on the node.
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
                self.control.refuse(why);
                self.empty(true);
            }
        }
    }
}

/// The node's spool is locked by whoever's turn it is.
fn lock_node_hooks(attempt: &Path) -> Option<Flock<File>> {
    let spool = File::open(attempt.parent()?).ok()?;
    match Flock::lock(spool, FlockArg::LockExclusiveNonblock) {
        Ok(turn) => Some(turn),
        Err((_, Errno::EWOULDBLOCK)) => None,
        Err(_) => None,
    }
}
