//! Amazon EC2 as a source of machines, by its own HTTP API.
//!
//! `sign` is the signature of a call, `credentials` the key for it, `api` one call, `instance_type` what EC2 tells of its types,
//! `offer_list` the offers that come of it, `images` and `subnets` what machines are made from and where, `run_instances` the form of
//! a machine's making, `disks` the volumes of EBS.

mod api;
mod credentials;
mod disks;
mod images;
mod instance_type;
mod offer_list;
mod run_instances;
mod sign;
mod subnets;
#[cfg(test)]
mod tests;

use super::offer_id::{place_of, type_of};
use super::secret::SecretText;
use super::user_data;
use crate::machines::source::{
    CreateOrder, DeleteOrder, DiskSource, MachineSource, SourceError, SourceMachine,
};
use api::{Api, ApiError, Form, items, parse, value};
use instance_type::InstanceType;
use model::cloud_source::CloudConfig;
use model::machine::{FailureKind, Offer, SourceConfig};
use model::price::Price;
use model::time::Timestamp;
use roxmltree::Node;
use run_instances::{Image, RunOrder};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The tags of a machine: the cluster that it is of, and the token that it was asked for with.
pub const CLUSTER_TAG: &str = "sluice-cluster";
pub const TOKEN_TAG: &str = "sluice-token";

/// The states in which a machine is there. One that is being shut down is not paid for any more.
const LIVE_STATES: [&str; 4] = ["pending", "running", "stopping", "stopped"];

/// How long what EC2 told of its types and images is good.
const FACTS_LIFE: Duration = Duration::from_secs(3600);

/// The most machines in one answer.
const PAGE: &str = "1000";

pub struct Ec2Source {
    name: String,
    cluster: String,
    cloud: CloudConfig,
    api: Api,
    facts: Mutex<Facts>,
}

/// What was asked before.
#[derive(Default)]
struct Facts {
    /// By region.
    types: HashMap<String, (Instant, Vec<InstanceType>)>,
    /// By region, and by what was asked for there.
    images: HashMap<(String, String), (Instant, Image)>,
    /// The subnet of each zone of a VPC, by region.
    subnets: HashMap<String, (Instant, BTreeMap<String, String>)>,
    /// The spot prices that were told last, by zone and type. They move all the time: what moves little is not told anew.
    spot_prices: HashMap<(String, String), Price>,
}

impl Ec2Source {
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
            api: Api::new(cloud, given, limit),
            cloud: cloud.clone(),
            facts: Mutex::default(),
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region of one of its zones.
    fn region_of(&self, zone: &str) -> Option<&str> {
        let regions = self.cloud.regions.iter().filter(|region| zone.starts_with(*region));
        regions.max_by_key(|region| region.len()).map(String::as_str)
    }

    /// What EC2 tells of the types of a region.
    fn types(&self, region: &str) -> Result<Vec<InstanceType>, SourceError> {
        if let Some((at, types)) = self.facts().types.get(region)
            && at.elapsed() < FACTS_LIFE
        {
            return Ok(types.clone());
        }
        let mut form = Form::default().with("MaxResults", "100");
        if !self.cloud.types.is_empty() {
            let patterns = self.cloud.types.iter().map(String::as_str);
            form = form.with_filter(1, "instance-type", patterns);
        }
        let mut types = Vec::new();
        self.api.call_pages(region, "DescribeInstanceTypes", &form, |root| {
            let all = items(root, "instanceTypeSet").into_iter();
            types.extend(all.filter_map(InstanceType::read));
        })?;
        types.retain(|of: &InstanceType| self.cloud.takes_type(&of.name));
        self.facts().types.insert(region.to_owned(), (Instant::now(), types.clone()));
        Ok(types)
    }

    /// The machines of a region with these values of tags.
    fn list(&self, region: &str, tags: &[(&str, &str)]) -> Result<Vec<SourceMachine>, ApiError> {
        let form = Form::default().with("MaxResults", PAGE);
        let mut form = form.with_filter(1, "instance-state-name", LIVE_STATES);
        for (at, (tag, text)) in tags.iter().enumerate() {
            form = form.with_filter(at + 2, &format!("tag:{tag}"), [*text]);
        }
        let mut found = Vec::new();
        self.api.call_pages(region, "DescribeInstances", &form, |root| {
            for reservation in items(root, "reservationSet") {
                found.extend(items(reservation, "instancesSet").into_iter().filter_map(machine));
            }
        })?;
        Ok(found)
    }

    fn find(&self, region: &str, token: &str) -> Result<Option<SourceMachine>, ApiError> {
        let tags = [(CLUSTER_TAG, self.cluster.as_str()), (TOKEN_TAG, token)];
        Ok(self.list(region, &tags)?.into_iter().next())
    }

