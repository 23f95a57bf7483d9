//! `sluice attach JOB`: `ssh` into a running job, with the key that the server holds for the caller.

use super::dstack::options::check_replica;
use super::dstack::{OfProject, find_run, find_unended, logs, own_name, refuse_ended};
use super::key;
use super::port_mapping::{self, LOOPBACK};
use super::verb::{VerbError, VerbResult};
use crate::client::Client;
use clap::Args;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use wire::ssh::{SshEndpoint, SshRequest};

/// The name under which the endpoint's key is known, whatever its address is.
const KNOWN_AS: &str = "sluice";

#[derive(Args)]
pub struct AttachArgs {
    /// A run's name or a job's number; JOB.RANK for another of its nodes
    #[arg(value_name = "JOB")]
    run: String,
    #[command(flatten)]
    of: OfProject,
    /// The node of the run, counted from 0, as in JOB.RANK
    #[arg(long, value_name = "N")]
    job: Option<usize>,
    /// A run has one replica, 0
    #[arg(long, value_name = "N")]
    replica: Option<usize>,
    /// Print the run's log until it has ended, in place of a shell
    #[arg(long, conflicts_with_all = ["local", "remote", "forward_agent", "no_command", "port", "ssh_identity", "command"])]
    logs: bool,
    /// A file with the private key to come in with
    #[arg(long, value_name = "FILE")]
    ssh_identity: Option<PathBuf>,
    /// A port of the job on this machine; LOCAL:PORT for another number here
    #[arg(short, long, value_name = "[LOCAL:]PORT")]
    port: Vec<String>,
    /// The address of this machine on which such ports listen
    #[arg(long, value_name = "HOST", requires = "port", default_value = LOOPBACK)]
    host: String,
    /// Named where it is refused: a log is followed from its beginning
    #[arg(long, value_name = "T", hide = true)]
    since: Option<String>,
    /// Forward a port of this machine into the job, as ssh's -L
    #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:PORT")]
    local: Vec<String>,
    /// Forward a port of the job to this machine, as ssh's -R
    #[arg(short = 'R', value_name = "[BIND:]PORT:HOST:PORT")]
    remote: Vec<String>,
    /// Forward the agent that holds your keys into the job, as ssh's -A: who is root on its node can use them meanwhile
    #[arg(short = 'A')]
    forward_agent: bool,
    /// Run nothing: only forward ports
    #[arg(short = 'N')]
    no_command: bool,
    /// What to run instead of a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn run(args: &AttachArgs) -> VerbResult {
    check_replica(args.replica)?;
    if args.since.is_some() {
        let text = "--since: `sluice logs JOB --since T` shows the newer part of a log";
        return Err(VerbError::Message(text.into()));
    }
    if args.logs {
        return logs::follow(&mut Client::find()?, &args.run, &args.of, args.job.unwrap_or(0));
    }
    let ports = port_mapping::parse_all(&args.port)?;
    let mut client = Client::find()?;
    let run = if args.of.is_main() {
        args.run.clone()
    } else {
        find_run(&mut client, &args.run, &args.of)?.id.to_string()
    };
    refuse_ended(&mut client, without_rank(&run))?;
    let mut login = Login::new(&mut client)?;
    if let Some(file) = &args.ssh_identity {
        login.ssh.arg("-i").arg(file);
    }
    login.forward(&args.host, &ports);
    login.ssh.args(args.local.iter().flat_map(|forward| ["-L", forward]));
    login.ssh.args(args.remote.iter().flat_map(|forward| ["-R", forward]));
    if args.forward_agent {
        login.ssh.arg("-A");
    }
    if args.no_command {
        login.ssh.arg("-N");
    }
    let job = match args.job {
        Some(rank) => format!("{run}.{rank}"),
        None => run,
    };
    login.run(&job, &args.command)
}

/// `ssh` with the address, the key and the host key that the server names.
pub(super) struct Login {
    pub ssh: Command,
    endpoint: SshEndpoint,
    /// What `ssh` reads.
    _files: Files,
}

impl Login {
    pub fn new(client: &mut Client) -> Result<Self, VerbError> {
        let answer = key::ask_about_keys(client, None, SshRequest::Connect)?;
        let no_endpoint = "the server has no SSH endpoint: start it with --ssh ADDR:PORT";
        let endpoint = answer.endpoint.ok_or_else(|| VerbError::Message(no_endpoint.into()))?;
        let private_key = answer.private_key.map(|key| key.0);
        let files = Files::write(private_key.as_deref(), &endpoint)?;
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none"]);
        // Who asks by a node or a limited token has registered a key of their own.
        if private_key.is_some() {
            ssh.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(files.path(KEY));
        }
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", files.path(HOSTS).display()));
        for option in ["StrictHostKeyChecking=yes", "LogLevel=ERROR"] {
            ssh.args(["-o", option]);
        }
        ssh.arg("-o").arg(format!("HostKeyAlias={KNOWN_AS}"));
        Ok(Self { ssh, endpoint, _files: files })
    }

