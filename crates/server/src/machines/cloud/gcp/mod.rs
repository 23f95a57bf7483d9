//! Google Compute Engine as a source of machines, by its REST API.
//!
//! `token` is what proves who calls; `request` has the bodies that are sent and what is read of answers; `subnetwork` is where in a
//! network of the site's a machine is; `disks` are persistent disks.

mod disks;
mod request;
mod subnetwork;
mod token;

use super::http::Http;
use super::machine_facts::free_disk;
use super::offer_id::{offer_id, place_of, type_of};
use super::prices::Prices;
use super::rest::{self, Call, word};
use super::secret::SecretText;
use super::user_data;
use crate::machines::source::{
    CreateOrder, DeleteOrder, DiskSource, MachineSource, SourceError, SourceMachine,
};
use model::cloud_source::CloudConfig;
use model::machine::{FailureKind, OFFERS_MAX, Offer, SourceConfig};
use request::{InsertOrder, MachineType, encode, failure, label, operation_failure, region_of};
use serde_json::{Value, json};
use std::time::Duration;
use token::AccessTokens;

const ENDPOINT: &str = "https://compute.googleapis.com/compute/v1";

/// The most pages of one list, and how often the end of an operation is asked for.
const PAGES_MAX: usize = 200;
const WAITS_MAX: usize = 5;

/// A machine that is being deleted is not paid for any more.
const LEAVING_STATE: &str = "STOPPING";

pub struct GcpSource {
    name: String,
    cluster: String,
    cloud: CloudConfig,
    http: Http,
    tokens: AccessTokens,
}

impl GcpSource {
    pub fn new(
        config: &SourceConfig,
        cloud: &CloudConfig,
        cluster: &str,
        given: Option<&SecretText>,
    ) -> Self {
        let limit = Duration::from_secs(config.call_limit_s.into());
        Self {
            name: config.name.clone(),
            cluster: cluster.to_owned(),
            cloud: cloud.clone(),
            http: Http::new(cloud, limit),
            tokens: AccessTokens::new(cloud, given, limit),
        }
    }

