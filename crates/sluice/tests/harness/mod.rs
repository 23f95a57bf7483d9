//! A cluster of the built program in a folder of its own, driven as a user would drive it.
// Each test program uses only a part of it.
#![allow(dead_code)]

pub mod clock;
pub mod connect_proxy;
pub mod dice;
pub mod hosts;
pub mod interactive;
pub mod laptop;
pub mod nat;
pub mod processes;
pub mod pty;
pub mod relay;
pub mod ssh_client;
pub mod ssh_hosts;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for an expected state. It is reached only if something is broken.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// Two nodes of 32 CPUs with eight declared GPUs each. A requeued job starts without Slurm's delay of two minutes.
pub const TWO_NODES: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu AuthInfo=cred_expire=0
DefMemPerCPU=16
KillWait=1
NodeName=node[1-2] CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:h100:8 Feature=h100,ib
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=node1 MaxTime=00:30:00 State=UP
";

pub struct Cluster {
    /// Declared before `dir`, so that disks in the folder are unmounted before it is removed.
    disks: Vec<SmallDisk>,
    dir: tempfile::TempDir,
    /// Whether `sluice up` was called here. A server that a test runs by other means, as on another host, is not started by it.
    was_up: AtomicBool,
}

/// A small file system in a cluster's folder.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().or(output.status.signal().map(|s| 128 + s));
        Self {
            code: code.unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_sluice")
}

/// Reports that this machine cannot run a part of the tests, and records it for `scripts/test`. `part` is its word in
/// tests/allowed-skips.
pub fn skip(part: &str, why: &str) {
    use std::io::Write;
    println!("skipped: {part}: {why}");
    if let Some(path) = std::env::var_os("SLUICE_SKIPS") {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(path).expect("the list of skips");
        writeln!(file, "{part}: {why}").expect("the list of skips");
    }
}

/// The name of the user who runs the tests.
pub fn user_name() -> String {
    nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name
}

/// The lines of a text in alphabetical order: those of several tasks come in any.
pub fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Asks again until `look` has something; fails after [`TIMEOUT`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, what, look)
}

