//! A source of machines behind a provider program: docs/machines.md has the protocol.
//!
//! What a program says is held to what it may say. One that lies or hangs harms its own machines alone.

use super::answer_bounds::{self, is_name};
use super::program_call;
use super::source::{
    CreateOrder, DeleteOrder, DiskSource, MachineSource, SourceError, SourceMachine,
};
use model::amount::Bytes;
use model::machine::{FailureKind, OFFERS_MAX, Offer, OfferedGpus, SourceConfig};
use model::price::Price;
use model::printable::printable;
use model::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// The version of the protocol.
const VERSION: u32 = 1;

pub struct ProgramSource {
    pub config: SourceConfig,
    /// An absolute path.
    pub program: String,
    /// The cluster's name, which its machines are tagged with.
    pub cluster: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    error: Option<ErrorAnswer>,
    offers: Option<Vec<Value>>,
    machine: Option<MachineAnswer>,
    machines: Option<Vec<MachineAnswer>>,
    pub deleted: bool,
    /// About disks.
    pub volume: Option<DiskAnswer>,
    pub volumes: Option<Vec<DiskAnswer>>,
    pub devices: Option<Vec<String>>,
    pub detached: bool,
}

#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    kind: FailureKind,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
struct MachineAnswer {
    token: String,
    id: String,
    /// Seconds since the epoch.
    since: Option<i64>,
}

/// A disk as a program tells it.
#[derive(Debug, Deserialize)]
pub(super) struct DiskAnswer {
    pub token: String,
    pub id: String,
    pub zone: Option<String>,
    pub size_gb: Option<u64>,
    /// Dollars an hour.
    pub price: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct OfferAnswer {
    id: String,
    cpus: u32,
    memory_mib: u64,
    #[serde(default)]
    disk_mib: u64,
    gpus: Option<GpusAnswer>,
    #[serde(default)]
    region: String,
    price: f64,
    #[serde(default)]
    spot: bool,
}

#[derive(Debug, Deserialize)]
struct GpusAnswer {
    kind: String,
    count: u32,
    memory_mib: Option<u64>,
}

impl ProgramSource {
    pub(super) fn call(&self, what: &str, more: Value) -> Result<Answer, SourceError> {
        let mut request = json!({"version": VERSION, "call": what, "cluster": self.cluster});
        if let (Value::Object(request), Value::Object(more)) = (&mut request, more) {
            request.extend(more);
        }
        let limit = Duration::from_secs(self.config.call_limit_s.into());
        let program = &self.program;
        let mut text = request.to_string().into_bytes();
        text.push(b'\n');
        let answer = program_call::call(program, text, limit).map_err(SourceError::unknown)?;
        let parsed: Result<Answer, _> = serde_json::from_slice(&answer.text);
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(_) if !answer.status.success() => {
                return Err(SourceError::unknown(format!("{program} ended: {}", answer.status)));
            }
            Err(error) => {
                let text = format!("{program} {what}: its answer is not as expected: {error}");
                return Err(SourceError::unknown(text));
            }
        };
        match parsed.error {
            Some(ErrorAnswer { kind, message }) => {
                let text = printable(&message.chars().take(300).collect::<String>()).to_string();
                Err(SourceError { kind, text })
            }
            None if !answer.status.success() => {
                Err(SourceError::unknown(format!("{program} ended: {}", answer.status)))
            }
            None => Ok(parsed),
        }
    }

    pub(super) fn without(&self, call: &str, key: &str) -> SourceError {
        SourceError::unknown(format!("{} {call}: its answer has no {key:?}", self.program))
    }
}

