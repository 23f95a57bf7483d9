//! `sluice server`: runs a server alone. Agents of other machines connect to it.

use super::folder_watch::OpenFolder;
use super::inherited_sockets::InheritedSockets;
use super::keeper::SERVER_KEEPER;
use super::last_start::{self, LastStart};
use super::listen_addresses::{BoundListeners, SshListen};
use super::state_dir::StateDir;
use super::{
    admin_token, as_server_user, core_dump, folder_identity, handover, listen_addresses, log,
    server_user, service_manager, state_mount,
};
use crate::command::verb::{VerbError, VerbResult};
use ::server::configure::{self, Machine, StoreSettings};
use ::server::{ConnectionLimits, DatabaseUrl, ServerOptions, SharedKeys, StoreKey};
use clap::{Args, Subcommand};
use cluster::{ClusterConfig, ProxyListen};
use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of a server that cannot work with the configuration as it is: a service manager does not start it again, since
/// another start would end the same way.
const BAD_CONFIGURATION: u8 = 78;

/// The database of the state, and the key of what servers share there.
pub type Store = (DatabaseUrl, Option<StoreKey>);

// `sluice server`, which runs one, and what is asked of one that runs.
#[derive(Args)]
pub struct ServerVerb {
    #[command(subcommand)]
    action: Option<ServerAction>,
    #[command(flatten)]
    args: ServerArgs,
}

#[derive(Subcommand)]
enum ServerAction {
    /// Give the lead of several servers to one that waits
    Handover,
}

pub fn run_verb(verb: ServerVerb) -> VerbResult {
    match verb.action {
        Some(ServerAction::Handover) => handover::run(),
        None => run(verb.args),
    }
}

#[derive(Args, Clone)]
pub struct ServerArgs {
    /// A folder with slurm.conf, and gres.conf and cgroup.conf where wanted
    #[arg(long, value_parser = config_folder)]
    pub config: Option<PathBuf>,
    /// Start without a configuration folder, also where the last start in the state folder had one
    #[arg(long, conflicts_with = "config")]
    pub no_config: bool,
    /// Start although jobs are on nodes or in partitions that the configuration does not have
    #[arg(long)]
    pub force: bool,
    /// Start in a copy of a state folder: the cluster has moved here, and the other folder is not used again
    #[arg(long)]
    pub moved: bool,
    /// The state folder; by default /var/lib/sluice for root, ~/.local/state/sluice for others
    #[arg(long, env = "SLUICE_STATE")]
    pub state: Option<PathBuf>,
    /// Where clients connect: ADDR:PORT
    #[arg(long, value_parser = listen_addresses::address)]
    pub listen: Option<SocketAddr>,
    /// Where agents connect: ADDR:PORT
    #[arg(long, value_parser = listen_addresses::address)]
    pub agents: Option<SocketAddr>,
    /// Keep the state in PostgreSQL, which several servers share: postgres://USER@HOST/DATABASE?sslrootcert=FILE
    #[arg(long, env = "SLUICE_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// The file with the database's password; without it, SLUICE_STORE_PASSWORD has one
    #[arg(long, env = "SLUICE_STORE_PASSWORD_FILE", value_name = "FILE")]
    pub store_password_file: Option<PathBuf>,
    /// The file with the key that the cluster's keys are sealed under in the database; without it, SLUICE_STORE_KEY has one
    #[arg(long, env = "SLUICE_STORE_KEY_FILE", value_name = "FILE")]
    pub store_key_file: Option<PathBuf>,
    /// Write a snapshot of the state after so many events
    #[arg(long, env = "SLUICE_SNAPSHOT_EVENTS", default_value_t = 100_000, hide = true)]
    pub snapshot_events: u64,
    /// Lower bounds at the doors, as places=100,silence_ms=500
    #[arg(long, env = "SLUICE_DOORS", default_value = "", hide = true)]
    pub doors: ConnectionLimits,
    /// Where ssh connects, for shells, files and ports in jobs: ADDR:PORT, or off. Without it, `up` has a port of loopback
    #[arg(long, value_name = "ADDR:PORT")]
    pub ssh: Option<SshListen>,
}

