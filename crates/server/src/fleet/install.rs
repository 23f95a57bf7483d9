//! The steps on one host: it is checked, the program is uploaded, and the agent joins and is started; or all of it is removed.

use super::internal_address;
use super::program::Program;
use super::request::key_context;
use super::script;
use super::ssh_client::{Failure, Login, LoginFailure, SeenKeys, SshClient};
use crate::agents::join;
use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use cluster::command::FleetHostReport;
use cluster::{Command, State};
use model::printable::printable;
use model::ssh_fleet::{FleetHost, SshLogin};
use russh::keys::decode_secret_key;
use std::collections::BTreeMap;
use std::time::Duration;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// For the whole program, over a slow link.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(1200);
/// How long an agent may take from its start to its first word.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the token of a host that is being installed is good for.
const TOKEN_LIFE: Duration = Duration::from_secs(600);
/// Free space that is wanted beside the program, for jobs' files.
const SPARE_BYTES: u64 = 64 << 20;

/// A host at which something is to be done.
#[derive(Debug, Clone)]
pub struct HostWork {
    pub node: String,
    pub fleet: String,
    pub project: String,
    pub host: FleetHost,
    /// Whether this has failed before. An agent then joins anew although it has joined already.
    pub is_retry: bool,
}

/// What the probe said.
#[derive(Debug, Default)]
struct Probe {
    values: BTreeMap<String, String>,
}

impl Probe {
    fn read(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        Self { values: text.lines().filter_map(line).collect() }
    }

    fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn is_root(&self) -> bool {
        self.get("uid") == "0"
    }

    fn may_be_root(&self) -> bool {
        self.is_root() || self.get("sudo") == "yes"
    }

    /// What the host lacks, by name.
    fn check(&self, program: &Program) -> Result<(), Failure> {
        let (os, arch) = (self.get("os"), self.get("arch"));
        if os != "Linux" {
            return Err(format!("expected Linux, found {}", shown(os)));
        }
        let own = std::env::consts::ARCH;
        if arch != own {
            return Err(format!("expected a machine of {own}, found {}", shown(arch)));
        }
        if !self.may_be_root() {
            return Err(format!("sudo: {}", shown(self.get("sudo").trim_start_matches("sudo: "))));
        }
        if self.get("node") == "yes" {
            let dir = script::NODE_DIR;
            return Err(format!(
                "{dir} is there: the machine is a node or the server of a cluster already; if it is not, remove that folder"
            ));
        }
        if self.get("cgroup") != "yes" {
            return Err("no control groups are mounted".into());
        }
        let wanted = program.bytes + SPARE_BYTES;
        let is_there = self.get("digest") == program.digest;
        if let Ok(free) = self.get("free_kib").parse::<u64>()
            && !is_there
            && free.saturating_mul(1024) < wanted
        {
            let (free, wanted) = (free >> 10, wanted >> 20);
            return Err(format!("no space left in /var/lib: {free} MiB free, {wanted} MiB needed"));
        }
        Ok(())
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "nothing".into() } else { printable(text).into_owned() }
}

/// Whose host it is: this cluster's, and which node.
fn owner(shared: &Shared, work: &HostWork) -> String {
    let cluster = shared.identity.authority_fingerprint().unwrap_or_default();
    let (node, id) = (&work.node, &work.host.id);
    format!("{} {node} {id}", cluster.get(..16).unwrap_or_default()).trim_end().to_owned()
}

/// Whether the host is still to be what this work makes of it.
pub fn is_wanted(shared: &Shared, work: &HostWork) -> bool {
    let state = shared.read();
    let host = state.fleet_host(&work.node).map(|(_, _, host)| host);
    host.is_some_and(|host| host.id == work.host.id && host.leaving.is_none())
}

/// Waits until it no longer is.
async fn until_unwanted(shared: &Shared, work: &HostWork) -> Failure {
    let mut commits = shared.commits.subscribe();
    while is_wanted(shared, work) {
        if commits.changed().await.is_err() {
            break;
        }
    }
    "it leaves its fleet".into()
}

/// Whether the host's own agent is connected, and not one that had the name before.
pub fn answers(shared: &Shared, state: &State, node: &str) -> bool {
    shared.agents.peer_certificate(node).is_some_and(|known| state.speaks_for(node, &known))
}

/// Whether nothing is to be done at the host.
pub fn is_in_service(shared: &Shared, work: &HostWork) -> bool {
    let state = shared.read();
    let known = state.fleet_host(&work.node).map(|(.., host)| host);
    known.is_some_and(|host| !host.lacks_address()) && answers(shared, &state, &work.node)
}

