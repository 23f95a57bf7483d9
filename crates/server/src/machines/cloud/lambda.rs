//! Lambda Cloud as a source of machines, by its documented API.
//!
//! It knows no token of ours: a machine's name is the cluster and the token, and whether it was made is looked up before it is.

use super::http::Http;
use super::machine_facts::{free_disk, gpu_kind, visible_memory};
use super::offer_id::{offer_id, type_of};
use super::rest::{self, Call, shown, word};
use super::secret::{CredentialText, SecretText};
use super::user_data;
use crate::machines::source::{
    CreateOrder, DeleteOrder, MachineSource, SourceError, SourceMachine,
};
use cluster::machine_reconcile::CONSISTENCY_DELAY;
use model::amount::Bytes;
use model::cloud_source::CloudConfig;
use model::machine::{FailureKind, Offer, OfferedGpus, SourceConfig};
use model::price::Price;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const ENDPOINT: &str = "https://cloud.lambda.ai/api/v1";

/// The longest name of a machine.
const NAME_BYTES_MAX: usize = 64;

/// The states in which a machine is there.
const LIVE_STATES: [&str; 3] = ["active", "booting", "unhealthy"];

pub struct LambdaSource {
    cluster: String,
    cloud: CloudConfig,
    credentials: Option<CredentialText>,
    http: Http,
    launches: Launches,
}

/// Launches of which it is not known what they did, by token. A machine of theirs may not be listed yet: a launch that is made
/// again at once would make a second one.
#[derive(Default)]
struct Launches(Mutex<HashMap<String, Instant>>);

impl Launches {
    /// Whether a machine may be launched for the token now; if so, that launch counts from now on.
    fn begin(&self, token: &str, now: Instant) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, begun| now.duration_since(*begun) < CONSISTENCY_DELAY);
        let is_first = !open.contains_key(token);
        if is_first {
            open.insert(token.to_owned(), now);
        }
        is_first
    }

    /// It is known what the launch did.
    fn end(&self, token: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }
}

impl LambdaSource {
    pub fn new(
        config: &SourceConfig,
        cloud: &CloudConfig,
        cluster: &str,
        given: Option<&SecretText>,
    ) -> Self {
        let limit = Duration::from_secs(config.call_limit_s.into());
        Self {
            cluster: cluster.to_owned(),
            cloud: cloud.clone(),
            credentials: CredentialText::of(cloud.credentials.as_ref(), given),
            http: Http::new(cloud, limit),
            launches: Launches::default(),
        }
    }

    fn key(&self) -> Result<SecretText, SourceError> {
        let missing = || SourceError::refused("credentials: missing: expected an API key");
        let text = self.credentials.as_ref().ok_or_else(missing)?;
        let (place, key) = (text.place(), text.read()?);
        match key.expose().trim() {
            "" => Err(SourceError::refused(format!("credentials: {place}: expected an API key"))),
            key => Ok(SecretText::new(key)),
        }
    }

