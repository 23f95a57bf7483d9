//! Runs jobs one after another on a node without a server, for the benchmark that compares it to a bare fork and exec.
//! It includes everything from the accepted order to the report of the end, except the link.

use crate::error::AgentError;
use crate::launcher::Launcher;
use crate::node::{Host, Node};
use crate::wall_clock::Skew;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::id::{AttemptId, JobId};
use model::run::LaunchKind;
use nix::unistd::{User, getgid, getuid};
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use wire::frame::{self, Decoder};
use wire::order::{Action, EndOrder, FileNames, JobLaunch, Notices, Output, UserIds};
use wire::report::ReportEvent;
use wire::supervisor::{CHANNEL, FromSupervisor, ToSupervisor};

const NODE: &str = "bench";
/// How long a supervisor may be silent; reached only if something is broken.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct LaunchPath {
    launcher: Launcher,
    node: Node,
    jobs: u32,
}

/// The connection to one supervisor.
struct SupervisorConnection {
    stream: UnixStream,
    decoder: Decoder,
}

impl LaunchPath {
    /// `launcher` must be started before anything else in the process.
    pub fn open(launcher: Launcher, state: &Path) -> Result<LaunchPath, AgentError> {
        let host = Host::open(state, NODE, false)?;
        Ok(LaunchPath { launcher, node: Node::open(&host, NODE)?, jobs: 0 })
    }

    /// Runs a job of this script to its end, and removes it from the spool.
    pub fn run_one(&mut self, script: &str) -> Result<(), AgentError> {
        let (attempt, mut connection) = self.launch(script)?;
        loop {
            let FromSupervisor::Event(event) = connection.next()? else { continue };
            match event.event {
                ReportEvent::Ended(end) if end.exit.is_success() => break,
                event if is_end(&event) => {
                    return Err(AgentError::Link(format!("the job did not run: {event:?}")));
                }
                _ => {}
            }
        }
        self.node.spool.remove(attempt)
    }

    /// Bytes of private memory of a running job's supervisor.
    pub fn supervisor_memory(&mut self) -> Result<u64, AgentError> {
        let (attempt, mut connection) = self.launch("#!/bin/sh\nexec sleep 60\n")?;
        let mut supervisor = 0;
        loop {
            match connection.next()? {
                FromSupervisor::Hello { pid, .. } => supervisor = pid,
                FromSupervisor::Event(e) if matches!(e.event, ReportEvent::Started) => break,
                _ => {}
            }
        }
        let path = format!("/proc/{supervisor}/smaps_rollup");
        let text =
            std::fs::read_to_string(&path).map_err(|e| AgentError::file("read", &path, e))?;
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        let bytes = kib.sum::<u64>() << 10;
        connection.send(&ToSupervisor::Execute(Action::End(EndOrder::kill(None, None))))?;
        while !matches!(connection.next()?, FromSupervisor::Event(e) if is_end(&e.event)) {}
        self.node.spool.remove(attempt)?;
        Ok(bytes)
    }

    fn launch(&mut self, script: &str) -> Result<(AttemptId, SupervisorConnection), AgentError> {
        self.jobs += 1;
        let attempt = AttemptId { job: JobId(self.jobs), number: 1 };
        let request = self.node.accept(attempt, launch(self.jobs, script), Skew::default())?;
        let failed = |e| AgentError::file("start a supervisor for", &request.folder, e);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
        self.launcher.launch(&request, theirs.as_fd()).map_err(failed)?;
        Ok((attempt, SupervisorConnection { stream: ours, decoder: Decoder::default() }))
    }
}

impl SupervisorConnection {
    fn next(&mut self) -> Result<FromSupervisor, AgentError> {
        let broken = |what: String| AgentError::Link(what);
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|e| broken(e.to_string()))? {
                return frame::decode_message(&frame.payload).map_err(|e| broken(e.to_string()));
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).map_err(|e| broken(e.to_string()))? {
                0 => return Err(broken("the supervisor ended without a word".into())),
                length => self.decoder.push(&buffer[..length]),
            }
        }
    }

    fn send(&mut self, word: &ToSupervisor) -> Result<(), AgentError> {
        let mut bytes = Vec::new();
        frame::encode_message(CHANNEL, word, &mut bytes)
            .map_err(|e| AgentError::Link(e.to_string()))?;
        self.stream.write_all(&bytes).map_err(|e| AgentError::Link(e.to_string()))
    }
}

fn is_end(event: &ReportEvent) -> bool {
    matches!(event, ReportEvent::Ended(_) | ReportEvent::LaunchFailed { .. })
}

/// A small job: one core, some memory, an environment of usual size.
fn launch(number: u32, script: &str) -> JobLaunch {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    // Looked up on the node before the job starts.
    let name = User::from_uid(getuid()).ok().flatten().map_or_else(String::new, |user| user.name);
    let share = NodeShare {
        node: NODE.into(),
        cpus: [0].into_iter().collect(),
        memory: Bytes::from_mib(64),
        gres: Vec::new(),
        tasks: 1,
        sharers: 1,
        disk: Bytes(0),
        price: None,
    };
    JobLaunch {
        kind: LaunchKind::Batch,
        user: UserIds { name, uid, gid, groups: vec![gid] },
        share,
        node_index: 0,
        nodes: 1,
        script: Some(script.into()),
        deferred: false,
        arguments: Vec::new(),
        environment: (0..40).map(|i| format!("SLURM_VARIABLE_{i}=some value")).collect(),
        files: Vec::new(),
        internode_ssh: None,
        process_variables: Vec::new(),
        folder_variables: Vec::new(),
        work_dir: "/".into(),
        stdin: "/dev/null".into(),
        stdout: Output::Discard,
        stderr: Output::SameAsStdout,
        umask: 0o022,
        rlimits: Default::default(),
        nice: None,
        bound: true,
        name: "bench".into(),
        end_limit: None,
        kill_wait_s: 30,
        login_environment: None,
        over_time_s: 0,
        unkillable_s: 60,
        signal: None,
        names: FileNames { job_id: number, ..FileNames::default() },
        first_step: None,
        notices: Notices::default(),
        sample_s: None,
        volumes: Vec::new(),
        shared_memory: None,
        own_network: false,
        id_range: Default::default(),
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        call: None,
        container: None,
        prolog_epilog: Default::default(),
    }
}