    /// A call about things of a zone: `instances`, `machineTypes`.
    fn call(
        &self,
        method: &str,
        zone: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, SourceError> {
        let below = format!("projects/{}/zones/{zone}", self.project());
        self.call_below(method, &below, zone, path, body)
    }

    fn project(&self) -> &str {
        self.cloud.project.as_deref().unwrap_or_default()
    }

    /// A call about things of a place: `below` is the path of a zone, or of a region, which may be another project's.
    fn call_below(
        &self,
        method: &str,
        below: &str,
        place: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, SourceError> {
        let endpoint = self.cloud.endpoint.as_deref().unwrap_or(ENDPOINT);
        let url = format!("{endpoint}/{below}/{path}");
        let bearer = self.tokens.token()?;
        let call = Call { method, url: &url, bearer: &bearer, body };
        let (status, answer) = rest::call(&self.http, &call)?;
        let what = path.split('?').next().unwrap_or(path);
        if status == 200 { Ok(answer) } else { Err(failure(what, place, status, &answer)) }
    }

    /// The items of all pages of a list.
    fn list(&self, zone: &str, path: &str) -> Result<Vec<Value>, SourceError> {
        let (mut items, mut page) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let next = if page.is_empty() { page } else { format!("&pageToken={}", encode(&page)) };
            let mut answer = self.call("GET", zone, &format!("{path}{next}"), None)?;
            if let Some(Value::Array(found)) = answer.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            page = word(&answer, "/nextPageToken").to_owned();
            if page.is_empty() {
                return Ok(items);
            }
        }
        Err(SourceError::unknown(format!("{path} in {zone}: more than {PAGES_MAX} pages")))
    }

    /// Waits until an operation is over; what it failed with is the caller's error.
    fn finish(&self, zone: &str, mut operation: Value) -> Result<(), SourceError> {
        for _ in 0..WAITS_MAX {
            if word(&operation, "/status") == "DONE" {
                return operation_failure(zone, &operation).map_or(Ok(()), Err);
            }
            let path = format!("operations/{}/wait", encode(word(&operation, "/name")));
            operation = self.call("POST", zone, &path, Some(&json!({})))?;
        }
        Err(SourceError::unknown(format!("an operation in {zone} is not over yet")))
    }

    /// The machines of a zone with this label, and their names.
    fn instances(
        &self,
        zone: &str,
        key: &str,
        text: &str,
    ) -> Result<Vec<SourceMachine>, SourceError> {
        let filter = encode(&format!("labels.{key}={text}"));
        let found = self.list(zone, &format!("instances?maxResults=500&filter={filter}"))?;
        let live = found.iter().filter(|of| word(of, "/status") != LEAVING_STATE);
        Ok(live.filter_map(request::machine).collect())
    }
}

impl MachineSource for GcpSource {
    fn offers(&self) -> Result<Vec<Offer>, SourceError> {
        let prices = Prices::load(self.cloud.prices.as_deref(), "gcp")?;
        let (mut offers, mut unpriced) = (Vec::new(), 0);
        for zone in &self.cloud.regions {
            let found = self.list(zone, "machineTypes?maxResults=500")?;
            let types = found.iter().filter_map(MachineType::read);
            let types = types.filter(|of| self.cloud.takes_type(&of.name));
            // An image of the other architecture would not start: who has one names the types.
            for of in types.filter(|of| !of.is_arm || !self.cloud.types.is_empty()) {
                let before = offers.len();
                for spot in [false, true].into_iter().filter(|spot| self.cloud.spot.takes(*spot)) {
                    let price = prices.price(region_of(zone), &of.name, spot);
                    offers.extend(price.map(|price| Offer {
                        id: offer_id(&of.name, zone, spot),
                        cpus: of.cpus,
                        memory: of.memory,
                        disk: free_disk(self.cloud.disk_gb.into()),
                        gpus: of.gpus.clone(),
                        region: region_of(zone).to_owned(),
                        price,
                        spot,
                    }));
                }
                unpriced += usize::from(offers.len() == before);
            }
        }
        if offers.is_empty() {
            return Err(prices.nothing_offered(&self.cloud, unpriced));
        }
        if unpriced > 0 {
            let (name, origin) = (&self.name, &prices.origin);
            tracing::info!("source {name}: {unpriced} types have no price in {origin}");
        }
        offers.sort_by_key(|offer| offer.price);
        offers.truncate(OFFERS_MAX);
        Ok(offers)
    }

    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError> {
        let zone = place_of(&order.offer.id);
        let script = user_data::script(&self.cloud, order, Some("gcp"))?;
        let subnetwork = self.subnetwork(zone)?;
        let insert = InsertOrder {
            cloud: &self.cloud,
            subnetwork: subnetwork.as_deref(),
            cluster: &self.cluster,
            zone,
            kind: type_of(&order.offer.id),
            spot: order.offer.spot,
            token: &order.token,
            node: &order.node,
            script: &script,
            options: &order.options,
        };
        let path = format!("instances?requestId={}", insert.request_id());
        let made = self.call("POST", zone, &path, Some(&insert.body()));
        let found = || -> Result<Option<SourceMachine>, SourceError> {
            Ok(self.instances(zone, request::TOKEN_LABEL, &order.token)?.into_iter().next())
        };
        match made {
            Ok(operation) => self.finish(zone, operation)?,
            // The join token in the script is a new one each time: the same request is another one.
            Err(error) => return found()?.ok_or(error),
        }
        let unseen = || SourceError::unknown("it was made, and cannot be seen yet");
        found()?.ok_or_else(unseen)
    }

    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError> {
        let mut found = Vec::new();
        for zone in &self.cloud.regions {
            found.extend(self.instances(zone, request::CLUSTER_LABEL, &label(&self.cluster))?);
        }
        Ok(found)
    }

    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError> {
        let zone = place_of(&order.offer);
        let name = match &order.id {
            Some(name) => Some(name.clone()),
            None => {
                let found = self.instances(zone, request::TOKEN_LABEL, &order.token)?;
                found.into_iter().next().map(|machine| machine.id)
            }
        };
        let unseen = || SourceError {
            kind: FailureKind::NotFound,
            text: format!("no machine in {zone} has its token"),
        };
        let name = name.ok_or_else(unseen)?;
        let operation = self.call("DELETE", zone, &format!("instances/{}", encode(&name)), None)?;
        self.finish(zone, operation)
    }

    fn disks(&self) -> Option<&dyn DiskSource> {
        Some(self)
    }
}
