//! A cluster for tests: a real agent in a process of its own, and a fake server.
#![allow(dead_code, reason = "each test file uses a part of it")]

mod server;

use agent::{AgentConfig, Launcher};
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::id::{AttemptId, JobId};
use model::run::LaunchKind;
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
pub use server::{FakeLink, FakeServer};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::time::timeout;
use wire::link::{ToAgent, ToServer};
use wire::order::{Action, FileNames, JobLaunch, Notices, Output, UserIds};
use wire::report::{AttemptEnd, Report, ReportEvent};

/// The node of every test.
pub const NODE: &str = "n1";
/// `nobody`: nothing on the machine belongs to it.
pub const UID: u32 = 65_534;
/// Anything that takes this long has failed.
pub const TIMEOUT: Duration = Duration::from_secs(30);
pub const TOKEN: &str = "one-time";

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(since.as_millis() as i64)
}

/// A cluster of one node, with a folder that its user can reach.
pub struct Cluster {
    pub folder: TempDir,
    pub runtime: tokio::runtime::Runtime,
    pub server: FakeServer,
    agent: Option<Pid>,
    /// The user that the agent runs as; root unless a test says otherwise.
    agent_uid: u32,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::start_as(0)
    }

    pub fn start_as(agent_uid: u32) -> Cluster {
        assert!(
            nix::unistd::Uid::effective().is_root(),
            "this test starts jobs of other users: run it as root"
        );
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .expect("chmod");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("a home");
        std::os::unix::fs::chown(&home, Some(UID), Some(UID)).expect("chown");
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("a state folder");
        std::os::unix::fs::chown(&state, Some(agent_uid), Some(agent_uid)).expect("chown");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (server, join) = runtime.block_on(FakeServer::start());
        let join = serde_json::to_vec(&join).expect("JSON");
        std::fs::write(folder.path().join("join"), join).expect("a join file");
        let mut cluster = Cluster { folder, runtime, server, agent: None, agent_uid };
        cluster.start_agent();
        cluster
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn spool(&self) -> PathBuf {
        self.state().join("nodes").join(NODE).join("spool")
    }

    /// The agent is a process of its own, so that it can be killed.
    pub fn start_agent(&mut self) {
        let config = AgentConfig {
            host_name: String::new(),
            state: self.state(),
            join_file: Some(self.folder.path().join("join")),
            servers: Vec::new(),
            nodes: Vec::new(),
            client_socket: None,
            booted_now: false,
            dynamic: None,
            future: None,
            spot: None,
            in_pod: false,
            gres_of: Box::new(|_| Vec::new()),
        };
        // SAFETY: the child runs the agent and never returns into the test.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => self.agent = Some(child),
            ForkResult::Child => {
                if self.agent_uid != 0 {
                    become_user(self.agent_uid);
                }
                let launcher = Launcher::start().expect("a launcher");
                let ended = agent::run(config, launcher);
                if let Err(error) = &ended {
                    eprintln!("agent: {error}");
                }
                // SAFETY: ends the child without the test's own exit handlers.
                unsafe { libc::_exit(i32::from(ended.is_err())) }
            }
        }
    }

    /// Asks the agent to end, as an administrator would.
    pub fn stop_agent(&mut self) -> i32 {
        kill(self.agent.expect("an agent"), Signal::SIGTERM).expect("the agent is there");
        self.wait_agent()
    }

    pub fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            kill(agent, Signal::SIGKILL).expect("the agent is there");
            waitpid(agent, None).expect("waited for");
        }
    }

    /// The exit code of an agent that ends by itself.
    pub fn wait_agent(&mut self) -> i32 {
        let agent = self.agent.take().expect("an agent");
        match waitpid(agent, None).expect("waited for") {
            nix::sys::wait::WaitStatus::Exited(_, code) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the agent to join, if it has not, and to say hello.
    pub fn connect(&mut self) -> FakeLink {
        let Cluster { runtime, server, .. } = self;
        runtime.block_on(async {
            timeout(TIMEOUT, server.accept()).await.expect("the agent did not come")
        })
    }

    /// Signs and sends an order.
    pub fn order(&mut self, link: &mut FakeLink, attempt: AttemptId, action: Action) {
        let signed = self.server.sign(attempt, action);
        self.send(link, &ToAgent::Order(signed));
    }

    pub fn send(&self, link: &mut FakeLink, message: &ToAgent) {
        self.runtime.block_on(link.send(message));
    }

    pub fn next(&self, link: &mut FakeLink) -> ToServer {
        self.runtime.block_on(async {
            timeout(TIMEOUT, link.next()).await.expect("the agent said nothing")
        })
    }

    /// Receives the next report and acknowledges it.
    pub fn report(&self, link: &mut FakeLink) -> Report {
        loop {
            if let ToServer::Report(report) = self.next(link) {
                self.send(link, &ToAgent::Ack { serial: report.serial });
                return report;
            }
        }
    }

    pub fn await_started(&self, link: &mut FakeLink) {
        let report = self.report(link);
        assert_eq!(report.event, ReportEvent::Started);
    }

    /// Waits for the attempt's end; ignores earlier reports.
    pub fn await_end(&self, link: &mut FakeLink, attempt: AttemptId) -> AttemptEnd {
        loop {
            let report = self.report(link);
            match report.event {
                ReportEvent::Ended(end) if report.attempt == attempt => return end,
                ReportEvent::LaunchFailed { what, .. } => panic!("launch failed: {what}"),
                _ => {}
            }
        }
    }

    /// Runs a script to its end and lets the node forget it.
    pub fn run(&mut self, link: &mut FakeLink, job: u32, launch: JobLaunch) -> AttemptEnd {
        let attempt = attempt(job, 1);
        self.order(link, attempt, Action::Launch(Box::new(launch)));
        let end = self.await_end(link, attempt);
        self.order(link, attempt, Action::Forget);
        end
    }

    /// A batch job of the test's user, writing `out` in its home.
    pub fn batch(&self, script: &str) -> JobLaunch {
        let home = self.home().display().to_string();
        JobLaunch {
            kind: LaunchKind::Batch,
            user: UserIds { name: "nobody".into(), uid: UID, gid: UID, groups: vec![UID] },
            share: NodeShare {
                node: NODE.into(),
                cpus: "0".parse().expect("a CPU list"),
                memory: Bytes::from_mib(64),
                gres: Vec::new(),
                tasks: 1,
                sharers: 1,
                disk: Bytes(0),
                price: None,
            },
            node_index: 0,
            nodes: 1,
            script: Some(script.into()),
            deferred: false,
            arguments: Vec::new(),
            environment: vec!["PATH=/usr/bin:/bin".into(), "GREETING=hello".into()],
            files: Vec::new(),
            internode_ssh: None,
            process_variables: Vec::new(),
            folder_variables: Vec::new(),
            work_dir: home,
            stdin: "/dev/null".into(),
            stdout: Output::File { pattern: "out".into(), append: false },
            stderr: Output::SameAsStdout,
            umask: 0o027,
            rlimits: Default::default(),
            nice: None,
            bound: true,
            over_time_s: 0,
            unkillable_s: 0,
            name: "test".into(),
            end_limit: None,
            kill_wait_s: 1,
            login_environment: None,
            signal: None,
            names: FileNames {
                job_id: 12,
                user: "tester".into(),
                job_name: "test".into(),
                ..FileNames::default()
            },
            first_step: None,
            notices: Notices {
                time_limit: "*** CANCELLED AT {time} DUE TO TIME LIMIT ***".into(),
                out_of_memory: "Detected {count} oom-kill event(s) in StepId={step}.".into(),
                node_failure: String::new(),
                step_time_limit: "*** STEP {step} CANCELLED DUE TO TIME LIMIT ***".into(),
                cpu_time_limit: "*** CANCELLED DUE TO CPU TIME LIMIT ***".into(),
                step_cpu_time_limit: String::new(),
                nice_refused: String::new(),
                step_cancelled: "*** STEP {step} ON {node} CANCELLED ***".into(),
                exec_failed: "slurmstepd: error: execve(): {what}: {error}".into(),
                cpu_frequency_refused: String::new(),
                work_dir_failed: String::new(),
                task_prolog_failed: String::new(),
                own_prolog_failed: String::new(),
                limit_refused: String::new(),
            },
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

    pub fn output(&self, name: &str) -> String {
        std::fs::read_to_string(self.home().join(name)).expect("the job's output")
    }

    /// Asserts that no control group of this cluster is left.
    pub fn assert_no_groups(&self) {
        let groups = groups_of(&self.state());
        assert!(groups.is_empty(), "left over: {groups:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_agent();
        // A supervisor without a script would wait for orders for ever.
        for supervisor in supervisors_of(&self.spool()) {
            let _ = kill(supervisor, Signal::SIGKILL);
        }
        // Whatever a failed test left must not outlive it.
        for group in groups_of(&self.state()) {
            let _ = std::fs::write(group.join("cgroup.kill"), "1");
        }
        let start = std::time::Instant::now();
        while !remove_roots(&self.state()) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The supervisors of the remaining attempts: the makers of their sockets.
fn supervisors_of(spool: &Path) -> Vec<Pid> {
    let attempts = std::fs::read_dir(spool).into_iter().flatten().flatten();
    let sockets = attempts.map(|attempt| attempt.path().join("ctl.sock"));
    let pid = |socket: PathBuf| {
        let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
        let maker = getsockopt(&stream, PeerCredentials).ok()?.pid();
        (maker > 0 && maker != std::process::id() as i32).then(|| Pid::from_raw(maker))
    };
    sockets.filter_map(pid).collect()
}

/// Removes the root groups. Returns whether all are gone; a group is busy until its last process has ended.
fn remove_roots(state: &Path) -> bool {
    roots_of(state).iter().all(|root| {
        for group in sub_groups(root) {
            for step in sub_groups(&group) {
                let _ = std::fs::remove_dir(step);
            }
            let _ = std::fs::remove_dir(group);
        }
        std::fs::remove_dir(root).is_ok()
    })
}

fn become_user(id: u32) {
    let (uid, gid) = (nix::unistd::Uid::from_raw(id), nix::unistd::Gid::from_raw(id));
    nix::unistd::setgroups(&[gid]).expect("setgroups");
    nix::unistd::setresgid(gid, gid, gid).expect("setresgid");
    nix::unistd::setresuid(uid, uid, uid).expect("setresuid");
}

fn sub_groups(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The roots of this cluster's groups, in every tree of the machine.
pub fn roots_of(state: &Path) -> Vec<PathBuf> {
    let state = std::fs::canonicalize(state).expect("the state folder");
    let digest = ring::digest::digest(&ring::digest::SHA256, state.as_os_str().as_encoded_bytes());
    let short: String = digest.as_ref().iter().take(4).map(|b| format!("{b:02x}")).collect();
    let name = format!("sluice-{short}-{NODE}");
    let trees = std::iter::once(PathBuf::from("/sys/fs/cgroup"))
        .chain(sub_groups(Path::new("/sys/fs/cgroup")));
    trees.map(|tree| tree.join(&name)).filter(|root| root.is_dir()).collect()
}

fn groups_of(state: &Path) -> Vec<PathBuf> {
    roots_of(state).iter().flat_map(|root| sub_groups(root)).collect()
}

pub fn attempt(job: u32, number: u32) -> AttemptId {
    AttemptId { job: JobId(job), number }
}

/// Waits until `condition` holds, within the timeout. For events without a descriptor.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
