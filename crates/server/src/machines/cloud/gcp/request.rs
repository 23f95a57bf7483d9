//! The bodies that are sent to Google's API, and what is read of its answers.

use super::super::machine_facts::{gpu_kind, visible_memory};
use super::super::rest::{shown, word};
use crate::machines::source::{SourceError, SourceMachine};
use model::amount::Bytes;
use model::cloud_fleet::InstanceOptions;
use model::cloud_source::CloudConfig;
use model::machine::{FailureKind, OfferedGpus};
use model::time::Timestamp;
use serde_json::{Map, Value, json};

/// The labels of a machine: the cluster that it is of, and the token that it was asked for with.
pub const CLUSTER_LABEL: &str = "sluice-cluster";
pub const TOKEN_LABEL: &str = "sluice-token";

/// The longest value of a label.
const LABEL_BYTES_MAX: usize = 63;

/// Codes of errors, of calls and of operations, and what they are to the caller.
const CODES: [(&str, FailureKind); 10] = [
    ("ZONE_RESOURCE_POOL_EXHAUSTED", FailureKind::NoCapacity),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", FailureKind::NoCapacity),
    ("RESOURCE_POOL_EXHAUSTED", FailureKind::NoCapacity),
    ("resourcePoolExhausted", FailureKind::NoCapacity),
    ("UNSUPPORTED_OPERATION", FailureKind::NoCapacity),
    ("QUOTA_EXCEEDED", FailureKind::Quota),
    ("quotaExceeded", FailureKind::Quota),
    ("rateLimitExceeded", FailureKind::Throttled),
    ("userRateLimitExceeded", FailureKind::Throttled),
    ("RESOURCE_NOT_FOUND", FailureKind::NotFound),
];

/// What Google tells of a type.
pub struct MachineType {
    pub name: String,
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: Option<OfferedGpus>,
    pub is_arm: bool,
}

impl MachineType {
    /// `None` for one that no node could be.
    pub fn read(item: &Value) -> Option<Self> {
        let cpus = u32::try_from(item["guestCpus"].as_u64()?).ok().filter(|count| *count > 0)?;
        let gpus = item.pointer("/accelerators/0").and_then(|of| {
            let count = u32::try_from(of["guestAcceleratorCount"].as_u64()?).ok()?;
            let kind = accelerator_kind(word(of, "/guestAcceleratorType"));
            Some(OfferedGpus { kind, count, memory: None })
        });
        Some(Self {
            name: item["name"].as_str()?.to_owned(),
            cpus,
            memory: visible_memory(item["memoryMb"].as_u64()?),
            gpus: gpus.filter(|gpus| gpus.count > 0),
            is_arm: word(item, "/architecture") == "ARM64",
        })
    }
}

/// The name of a GPU as the agent finds it: `nvidia-tesla-t4` is `t4`, `nvidia-h100-80gb` is `h100`.
fn accelerator_kind(name: &str) -> String {
    let name = name.strip_prefix("nvidia-").unwrap_or(name);
    let name = name.strip_prefix("tesla-").unwrap_or(name);
    gpu_kind(name.split('-').next().unwrap_or(name))
}

/// The region of a zone: `us-central1` of `us-central1-a`.
pub fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}

/// A text as the value of a label: small letters, digits, `-` and `_`.
pub fn label(text: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') => c,
        _ => '-',
    };
    text.chars().map(plain).take(LABEL_BYTES_MAX).collect()
}

/// A value of an address: all but letters, digits and `-_.` is escaped.
pub fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let escape = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(escape).collect()
}

pub struct InsertOrder<'a> {
    pub cloud: &'a CloudConfig,
    pub cluster: &'a str,
    pub zone: &'a str,
    /// In the network that the site names.
    pub subnetwork: Option<&'a str>,
    pub kind: &'a str,
    pub spot: bool,
    pub token: &'a str,
    pub node: &'a str,
    pub script: &'a str,
    pub options: &'a InstanceOptions,
}