    /// What is in `data` of an answer.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, SourceError> {
        let endpoint = self.cloud.endpoint.as_deref().unwrap_or(ENDPOINT);
        let url = format!("{endpoint}{path}");
        let bearer = self.key()?;
        let call = Call { method, url: &url, bearer: &bearer, body };
        let (status, mut answer) = rest::call(&self.http, &call)?;
        if status != 200 {
            return Err(failure(path, status, &answer));
        }
        let without = || SourceError::unknown(format!("{path}: the answer has no data"));
        answer.get_mut("data").map(Value::take).ok_or_else(without)
    }

    fn name(&self, token: &str) -> Result<String, SourceError> {
        let name = format!("{}/{token}", self.cluster);
        if name.len() > NAME_BYTES_MAX {
            let most = NAME_BYTES_MAX - token.len().min(NAME_BYTES_MAX);
            let why = format!("ClusterName {}: expected less than {most} letters", self.cluster);
            return Err(SourceError::refused(why));
        }
        Ok(name)
    }

    fn find(&self, token: &str) -> Result<Option<SourceMachine>, SourceError> {
        Ok(self.describe()?.into_iter().find(|machine| machine.token == token))
    }

    /// The offers of one type: in each region that has some now, or else in the first, so that a job may wait for it.
    fn offers_of(&self, of: &Value) -> Vec<Offer> {
        let kind = &of["instance_type"];
        let (name, specs) = (word(kind, "/name"), &kind["specs"]);
        let number = |key: &str| specs[key].as_u64().unwrap_or(0);
        let cents = kind["price_cents_per_hour"].as_f64();
        let price = cents.and_then(|cents| Price::from_dollars(cents / 100.0));
        let cpus = u32::try_from(number("vcpus")).unwrap_or(0);
        let Some(price) = price.filter(|_| cpus > 0 && self.cloud.takes_type(name)) else {
            return Vec::new();
        };
        let there = of["regions_with_capacity_available"].as_array();
        let there: Vec<&str> =
            there.into_iter().flatten().map(|region| word(region, "/name")).collect();
        let regions = self.cloud.regions.iter().map(String::as_str);
        let mut regions: Vec<&str> = regions.filter(|region| there.contains(region)).collect();
        if regions.is_empty() {
            regions.extend(self.cloud.regions.first().map(String::as_str));
        }
        let gpus = gpus(word(kind, "/gpu_description"), number("gpus"));
        let offer = |region: &str| Offer {
            id: offer_id(name, region, false),
            cpus,
            memory: visible_memory(number("memory_gib").saturating_mul(1024)),
            disk: free_disk(number("storage_gib")),
            gpus: gpus.clone(),
            region: region.to_owned(),
            price,
            spot: false,
        };
        regions.into_iter().map(offer).collect()
    }
}

impl MachineSource for LambdaSource {
    fn offers(&self) -> Result<Vec<Offer>, SourceError> {
        let types = self.call("GET", "/instance-types", None)?;
        let types = types.as_object().into_iter().flat_map(|types| types.values());
        let offers: Vec<Offer> = types.flat_map(|of| self.offers_of(of)).collect();
        if offers.is_empty() {
            return Err(SourceError::refused("no type can be offered: none is as types says"));
        }
        Ok(offers)
    }

    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError> {
        if let Some(made) = self.find(&order.token)? {
            return Ok(made);
        }
        let body = json!({
            "region_name": order.offer.region,
            "instance_type_name": type_of(&order.offer.id),
            "ssh_key_names": [self.cloud.ssh_key],
            "name": self.name(&order.token)?,
            "user_data": user_data::script(&self.cloud, order, None)?,
        });
        if !self.launches.begin(&order.token, Instant::now()) {
            let why = "launch: it is not known whether it was made, and it may not be listed yet";
            return Err(SourceError::unknown(why));
        }
        let made = self.call("POST", "/instance-operations/launch", Some(&body));
        if made.as_ref().is_err_and(|error| error.kind != FailureKind::Unknown) {
            self.launches.end(&order.token);
        }
        let made = made?;
        let id = word(&made, "/instance_ids/0");
        if id.is_empty() {
            return Err(SourceError::unknown("launch: the answer has no instance"));
        }
        self.launches.end(&order.token);
        Ok(SourceMachine { token: order.token.clone(), id: id.to_owned(), since: None })
    }

    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError> {
        let told = self.call("GET", "/instances", None)?;
        let Some(told) = told.as_array() else {
            return Err(SourceError::unknown("instances: the answer is no list"));
        };
        let live = told.iter().filter(|of| LIVE_STATES.contains(&word(of, "/status")));
        let ours = live.filter_map(|of| {
            let (cluster, token) = word(of, "/name").split_once('/')?;
            (cluster == self.cluster).then(|| SourceMachine {
                token: token.to_owned(),
                id: word(of, "/id").to_owned(),
                since: None,
            })
        });
        Ok(ours.collect())
    }

    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError> {
        let id = match &order.id {
            Some(id) => Some(id.clone()),
            None => self.find(&order.token)?.map(|machine| machine.id),
        };
        let unseen = || SourceError {
            kind: FailureKind::NotFound,
            text: "no machine has its token".to_owned(),
        };
        let body = json!({"instance_ids": [id.ok_or_else(unseen)?]});
        self.call("POST", "/instance-operations/terminate", Some(&body)).map(drop)
    }
}

