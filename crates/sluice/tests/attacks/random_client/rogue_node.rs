//! A node with a valid certificate that says anything, and strangers at the agents' port.

use super::mutation;
use crate::harness::Cluster;
use crate::harness::dice::Dice;
use model::node::NodeConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{self, Decoder};
use wire::link::{CHANNEL_CONTROL, JoinFile, SERVER_NAME, ToAgent};
use wire::version::PROTOCOL;

pub const NODE: &str = "rogue1";

/// The attempts that it was told of and remembers.
const ATTEMPTS_MAX: usize = 50;

const IO_TIMEOUT: Duration = Duration::from_secs(5);

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// The node's certificate, and where the agents' port is.
pub struct RogueNode {
    address: String,
    config: Arc<ClientConfig>,
    attempts: VecDeque<Value>,
}

struct Link {
    tls: Tls,
    decoder: Decoder,
}

/// A configuration that trusts the cluster's authority, with a certificate and its key if there is one.
fn client_config(authority: &str, identity: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let chain = chain.map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

impl Link {
    fn dial(address: &str, config: Arc<ClientConfig>) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(IO_TIMEOUT)).ok()?;
        stream.set_write_timeout(Some(IO_TIMEOUT)).ok()?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let tls = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
        Some(Self { tls, decoder: Decoder::default() })
    }

    fn send(&mut self, channel: u8, payload: &[u8]) -> Option<()> {
        let mut bytes = Vec::new();
        frame::encode(channel, payload, &mut bytes).ok()?;
        self.send_raw(&bytes)
    }

    fn send_raw(&mut self, bytes: &[u8]) -> Option<()> {
        self.tls.write_all(bytes).and_then(|()| self.tls.flush()).ok()
    }

    /// The next message, if one comes within the timeout; the outer `None` is the end of the link.
    fn receive(&mut self, timeout: Duration) -> Option<Option<ToAgent>> {
        self.tls.sock.set_read_timeout(Some(timeout)).ok()?;
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame().ok()? {
                if frame.channel == CHANNEL_CONTROL {
                    return Some(frame::decode_message(&frame.payload).ok());
                }
                continue;
            }
            match self.tls.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Some(None);
                }
                Err(_) => return None,
            }
        }
    }
}

impl RogueNode {
    /// Joins as an agent of the node would.
    pub fn join(cluster: &Cluster) -> Self {
        let text = cluster.sluice(&["token", "node", NODE]).ok();
        let file: JoinFile = serde_json::from_str(&text).expect("a join file");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let address = file.servers[0].clone();
        let mut link = Link::dial(&address, client_config(&file.authority, None)).expect("a link");
        let join =
            json!({"version": PROTOCOL, "token": file.token, "certificate_request": request});
        link.send(CHANNEL_CONTROL, json!({"join": join}).to_string().as_bytes()).expect("a join");
        let Some(Some(ToAgent::Joined(joined))) = link.receive(IO_TIMEOUT) else {
            panic!("the join was not accepted")
        };
        let identity = (joined.certificate.as_str(), &*key.serialize_pem());
        let config = client_config(&file.authority, Some(identity));
        Self { address, config, attempts: VecDeque::new() }
    }

    /// Connects, says hello, and sends so many messages or until the server has had enough.
    pub fn send_reports(&mut self, messages: u64, dice: &mut Dice) -> Option<()> {
        let mut link = Link::dial(&self.address, self.config.clone())?;
        let mut hello = json!({"hello": self.hello(dice)});
        if dice.one_in(3) {
            mutation::mutate(&mut hello, dice);
        }
        link.send(CHANNEL_CONTROL, &mutation::to_text(&hello, dice))?;
        for _ in 0..messages {
            while let Some(message) = link.receive(Duration::from_millis(2))? {
                self.remember(message);
            }
            if dice.one_in(300) {
                // No frame at all.
                let length = 1 + dice.below(100) as usize;
                link.send_raw(&dice.bytes(length))?;
            }
            if dice.one_in(20) {
                let length = dice.below(2000) as usize;
                link.send(dice.next() as u8, &dice.bytes(length))?;
                continue;
            }
            let mut message = self.message(dice);
            for _ in 0..dice.below(3) {
                mutation::mutate(&mut message, dice);
            }
            link.send(CHANNEL_CONTROL, &mutation::to_text(&message, dice))?;
        }
        Some(())
    }

    fn remember(&mut self, message: ToAgent) {
        let ToAgent::Order(order) = message else { return };
        let body: Value = serde_json::from_str(&order.body).expect("an order");
        self.attempts.push_back(body["attempt"].clone());
        if self.attempts.len() > ATTEMPTS_MAX {
            self.attempts.pop_front();
        }
    }

    /// One of its own attempts, or one that it made up.
    fn attempt(&self, dice: &mut Dice) -> Value {
        let own: Vec<&Value> = self.attempts.iter().collect();
        if own.is_empty() || dice.one_in(3) {
            return json!({"job": 1 + dice.below(300), "number": 1 + dice.below(2)});
        }
        (*dice.pick(&own)).clone()
    }