impl InsertOrder<'_> {
    /// A UUID of the whole token: one machine is made however often it is asked for, and machines that were asked for in one
    /// decision, whose tokens differ by their numbers alone, have requests of their own.
    pub fn request_id(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.token.as_bytes());
        let mut bytes: Vec<u8> = digest.as_ref().iter().copied().take(16).collect();
        // The marks of a UUID of version 4 (RFC 4122): others may be refused.
        for (at, kept, mark) in [(6, 0x0f, 0x40), (8, 0x3f, 0x80)] {
            bytes[at] = (bytes[at] & kept) | mark;
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
    }

    pub fn body(&self) -> Value {
        let cloud = self.cloud;
        let network = cloud.network.as_deref().unwrap_or("global/networks/default");
        let mut interface = json!({"network": network});
        if let Some(subnetwork) = self.subnetwork {
            interface["subnetwork"] = subnetwork.into();
        }
        // An interface without a configuration of access has no public address.
        if cloud.public_ips != Some(false) {
            interface["accessConfigs"] = json!([{"type": "ONE_TO_ONE_NAT"}]);
        }
        let image = cloud.image(self.zone).unwrap_or_default();
        let tags = cloud.tags_with(&self.options.tags).into_iter();
        let tags = tags.map(|(key, value)| (label(key), Value::from(label(value))));
        let mut labels: Map<String, Value> = tags.collect();
        // A label by which machines are found again is nobody else's.
        labels.insert(CLUSTER_LABEL.to_owned(), label(self.cluster).into());
        labels.insert(TOKEN_LABEL.to_owned(), self.token.into());
        let mut body = json!({
            "name": self.node,
            "machineType": format!("zones/{}/machineTypes/{}", self.zone, self.kind),
            "labels": labels,
            "metadata": {"items": [{"key": "startup-script", "value": self.script}]},
            "tags": {"items": cloud.security_groups},
            "networkInterfaces": [interface],
            "disks": [{
                "boot": true,
                "autoDelete": true,
                "initializeParams": {
                    "sourceImage": image,
                    "diskSizeGb": cloud.disk_gb.to_string(),
                },
            }],
            "scheduling": scheduling(self.spot, self.kind),
        });
        if let (Some(reservation), Value::Object(body)) = (&self.options.reservation, &mut body) {
            let affinity = json!({
                "consumeReservationType": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [reservation],
            });
            body.insert("reservationAffinity".into(), affinity);
        }
        if let (Some(email), Value::Object(body)) = (&cloud.identity, &mut body) {
            let scopes = ["https://www.googleapis.com/auth/cloud-platform"];
            body.insert("serviceAccounts".into(), json!([{"email": email, "scopes": scopes}]));
        }
        body
    }
}

/// Machines with GPUs cannot be moved while they run.
fn scheduling(spot: bool, kind: &str) -> Value {
    let mut found = Map::new();
    if spot {
        found.insert("provisioningModel".into(), "SPOT".into());
        found.insert("instanceTerminationAction".into(), "DELETE".into());
    } else if kind.starts_with('a') || kind.starts_with('g') {
        found.insert("onHostMaintenance".into(), "TERMINATE".into());
    }
    Value::Object(found)
}

/// A machine of a list; its own name is its id.
pub fn machine(item: &Value) -> Option<SourceMachine> {
    let since: Option<jiff::Timestamp> = word(item, "/creationTimestamp").parse().ok();
    Some(SourceMachine {
        id: item["name"].as_str()?.to_owned(),
        token: word(item, &format!("/labels/{TOKEN_LABEL}")).to_owned(),
        since: since.map(|at| Timestamp::from_secs(at.as_second())),
    })
}

/// A failed call.
pub fn failure(what: &str, zone: &str, status: u16, answer: &Value) -> SourceError {
    let reason = word(answer, "/error/errors/0/reason");
    let message = word(answer, "/error/message");
    let known = CODES.iter().find(|(of, _)| *of == reason).map(|(_, kind)| *kind);
    let kind = known.unwrap_or(match status {
        404 => FailureKind::NotFound,
        429 => FailureKind::Throttled,
        500.. => FailureKind::Unknown,
        _ => FailureKind::Refused,
    });
    // What is missing when a machine is made is a zone, an image or a network.
    let is_of_one = what.starts_with("instances/") || what.starts_with("disks/");
    let kind = match kind {
        FailureKind::NotFound if !is_of_one => FailureKind::Refused,
        kind => kind,
    };
    let reason = if reason.is_empty() { format!("status {status}") } else { shown(reason) };
    SourceError { kind, text: format!("{what} in {zone}: {reason}: {}", shown(message)) }
}