    /// Brings ports of the job to an address of this machine: of each pair, the port here and the job's.
    pub fn forward(&mut self, address: &str, ports: &[(u16, u16)]) {
        for (local, port) in ports {
            self.ssh.arg("-L").arg(format!("{address}:{local}:localhost:{port}"));
        }
    }

    /// Names the job to `ssh`, behind all options.
    fn name(&mut self, job: &str) {
        let Self { ssh, endpoint, .. } = self;
        ssh.args(["-p", &endpoint.port.to_string(), "-l", job, "--", &endpoint.host]);
    }

    /// Starts `ssh` beside this program, with its standard output to be read. It ends with this program.
    pub fn spawn(&mut self, job: &str) -> io::Result<Child> {
        self.name(job);
        // SAFETY: setting a disposition is async-signal-safe and touches no memory of this process.
        unsafe {
            self.ssh.pre_exec(|| {
                nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
                Ok(())
            });
        }
        self.ssh.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    }

    /// Goes into the job, and ends as `ssh` does.
    pub fn run(mut self, job: &str, command: &[String]) -> VerbResult {
        self.name(job);
        let ssh = &mut self.ssh;
        ssh.args(command);
        let ended = wait_for(ssh).map_err(VerbError::file("ssh"))?;
        let code = ended.code().map_or(SSH_FAILED, |code| code as u8);
        if code == SSH_FAILED {
            check_is_own(job)?;
        }
        Ok(ExitCode::from(code))
    }
}

/// What `ssh` itself ends with when it does not get in; a command in the job may too.
const SSH_FAILED: u8 = 255;

/// The endpoint tells nobody why it refuses a name. Who asks the server as its user gets the reason.
fn check_is_own(word: &str) -> Result<(), VerbError> {
    let name = without_rank(word);
    let mut client = Client::find()?;
    let run = find_unended(&mut client, name, &OfProject::main())?;
    let owner = &run.spec.owner.name;
    if *owner != own_name(&mut client)? {
        return Err(VerbError::Message(format!("run {name} is {owner}'s: only its owner gets in")));
    }
    Ok(())
}

/// The run of `RUN.RANK`.
pub(super) fn without_rank(word: &str) -> &str {
    let of_rank = |(run, rank): &(&str, &str)| !run.is_empty() && rank.parse::<u32>().is_ok();
    word.rsplit_once('.').filter(of_rank).map_or(word, |(run, _)| run)
}

/// Runs `ssh` to its end. What interrupts it is for it alone, and ends this process by its end: the files are removed.
fn wait_for(ssh: &mut Command) -> io::Result<ExitStatus> {
    const TYPED: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
    const ENDING: [Signal; 2] = [Signal::SIGHUP, Signal::SIGTERM];
    for typed in TYPED {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { signal(typed, SigHandler::SigIgn) }?;
    }
    for ending in ENDING {
        // SAFETY: the handler calls only what is safe in one.
        unsafe { signal(ending, SigHandler::Handler(end_ssh)) }?;
    }
    // SAFETY: setting a disposition is async-signal-safe and touches no memory of this process.
    unsafe {
        ssh.pre_exec(|| {
            for set in TYPED.into_iter().chain(ENDING) {
                signal(set, SigHandler::SigDfl)?;
            }
            // Whatever ends this process ends the way into the job.
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            Ok(())
        });
    }
    let mut child = ssh.spawn()?;
    SSH_PID.store(child.id() as i32, Ordering::Relaxed);
    child.wait()
}

/// The `ssh` that runs; 0 while there is none.
static SSH_PID: AtomicI32 = AtomicI32::new(0);

/// Passes the end on.
extern "C" fn end_ssh(_: libc::c_int) {
    let pid = SSH_PID.load(Ordering::Relaxed);
    if pid > 0 {
        // SAFETY: kill(2) may be called in a handler. The process is not waited for before its end.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

const KEY: &str = "key";
const HOSTS: &str = "known_hosts";

/// The files that `ssh` reads, until this is dropped.
struct Files(PathBuf);

impl Files {
    fn write(private_key: Option<&str>, endpoint: &SshEndpoint) -> Result<Self, VerbError> {
        let template = std::env::temp_dir().join("sluice-attach-XXXXXX");
        let folder = nix::unistd::mkdtemp(&template)
            .map_err(|errno| VerbError::file(&template)(errno.into()))?;
        let files = Self(folder);
        if let Some(text) = private_key {
            write(&files.path(KEY), text)?;
        }
        write(&files.path(HOSTS), &format!("{KNOWN_AS} {}\n", endpoint.host_key))?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A key that stays there is readable by its user alone.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) -> Result<(), VerbError> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(VerbError::file(path))
}
