//! From a fleet's configuration to the command that makes it. What is kept of private keys is sealed.

use crate::clock;
use crate::shared::Shared;
use cluster::command::SetFleet;
use dstack::configuration::fleet::{Blocks as BlocksAsked, Fleet, ProxyJump, SshHost};
use dstack::configuration::{Configuration, from_json};
use model::bounds;
use model::cloud_fleet::{CloudFleet, GpuBounds, InstanceOptions, OfferBounds};
use model::fleet::Blocks;
use model::price::Price;
use model::range::Range;
use model::reason::Refusal;
use model::secret::Sealed;
use model::ssh_fleet::{FleetHost, PRIVATE_KEY_BYTES_MAX, SshLogin};
use russh::keys::decode_secret_key;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

const SSH_PORT: u16 = 22;

/// How long an instance of a fleet of machines may be idle where the fleet does not say, as in dstack.
const FLEET_IDLE_S: u32 = 3 * 24 * 3_600;

/// The longest name of a host or of a user there.
const NAME_BYTES_MAX: usize = 253;

/// What a key of this fleet is sealed for: one that was copied to another fleet is not read there.
pub fn key_context(project: &str, fleet: &str) -> String {
    format!("fleet\0{project}\0{fleet}")
}

fn refused(text: impl Into<String>) -> Refusal {
    Refusal::Other(text.into())
}

/// The fleet of a configuration, with its form for the state.
pub fn read(shared: &Shared, project: &str, given: &Value) -> Result<SetFleet, Refusal> {
    let loaded = from_json(given, None).map_err(|fault| refused(fault.to_string()))?;
    let Configuration::Fleet(fleet) =
        loaded.applicable().map_err(|fault| refused(fault.to_string()))?
    else {
        return Err(refused("expected `type: fleet`"));
    };
    let name = fleet.name.clone().ok_or_else(|| refused("a fleet needs a `name`"))?;
    if let Some(nodes) = &fleet.nodes {
        return Ok(SetFleet {
            project: project.to_owned(),
            name,
            configuration: loaded.value.to_json().to_string(),
            is_cluster: fleet.is_cluster,
            hosts: Vec::new(),
            cloud: Some(Box::new(cloud(fleet, nodes))),
        });
    }
    if fleet.hosts.is_empty() {
        return Err(refused("`ssh_config`: expected at least one host"));
    }
    bounds::FLEET_HOSTS.hold(fleet.hosts.len())?;
    check_reachable(shared)?;
    let mut sealer = Sealer::new(shared, project, &name);
    let hosts: Result<Vec<FleetHost>, Refusal> =
        fleet.hosts.iter().map(|host| sealer.host(fleet, host)).collect();
    Ok(SetFleet {
        project: project.to_owned(),
        name,
        configuration: without_keys(loaded.value.to_json()).to_string(),
        is_cluster: fleet.is_cluster,
        hosts: hosts?,
        cloud: None,
    })
}

/// The machines of a fleet that sources make.
fn cloud(fleet: &Fleet, nodes: &Range<u32>) -> CloudFleet {
    let mut choice = fleet.profile.machine_choice().unwrap_or_default();
    choice.idle_s.get_or_insert(FLEET_IDLE_S);
    let bounds = fleet.resources.as_ref().map(|resources| OfferBounds {
        cpus: Some(resources.cpu.count),
        memory: Some(resources.memory),
        disk: resources.disk_given.then_some(resources.disk),
        gpus: resources.gpu.as_ref().map(|gpu| GpuBounds {
            kinds: gpu.names.clone(),
            count: gpu.count,
            memory: gpu.memory,
        }),
    });
    CloudFleet {
        min: nodes.min,
        target: fleet.target,
        target_reached: false,
        max: nodes.max,
        choice,
        price_max: fleet.profile.max_price.map(Price::at_most),
        bounds: bounds.unwrap_or_default(),
        blocks: blocks(fleet.blocks),
        options: InstanceOptions {
            reservation: fleet.reservation.clone(),
            tags: fleet.tags.iter().cloned().collect(),
            is_cluster: fleet.is_cluster,
        },
    }
}