impl MachineSource for ProgramSource {
    fn offers(&self) -> Result<Vec<Offer>, SourceError> {
        let given = self.call("offers", json!({}))?.offers;
        let given = given.ok_or_else(|| self.without("offers", "offers"))?;
        if given.len() > OFFERS_MAX {
            let text = format!("{} offers: expected at most {OFFERS_MAX}", given.len());
            return Err(SourceError::unknown(text));
        }
        let mut known = HashSet::new();
        let mut offers = Vec::new();
        for one in given {
            match offer(one) {
                Ok(offer) if known.insert(offer.id.clone()) => offers.push(offer),
                Ok(offer) => self.complain(&format!("{}: a second offer of this name", offer.id)),
                Err(why) => self.complain(&why),
            }
        }
        Ok(offers)
    }

    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError> {
        let more = json!({
            "token": order.token,
            "offer": order.offer.id,
            "region": order.offer.region,
            "node": order.node,
            "conf": order.conf,
            "join": order.join,
            "zone": order.zone,
            "reservation": order.options.reservation,
            "tags": order.options.tags,
        });
        let made = self.call("create", more)?.machine;
        let made = made.ok_or_else(|| self.without("create", "machine"))?;
        if made.token != order.token {
            return Err(SourceError::unknown("create: the answer is of another token"));
        }
        named(made)
    }

    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError> {
        let there = self.call("describe", json!({}))?.machines;
        let there = there.ok_or_else(|| self.without("describe", "machines"))?;
        there.into_iter().map(named).collect()
    }

    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError> {
        let answer = self.call("delete", json!({"token": order.token, "id": order.id}))?;
        if answer.deleted { Ok(()) } else { Err(self.without("delete", "deleted")) }
    }

    fn disks(&self) -> Option<&dyn DiskSource> {
        Some(self)
    }
}

impl ProgramSource {
    fn complain(&self, why: &str) {
        tracing::warn!("source {}: an offer is left out: {}", self.config.name, printable(why));
    }
}

fn named(machine: MachineAnswer) -> Result<SourceMachine, SourceError> {
    let MachineAnswer { token, id, since } = machine;
    if !is_name(&token) || !is_name(&id) {
        let text = "a machine's token or id: expected 1 to 256 printable characters";
        return Err(SourceError::unknown(text));
    }
    Ok(SourceMachine { token, id, since: since.map(Timestamp::from_secs) })
}