async fn connect(shared: &Shared, work: &HostWork) -> Result<SshClient, LoginFailure> {
    let context = key_context(&work.project, &work.fleet);
    let with_key = |login| open_login(shared, &context, login);
    let host = with_key(&work.host.login)?;
    let jump = work.host.jump.as_ref().map(with_key).transpose()?;
    let mut seen = SeenKeys::default();
    let connected = SshClient::connect(&host, jump.as_ref(), &mut seen).await;
    let fresh = |login: Option<&SshLogin>| login.is_some_and(|login| login.host_key.is_none());
    let keys = [
        (true, seen.jump.filter(|_| fresh(work.host.jump.as_ref()))),
        (false, seen.host.filter(|_| fresh(Some(&work.host.login)))),
    ];
    for (of_jump, key) in keys {
        if let Some(key) = key {
            tracing::info!("fleet {}: {} shows its key for the first time", work.fleet, work.node);
            report(shared, &work.node, &work.host.id, FleetHostReport::KeySeen { of_jump, key })
                .await;
        }
    }
    connected
}

fn open_login<'a>(
    shared: &Shared,
    context: &str,
    login: &'a SshLogin,
) -> Result<Login<'a>, Failure> {
    let text = shared.secret_keys.open(context, &login.key).map_err(|error| error.to_string())?;
    let key = decode_secret_key(&text.0, None);
    Ok(Login { login, key: key.map_err(|_| "the private key cannot be read".to_owned())? })
}

/// Tells the state what was found out. A server that stops meanwhile finds it out again.
pub async fn report(shared: &Shared, node: &str, id: &str, report: FleetHostReport) {
    let command = Command::FleetHost { node: node.to_owned(), id: id.to_owned(), report };
    if let Err(why) = shared.writer.run(command, server_principal()).await {
        tracing::warn!("{node}: what was found out about its host is not kept: {why}");
    }
}

/// Brings the host to where its agent answers. It ends early when the host is to leave, but not amid the start of its
/// agent, which would go on there.
pub async fn install(shared: &Shared, program: &Program, work: &HostWork) -> Result<(), Failure> {
    let client = tokio::select! {
        client = connect(shared, work) => client?,
        why = until_unwanted(shared, work) => return Err(why),
    };
    let done = install_with(shared, program, work, &client).await;
    client.close().await;
    done
}

async fn install_with(
    shared: &Shared,
    program: &Program,
    work: &HostWork,
    client: &SshClient,
) -> Result<(), Failure> {
    // A host in service is only asked for its address in the fleet's network.
    if work.host.lacks_address() && answers(shared, &shared.read(), &work.node) {
        return find_address(shared, work, client).await;
    }
    let probe = tokio::select! {
        probe = prepare(shared, program, work, client) => probe?,
        why = until_unwanted(shared, work) => return Err(why),
    };
    let own = owner(shared, work);
    let has_joined = || shared.read().has_live_certificate(&work.node, clock::now());
    // A host may be the node's own, and have lost what its agent joined with.
    let has_file = probe.get("owner") == own && probe.get("join") == "yes";
    let join_file = if has_file && has_joined() && !work.is_retry {
        Vec::new()
    } else {
        let issued =
            join::issue_host_join_file(shared, &work.node, &work.host.id, TOKEN_LIFE).await;
        let file = issued.map_err(|why| format!("no join file: {why}"))?;
        serde_json::to_vec(&file).map_err(|error| error.to_string())?
    };
    // An agent that is on its way by itself is left alone.
    if answers(shared, &shared.read(), &work.node) {
        return Ok(());
    }
    if !is_wanted(shared, work) {
        return Err("it leaves its fleet".into());
    }
    let start = script::start(&own, probe.get("owner"), probe.get("systemd") == "yes");
    let start = script::as_root(probe.is_root(), &start);
    client.run(&start, &join_file, COMMAND_TIMEOUT).await?.ok("start of the agent")?;
    tokio::select! {
        answered = await_answer(shared, work, client, &probe) => answered,
        why = until_unwanted(shared, work) => Err(why),
    }
}

/// Finds the host's address in the fleet's network, where that is asked for, and tells the state.
async fn find_address(shared: &Shared, work: &HostWork, client: &SshClient) -> Result<(), Failure> {
    let found = internal_address::find(&work.host, client).await?;
    if let Some((network, address)) = found.filter(|(_, ip)| work.host.address != Some(*ip)) {
        let found = FleetHostReport::Address { network, address };
        report(shared, &work.node, &work.host.id, found).await;
    }
    Ok(())
}

/// Checks the host and brings the program there; nothing runs there yet.
async fn prepare(
    shared: &Shared,
    program: &Program,
    work: &HostWork,
    client: &SshClient,
) -> Result<Probe, Failure> {
    let said = client.run(&script::probe(), b"", COMMAND_TIMEOUT).await?.ok("check")?;
    let probe = Probe::read(&said);
    probe.check(program)?;
    find_address(shared, work, client).await?;
    let (own, before) = (owner(shared, work), probe.get("owner"));
    check_owner(shared, &own, before)?;
    if before != own {
        let claim = script::as_root(probe.is_root(), &script::claim(&own, before));
        client.run(&claim, b"", COMMAND_TIMEOUT).await?.ok("taking of the host")?;
    }
    if probe.get("digest") != program.digest {
        upload(program, &probe, &own, client).await?;
    }
    Ok(probe)
}