/// Agents dial the server: one that only this machine reaches has no use for others.
fn check_reachable(shared: &Shared) -> Result<(), Refusal> {
    let state = shared.read();
    let named = &state.config.server_addresses;
    let addresses = if named.is_empty() { &shared.setup.agents_addresses } else { named };
    let is_loopback = |address: &String| {
        address.starts_with("127.")
            || address.starts_with("[::1]")
            || address.starts_with("localhost")
    };
    if !addresses.is_empty() && addresses.iter().all(is_loopback) {
        let text =
            "no other machine reaches the agents' port: start the server with --agents ADDR:PORT";
        return Err(refused(text));
    }
    Ok(())
}

struct Sealer<'a> {
    shared: &'a Shared,
    context: String,
    /// Keys that are sealed already: one that stays the same keeps its form, and the fleet is seen to be the same.
    sealed: HashMap<String, Sealed>,
}

impl<'a> Sealer<'a> {
    fn new(shared: &'a Shared, project: &str, name: &str) -> Self {
        let context = key_context(project, name);
        let state = shared.read();
        let known = state.fleets.get(name).filter(|fleet| fleet.project == project);
        let values = known.into_iter().flat_map(|fleet| fleet.sealed_values());
        let distinct: BTreeSet<&String> = values.map(|sealed| &sealed.0).collect();
        let open = |value: &String| {
            let sealed = Sealed(value.clone());
            let text = shared.secret_keys.open(&context, &sealed).ok()?;
            Some((text.0, sealed))
        };
        let sealed = distinct.into_iter().filter_map(open).collect();
        drop(state);
        Self { shared, context, sealed }
    }

    /// Each key is read and sealed once, however many hosts have it. Its own text is in no message.
    fn seal(&mut self, hostname: &str, key: &str) -> Result<Sealed, Refusal> {
        if let Some(known) = self.sealed.get(key) {
            return Ok(known.clone());
        }
        if key.len() > PRIVATE_KEY_BYTES_MAX {
            let text = format!("a private key of at most {PRIVATE_KEY_BYTES_MAX} bytes");
            return Err(refused(format!("host {hostname}: expected {text}")));
        }
        decode_secret_key(key, None).map_err(|_| {
            refused(format!("host {hostname}: expected a private key without a passphrase"))
        })?;
        let sealed = self.shared.secret_keys.seal(&self.context, key)?;
        self.sealed.insert(key.to_owned(), sealed.clone());
        Ok(sealed)
    }

    fn host(&mut self, fleet: &Fleet, host: &SshHost) -> Result<FleetHost, Refusal> {
        let name = &host.hostname;
        let missing = |what: &str| refused(format!("host {name}: expected {what}"));
        let user = host.user.as_deref().ok_or_else(|| missing("`user`, to log in with"))?;
        let key = host.private_key.as_deref();
        let key = key.ok_or_else(|| {
            missing("`ssh_key` with the private key, which `identity_file` brings")
        })?;
        Ok(FleetHost {
            id: clock::random::<16>().iter().map(|byte| format!("{byte:02x}")).collect(),
            login: self.login(name, host.port, user, key)?,
            jump: host.proxy_jump.as_ref().map(|jump| self.jump(jump)).transpose()?,
            internal_ip: host.internal_ip.clone(),
            network: fleet.network,
            address: None,
            blocks: blocks(host.blocks.unwrap_or(fleet.blocks)),
            machine: None,
            failure: None,
            leaving: None,
        })
    }

    fn jump(&mut self, jump: &ProxyJump) -> Result<SshLogin, Refusal> {
        let key = jump.private_key.as_deref().ok_or_else(|| {
            refused(format!(
                "proxy_jump {}: expected `ssh_key` with the private key",
                jump.hostname
            ))
        })?;
        self.login(&jump.hostname, jump.port, &jump.user, key)
    }

    fn login(
        &mut self,
        hostname: &str,
        port: Option<u16>,
        user: &str,
        key: &str,
    ) -> Result<SshLogin, Refusal> {
        check_name("host", hostname)?;
        check_name("user", user)?;
        Ok(SshLogin {
            hostname: hostname.to_owned(),
            port: port.unwrap_or(SSH_PORT),
            user: user.to_owned(),
            key: self.seal(hostname, key)?,
            host_key: None,
        })
    }
}

