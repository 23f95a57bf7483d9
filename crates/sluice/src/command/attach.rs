//! `sluice attach JOB`: `ssh` into a running job, with the key that the server holds for the caller.

use super::dstack::options::check_replica;
use super::dstack::{OfProject, find_unended, job_ref, logs, own_name};
use super::key;
use super::port_mapping::{self, LOOPBACK};
use super::verb::{VerbError, VerbResult};
use crate::client::Client;
use clap::Args;
use model::id::JobId;
use model::reason::Refusal;
use nix::sys::signal::{SigHandler, Signal, signal};
use std::io::{self, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use wire::ssh::SshEndpoint;
use wire::view::JobView;

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
    let to = Destination::find(&mut client, &args.run, &args.of)?;
    let (mut login, name) = match &args.ssh_identity {
        None => to.login(&mut client, args.job)?,
        // Whom the key of a file lets in, the endpoint alone knows.
        Some(file) => {
            let mut login = Login::new(&mut client, None)?;
            login.ssh.arg("-i").arg(file);
            (login, to.login_name(false, args.job))
        }
    };
    login.forward(&args.host, &ports);
    login.ssh.args(args.local.iter().flat_map(|forward| ["-L", forward]));
    login.ssh.args(args.remote.iter().flat_map(|forward| ["-R", forward]));
    if args.forward_agent {
        login.ssh.arg("-A");
    }
    if args.no_command {
        login.ssh.arg("-N");
    }
    login.run(&name, &args.command)
}

/// One node of a run that somebody is about to enter, as a command line names it.
pub(super) struct Destination<'w> {
    pub run: JobView,
    /// The word for the run.
    name: &'w str,
    rank: Option<usize>,
    /// Nobody else's run can be meant.
    is_exact: bool,
}

impl<'w> Destination<'w> {
    /// Refuses a run that is not there, and one that has ended.
    pub fn find(client: &mut Client, word: &'w str, of: &OfProject) -> Result<Self, VerbError> {
        let (name, rank) = split_rank(word);
        let run = find_unended(client, name, of)?;
        Ok(Self { run, name, rank, is_exact: job_ref(name).is_some() || !of.is_main() })
    }

    /// What `ssh` needs for it, and its login name. `rank` comes before the one in the word. Refuses a run of another user.
    pub fn login(
        &self,
        client: &mut Client,
        rank: Option<usize>,
    ) -> Result<(Login, String), VerbError> {
        let login = Login::new(client, Some(self.run.id)).map_err(|why| match why {
            VerbError::Refused(Refusal::AccessDenied) => is_anothers(self.name, &self.run),
            why => why,
        })?;
        let is_own = login.user == self.run.spec.owner.name;
        Ok((login, self.login_name(is_own, rank)))
    }

    /// The name by which the endpoint knows it: a number, which the endpoint takes for all kinds of jobs and with a rank. A name
    /// is left as it is where another's run is meant: the endpoint refuses one that runs of several owners have.
    fn login_name(&self, is_own: bool, rank: Option<usize>) -> String {
        // The number of an array is that of one of its tasks too.
        let is_number = self.name.parse::<u32>().is_ok();
        let name = if !is_number && (is_own || self.is_exact) {
            self.run.id.to_string()
        } else {
            self.name.to_owned()
        };
        match rank.or(self.rank) {
            Some(rank) => format!("{name}.{rank}"),
            None => name,
        }
    }
}

/// `ssh` with the address, the key and the host key that the server names.
pub(super) struct Login {
    pub ssh: Command,
    endpoint: SshEndpoint,
    /// Whom the server takes the caller for.
    user: String,
    /// The server has said that the job is for the caller.
    is_admitted: bool,
    /// Neither does the server give a key, nor has the user registered one.
    is_keyless: bool,
    /// What `ssh` reads.
    _files: Files,
}

