//! Starts the job's batch script: its files, its group, its environment.

use super::Attempt;
use crate::supervisor::container::{ContainerSpec, SCRIPT_STEP};
use crate::supervisor::job_log::JobLog;
use crate::supervisor::process::binding::{self, ProcessBinding};
use crate::supervisor::process::environment::{
    ProcessIdentity, merge_environment, process_variables, script_streams,
};
use crate::supervisor::process::path_variable::first_in_path;
use crate::supervisor::process::readiness::{DIED, Readiness, readiness};
use crate::supervisor::process::spawn::{Argv0, ProcessSpec, Spawned, Stream, spawn};
use model::reason::LaunchFailure;
use model::run::ExitStatus;
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::order::Output;
use wire::report::ReportEvent;

/// The batch script's process.
pub(super) struct Leader {
    pub pid: Option<Pid>,
    pub ready: Option<OwnedFd>,
    pub exit: Option<ExitStatus>,
}

/// Standard streams of a process in the script's environment.
enum Streams {
    OfScript,
    None,
}

impl Attempt {
    pub(super) fn start_script(&mut self) -> Result<Leader, String> {
        let launch = &self.record.launch;
        if [&launch.stdout, &launch.stderr].contains(&&Output::Log) {
            let log = JobLog::make(&self.dir, &launch.user).map_err(|e| e.to_string())?;
            self.log = Some(log);
        }
        let program = self.dir.script_path().to_string_lossy().into_owned();
        let arguments = self.record.launch.arguments.iter().cloned();
        let words = self.record.launch.notices.task_prolog_failed.as_str();
        let prolog = self.record.site.task_prolog.clone();
        let prologs = prolog.map(|program| (program, words)).into_iter().collect();
        let argv = std::iter::once(program).chain(arguments).collect();
        let spawned = self.spawn_in_place_of_script(argv, prologs, Streams::OfScript)?;
        // The script's process has it.
        self.workspace = None;
        if let Some(log) = &mut self.log {
            log.job_end = None;
        }
        Ok(Leader { pid: Some(spawned.pid), ready: Some(spawned.ready), exit: None })
    }

    /// Starts a program of the site as the script's user and in its environment.
    pub(super) fn spawn_beside_script(&self, program: &str) -> Result<Pid, String> {
        let argv = vec![program.to_owned()];
        self.spawn_in_place_of_script(argv, Vec::new(), Streams::None).map(|spawned| spawned.pid)
    }

    fn spawn_in_place_of_script(
        &self,
        argv: Vec<String>,
        prologs: Vec<(String, &str)>,
        streams: Streams,
    ) -> Result<Spawned, String> {
        let launch = &self.record.launch;
        let identity = ProcessIdentity {
            node: &self.record.node,
            node_index: launch.node_index,
            step: None,
            rank: launch.node_index,
            local_rank: 0,
            ranks_here: &[launch.node_index],
            scratch: self.folders.scratch_path(),
        };
        // A program of the site that runs in place of the script is not of the image, has nothing placed for it, and no login.
        let with_container = matches!(streams, Streams::OfScript);
        let streams = match streams {
            Streams::OfScript => {
                let log = self.log.as_ref().and_then(|log| log.job_end.as_ref());
                script_streams(&self.record, &identity, log)
            }
            Streams::None => Ok([Stream::Null, Stream::Null, Stream::SameAsStdout]),
        };
        let streams = streams.map_err(|e| e.to_string())?;
        let group = self.leaf.as_ref().unwrap_or(&self.group);
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) = process_variables(&launch.process_variables, &identity, None);
        let marker = self.group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let base = launch.environment.iter().map(String::as_str);
        let over = self.folders.variables.iter().chain(&own).chain(&marker).map(String::as_str);
        let mut environment = merge_environment(base, over);
        if let Some(folder) = self.folders.run_files_path() {
            first_in_path(&mut environment, folder);
        }
        let cpus = binding::script_cpus(&self.record);
        let workspace = self.workspace.as_ref().filter(|_| with_container);
        let own_folder = workspace.is_some_and(|brought| brought.workspace.own_folder);
        let work_dir = match (own_folder, identity.scratch) {
            (false, _) => &launch.work_dir,
            (true, Some(scratch)) => scratch,
            (true, None) => return Err("there is no scratch folder for the run's files".into()),
        };
        let container = launch.container.as_deref().filter(|_| with_container);
        let container = container.map(|request| {
            let (job, auth) = (self.context(), launch.registry_auth.as_ref());
            Ok::<_, String>(ContainerSpec {
                script: Some(self.dir.script_path()),
                folder_variables: &launch.folder_variables,
                work_dir,
                umask: launch.umask,
                workspace,
                ..ContainerSpec::of_job(job, request, SCRIPT_STEP, group, auth)?
            })
        });
        let spec = ProcessSpec {
            user: &launch.user,
            argv,
            argv0: Argv0::AsGiven,
            environment,
            pid_variables,
            work_dir,
            umask: launch.umask,
            rlimits: &launch.rlimits,
            limits: Some(&self.record.limits),
            lines: &[],
            nice: launch.nice,
            hold: ProcessBinding {
                cpus: cpus.as_ref(),
                locks_memory: binding::locks_memory(&self.record),
                ..ProcessBinding::default()
            },
            streams,
            terminal: false,
            namespaces: self.folders.namespaces.as_ref(),
            login: launch.login_environment.filter(|_| with_container),
            prologs,
            workspace,
            container: container.transpose()?,
            entry: &entry,
            notices: &launch.notices,
        };
        spawn(spec).map_err(|errno| format!("cannot fork: {}", errno.desc()))
    }

    pub fn leader_ready(&self) -> Option<BorrowedFd<'_>> {
        self.leader.as_ref()?.ready.as_ref().map(AsFd::as_fd)
    }

    pub fn on_leader_ready(&mut self) {
        let Some(ready) = self.leader.as_mut().and_then(|leader| leader.ready.take()) else {
            return;
        };
        match readiness(&ready) {
            Readiness::Ready { stderr, network } => {
                self.stderr = Some(stderr);
                if let Some(network) = network {
                    self.agents.report(ReportEvent::Network(network));
                }
                self.agents.report(ReportEvent::Started);
            }
            Readiness::Failed(failure) => self.fail_launch(failure),
            // It was killed with the whole attempt, whose end has its own cause: a cancel, a time limit, another node's failure.
            Readiness::Silent if self.emptying.is_some() => {}
            Readiness::Silent => self.fail_launch(DIED.to_owned()),
        }
    }

    pub(super) fn fail_launch(&mut self, failure: impl Into<LaunchFailure>) {
        self.launch_failed = Some(failure.into());
        self.empty(true);
    }
}