fn blocks(asked: BlocksAsked) -> Blocks {
    match asked {
        BlocksAsked::Count(count) => Blocks::Count(count.max(1)),
        BlocksAsked::Auto => Blocks::Auto,
    }
}

/// A name that goes to resolvers, logs and lists.
fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.starts_with('-') && name.bytes().all(letter) {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: what.into(),
        value: model::printable::printable(name).into_owned(),
        expected: "letters, digits and - . _ :".into(),
    })
}

/// The configuration as it is kept and shown.
pub fn without_keys(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                *field = if name == "ssh_key" { Value::Null } else { without_keys(field.take()) };
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = without_keys(item.take()));
        }
        _ => {}
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::host_key::random_seed;
    use crate::testing::TestServer;
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::LineEnding;
    use russh::keys::ssh_key::private::Ed25519Keypair;
    use serde_json::json;

    fn private_key() -> String {
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&random_seed().expect("a seed")));
        key.to_openssh(LineEnding::LF).expect("a key").to_string()
    }

    fn fleet(ssh: Value) -> Value {
        json!({"type": "fleet", "name": "lab", "ssh_config": ssh})
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn private_keys_are_sealed_and_in_no_text() {
        let server = TestServer::start().await;
        let (own, jumps) = (private_key(), private_key());
        let jump = json!({"hostname": "gate", "user": "ann", "identity_file": "~/.ssh/gate",
            "ssh_key": {"public": "", "private": jumps}});
        let given = fleet(json!({"user": "root", "identity_file": "~/.ssh/id", "proxy_jump": jump,
            "ssh_key": {"public": "", "private": own}, "hosts": ["10.0.0.1", {"hostname": "10.0.0.2", "port": 2222}]}));
        let set = read(&server.shared, "main", &given).expect("a fleet");
        let text = format!("{set:?}");
        for key in [&own, &jumps] {
            let line = key.lines().nth(3).expect("a line of the key");
            assert!(!text.contains(line), "{text}");
        }
        assert!(set.configuration.contains("10.0.0.2"), "{}", set.configuration);
        let [first, second] = &set.hosts[..] else { panic!("two hosts") };
        assert_eq!((first.login.port, second.login.port), (22, 2222));
        let context = key_context("main", "lab");
        let opened = server.shared.secret_keys.open(&context, &second.login.key).expect("a key");
        assert_eq!(opened.0, own);
        let jump = first.jump.as_ref().expect("a jump host");
        assert_eq!(server.shared.secret_keys.open(&context, &jump.key).expect("a key").0, jumps);
        let other = key_context("other", "lab");
        assert!(server.shared.secret_keys.open(&other, &jump.key).is_err(), "not another fleet's");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn bad_fleet_is_refused_in_one_line_that_names_the_place() {
        let server = TestServer::start().await;
        let key = || json!({"public": "", "private": private_key()});
        let cases = [
            (json!({"user": "root", "ssh_key": key(), "hosts": []}), "at least one host"),
            (json!({"ssh_key": key(), "hosts": ["a"]}), "host a: expected `user`"),
            (json!({"user": "root", "hosts": ["a"]}), "host a: expected `ssh_key`"),
            (
                json!({"user": "root", "ssh_key": {"public": "", "private": "none"}, "hosts": ["a"]}),
                "without a passphrase",
            ),
            (json!({"user": "root", "ssh_key": key(), "hosts": ["-oProxyCommand=x"]}), "host"),
            (
                json!({"user": "root", "ssh_key": {"public": "", "private": "x".repeat(16 << 10 | 1)}, "hosts": ["a"]}),
                "at most 16384 bytes",
            ),
            (json!({"user": "a b", "ssh_key": key(), "hosts": ["a"]}), "user"),
        ];
        for (ssh, expected) in cases {
            let said = read(&server.shared, "main", &fleet(ssh)).expect_err("refused").to_string();
            assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        }
        let cloud = json!({"type": "fleet", "name": "lab", "nodes": 2});
        let fleet = read(&server.shared, "main", &cloud).expect("a fleet of machines");
        assert_eq!(fleet.cloud.map(|cloud| (cloud.min, cloud.max)), Some((2, Some(2))));
    }
}