    fn node(&self, dice: &mut Dice) -> &'static str {
        [NODE, NODE, NODE, "node1", "none"][dice.below(5) as usize]
    }

    fn hello(&self, dice: &mut Dice) -> Value {
        let detected = NodeConfig::plain(NODE, 32, model::amount::Bytes::from_gib(4));
        let attempts: Vec<Value> = (0..dice.below(4))
            .map(|_| json!({"attempt": self.attempt(dice), "alive": dice.one_in(2)}))
            .collect();
        let node = |name: &str| json!({"name": name, "facts": facts(), "detected": detected, "attempts": attempts});
        let mut nodes = vec![node(NODE)];
        if dice.one_in(3) {
            nodes.push(node("node1"));
        }
        json!({"version": PROTOCOL, "program": "rogue", "nodes": nodes})
    }

    fn message(&self, dice: &mut Dice) -> Value {
        let (attempt, node) = (self.attempt(dice), self.node(dice));
        match dice.below(12) {
            0 => json!({"beat": {"nodes": [[node, facts()]]}}),
            1 => json!({"step_taken": {"node": node, "attempt": attempt, "step": step(dice)}}),
            2 => {
                let order = *dice.pick(&["launch", "launched_before", "unknown_attempt", "other"]);
                json!({"order_refused": {"serial": 1, "attempt": attempt, "node": node, "order": order, "why": "no"}})
            }
            3 => json!({"stream_end": {"stream": dice.below(9), "error": "gone"}}),
            4 => json!({"credit": {"stream": dice.below(9), "bytes": u32::MAX}}),
            5 => {
                let live = json!({"step": step(dice), "used": task_usage(), "pids": [1]});
                json!({"measured": {"ask": dice.below(20), "steps": [live]}})
            }
            _ => json!({"report": {
                "serial": dice.below(100), "node": node, "attempt": attempt, "at": time(dice), "event": event(dice),
            }}),
        }
    }
}

/// Garbage at the agents' port: before TLS, in it, and a hello without a certificate.
pub fn connect_and_send(address: &str, config: &Arc<ClientConfig>, dice: &mut Dice) -> Option<()> {
    if dice.one_in(2) {
        let mut stream = TcpStream::connect(address).ok()?;
        let length = 1 + dice.below(3000) as usize;
        stream.write_all(&dice.bytes(length)).ok()?;
        return Some(());
    }
    let mut link = Link::dial(address, config.clone())?;
    let claim = [
        json!({"hello": {"version": PROTOCOL, "program": "", "nodes": []}})
            .to_string()
            .into_bytes(),
        json!({"join": {"version": PROTOCOL, "token": "x", "certificate_request": "x"}})
            .to_string()
            .into_bytes(),
        dice.bytes(500),
        vec![b'['; 100_000],
    ];
    let claim: &Vec<u8> = dice.pick(&claim);
    link.send(CHANNEL_CONTROL, claim)
}

/// What somebody at the agents' port has who knows the authority and no more.
pub fn stranger_config(cluster: &Cluster) -> Arc<ClientConfig> {
    let text =
        std::fs::read_to_string(cluster.state().join("server/local.join")).expect("a join file");
    let file: JoinFile = serde_json::from_str(&text).expect("a join file");
    client_config(&file.authority, None)
}

fn facts() -> Value {
    serde_json::to_value(model::node::NodeFacts::default()).expect("JSON")
}

fn step(dice: &mut Dice) -> Value {
    let steps =
        [json!("batch"), json!({"number": 0}), json!({"number": u32::MAX}), json!("extern")];
    dice.pick(&steps).clone()
}

fn time(dice: &mut Dice) -> i64 {
    *dice.pick(&[0, 1, -1, i64::MIN, i64::MAX, 1_800_000_000_000])
}

fn amount(dice: &mut Dice) -> u64 {
    *dice.pick(&[0, 1, 1_000_000, u64::MAX, u64::MAX / 2, i64::MAX as u64])
}

fn spread() -> Value {
    json!({
        "total": u64::MAX, "max": u64::MAX, "max_node": u32::MAX, "max_task": u32::MAX, "min": 0,
        "min_node": u32::MAX, "min_task": 7,
    })
}

fn task_usage() -> Value {
    json!({
        "tasks": u32::MAX, "cpu_ms": spread(), "memory": spread(), "virtual_memory": spread(), "pages": spread(),
        "read": spread(), "written": spread(),
    })
}

fn usage(dice: &mut Dice) -> Value {
    let mut usage = json!({
        "cpu_user_us": amount(dice), "cpu_system_us": amount(dice), "memory_peak_bytes": amount(dice),
        "oom_kills": u32::MAX,
    });
    if dice.one_in(2) {
        usage["tasks"] = task_usage();
    }
    if dice.one_in(3) {
        usage["of_steps"] = json!({"user_us": amount(dice), "system_us": amount(dice)});
    }
    usage
}

fn event(dice: &mut Dice) -> Value {
    let number = *dice.pick(&[0, 1, 9, 255, -1, i32::MAX, i32::MIN]);
    let exit = json!({"code": number, "signal": *dice.pick(&[0, 9, 15, 127])});
    match dice.below(6) {
        0 => json!("started"),
        1 => json!({"launch_failed": {"what": "no", "hold": dice.one_in(2)}}),
        2 => json!({"unfit": {"why": "no"}}),
        3 => {
            json!({"step_ended": {"step": step(dice), "exit": exit, "usage": usage(dice), "oom": dice.one_in(2)}})
        }
        4 => json!({"script_ended": {"exit": exit, "oom": false, "timed_out": dice.one_in(2)}}),
        _ => json!({"ended": {
            "exit": exit, "usage": usage(dice), "oom": dice.one_in(2), "timed_out": dice.one_in(3),
            "supervisor_lost": dice.one_in(3),
        }}),
    }
}