/// As [`until`], for what may take longer.
pub fn within<T>(timeout: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come about: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Cluster {
    /// The folder, open to every user, and nothing started in it.
    pub fn folder(conf: &str) -> Self {
        Self::folder_in(&std::env::temp_dir(), conf)
    }

    /// As [`Self::folder`], for a test to which it matters where the cluster's files are.
    pub fn folder_in(parent: &Path, conf: &str) -> Self {
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("sluice-test-").tempdir_in(parent).expect("a temp folder");
        let cluster = Self { disks: Vec::new(), dir, was_up: AtomicBool::new(false) };
        for part in ["conf", "work", "bin"] {
            std::fs::create_dir(cluster.path(part)).unwrap();
        }
        for part in ["", "conf", "bin"] {
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(cluster.path(part), open).unwrap();
        }
        let anybody = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(cluster.path("work"), anybody).unwrap();
        cluster.write_conf("slurm.conf", conf);
        cluster.sluice(&["links", cluster.path("bin").to_str().unwrap()]).ok();
        cluster
    }

    /// A cluster that is up.
    pub fn up(conf: &str) -> Self {
        let cluster = Self::folder(conf);
        cluster.start();
        cluster
    }

    pub fn path(&self, part: &str) -> PathBuf {
        self.dir.path().join(part)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Mounts a tmpfs of this size; needs root.
    pub fn mount(&mut self, at: &Path, megabytes: u32) {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={megabytes}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status();
        assert!(mount.unwrap().success(), "a tmpfs can be mounted");
        self.disks.push(SmallDisk(at.to_path_buf()));
    }

    /// Mounts an ext4 file system of this size, which reserves a part for root; needs root.
    pub fn mount_ext4(&mut self, at: &Path, megabytes: u32) {
        std::fs::create_dir_all(at).unwrap();
        let image = self.path(&format!("image{}", self.disks.len()));
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(u64::from(megabytes) << 20).unwrap();
        for (program, args) in [("mkfs.ext4", &["-q", "-F"][..]), ("mount", &["-o", "loop"])] {
            let mut command = Command::new(program);
            command.args(args).arg(&image);
            if program == "mount" {
                command.arg(at);
            }
            assert!(command.status().unwrap().success(), "{program} works");
        }
        self.disks.push(SmallDisk(at.to_path_buf()));
    }

    pub fn write_conf(&self, file: &str, text: &str) {
        std::fs::write(self.path("conf").join(file), text).unwrap();
    }

    /// Starts the cluster, or starts it again.
    pub fn start(&self) {
        let said = self.try_start();
        assert_eq!(said.code, 0, "{}\nlog: {}", said.stderr, self.log("server"));
        assert!(said.stdout.starts_with("sluice is up: http://"), "{}", said.stdout);
    }

    /// Starts the cluster with these variables in its environment.
    pub fn start_with(&self, variables: &[(&str, &str)]) {
        let mut command = self.up_command();
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let said: CommandOutput = command.output().expect("the program runs").into();
        assert_eq!(said.code, 0, "{}\nlog: {}", said.stderr, self.log("server"));
    }

    pub fn try_start(&self) -> CommandOutput {
        self.up_command().stdin(Stdio::null()).output().expect("the program runs").into()
    }

    fn up_command(&self) -> Command {
        let (state, conf) = (self.state(), self.path("conf"));
        let ports = ["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"];
        let again = state.join("ports.json").exists();
        let mut args = vec!["up", "--detach", "--state", state.to_str().unwrap()];
        args.extend(["--config", conf.to_str().unwrap()]);
        if !again {
            args.extend(ports);
        }
        self.command(&args)
    }

    pub fn log(&self, of: &str) -> String {
        std::fs::read_to_string(self.state().join(format!("{of}.log"))).unwrap_or_default()
    }

    /// The address of one of the server's ports: `listen`, `agents`, `proxy` or `ssh`.
    pub fn address_of(&self, port: &str) -> String {
        let ports = std::fs::read(self.state().join("ports.json")).expect("the ports");
        let ports: serde_json::Value = serde_json::from_slice(&ports).expect("JSON");
        ports[port].as_str().unwrap_or_else(|| panic!("no {port} in {ports}")).to_owned()
    }

    pub fn pid(&self, of: &str) -> i32 {
        let text = std::fs::read_to_string(self.state().join(format!("{of}.pid"))).unwrap();
        text.trim().parse().unwrap()
    }

    /// The run of this name as `ps --json` shows it.
    pub fn listed_run(&self, name: &str) -> serde_json::Value {
        let listed = self.sluice(&["ps", "-a", "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let runs = listed["runs"].as_array().expect("runs");
        let found = runs.iter().find(|run| run["run_spec"]["run_name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {listed}")).clone()
    }

    /// Kills a daemon and waits until it is gone. Its keeper is killed before, so that it stays dead.
    pub fn kill(&self, of: &str) {
        match of {
            "agent" => self.leave_agent_alone(),
            "server" => self.leave_server_alone(),
            _ => {}
        }
        self.kill_alone(of);
    }

    /// Kills the server's keeper, so that the server is not started again.
    pub fn leave_server_alone(&self) {
        self.kill_keeper("server-keeper");
    }

    /// Kills the keeper, so that the agent is not started again.
    pub fn leave_agent_alone(&self) {
        self.kill_keeper("keeper");
    }

    fn kill_keeper(&self, of: &str) {
        let pid_file = self.state().join(format!("{of}.pid"));
        if pid_file.exists() {
            self.kill_alone(of);
            std::fs::remove_file(pid_file).unwrap();
        }
    }

    /// Kills this one process and waits until it is gone.
    pub fn kill_alone(&self, of: &str) {
        let pid = self.pid(of);
        signal(pid, "KILL");
        until("a killed process is gone", || (!is_alive(pid)).then_some(()));
    }

    /// Other state folders below the cluster's own folder in which something was started and not stopped.
    fn other_states(&self) -> Vec<PathBuf> {
        let below = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.map(|entry| entry.path()).collect()
        };
        let mut folders = below(self.dir.path());
        folders.extend(folders.clone().iter().flat_map(|folder| below(folder)));
        folders.retain(|folder| {
            // A link is one that a test has planted.
            let is_file = |of: &&str| {
                let found = folder.join(format!("{of}.pid")).symlink_metadata();
                found.is_ok_and(|found| found.is_file())
            };
            DAEMONS.iter().any(is_file) && *folder != self.state()
        });
        folders
    }

    /// Starts an agent without a keeper. `down` ends it; the caller waits for the child.
    pub fn spawn_agent(&self) -> Child {
        let mut command = self.command(&["agent", "--state", self.state().to_str().unwrap()]);
        command.arg("--join").arg(self.state().join("server/local.join"));
        command.stderr(Stdio::null()).spawn().expect("the program runs")
    }

    /// `sluice ARGS` in the work folder.
    pub fn command(&self, args: &[&str]) -> Command {
        if args.first() == Some(&"up") {
            self.was_up.store(true, Ordering::Relaxed);
        }
        let mut command = self.command_of(program());
        command.args(args);
        command
    }

    /// Another program, which finds this cluster as a command of ours does.
    pub fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path("work"));
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        for (name, _) in std::env::vars() {
            let ours = ["SLUICE_", "SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SALLOC_"];
            if ours.iter().any(|p| name.starts_with(p)) {
                command.env_remove(name);
            }
        }
        command.env("SLUICE_STATE", self.state());
        command.env("TZ", "UTC");
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
    }

    /// Gives another program this cluster's environment and work folder.
    pub fn set_up(&self, command: &mut Command) {
        command.current_dir(self.path("work"));
        self.set_environment(command);
    }

    pub fn sluice(&self, args: &[&str]) -> CommandOutput {
        self.command(args).stdin(Stdio::null()).output().expect("the program runs").into()
    }

    /// A shell line with Slurm's commands first on the path.
    pub fn shell(&self, line: &str) -> CommandOutput {
        self.shell_command(line).output().expect("the shell runs").into()
    }

    /// As `shell`, without waiting; its errors are dropped.
    pub fn spawn_shell(&self, line: &str) -> Child {
        let mut command = self.shell_command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the shell runs")
    }

    /// As `spawn_shell`, with its errors kept as well.
    pub fn spawn_shell_with_errors(&self, line: &str) -> Child {
        let mut command = self.shell_command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the shell runs")
    }

    fn shell_command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(self.path("work")).stdin(Stdio::null());
        self.set_environment(&mut command);
        command
    }

    /// As another user; needs root.
    pub fn shell_as(&self, user: &str, line: &str) -> CommandOutput {
        let quoted = line.replace('\'', "'\\''");
        self.shell(&format!("setpriv --reuid={user} --regid={user} --init-groups sh -c '{quoted}'"))
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// `sbatch --parsable ARGS`: the job's number.
    pub fn submit(&self, args: &[&str]) -> u32 {
        let mut line = vec!["sbatch", "--parsable"];
        line.extend(args);
        let text = self.sluice(&line).ok();
        text.trim().split(';').next().unwrap().parse().expect("a job id")
    }

    /// `sbatch ARGS --wrap 'sleep 600'`: the number of a job that runs until it is ended.
    pub fn submit_sleeper(&self, args: &str) -> u32 {
        let line = format!("sbatch --parsable -J sleeper -o /dev/null {args} --wrap 'sleep 600'");
        self.shell(&line).ok().trim().parse().expect("a job id")
    }

    /// `sbatch --parsable ARGS` as another user; needs root.
    pub fn submit_as(&self, user: &str, args: &str) -> u32 {
        let said = self.shell_as(user, &format!("sbatch --parsable {args}"));
        said.ok().trim().parse().expect("a job id")
    }

    /// The output of a batch script, which must end well.
    pub fn run_script(&self, options: &[&str], script: &str) -> String {
        self.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
        let mut args = options.to_vec();
        args.extend(["-o", "job.out", "job.sh"]);
        let id = self.submit(&args);
        let end = self.await_end(id);
        let text = self.read("job.out");
        assert_eq!(end, "COMPLETED|0:0", "{text}");
        // A step that follows another may be told that it waits, where the disk is slow to take the other's end in.
        let waits = |line: &&str| {
            line.starts_with("srun: Job ") && line.contains(" step creation ")
                || line.starts_with("srun: Step created for job ")
        };
        text.lines().filter(|line| !waits(line)).map(|line| format!("{line}\n")).collect()
    }

    /// `STATE|REASON` of each node.
    pub fn node_states(&self) -> String {
        // A node of several partitions has a line in each.
        let listed = self.sluice(&["sinfo", "-h", "-N", "-o", "%N %T|%E"]).ok();
        let mut lines: Vec<&str> = Vec::new();
        for line in listed.lines().filter(|line| !line.trim().is_empty()) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let states = lines.iter().filter_map(|line| line.split_once(' '));
        states.map(|(_, state)| state).collect::<Vec<&str>>().join("\n")
    }

    /// `STATE|REASON` of a job, also of one that has ended.
    pub fn state_of(&self, job: impl ToString) -> String {
        let job = job.to_string();
        let said = self.sluice(&["squeue", "-h", "-t", "all", "-j", &job, "-o", "%T|%r"]);
        said.stdout.trim().to_string()
    }

    pub fn await_state(&self, job: impl ToString, wanted: &str) {
        let job = job.to_string();
        until(&format!("job {job} is {wanted}"), || {
            self.state_of(&job).starts_with(wanted).then_some(())
        });
    }

    /// Waits until the job has an accounting record as ended; its `STATE|EXITCODE`.
    pub fn await_end(&self, job: impl ToString) -> String {
        let job = job.to_string();
        let line = ["sacct", "-n", "-X", "-P", "-j", &job, "-o", "State,ExitCode"];
        until(&format!("job {job} ends"), || {
            let text = self.sluice(&line).stdout.trim().to_string();
            let open = ["PENDING", "RUNNING", "SUSPENDED", "REQUEUED"];
            (!text.is_empty() && !open.iter().any(|s| text.starts_with(s))).then_some(text)
        })
    }

    /// A file of the work folder, once it is there and satisfies `good`.
    pub fn await_file(&self, name: &str, good: impl Fn(&str) -> bool) -> String {
        let path = self.path("work").join(name);
        until(&format!("{name} is written"), || {
            std::fs::read_to_string(&path).ok().filter(|text| good(text))
        })
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("work").join(name)).unwrap_or_default()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path("work").join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A program in the cluster's `bin` folder; its path.
    pub fn write_program(&self, name: &str, text: &str) -> String {
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a mode");
        path.display().to_string()
    }

    /// The control groups of this cluster's jobs that exist, over all hierarchies.
    pub fn groups(&self) -> Vec<String> {
        let key = group_key(&self.state());
        let mut found = Vec::new();
        for root in glob_roots() {
            for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.contains(&key) {
                    let jobs = std::fs::read_dir(entry.path()).into_iter().flatten().flatten();
                    let jobs = jobs.filter(|j| j.path().is_dir());
                    found.extend(jobs.map(|j| j.path().display().to_string()));
                }
            }
        }
        found
    }
}

