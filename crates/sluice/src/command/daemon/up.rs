//! `sluice up`: starts a server and an agent. This process becomes the keeper of the server: it holds the listening sockets
//! and starts the server again when it dies. The server gives up root; the agent stays root.

use super::inherited_sockets::InheritedSockets;
use super::keeper::{AGENT_KEEPER, SERVER_KEEPER};
use super::listen_addresses::SshListen;
use super::server::{self, LocalNodes, ServerArgs, Site, Store};
use super::state_dir::{self, StateDir};
use super::{admin_token, core_dump, listen_addresses, log, session_weight};
use crate::client::{Client, ServerLocation};
use crate::command::verb::{VerbError, VerbResult};
use ::server::configure::Machine;
use ::slurm::words::node::NodeState;
use clap::Args;
use model::hostlist;
use model::node::AdminState;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wire::client::{Answer, Call};
use wire::view::{ClusterView, NodeView};

#[derive(Args)]
pub struct UpArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Return once the cluster is up
    #[arg(long)]
    detach: bool,
}

pub fn run(mut args: UpArgs) -> VerbResult {
    let state = StateDir::prepare(&args.server.state_path())?;
    if mend_agent(&state)? {
        return Ok(ExitCode::SUCCESS);
    }
    server::refuse_a_second(&state)?;
    let last = args.server.settle_config(&state, "up")?;
    if args.detach {
        return detached(&args, &state);
    }
    core_dump::forbid()?;
    log::start(&state, "server");
    state.lock()?;
    let site = load_site(&args.server)?;
    args.server.force |= site.replaces_crashed(&state, last.as_ref());
    site.check(&state, last.as_ref(), args.server.force)?;
    let ssh = args.server.ssh.unwrap_or(SshListen::Default);
    let (listen, agents) = (args.server.listen, args.server.agents);
    // The keeper holds the sockets.
    let none = InheritedSockets::default();
    let bound = listen_addresses::bind(&state, listen, agents, ssh, site.proxy_listen(), none)?;
    let store = args.server.database()?;
    site.save(&state)?;
    state.note_start();
    let kept = SERVER_KEEPER.keep(&state)?;
    // This is the server from here on. The first has its configuration; a later one reads it again, and takes it whatever it
    // lacks: nobody is there to be asked.
    args.server.force |= !kept.is_first;
    let (site, store) =
        if kept.is_first { (site, store) } else { reload(&args.server, site, store) };
    let own = StateDir::open(&state.path);
    let start = move |local: &LocalNodes| start_agent(&own, local);
    let ready = move |listen| {
        if kept.was_ready {
            tracing::info!("the server is up again: http://{listen}");
        } else {
            server::announce(listen);
        }
        kept.tell_ready();
    };
    server::start(&args.server, state, site, bound, store, start, ready)?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration, with every node on this machine.
fn load_site(args: &ServerArgs) -> Result<Site, VerbError> {
    // What the GPUs' library cannot say, the agent's log says why.
    let (detected, _) = ::agent::detect::Machine::detect_with_libraries()
        .map_err(|e| VerbError::Message(e.to_string()))?;
    Site::load(args, Some(Machine { node: super::agent::node_config(&detected) }))
}

/// Configuration and database at a restart by the keeper. Files that cannot be used leave what was there before: nobody is there to
/// mend them, and a crash that somebody can bring about must not become an outage.
fn reload(args: &ServerArgs, before: Site, store: Option<Store>) -> (Site, Option<Store>) {
    let loaded = load_site(args).and_then(|site| Ok((site, args.database()?)));
    loaded.unwrap_or_else(|error| (before.with_fault(error.to_string()), store))
}

/// Starts the same command in a session of its own, and waits until it reports that it is up.
fn detached(args: &UpArgs, state: &StateDir) -> VerbResult {
    let log_path = state.path.join("server.log");
    let log = state.open_log("server.log")?;
    let before = log.metadata().map(|m| m.len()).unwrap_or(0);
    let agent_log = state.path.join("agent.log");
    let agent_before = std::fs::metadata(&agent_log).map(|m| m.len()).unwrap_or(0);
    let program = std::env::current_exe().map_err(VerbError::file("sluice"))?;
    let mut command = Command::new(program);
    command.arg("up").arg("--state").arg(&state.path);
    match &args.server.config {
        Some(folder) => command.arg("--config").arg(folder),
        None => command.arg("--no-config"),
    };
    command.args(args.server.force.then_some("--force"));
    command.args(args.server.moved.then_some("--moved"));
    let sockets = [("--listen", args.server.listen), ("--agents", args.server.agents)];
    for (flag, value) in sockets {
        command.args(value.into_iter().flat_map(|v| [flag.to_string(), v.to_string()]));
    }
    if let Some(ssh) = args.server.ssh {
        command.args(["--ssh".to_string(), ssh.to_string()]);
    }
    if let Some(store) = &args.server.store {
        command.arg("--store").arg(store);
    }
    if let Some(file) = &args.server.store_password_file {
        command.arg("--store-password-file").arg(file);
    }
    if let Some(file) = &args.server.store_key_file {
        command.arg("--store-key-file").arg(file);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // SAFETY: own_session makes calls of the kernel alone.
    unsafe {
        command.pre_exec(own_session);
    }
    let mut child = command.spawn().map_err(VerbError::file("sluice"))?;
    match first_line(child.stdout.take(), &agent_log, agent_before) {
        FirstLine::Read(line)
            if ["sluice is up", "sluice waits"].iter().any(|said| line.starts_with(said)) =>
        {
            print!("{line}");
            if line.starts_with("sluice is up") {
                println!("{}", sign_in_line(state));
                tell_gaps(state);
            }
            Ok(ExitCode::SUCCESS)
        }
        FirstLine::Read(_) => {
            let _ = child.wait();
            let errors = logged_errors(&log_path, before);
            let none = || format!("the server did not come up; see {}", log_path.display());
            Err(VerbError::Message(if errors.is_empty() { none() } else { errors.join("\n") }))
        }
        FirstLine::Late => {
            let errors = logged_errors(&agent_log, agent_before);
            let why = errors.last().map_or_else(|| "it does not answer".to_owned(), String::clone);
            Err(VerbError::Message(format!(
                "the server runs, and its agent does not: {why}; both go on trying: see {} and {}, or end them with `sluice down`",
                agent_log.display(),
                log_path.display(),
            )))
        }
    }
}

/// How to sign in to the page, whose address is in the line before.
fn sign_in_line(state: &StateDir) -> String {
    format!(
        "its web page asks for a token: `sluice token user NAME` makes one, the administrator's is in {}",
        admin_token::path(state).display()
    )
}

/// Says what is not as one may expect of a cluster that is up.
fn tell_gaps(state: &StateDir) {
    let mut client = Client::at(ServerLocation::in_state(&state.path));
    let Ok(Answer::Cluster(cluster)) = client.call(Call::Cluster) else { return };
    if let Some(line) = silent_nodes_line(&cluster.nodes) {
        println!("{line}");
    }
    if !nix::unistd::geteuid().is_root() {
        tell_not_enforced(&cluster);
    }
}

/// Names the nodes that do not answer. Those of this machine have been waited for; others are nodes of other machines. `None`
/// when all that are expected to answer do.
fn silent_nodes_line(nodes: &[NodeView]) -> Option<String> {
    let is_silent = |node: &&NodeView| {
        let is_out = matches!(node.admin, Some(AdminState::Down | AdminState::Future));
        node.power.is_on() && !is_out && NodeState::of(node).not_responding
    };
    let silent = nodes.iter().filter(is_silent).map(|node| &node.config.name);
    let silent: Vec<&String> = silent.collect();
    (!silent.is_empty()).then(|| {
        format!(
            "not answering yet: {}: no job starts there until they do (`sluice node list`)",
            hostlist::compress(silent)
        )
    })
}

/// Says what a cluster that an ordinary user started does not hold its jobs to.
fn tell_not_enforced(cluster: &ClusterView) {
    let gaps: BTreeSet<&str> = cluster.nodes.iter().flat_map(|node| node.facts.gaps()).collect();
    if !gaps.is_empty() {
        let gaps = gaps.into_iter().collect::<Vec<_>>().join(", ");
        println!(
            "not root: jobs run only as you, and are not limited in: {gaps} (`sluice doctor` says why)"
        );
    }
}

/// How long a cluster may take to come up before the command gives up waiting for it.
const UP_TIMEOUT: Duration = Duration::from_secs(120);
/// The same where the agent has ended with an error meanwhile.
const FAILED_AGENT_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

enum FirstLine {
    /// Empty where the process has ended.
    Read(String),
    Late,
}

/// The first line of a process that says so when its cluster is up.
fn first_line(stdout: Option<ChildStdout>, agent_log: &Path, agent_before: u64) -> FirstLine {
    let (send, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if let Some(stdout) = stdout {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let _ = send.send(line);
    });
    let began = Instant::now();
    loop {
        if let Ok(line) = lines.recv_timeout(LOOK_INTERVAL) {
            return FirstLine::Read(line);
        }
        let has_failed = || !logged_errors(agent_log, agent_before).is_empty();
        let waited = began.elapsed();
        if waited > UP_TIMEOUT || (waited > FAILED_AGENT_TIMEOUT && has_failed()) {
            return FirstLine::Late;
        }
    }
}

/// The errors in a log, without the prefix that is printed again.
fn logged_errors(path: &Path, from: u64) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    // A log that has become shorter was begun anew meanwhile.
    let text = String::from_utf8_lossy(bytes.get(from as usize..).unwrap_or(&bytes));
    let errors = text.lines().filter_map(|line| line.strip_prefix("sluice: error: "));
    errors.map(str::to_owned).collect()
}

/// Starts the agent again where its server runs and it does not; whether it was so.
fn mend_agent(state: &StateDir) -> Result<bool, VerbError> {
    let join = server::local_join_path(state);
    let lost = [AGENT_KEEPER.name, "agent"].iter().all(|of| state.running_pid(of).is_none());
    if state.running_pid("server").is_none() || !lost || !join.exists() {
        return Ok(false);
    }
    spawn_agent(state, &join)?;
    println!("the server runs already; its agent was lost and is started again");
    Ok(true)
}

/// How long an agent may take to stop.
const AGENT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the agent unless a matching one is running: jobs and agent outlive a server. An agent for other nodes or of another
/// server is stopped, and the new one joins anew.
fn start_agent(state: &StateDir, local: &LocalNodes) -> Result<(), VerbError> {
    let join = server::local_join_path(state);
    let fits = server::local_join_file(state)
        .is_some_and(|file| file.nodes == local.nodes && file.servers == local.servers);
    for of in [AGENT_KEEPER.name, "agent"] {
        match state.running_pid(of) {
            Some(_) if fits => return Ok(()),
            Some(pid) => drop(state_dir::terminate(pid, AGENT_STOP_TIMEOUT)),
            None => {}
        }
    }
    if !fits && join.exists() {
        std::fs::remove_file(&join).map_err(VerbError::file(&join))?;
    }
    spawn_agent(state, &join)
}

/// What a daemon does before its program is executed: it leaves the session of the terminal, and gets a share of the CPUs that jobs
/// cannot take.
fn own_session() -> std::io::Result<()> {
    nix::unistd::setsid()?;
    session_weight::raise();
    Ok(())
}

fn spawn_agent(state: &StateDir, join: &std::path::Path) -> Result<(), VerbError> {
    let log = state.open_log("agent.log")?;
    let program = std::env::current_exe().map_err(VerbError::file("sluice"))?;
    let mut command = Command::new(program);
    command.args(["agent", "--keep", "--state"]).arg(&state.path).arg("--join").arg(join);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: own_session makes calls of the kernel alone.
    unsafe {
        command.pre_exec(own_session);
    }
    let mut started = command.spawn().map_err(VerbError::file("sluice agent"))?;
    // The process ends as soon as it has forked the keeper.
    started.wait().map(drop).map_err(VerbError::file("sluice agent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::node::{NodeConfig, NodeFacts};
    use serde_json::json;

    fn node(name: &str, slot: &str, admin: Option<AdminState>) -> NodeView {
        let view = json!({
            "config": NodeConfig::plain(name, 4, Bytes::from_mib(1000)), "slot": slot, "admin": admin,
            "facts": NodeFacts::default(), "cpus_allocated": 0, "memory_allocated": Bytes::from_mib(0),
            "gres_used": [], "job_count": 0, "completing": false, "partitions": []
        });
        serde_json::from_value(view).expect("a node")
    }

    #[test]
    fn start_says_how_to_sign_in_to_the_page() {
        let line = sign_in_line(&StateDir::open(Path::new("/var/lib/sluice")));
        assert!(line.contains("`sluice token user NAME`"), "{line}");
        assert!(line.ends_with(" /var/lib/sluice/admin.token"), "{line}");
    }

    #[test]
    fn nodes_that_are_expected_and_do_not_answer_are_named() {
        let up = node("n1", "up", None);
        let out = node("n2", "down", Some(AdminState::Down));
        let future = node("n3", "joining", Some(AdminState::Future));
        let nodes = [up, out, future];
        assert_eq!(silent_nodes_line(&nodes), None);
        let silent = ["silent", "joining", "down"].iter().zip(4..);
        let silent = silent.map(|(slot, at)| node(&format!("n{at}"), slot, None));
        let nodes: Vec<NodeView> = nodes.into_iter().chain(silent).collect();
        let line = silent_nodes_line(&nodes).expect("a line");
        assert!(line.starts_with("not answering yet: n[4-6]: "), "{line}");
    }
}