    /// Makes the machine. Where there was an earlier call with this token, EC2 either answers as it did then or says that the
    /// call is another: the join token in the user data is a new one each time.
    fn run(&self, region: &str, form: &Form, token: &str) -> Result<SourceMachine, ApiError> {
        let answer = self.api.call(region, "RunInstances", form);
        let text = match answer {
            Err(failed) if failed.code == "IdempotentParameterMismatch" => {
                let found = self.find(region, token)?;
                let unseen = || SourceError::unknown("it was made before, and cannot be seen yet");
                return Ok(found.ok_or_else(unseen)?);
            }
            answer => answer?,
        };
        let document = parse("RunInstances", &text)?;
        let made = items(document.root_element(), "instancesSet");
        let made = made.first();
        let state = made.and_then(|made| value(*made, "instanceState/name"));
        if matches!(state, Some("shutting-down" | "terminated")) {
            let text = "it was taken back at once".to_owned();
            return Err(SourceError { kind: FailureKind::NoCapacity, text }.into());
        }
        let id = made.and_then(|made| value(*made, "instanceId")).filter(|id| !id.is_empty());
        let without = || SourceError::unknown("RunInstances: the answer has no instance");
        let id = id.ok_or_else(without)?.to_owned();
        let since = made.and_then(|made| launched(*made));
        Ok(SourceMachine { token: token.to_owned(), id, since })
    }

    fn terminate(&self, region: &str, id: &str) -> Result<(), ApiError> {
        let form = Form::default().with_list("InstanceId", [id]);
        self.api.call(region, "TerminateInstances", &form).map(drop)
    }
}

impl MachineSource for Ec2Source {
    fn offers(&self) -> Result<Vec<Offer>, SourceError> {
        self.list_offers()
    }

    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError> {
        let region = order.offer.region.as_str();
        let name = type_of(&order.offer.id);
        let types = self.types(region)?;
        let kind = types.iter().find(|of| of.name == name);
        let missing = || SourceError::refused(format!("{name}: no such type in {region}"));
        let kind = kind.ok_or_else(missing)?;
        let image = self.image(region, kind.gpus.is_some())?;
        let place = order.zone.as_deref().unwrap_or_else(|| place_of(&order.offer.id));
        let subnet = self.subnet(region, place)?;
        let script = user_data::script(&self.cloud, order, Some("aws"))?;
        let run = RunOrder {
            source: &self.name,
            cluster: &self.cluster,
            cloud: &self.cloud,
            kind,
            image: &image,
            place,
            subnet: subnet.as_deref(),
            zone: order.zone.as_deref(),
            options: &order.options,
            spot: order.offer.spot,
            token: &order.token,
            node: &order.node,
            user_data: &script,
        };
        let form = run.form();
        let made = match self.run(region, &form, &order.token) {
            Err(failed) if failed.code == "InvalidPlacementGroup.Unknown" => {
                self.create_placement_group(region, &run.placement_group())?;
                self.run(region, &form, &order.token)
            }
            made => made,
        };
        Ok(made?)
    }

    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError> {
        let mut found = Vec::new();
        for region in &self.cloud.regions {
            found.extend(self.list(region, &[(CLUSTER_TAG, self.cluster.as_str())])?);
        }
        Ok(found)
    }

    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError> {
        let region = order.region.as_str();
        let known = match &order.id {
            Some(id) => Some(id.clone()),
            None => self.find(region, &order.token)?.map(|machine| machine.id),
        };
        let unseen = || SourceError {
            kind: FailureKind::NotFound,
            text: format!("no machine in {region} has its token"),
        };
        Ok(self.terminate(region, &known.ok_or_else(unseen)?)?)
    }

    fn disks(&self) -> Option<&dyn DiskSource> {
        Some(self)
    }
}

impl Ec2Source {
    /// Makes a placement group that is missing. One that another call has made meanwhile is as good.
    fn create_placement_group(&self, region: &str, name: &str) -> Result<(), SourceError> {
        let form = Form::default().with("GroupName", name).with("Strategy", "cluster");
        match self.api.call(region, "CreatePlacementGroup", &form) {
            Err(failed) if failed.code != "InvalidPlacementGroup.Duplicate" => Err(failed.error),
            _ => Ok(()),
        }
    }
}

/// A machine of DescribeInstances; one without our token has the token that is empty, and is a stranger.
fn machine(item: Node<'_, '_>) -> Option<SourceMachine> {
    let id = value(item, "instanceId")?.to_owned();
    let state = value(item, "instanceState/name").unwrap_or_default();
    if !LIVE_STATES.contains(&state) {
        return None;
    }
    let tags = items(item, "tagSet");
    let token = tags.iter().find(|tag| value(**tag, "key") == Some(TOKEN_TAG));
    let token = token.and_then(|tag| value(*tag, "value")).unwrap_or_default().to_owned();
    Some(SourceMachine { token, id, since: launched(item) })
}

/// When a machine was made: it is paid for since then.
fn launched(item: Node<'_, '_>) -> Option<Timestamp> {
    let at: jiff::Timestamp = value(item, "launchTime")?.parse().ok()?;
    Some(Timestamp::from_secs(at.as_second()))
}