/// An offer, if it is one that a node could be.
fn offer(given: Value) -> Result<Offer, String> {
    let given: OfferAnswer = serde_json::from_value(given).map_err(|e| e.to_string())?;
    let name = || given.id.chars().take(80).collect::<String>();
    let price = Price::from_dollars(given.price).ok_or_else(|| {
        format!("{:?}: price: expected dollars an hour, from 0 to 1000000", name())
    })?;
    answer_bounds::checked(Offer {
        cpus: given.cpus,
        memory: Bytes::from_mib(given.memory_mib),
        disk: Bytes::from_mib(given.disk_mib),
        gpus: given.gpus.map(|gpus| OfferedGpus {
            kind: gpus.kind,
            count: gpus.count,
            memory: gpus.memory_mib.map(Bytes::from_mib),
        }),
        region: given.region,
        price,
        spot: given.spot,
        id: given.id,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::Command;
    use wire::link::JoinFile;

    /// A source whose program is this shell script; the request is in `$request`. A child writes the script: a process that
    /// another test starts meanwhile would inherit the handle that it is written by, and a file that is open for writing
    /// cannot be executed.
    pub fn source(script: &str) -> (tempfile::TempDir, ProgramSource) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        let text = format!("#!/bin/sh\nread -r request\n{script}\n");
        let write = r#"printf '%s' "$1" > "$2" && chmod 700 "$2""#;
        let mut writer = Command::new("sh");
        let written = writer.args(["-c", write, "sh", &text]).arg(&path).status();
        assert!(written.expect("a shell").success(), "a script");
        let program = path.display().to_string();
        let mut config = SourceConfig::new("cloud", &program);
        config.call_limit_s = 30;
        (dir, ProgramSource { config, program, cluster: "lab".into() })
    }

    fn order() -> CreateOrder {
        let offer = json!({"id": "small", "cpus": 1, "memory_mib": 512, "price": 1.5});
        CreateOrder {
            token: "t1".into(),
            offer: offer_of(offer),
            node: "cloud-1".into(),
            conf: "CPUs=1".into(),
            join: JoinFile {
                version: 1,
                servers: Vec::new(),
                authority: String::new(),
                token: "once".into(),
                nodes: Vec::new(),
                pattern: Some("cloud-1".into()),
                cluster: "lab".into(),
            },
            pod: None,
            registry_auth: None,
            zone: None,
            options: Default::default(),
        }
    }

    fn offer_of(value: Value) -> Offer {
        super::offer(value).expect("an offer")
    }

    #[test]
    fn program_is_asked_in_json_with_nothing_of_the_servers_environment() {
        let echo = r#"case $request in
            *'"call":"create"'*'"token":"t1"'*) ;;
            *) echo '{"error":{"kind":"refused","message":"no token"}}'; exit 1;;
        esac
        echo "{\"machine\":{\"token\":\"t1\",\"id\":\"$(env | grep -c CARGO)\"}}""#;
        let (_dir, source) = source(echo);
        let made = source.create(&order()).expect("it is made");
        assert_eq!((made.token.as_str(), made.id.as_str()), ("t1", "0"));
    }

    #[test]
    fn errors_have_a_kind_and_what_is_no_answer_is_unknown() {
        let table = [
            (
                r#"echo '{"error":{"kind":"no_capacity","message":"sold out"}}'"#,
                FailureKind::NoCapacity,
            ),
            (r#"echo '{"error":{"kind":"quota"}}'; exit 1"#, FailureKind::Quota),
            (r#"echo '{"error":{"kind":"throttled"}}'"#, FailureKind::Throttled),
            (r#"echo '{"error":{"kind":"refused"}}'"#, FailureKind::Refused),
            (r#"echo '{"error":{"kind":"not_found"}}'"#, FailureKind::NotFound),
            (r#"echo '{"error":{"kind":"other"}}'"#, FailureKind::Unknown),
            ("echo garbage", FailureKind::Unknown),
            ("exit 3", FailureKind::Unknown),
            (r#"echo '{}'"#, FailureKind::Unknown),
            (r#"echo '{"machine":{"token":"t2","id":"a"}}'"#, FailureKind::Unknown),
            (r#"echo '{"machine":{"token":"t1","id":""}}'"#, FailureKind::Unknown),
            (r#"echo '{"machine":{"token":"t1","id":"a\nb"}}'"#, FailureKind::Unknown),
            (r#"echo '{"machine":{"token":"t1","id":"a"}}'; exit 1"#, FailureKind::Unknown),
            ("yes", FailureKind::Unknown),
        ];
        for (script, kind) in table {
            let (_dir, source) = source(script);
            assert_eq!(source.create(&order()).map_err(|e| e.kind), Err(kind), "{script}");
        }
    }

    #[test]
    fn program_that_hangs_is_killed_with_what_it_started() {
        let (dir, mut source) = source("echo $$ > \"$0.pid\"; sleep 1000 & sleep 1000");
        source.config.call_limit_s = 1;
        let error = source.describe().expect_err("it hangs");
        assert!(error.text.contains("took longer than 1 s"), "{error}");
        let pid = std::fs::read_to_string(dir.path().join("program.pid")).expect("it ran");
        let pid: i32 = pid.trim().parse().expect("a number");
        let group = nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(pid),
            None::<nix::sys::signal::Signal>,
        );
        // What was killed may be there until it is reaped; what runs on would be found by its state.
        if group.is_ok() {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(state.is_empty() || state.contains(") Z "), "{state}");
        }
    }

    #[test]
    fn offers_that_no_node_could_be_are_left_out_alone() {
        let offers = json!({"offers": [
            {"id": "small", "cpus": 2, "memory_mib": 1024, "price": 0.5, "region": "here"},
            {"id": "small", "cpus": 4, "memory_mib": 1024, "price": 0.1},
            {"id": "paid", "cpus": 2, "memory_mib": 1024, "price": -0.5},
            {"id": "none", "cpus": 0, "memory_mib": 1024, "price": 0.5},
            {"id": "huge", "cpus": 2, "memory_mib": u64::MAX, "price": 0.5},
            {"id": "a\nb", "cpus": 2, "memory_mib": 1024, "price": 0.5},
            {"id": "gpu", "cpus": 2, "memory_mib": 1024, "price": 2,
             "gpus": {"kind": "h100", "count": 8, "memory_mib": 81920}},
            {"id": "odd", "cpus": 2, "memory_mib": 1024, "price": 2, "gpus": {"kind": "a b", "count": 1}},
            "words",
        ]});
        let (_dir, source) = source(&format!("cat <<'END'\n{offers}\nEND"));
        let found = source.offers().expect("an answer");
        let names: Vec<&str> = found.iter().map(|offer| offer.id.as_str()).collect();
        assert_eq!(names, ["small", "gpu"]);
        assert_eq!(
            (found[0].cpus, found[0].price),
            (2, Price::from_dollars(0.5).expect("a price"))
        );
        assert_eq!(found[1].node("n", &[]).gres_total("gpu"), 8);
    }
}