/// A host is one node of one cluster. What a node that is no more left there is taken over.
fn check_owner(shared: &Shared, own: &str, found: &str) -> Result<(), Failure> {
    if found.is_empty() || found == own {
        return Ok(());
    }
    let (cluster, node) = found.split_once(' ').unwrap_or((found, ""));
    if !own.starts_with(&format!("{cluster} ")) {
        let dir = script::DIR;
        return Err(format!("the host belongs to another cluster, which installed {dir} there"));
    }
    let (node, id) = node.split_once(' ').unwrap_or((node, ""));
    let state = shared.read();
    if state.fleet_host(node).is_some_and(|(_, _, host)| host.id == id) {
        return Err(format!("the host is instance {} already", shown(node)));
    }
    Ok(())
}

async fn upload(
    program: &Program,
    probe: &Probe,
    own: &str,
    client: &SshClient,
) -> Result<(), Failure> {
    let mut at = 0;
    let next = || {
        let chunk = program.chunk(at)?;
        at += chunk.len() as u64;
        Ok(chunk)
    };
    let command = script::as_root(probe.is_root(), &script::upload(&program.digest, own));
    let said = client.feed(&command, next, UPLOAD_TIMEOUT).await?;
    if said.stderr.contains("No space left on device") {
        return Err("no space left in /var/lib while the program was uploaded".into());
    }
    said.ok("upload of the program").map(drop)
}

async fn await_answer(
    shared: &Shared,
    work: &HostWork,
    client: &SshClient,
    probe: &Probe,
) -> Result<(), Failure> {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
    while !answers(shared, &shared.read(), &work.node) {
        if tokio::time::timeout_at(deadline, commits.changed()).await.is_ok() {
            continue;
        }
        let words = script::as_root(probe.is_root(), &script::last_words());
        let said = client.run(&words, b"", COMMAND_TIMEOUT).await;
        let said = said.map(|said| printable(said.stdout.trim()).into_owned()).unwrap_or_default();
        return Err(format!("the agent was started and does not reach the server: {said}"));
    }
    Ok(())
}

/// Stops the agent and removes what was installed.
pub async fn remove(shared: &Shared, work: &HostWork) -> Result<(), LoginFailure> {
    let client = connect(shared, work).await?;
    let done = remove_with(shared, work, &client).await;
    client.close().await;
    done.map_err(LoginFailure::from)
}

async fn remove_with(shared: &Shared, work: &HostWork, client: &SshClient) -> Result<(), Failure> {
    let said = client.run(&script::probe(), b"", COMMAND_TIMEOUT).await?.ok("check")?;
    let (probe, own) = (Probe::read(&said), owner(shared, work));
    // Only root brings anything there: where nobody may be root, there is nothing to remove unless the right was lost since.
    if !probe.may_be_root() && probe.get("owner") != own {
        return Ok(());
    }
    let command = script::as_root(probe.is_root(), &script::remove(&own));
    client.run(&command, b"", COMMAND_TIMEOUT).await?.ok("removal").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(100 << 20).expect("a size");
        Program::open(file).expect("a program")
    }

    #[test]
    fn host_that_lacks_something_is_told_by_name() {
        let good = [
            ("uid", "1000"),
            ("sudo", "yes"),
            ("os", "Linux"),
            ("arch", std::env::consts::ARCH),
            ("free_kib", "9000000"),
            ("cgroup", "yes"),
        ];
        let program = program();
        let check = |change: (&str, &str)| {
            let mut lines: BTreeMap<&str, &str> = good.into();
            lines.insert(change.0, change.1);
            let text: String = lines.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
            Probe::read(&text).check(&program)
        };
        assert_eq!(check(("uid", "0")), Ok(()));
        let cases = [
            (("sudo", "sudo: a password is required"), "sudo: a password is required"),
            (("sudo", "there is no sudo"), "sudo: there is no sudo"),
            (("os", "Darwin"), "expected Linux, found Darwin"),
            (("arch", "sparc64"), "found sparc64"),
            (("node", "yes"), "a node or the server of a cluster already"),
            (("cgroup", "no"), "no control groups are mounted"),
            (("free_kib", "102400"), "no space left in /var/lib: 100 MiB free, 164 MiB needed"),
        ];
        for (change, expected) in cases {
            let said = check(change).expect_err("refused");
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(check(("digest", &program.digest)), Ok(()));
    }
}
