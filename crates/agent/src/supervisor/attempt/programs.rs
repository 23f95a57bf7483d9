//! The site's work around an attempt: its prolog before anything starts, and its epilog when nothing is left. Each is a
//! process of its own that is waited for like any other; only the job's own time goes on meanwhile.

use super::Attempt;
use crate::cgroup::JobGroup;
use crate::supervisor::hold::Hold;
use crate::supervisor::program;
use crate::supervisor::reap::Dead;
use crate::supervisor::scratch::Scratch;
use crate::supervisor::spawn::{OwnName, ProcessPlan, Stream, spawn};
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
const TASK_EPILOG_MAX: Duration = Duration::from_secs(60);
/// What the node's drain and the operators' logs call it, as Slurm does.
const PROLOG_ERROR: &str = "Prolog error";
const INIT_ERROR: &str = "InitScript error";
const EPILOG_ERROR: &str = "Epilog error";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Before the job's private folders are shown to it.
    Init,
    Prolog,
    /// The user's side of the end: a program after the script.
    TaskEpilog,
    Epilog,
    Cleaning,
}

/// Work that is under way.
pub(super) struct Running {
    work: Work,
    rest: VecDeque<PathBuf>,
    pub pid: Option<Pid>,
    pub group: Option<JobGroup>,
    until: Option<Timestamp>,
    /// Held where only one prolog or epilog may run on the node.
    turn: Option<Flock<File>>,
}

impl Running {
    /// Whether the job waits for it.
    pub fn is_before_job(&self) -> bool {
        matches!(self.work, Work::Init | Work::Prolog)
    }

    pub fn work(&self) -> Work {
        self.work
    }

    /// One process, in no group of its own.
    pub fn child(work: Work, pid: Pid, until: Option<Timestamp>) -> Running {
        Running { work, rest: VecDeque::new(), pid: Some(pid), group: None, until, turn: None }
    }
}

/// How far the attempt's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum After {
    #[default]
    Job,
    Epilog,
    Cleaning,
    Nothing,
}

/// What surrounds the job on this node.
#[derive(Default)]
pub(super) struct Surroundings {
    pub scratch: Option<Scratch>,
    pub private: Option<Scratch>,
    pub work: Option<Running>,
    prolog_begun: bool,
    /// Whether a deferred script may start, and whether it waits for that alone.
    pub begun: bool,
    pub waits_to_begin: bool,
    /// Steps that came while the prolog ran.
    pub delayed: Vec<StepOrder>,
    pub after: After,
    /// The node's fault, as its drain will call it.
    pub unfit: Option<String>,
    /// Groups of programs that have ended, with what these have left running.
    pub left: Vec<JobGroup>,
}

impl Surroundings {
    pub fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// When the work that is under way must be over.
    pub fn due(&self) -> Option<Timestamp> {
        self.work.as_ref()?.until
    }

    /// Whether it waits for something that no descriptor tells of: its turn.
    pub fn needs_tick(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.pid.is_none())
    }

    /// Whether only the site's work is left: what is killed then would be that.
    pub fn is_after_job(&self) -> bool {
        self.after != After::Job
    }
}

impl Attempt {
    /// Whether what is to be started must wait: the prolog runs, or has failed.
    pub(super) fn waits_for_prolog(&mut self) -> bool {
        if self.prolog_runs() {
            return true;
        }
        if !self.around.prolog_begun && self.around.unfit.is_none() {
            self.around.prolog_begun = true;
            if !self.record.site.prolog.is_empty() {
                self.begin_programs(Work::Prolog);
            }
        }
        self.prolog_runs() || self.around.unfit.is_some()
    }

    pub(super) fn prolog_runs(&self) -> bool {
        self.around.work.as_ref().is_some_and(Running::is_before_job)
    }

    pub(super) fn begin_programs(&mut self, work: Work) {
        let site = &self.record.site;
        let init = || site.private.as_ref().and_then(|folders| folders.init_script.clone());
        let init: Vec<String> = init().into_iter().collect();
        let patterns = match work {
            Work::Init => &init,
            Work::Prolog => &site.prolog,
            _ => &site.epilog,
        };
        let limit = site.timeout_s.map(|s| Duration::from_secs(u64::from(s)));
        let programs = match program::find(patterns) {
            Ok(programs) if programs.is_empty() => return,
            Ok(programs) => programs,
            Err(what) => return self.work_failed(work, &what),
        };
        match self.make_site_group(work) {
            Ok(group) => {
                self.around.work = Some(Running {
                    work,
                    rest: programs.into(),
                    pid: None,
                    group: Some(group),
                    until: limit.map(|limit| wall_clock::now() + limit),
                    turn: None,
                });
                self.advance_work();
            }
            Err(error) => self.work_failed(work, &error.to_string()),
        }
    }

    /// Starts the next program, once it is this attempt's turn.
    pub(super) fn advance_work(&mut self) {
        let one_at_a_time = self.record.site.one_at_a_time;
        let Some(mut running) = self.around.work.take() else { return };
        if running.pid.is_some() {
            self.around.work = Some(running);
            return;
        }
        if one_at_a_time && running.turn.is_none() && running.group.is_some() {
            running.turn = take_turn(self.dir.path());
            if running.turn.is_none() {
                self.around.work = Some(running);
                return;
            }
        }
        match running.rest.pop_front() {
            Some(path) => match self.spawn_program(&running, &path) {
                Ok(pid) => {
                    running.pid = Some(pid);
                    self.around.work = Some(running);
                }
                Err(what) => {
                    let work = running.work;
                    self.leave_group(running);
                    self.work_failed(work, &what);
                }
            },
            None => {
                let work = running.work;
                self.leave_group(running);
                self.work_done(work);
            }
        }
    }