/// The folder of the configuration; who names the slurm.conf in it means the folder.
fn config_folder(text: &str) -> Result<PathBuf, Infallible> {
    let path = PathBuf::from(text);
    let is_file = path.file_name().is_some_and(|name| name == "slurm.conf") && path.is_file();
    let folder = path.parent().filter(|_| is_file);
    Ok(match folder {
        Some(here) if here.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_owned(),
        None => path,
    })
}

impl ServerArgs {
    pub fn state_path(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(crate::client::default_state_dir)
    }

    /// The database of the state, with its password and certificates read while this process may, and the key of what servers
    /// share there.
    pub fn database(&self) -> Result<Option<Store>, VerbError> {
        let (settings, place) = match (&self.store, &self.config) {
            (Some(url), dir) => {
                let configured = match dir {
                    Some(dir) => configure::store_settings(dir)?,
                    None => None,
                };
                let url = url.clone();
                let (password_file, key_file) = match configured {
                    Some(settings) => (settings.password_file, settings.key_file),
                    None => (None, None),
                };
                (Some(StoreSettings { url, password_file, key_file }), "--store")
            }
            (None, Some(dir)) => (configure::store_settings(dir)?, "sluice.toml: [store]"),
            (None, None) => (None, ""),
        };
        let Some(StoreSettings { url, password_file, key_file }) = settings else {
            return self.refuse_files_of_no_store().map(|()| None);
        };
        let password_file = self.store_password_file.as_ref().or(password_file.as_ref());
        let url = DatabaseUrl::parse(&url, password_file.map(PathBuf::as_path))
            .map_err(|error| VerbError::Message(format!("{place}: {error}")))?;
        let key_file = self.store_key_file.as_ref().or(key_file.as_ref());
        Ok(Some((url, StoreKey::read(key_file.map(PathBuf::as_path))?)))
    }

    /// A server that was to share a database would begin a cluster of its own, in files.
    fn refuse_files_of_no_store(&self) -> Result<(), VerbError> {
        let files = [
            ("--store-key-file", &self.store_key_file),
            ("--store-password-file", &self.store_password_file),
        ];
        match files.into_iter().find_map(|(option, file)| Some((option, file.as_ref()?))) {
            Some((option, file)) => {
                let file = file.display();
                let expected = "expected --store URL with it, or [store] in sluice.toml";
                Err(VerbError::Message(format!(
                    "{option} {file}: no database is named: {expected}"
                )))
            }
            None => Ok(()),
        }
    }

    /// Settles which configuration folder this start has, and says so where the last start had another, or none was named.
    /// Returns what is saved of the last start. The error where that was a start of another folder. `verb` is what was asked for.
    pub fn settle_config(
        &mut self,
        state: &StateDir,
        verb: &str,
    ) -> Result<Option<LastStart>, VerbError> {
        folder_identity::refuse_copy(state, self.moved, verb)?;
        let asked = match self.config.take() {
            Some(dir) => Some(dir.canonicalize().map_err(VerbError::file(dir))?),
            None => None,
        };
        let last = LastStart::read(state);
        let (chosen, line) = last_start::choose(asked, self.no_config, last.as_ref());
        if let Some(line) = line {
            eprintln!("sluice: note: {line}");
        }
        self.no_config = chosen.is_none();
        self.config = chosen;
        Ok(last)
    }
}