/// The GPUs of a description: `A100 (40 GB SXM4)`.
fn gpus(description: &str, count: u64) -> Option<OfferedGpus> {
    let (name, more) = description.split_once(" (").unwrap_or((description, ""));
    let gib = more.split(' ').next().and_then(|text| text.parse::<u64>().ok());
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    let memory = gib.map(|gib| Bytes::from_mib(gib.saturating_mul(1024)));
    Some(OfferedGpus { kind: gpu_kind(name), count, memory })
}

fn failure(path: &str, status: u16, answer: &Value) -> SourceError {
    let (code, message) = (word(answer, "/error/code"), word(answer, "/error/message"));
    let kind = match (code, status) {
        (code, _) if code.ends_with("insufficient-capacity") => FailureKind::NoCapacity,
        (code, _) if code.ends_with("quota-exceeded") => FailureKind::Quota,
        (_, 429) => FailureKind::Throttled,
        ("global/object-does-not-exist", _) | (_, 404) => FailureKind::NotFound,
        (_, 500..) => FailureKind::Unknown,
        _ => FailureKind::Refused,
    };
    let code = if code.is_empty() { format!("status {status}") } else { shown(code) };
    SourceError { kind, text: format!("{path}: {code}: {}", shown(message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_offered_where_there_are_some_and_else_in_the_first_region() {
        let cloud = CloudConfig {
            regions: vec!["us-1".into(), "us-2".into()],
            credentials: Some("/nowhere".into()),
            ..CloudConfig::default()
        };
        let config = SourceConfig::new("lambda", "/none");
        let source = LambdaSource::new(&config, &cloud, "lab", None);
        let of = |regions: Value| {
            json!({
                "instance_type": {
                    "name": "gpu_1x_a100",
                    "price_cents_per_hour": 129,
                    "gpu_description": "A100 (40 GB SXM4)",
                    "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 512, "gpus": 1},
                },
                "regions_with_capacity_available": regions,
            })
        };
        let offers = source.offers_of(&of(json!([{"name": "us-2"}, {"name": "elsewhere"}])));
        assert_eq!(offers.len(), 1);
        assert_eq!(offers[0].id, "gpu_1x_a100@us-2");
        assert_eq!(Some(offers[0].price), Price::from_dollars(1.29));
        let gpus = offers[0].gpus.as_ref().expect("a GPU");
        assert_eq!((gpus.kind.as_str(), gpus.memory), ("a100", Some(Bytes::from_gib(40))));
        assert_eq!(source.offers_of(&of(json!([])))[0].region, "us-1");
        assert!(source.offers_of(&json!({"instance_type": "odd"})).is_empty());
        assert!(source.name(&"x".repeat(64)).is_err());
    }

    #[test]
    fn launch_without_an_answer_is_not_made_again_before_its_machine_would_be_listed() {
        let (launches, now) = (Launches::default(), Instant::now());
        assert!(launches.begin("one", now) && launches.begin("two", now));
        assert!(!launches.begin("one", now + CONSISTENCY_DELAY / 2));
        launches.end("two");
        assert!(launches.begin("two", now), "its answer is known");
        assert!(launches.begin("one", now + CONSISTENCY_DELAY));
    }

    #[test]
    fn errors_of_lambda_have_the_kind_that_the_caller_acts_by() {
        let of = |status: u16, code: &str| {
            failure("/p", status, &json!({"error": {"code": code, "message": "so\nand so"}}))
        };
        let table = [
            (400, "instance-operations/launch/insufficient-capacity", FailureKind::NoCapacity),
            (400, "global/quota-exceeded", FailureKind::Quota),
            (429, "global/too-many-requests", FailureKind::Throttled),
            (404, "global/object-does-not-exist", FailureKind::NotFound),
            (401, "global/invalid-api-key", FailureKind::Refused),
            (500, "global/internal-error", FailureKind::Unknown),
        ];
        for (status, code, kind) in table {
            let failed = of(status, code);
            assert_eq!((failed.kind, failed.text.lines().count()), (kind, 1), "{failed}");
        }
        assert_eq!(failure("/p", 502, &Value::Null).kind, FailureKind::Unknown);
    }
}