    fn spawn_program(&self, running: &Running, path: &Path) -> Result<Pid, String> {
        let group = running.group.as_ref().ok_or("the program has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let mut environment = self.program_environment(running.work);
        environment.extend(marker);
        let root = UserIds {
            name: "root".into(),
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            groups: vec![getgid().as_raw()],
        };
        let (rlimits, notices) = (Rlimits::default(), Notices::default());
        let plan = ProcessPlan {
            user: &root,
            argv: vec![path.to_string_lossy().into_owned()],
            own_name: OwnName::Given,
            environment,
            pid_variables: Vec::new(),
            work_dir: "/",
            umask: 0o022,
            rlimits: &rlimits,
            lines: &[],
            nice: None,
            hold: Hold::default(),
            streams: [Stream::Null, Stream::Null, Stream::SameAsStdout],
            terminal: false,
            namespaces: None,
            prologs: Vec::new(),
            entry: &entry,
            notices: &notices,
        };
        // What it has to say of its start is in its exit.
        spawn(plan).map(|spawned| spawned.pid).map_err(|e| format!("cannot fork: {}", e.desc()))
    }

    fn program_environment(&self, work: Work) -> Vec<String> {
        let around = &self.record.launch.prolog_epilog;
        let exit = self.exit();
        let wait_status = if exit.signal > 0 { exit.signal } else { exit.code << 8 };
        let own = around.variables.iter().filter_map(|(name, variable)| {
            let value = match (variable, work) {
                (PrologEpilogVariable::PrivateFolder, Work::Init) => self.private_version()?,
                (PrologEpilogVariable::PrivateFolder, _) | (_, Work::Init) => return None,
                (PrologEpilogVariable::Context { before, .. }, Work::Prolog) => before.clone(),
                (PrologEpilogVariable::Context { after, .. }, _) => after.clone(),
                (_, Work::Prolog) => return None,
                (PrologEpilogVariable::WaitStatus, _) => wait_status.to_string(),
                (PrologEpilogVariable::Exit, _) => exit.to_string(),
            };
            Some(format!("{name}={value}"))
        });
        around.environment.iter().cloned().chain(own).collect()
    }

    /// Takes a dead child if it is a program of the site's or the cleaner.
    pub(super) fn on_program_dead(&mut self, dead: &Dead) -> bool {
        let Some(running) = self.around.work.as_mut().filter(|work| work.pid == Some(dead.pid))
        else {
            return false;
        };
        running.pid = None;
        let work = running.work;
        match dead.exit == ExitStatus::default() {
            true => self.advance_work(),
            false => {
                let what = format!("ended with {}", dead.exit);
                self.work_failed(work, &what);
            }
        }
        true
    }

    /// The time of a program is over.
    pub(super) fn on_program_time(&mut self, now: Timestamp) {
        if self.around.due().is_some_and(|until| until <= now)
            && let Some(work) = self.around.work.as_ref().map(|running| running.work)
        {
            self.work_failed(work, "took longer than PrologEpilogTimeout");
        }
    }

    pub(super) fn work_failed(&mut self, work: Work, what: &str) {
        if let Some(running) = self.around.work.take() {
            if let Some(group) = &running.group {
                // What is left of it is killed again at the end.
                let _ = group.kill();
            }
            self.leave_group(running);
        }
        match work {
            // A prolog that was killed with its job has not failed.
            Work::Init | Work::Prolog if self.emptying.is_some() => self.work_done(work),
            Work::Init => {
                self.around.unfit = Some(INIT_ERROR.into());
                self.fail_launch(format!("the InitScript {what}"));
            }
            Work::Prolog => {
                self.around.unfit = Some(PROLOG_ERROR.into());
                self.fail_launch(format!("the prolog {what}"));
            }
            Work::Epilog => {
                self.control.refuse(format!("the epilog {what}"));
                self.control.tell(ReportEvent::Unfit { why: EPILOG_ERROR.into() });
                self.work_done(work);
            }
            Work::Cleaning => {
                self.control.refuse("the job's folders could not be removed whole".into());
                self.work_done(work);
            }
            Work::TaskEpilog => self.work_done(work),
        }
    }

    fn work_done(&mut self, work: Work) {
        self.around.work = None;
        match work {
            Work::Init if self.emptying.is_none() => self.start_shown(),
            Work::Prolog if self.emptying.is_none() => self.start_own(),
            Work::Init | Work::Prolog => {
                for order in std::mem::take(&mut self.around.delayed) {
                    self.begin_step(order);
                }
            }
            Work::Cleaning => {}
            Work::TaskEpilog => self.empty(true),
            // What the epilog has left behind goes as the job went.
            Work::Epilog => self.kill_again(),
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
                let until = wall_clock::now() + TASK_EPILOG_MAX;
                self.around.work = Some(Running::child(Work::TaskEpilog, pid, Some(until)));
            }
            Err(why) => {
                self.control.refuse(why);
                self.empty(true);
            }
        }
    }
}

/// The node's spool is locked by whoever's turn it is.
fn take_turn(attempt: &Path) -> Option<Flock<File>> {
    let spool = File::open(attempt.parent()?).ok()?;
    match Flock::lock(spool, FlockArg::LockExclusiveNonblock) {
        Ok(turn) => Some(turn),
        Err((_, Errno::EWOULDBLOCK)) => None,
        Err(_) => None,
    }
}