pub fn run(mut args: ServerArgs) -> VerbResult {
    let inherited = InheritedSockets::take();
    let state = StateDir::prepare(&args.state_path())?;
    core_dump::forbid()?;
    log::start(&state, "server");
    refuse_a_second(&state)?;
    state.lock()?;
    let last = args.settle_config(&state, "server");
    let site = last.and_then(|last| {
        let site = Site::load(&args, None)?;
        args.force |= site.replaces_crashed(&state, last.as_ref());
        site.check(&state, last.as_ref(), args.force)?;
        Ok(site)
    });
    let site = match site {
        Ok(site) => site,
        // The code tells the service manager that another start would end the same way.
        Err(error) => {
            error.print();
            return Ok(ExitCode::from(BAD_CONFIGURATION));
        }
    };
    let ssh = args.ssh.unwrap_or(SshListen::Off);
    let (listen, agents) = (args.listen, args.agents);
    let proxy = site.proxy_listen();
    let bound = listen_addresses::bind(&state, listen, agents, ssh, proxy, inherited)?;
    site.save(&state)?;
    state.note_start();
    let ready = |listen| {
        announce(listen);
        service_manager::tell_ready();
    };
    let folder = StateDir::open(&state.path);
    let begin = |store| start(&args, state, site, bound, store, |_| Ok(()), ready);
    let ended = args.database().and_then(begin);
    // An error is no crash: the next start is asked the same questions as this one.
    folder.note_stop();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to start where a server runs, or is about to be started again.
pub fn refuse_a_second(state: &StateDir) -> Result<(), VerbError> {
    let path = state.path.display();
    if let Some(pid) = state.running_pid("server") {
        let text = format!(
            "a server runs in {path} already, as process {pid}: `sluice down` stops it, another `SLUICE_STATE` is another cluster"
        );
        return Err(VerbError::Message(text));
    }
    if let Some(pid) = state.running_pid(SERVER_KEEPER.name) {
        let text = format!("a server is started again in {path} already, by process {pid}");
        return Err(VerbError::Message(text));
    }
    Ok(())
}

/// The line that scripts wait for.
pub fn announce(listen: SocketAddr) {
    let scheme = if listen.ip().is_loopback() { "http" } else { "https" };
    // The process that reads this line, `sluice up --detach`, may have given up: the server runs on.
    let _ = writeln!(std::io::stdout(), "sluice is up: {scheme}://{listen}");
}

/// The line of a server that waits for another to give up the lead.
fn announce_standby(leader: &str) {
    // As above, nobody may read it.
    let _ = writeln!(std::io::stdout(), "sluice waits as a standby: {leader} leads");
    service_manager::tell_ready();
}

/// What the configuration says.
pub struct Site {
    config_dir: Option<PathBuf>,
    config: ClusterConfig,
    /// Set when every node of the configuration is on this machine.
    machine: Option<Machine>,
    /// Why the files cannot be used, where this is what they said before.
    fault: Option<String>,
}

impl Site {
    pub fn load(args: &ServerArgs, machine: Option<Machine>) -> Result<Self, VerbError> {
        let config_dir = match &args.config {
            Some(dir) => Some(dir.canonicalize().map_err(VerbError::file(dir))?),
            None => None,
        };
        let config = configure::load(config_dir.as_deref(), machine.as_ref())?;
        Ok(Self { config_dir, config, machine, fault: None })
    }

    /// The same after a look at the files, which cannot be used now.
    pub fn with_fault(self, fault: String) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Whether this start takes the place of a server that crashed, with the same configuration folder. It is made whatever the
    /// folder's files have lost since: nobody may be there to say `--force`, and a crash that somebody can bring about must not
    /// become an outage.
    pub fn replaces_crashed(&self, state: &StateDir, last: Option<&LastStart>) -> bool {
        state.has_crashed() && last.is_some_and(|last| last.config == self.config_dir)
    }

    /// Refuses a configuration without nodes or partitions that jobs are on. The state is read for that only if the last
    /// start had something that this one has not. The caller must have one thread.
    pub fn check(
        &self,
        state: &StateDir,
        last: Option<&LastStart>,
        force: bool,
    ) -> Result<(), VerbError> {
        let this = LastStart::of(self.config_dir.as_deref(), &self.config);
        if force || last.is_some_and(|last| this.has_all_of(last)) {
            return Ok(());
        }
        as_server_user::run(state, |dir| Ok(::server::check_configuration(dir, &self.config)?))
    }

    /// Saves what this start has, and in which folder, for the next.
    pub fn save(&self, state: &StateDir) -> Result<(), VerbError> {
        folder_identity::save(state)?;
        LastStart::of(self.config_dir.as_deref(), &self.config).save(state)
    }

    /// Where services and web pages of jobs are listened for, if the site says so.
    pub fn proxy_listen(&self) -> Option<ProxyListen> {
        self.config.proxy.listen
    }

    /// The nodes that this machine's agent is to be. A node that the configuration has dropped stays one of them while its spool
    /// holds attempts: without an agent nobody would hear of their end, and a job would start elsewhere beside its first copy.
    /// While the files cannot be used it stays what it is: this process knows the configuration of its keeper's start, and
    /// another may have been accepted since.
    fn local_nodes(&self, state: &StateDir) -> Vec<String> {
        if self.machine.is_none() {
            return Vec::new();
        }
        if self.fault.is_some()
            && let Some(file) = local_join_file(state)
        {
            return file.nodes;
        }
        let mut nodes: Vec<String> = self.config.nodes.iter().map(|n| n.name.clone()).collect();
        let configured: HashSet<&str> =
            self.config.nodes.iter().map(|node| node.name.as_str()).collect();
        let is_dropped = |node: &str| !configured.contains(node);
        nodes.extend(::agent::nodes_with_attempts(&state.path, is_dropped));
        nodes
    }
}

/// The file by which the agent of this machine has joined; `None` where there is none, or it cannot be read.
pub fn local_join_file(state: &StateDir) -> Option<wire::link::JoinFile> {
    let bytes = std::fs::read(local_join_path(state)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub fn local_join_path(state: &StateDir) -> PathBuf {
    state.server_dir().join("local.join")
}

/// The nodes on this machine, and the addresses at which its agent finds the server.
pub struct LocalNodes {
    pub nodes: Vec<String>,
    pub servers: Vec<String>,
}

/// Runs the server in this process until it is told to stop. `before_root_is_given_up` is called with what this machine's
/// join file must contain, and `ready` with the clients' address once the server answers there.
pub fn start(
    args: &ServerArgs,
    state: StateDir,
    site: Site,
    bound: BoundListeners,
    store: Option<Store>,
    before_root_is_given_up: impl FnOnce(&LocalNodes) -> Result<(), VerbError>,
    ready: impl FnOnce(SocketAddr) + Send + 'static,
) -> Result<(), VerbError> {
    let (store, store_key) = store.unzip();
    let store_key = store_key.flatten();
    let of_cluster = store.as_ref().zip(store_key.as_ref()).and_then(token_of_cluster);
    let admin_token = admin_token::read_or_make(&state, of_cluster)?;
    let admin_user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()
        .map_or_else(|| "root".to_string(), |user| user.name);
    // Opened while it may be: the server's own user need not be able to read it.
    let own = std::env::current_exe().map_err(VerbError::file("sluice"))?;
    let program = program_for_hosts(&own)?;
    abort_on_panic();
    let _ = nix::sys::prctl::set_name(c"sluice-server");
    state.claim("server")?;
    let folder = OpenFolder::of(&state)?;
    let servers = listen_addresses::reachable(bound.agents);
    let local = LocalNodes { nodes: site.local_nodes(&state), servers };
    before_root_is_given_up(&local)?;
    if let Some(user) = server_user::server_user(&state.path, &state.server_dir())? {
        state.give_server_dir(user)?;
        let mut needed: Vec<&Path> = site.config_dir.iter().map(|d| d.as_path()).collect();
        let files = site.config.server_certificate.iter();
        needed.extend(files.flat_map(|f| [Path::new(&f.certificate), Path::new(&f.key)]));
        enter(&state_mount::reachable(&state.server_dir(), user, &needed)?)?;
        server_user::give_up_root(user)?;
    } else {
        enter(&state.server_dir())?;
    }
    let listen = bound.listen;
    let options = ServerOptions {
        server_dir: PathBuf::from("."),
        state_dir: state.path.clone(),
        config_dir: site.config_dir,
        config: site.config,
        config_fault: site.fault,
        force: args.force,
        machine: site.machine,
        admin_token,
        admin_user,
        agents_addresses: local.servers,
        listen_addresses: listen_addresses::reachable(listen),
        ssh_addresses: bound.ssh.map(listen_addresses::reachable).unwrap_or_default(),
        local_nodes: local.nodes,
        snapshot_events: args.snapshot_events,
        store,
        store_key,
        on_standby: announce_standby,
        connection_limits: args.doors.clone(),
        program,
        set_log_level: log::set_level,
        network_stack: ::agent::network_stack(),
        hostname: nix::unistd::gethostname()
            .map(|h| h.to_string_lossy().into_owned())
            .unwrap_or_default(),
    };
    folder.watch("server")?;
    ::server::run(options, bound.listeners, move || ready(listen))?;
    Ok(())
}

/// The administrator's token that the servers of a cluster share. A database that is away is waited for later, with the token
/// that this machine has; one that cannot be used is refused then.
fn token_of_cluster((store, key): (&DatabaseUrl, &StoreKey)) -> Option<String> {
    let read = SharedKeys::new(store, key.clone()).and_then(|shared| shared.admin_token());
    read.unwrap_or_else(|error| {
        tracing::warn!("admin.token is this machine's own for now: {error}");
        None
    })
}

/// The program that hosts of fleets get: one that lies in `../lib/sluice/agent` beside this one, which may be built for an older
/// C library than this machine's; else this one itself.
fn program_for_hosts(own: &Path) -> Result<File, VerbError> {
    const FOR_HOSTS: &str = "lib/sluice/agent/sluice";
    if let Some(path) = own.parent().and_then(Path::parent).map(|prefix| prefix.join(FOR_HOSTS)) {
        match File::open(&path) {
            Ok(file) => {
                tracing::info!("hosts of fleets get {}", path.display());
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(VerbError::File { path, source: error }),
        }
    }
    File::open("/proc/self/exe").map_err(VerbError::file("/proc/self/exe"))
}

/// The threads without which the server cannot work.
const VITAL_THREADS: [&str; 4] = ["writer", "planner", "dispatch", "books"];

/// A panic in a vital thread ends the server: it must not go on without that thread, and its state is on disk. A panic in
/// one client's request does not.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if std::thread::current().name().is_some_and(|name| VITAL_THREADS.contains(&name)) {
            std::process::abort();
        }
    }));
}

/// Makes the server's folder the working directory.
fn enter(dir: &Path) -> Result<(), VerbError> {
    std::env::set_current_dir(dir).map_err(VerbError::file(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn who_names_slurm_conf_means_its_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("slurm.conf");
        let folder = |path: &Path| {
            let Ok(folder) = config_folder(path.to_str().expect("text"));
            folder
        };
        assert_eq!(folder(&file), file, "it is not there");
        std::fs::write(&file, "").expect("a file");
        assert_eq!(folder(&file), dir.path());
        assert_eq!(folder(dir.path()), dir.path());
    }

    #[test]
    fn hosts_of_fleets_get_the_program_that_lies_beside_this_one_for_them() {
        let prefix = tempfile::tempdir().expect("a folder");
        let own = prefix.path().join("bin/sluice");
        let start = || {
            let mut bytes = [0; 4];
            let mut program = program_for_hosts(&own).expect("a program");
            program.read_exact(&mut bytes).expect("read");
            bytes
        };
        assert_eq!(&start(), b"\x7fELF", "this program itself");
        let dir = prefix.path().join("lib/sluice/agent");
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::write(dir.join("sluice"), "built for hosts").expect("written");
        assert_eq!(&start(), b"buil");
    }
}
