//! The job's own script, from its files and group to its first instruction.

use super::Attempt;
use crate::supervisor::plan::{Place, merge_environment, process_variables, script_streams};
use crate::supervisor::spawn::{OwnName, ProcessPlan, Readiness, readiness, spawn};
use model::run::ExitStatus;
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::report::ReportEvent;

/// The job's own script.
pub(super) struct Leader {
    pub pid: Option<Pid>,
    pub ready: Option<OwnedFd>,
    pub exit: Option<ExitStatus>,
}

impl Attempt {
    pub(super) fn start_script(&self) -> Result<Leader, String> {
        let launch = &self.record.launch;
        let place = Place {
            node: &self.record.node,
            node_index: launch.node_index,
            step: None,
            rank: launch.node_index,
            local_rank: 0,
            ranks_here: &[launch.node_index],
        };
        let streams = script_streams(&self.record, &self.dir, &place).map_err(|e| e.to_string())?;
        let entry = self.group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) = process_variables(&launch.process_variables, &place);
        let marker = self.group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let base = launch.environment.iter().map(String::as_str);
        let over = own.iter().chain(&marker).map(String::as_str);
        let program = self.dir.script_path().to_string_lossy().into_owned();
        let plan = ProcessPlan {
            user: &launch.user,
            argv: std::iter::once(program).chain(launch.arguments.iter().cloned()).collect(),
            own_name: OwnName::Given,
            environment: merge_environment(base, over),
            pid_variables,
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: &launch.rlimits,
            streams,
            terminal: false,
            entry: &entry,
            notices: &launch.notices,
        };
        let spawned = spawn(plan).map_err(|errno| format!("cannot fork: {}", errno.desc()))?;
        Ok(Leader { pid: Some(spawned.pid), ready: Some(spawned.ready), exit: None })
    }

    pub fn leader_ready(&self) -> Option<BorrowedFd<'_>> {
        self.leader.as_ref()?.ready.as_ref().map(AsFd::as_fd)
    }

    pub fn on_leader_ready(&mut self) {
        let Some(ready) = self.leader.as_mut().and_then(|leader| leader.ready.take()) else {
            return;
        };
        match readiness(&ready) {
            Readiness::Ready(stderr) => {
                self.stderr = Some(stderr);
                self.control.tell(ReportEvent::Started);
            }
            Readiness::Failed(what) => self.fail_launch(what),
        }
    }

    pub(super) fn fail_launch(&mut self, what: String) {
        self.launch_failed = Some(what);
        self.empty(true);
    }
}