/// The part of a group's name that says which state folder it belongs to.
fn group_key(state: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let whole = state.canonicalize().unwrap_or_else(|_| state.to_path_buf());
    let digest = ring::digest::digest(&ring::digest::SHA256, whole.as_os_str().as_bytes());
    digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn glob_roots() -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let mut roots = vec![top.to_path_buf()];
    roots.extend(std::fs::read_dir(top).into_iter().flatten().flatten().map(|e| e.path()));
    roots
}

pub fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
}

pub fn is_alive(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}

/// The processes that have a pid file in a state folder, keepers first.
const DAEMONS: [&str; 4] = ["server-keeper", "keeper", "server", "agent"];

/// Kills every daemon of a state folder that there is: a cluster that does not go down must not outlive its folder. The number in
/// a pid file of a copy, or one that a test has planted, may be anybody's.
fn kill_all(state: &Path) {
    for of in DAEMONS {
        let pid = std::fs::read_to_string(state.join(format!("{of}.pid")));
        let pid: Option<i32> = pid.ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.filter(|pid| is_of_folder(*pid, state)) {
            signal(pid, "KILL");
        }
    }
}

/// Whether the process was started with this state folder, by its command line or its environment.
fn is_of_folder(pid: i32, state: &Path) -> bool {
    ["cmdline", "environ"].iter().any(|part| {
        let bytes = std::fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(&*state.to_string_lossy())
    })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.state().exists() {
            if std::thread::panicking() {
                eprintln!(
                    "server's log:\n{}\nagent's log:\n{}",
                    self.log("server"),
                    self.log("agent")
                );
            }
            if !is_running(&self.state()) && self.was_up.load(Ordering::Relaxed) {
                // Only a running server can end the jobs.
                let _ = self.try_start();
            }
            if self.sluice(&["down", "--jobs"]).code != 0 {
                kill_all(&self.state());
            }
        }
        // Clusters below this folder (a lab, a copy, another user's) outlive a test that fails: they are ended with it.
        for state in self.other_states() {
            let path = state.display().to_string();
            if self.sluice(&["down", "--jobs", "--state", &path]).code != 0 {
                kill_all(&state);
            }
        }
    }
}

fn is_running(state: &Path) -> bool {
    let text = std::fs::read_to_string(state.join("server.pid")).unwrap_or_default();
    text.trim().parse().is_ok_and(is_alive)
}