impl Login {
    /// `job`: the one that is to be entered, which the server refuses to whom it is not for.
    pub fn new(client: &mut Client, job: Option<JobId>) -> Result<Self, VerbError> {
        let answer = key::ask_to_enter(client, job)?;
        let no_endpoint = "the server has no SSH endpoint: start it with --ssh ADDR:PORT";
        let endpoint = answer.endpoint.ok_or_else(|| VerbError::Message(no_endpoint.into()))?;
        let private_key = answer.private_key.map(|key| key.0);
        let is_keyless = private_key.is_none() && answer.keys.is_empty();
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
        let (user, is_admitted) = (answer.user, job.is_some());
        Ok(Self { ssh, endpoint, user, is_admitted, is_keyless, _files: files })
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
            check_is_reached(&self.endpoint)?;
            check_is_own(job, self.is_admitted)?;
            self.check_has_key()?;
        }
        Ok(ExitCode::from(code))
    }

    /// Refuses what would keep `ssh` out, for one who does not sit before it.
    pub fn check(&self) -> Result<(), VerbError> {
        check_is_reached(&self.endpoint)?;
        self.check_has_key()
    }

    /// `ssh` does not say that no key of the user's is known. One with a key of a file comes by that.
    fn check_has_key(&self) -> Result<(), VerbError> {
        if !self.is_keyless || !self.is_admitted {
            return Ok(());
        }
        let user = &self.user;
        Err(VerbError::Message(format!(
            "a node, or a token with a limit, is given no key, and {user} has registered none: `sluice key add FILE.pub` on the \
             server's machine, or where you have a token without one"
        )))
    }
}

/// What `ssh` itself ends with when it does not get in; a command in the job may too.
const SSH_FAILED: u8 = 255;

/// An endpoint that listens at loopback is there for the server's own machine alone.
fn check_is_reached(endpoint: &SshEndpoint) -> Result<(), VerbError> {
    let SshEndpoint { host, port, .. } = endpoint;
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !is_loopback || TcpStream::connect((host.as_str(), *port)).is_ok() {
        return Ok(());
    }
    let why =
        "is for the server's own machine: `--ssh 0.0.0.0:PORT` at its start opens it to others";
    Err(VerbError::Message(format!("the SSH endpoint at {host}:{port} {why}")))
}

/// The endpoint tells nobody why it refuses a name. Who asks the server as its user gets the reason: the run may have ended, or
/// the key is another user's.
fn check_is_own(word: &str, is_admitted: bool) -> Result<(), VerbError> {
    let (name, _) = split_rank(word);
    let mut client = Client::find()?;
    let run = find_unended(&mut client, name, &OfProject::main())?;
    let (owner, number) = (&run.spec.owner.name, run.id.to_string());
    let is_number = name == number;
    // A command of root's in the job may have ended so.
    if (is_number && is_admitted) || *owner == own_name(&mut client)? {
        return Ok(());
    }
    if is_number {
        return Err(is_anothers(name, &run));
    }
    // Root's key opens none of the runs that several owners have by one name.
    let text = format!(
        "run {name} is {owner}'s: only its owner gets in, and root by its number, {number}"
    );
    Err(VerbError::Message(text))
}

fn is_anothers(name: &str, run: &JobView) -> VerbError {
    let owner = &run.spec.owner.name;
    VerbError::Message(format!("run {name} is {owner}'s: only its owner gets in"))
}

/// The run and the rank of `RUN.RANK`.
pub(super) fn split_rank(word: &str) -> (&str, Option<usize>) {
    match word.rsplit_once('.') {
        Some((run, rank)) if !run.is_empty() => match rank.parse() {
            Ok(rank) => (run, Some(rank)),
            Err(_) => (word, None),
        },
        _ => (word, None),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_at_the_loopback_of_another_machine_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let at = |host: &str| SshEndpoint { host: host.into(), port, host_key: String::new() };
        assert!(check_is_reached(&at("127.0.0.1")).is_ok(), "it is this machine's");
        drop(listener);
        let told = check_is_reached(&at("127.0.0.1")).expect_err("nobody listens").to_string();
        assert!(told.contains("127.0.0.1") && told.contains("--ssh"), "{told}");
        assert!(check_is_reached(&at("head.example")).is_ok(), "ssh itself says what is wrong");
    }

    #[test]
    fn rank_is_the_number_behind_the_last_dot() {
        for (word, expected) in [
            ("12", ("12", None)),
            ("12.1", ("12", Some(1))),
            ("train", ("train", None)),
            ("train.1", ("train", Some(1))),
            ("v1.2-12", ("v1.2-12", None)),
            ("12.x", ("12.x", None)),
            (".1", (".1", None)),
            ("", ("", None)),
        ] {
            assert_eq!(split_rank(word), expected, "{word}");
        }
    }
}