/// What an operation that is over failed with, if it did.
pub fn operation_failure(zone: &str, operation: &Value) -> Option<SourceError> {
    let error = operation.pointer("/error/errors/0")?;
    let code = word(error, "/code");
    let known = CODES.iter().find(|(of, _)| *of == code).map(|(_, kind)| *kind);
    let text = format!("in {zone}: {}: {}", shown(code), shown(word(error, "/message")));
    Some(SourceError { kind: known.unwrap_or(FailureKind::Refused), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_asked_for_with_its_labels_and_a_request_of_its_own() {
        let cloud = CloudConfig {
            images: [(String::new(), "images/lab".to_owned())].into(),
            disk_gb: 50,
            tags: [("cost".to_owned(), "7".to_owned())].into(),
            ..CloudConfig::default()
        };
        let token = format!("7-{}", "0123456789abcdef".repeat(2));
        let options = InstanceOptions {
            reservation: Some("night".into()),
            tags: [("Team".to_owned(), "My Vision".to_owned())].into(),
            is_cluster: false,
        };
        let order = InsertOrder {
            options: &options,
            cloud: &cloud,
            cluster: "My Lab",
            zone: "us-central1-a",
            subnetwork: None,
            kind: "g2-standard-4",
            spot: true,
            token: &token,
            node: "gcp-7",
            script: "#!/bin/sh",
        };
        let id = order.request_id();
        assert_eq!(id, order.request_id());
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert_eq!(id.as_bytes()[14], b'4', "{id}");
        let beside = format!("8-{}", "0123456789abcdef".repeat(2));
        let beside = InsertOrder { token: &beside, node: "gcp-8", ..order };
        assert_ne!(beside.request_id(), id, "of the same decision");
        let order = InsertOrder { token: &token, node: "gcp-7", ..beside };
        let body = order.body();
        assert_eq!(word(&body, "/labels/sluice-cluster"), "my-lab");
        assert_eq!(word(&body, "/labels/team"), "my-vision");
        assert_eq!(word(&body, "/labels/cost"), "7", "the source's own");
        assert_eq!(word(&body, "/reservationAffinity/values/0"), "night");
        assert_eq!(word(&body, "/scheduling/provisioningModel"), "SPOT");
        assert_eq!(word(&body, "/disks/0/initializeParams/sourceImage"), "images/lab");
        assert_eq!(word(&body, "/metadata/items/0/value"), "#!/bin/sh");
        assert_eq!(word(&body, "/networkInterfaces/0/accessConfigs/0/type"), "ONE_TO_ONE_NAT");
        let private = CloudConfig { public_ips: Some(false), ..cloud.clone() };
        let subnetwork = Some("projects/net/regions/us-central1/subnetworks/lab");
        let body = InsertOrder { cloud: &private, subnetwork, ..order }.body();
        let network = "global/networks/default";
        let interfaces = json!([{"network": network, "subnetwork": subnetwork}]);
        assert_eq!(body["networkInterfaces"], interfaces);
        assert_eq!(region_of("us-central1-a"), "us-central1");
        assert_eq!(encode("labels.a=b c"), "labels.a%3Db%20c");
    }

    #[test]
    fn types_are_read_with_their_accelerators() {
        let gpu = json!({"guestAcceleratorType": "nvidia-tesla-a100", "guestAcceleratorCount": 1});
        let item = json!({"name": "a2-highgpu-1g", "guestCpus": 12, "memoryMb": 87040,
            "accelerators": [gpu]});
        let found = MachineType::read(&item).expect("a type");
        assert_eq!((found.cpus, found.gpus.map(|gpus| gpus.kind)), (12, Some("a100".to_owned())));
        assert_eq!(accelerator_kind("nvidia-h100-80gb"), "h100");
        assert!(MachineType::read(&json!({"name": "odd"})).is_none());
    }

    #[test]
    fn errors_of_google_have_the_kind_that_the_caller_acts_by() {
        let answer = |reason: &str| json!({"error": {"message": "so\nand so", "errors": [{"reason": reason}]}});
        let table = [
            ("instances", 403, "quotaExceeded", FailureKind::Quota),
            ("instances", 403, "rateLimitExceeded", FailureKind::Throttled),
            ("instances", 403, "forbidden", FailureKind::Refused),
            ("instances", 404, "notFound", FailureKind::Refused),
            ("instances/gcp-1", 404, "notFound", FailureKind::NotFound),
            ("disks/data", 404, "notFound", FailureKind::NotFound),
            ("disks", 404, "notFound", FailureKind::Refused),
            ("instances", 503, "backendError", FailureKind::Unknown),
        ];
        for (what, status, reason, kind) in table {
            let failed = failure(what, "z", status, &answer(reason));
            assert_eq!((failed.kind, failed.text.lines().count()), (kind, 1), "{failed}");
        }
        let full = json!({"status": "DONE", "error": {"errors": [
            {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none"}]}});
        let failed = operation_failure("z", &full).expect("it failed");
        assert_eq!(failed.kind, FailureKind::NoCapacity);
        assert!(operation_failure("z", &json!({"status": "DONE"})).is_none());
    }
}
