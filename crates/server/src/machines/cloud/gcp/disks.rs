//! Persistent disks of Google for volumes of the cluster.

use super::super::prices::Prices;
use super::super::rest::word;
use super::GcpSource;
use super::request::{CLUSTER_LABEL, TOKEN_LABEL, encode, label, region_of};
use crate::machines::source::{
    AttachOrder, DiskMade, DiskOrder, DiskSource, PROJECT_TAG, SourceDisk, SourceError,
};
use model::amount::Bytes;
use model::machine::FailureKind;
use serde_json::{Value, json};

/// The label of a disk that is a volume of the cluster.
const VOLUME_LABEL: &str = "sluice-volume";

/// The kind of new disks.
const DISK_TYPE: &str = "pd-balanced";

/// The zone that disks and their machines are in.
fn zone_of(order: &DiskOrder) -> Result<&str, SourceError> {
    let missing = || SourceError::refused("the volume has no zone");
    order.place.zone.as_deref().ok_or_else(missing)
}

/// A disk's own name is its id. That of a new one follows from its token: no second one can be made.
fn name_of(order: &DiskOrder) -> String {
    let known = order.id.as_ref().or(order.place.existing.as_ref());
    known.cloned().unwrap_or_else(|| format!("sluice-{}", order.token))
}

/// Whether the disk is attached to the machine of this name. Machines are told by their addresses.
fn is_attached(disk: &Value, machine: &str) -> bool {
    let users = disk["users"].as_array().into_iter().flatten().filter_map(Value::as_str);
    users.filter_map(|user| user.rsplit('/').next()).any(|name| name == machine)
}

/// Whether the owner of the account lets the order's project have the disk. A label is short and has small letters alone: a project
/// whose name is another has none.
fn is_tagged(disk: &Value, order: &DiskOrder) -> bool {
    let own = disk["labels"][PROJECT_TAG].as_str();
    own == Some(order.project.as_str()) && label(&order.project) == order.project
}

fn body(cluster: &str, zone: &str, order: &DiskOrder) -> Value {
    json!({
        "name": name_of(order),
        "sizeGb": order.size_gb.to_string(),
        "type": format!("zones/{zone}/diskTypes/{DISK_TYPE}"),
        "labels": {
            CLUSTER_LABEL: label(cluster),
            TOKEN_LABEL: order.token,
            VOLUME_LABEL: label(&order.name),
        },
    })
}

impl GcpSource {
    fn disk(&self, order: &DiskOrder) -> Result<Value, SourceError> {
        self.call("GET", zone_of(order)?, &format!("disks/{}", encode(&name_of(order))), None)
    }

    fn disk_made(&self, zone: &str, disk: &Value) -> Result<DiskMade, SourceError> {
        let prices = Prices::load(self.cloud.prices.as_deref(), "gcp")?;
        let size_gb: Option<u64> = word(disk, "/sizeGb").parse().ok();
        let id = word(disk, "/name").to_owned();
        if id.is_empty() {
            return Err(SourceError::unknown("disks: the answer has no name"));
        }
        let price = size_gb.and_then(|size| prices.disk_price(region_of(zone), size));
        let size = size_gb.map(Bytes::from_gib);
        Ok(DiskMade { id, zone: Some(zone.to_owned()), size, price, ..DiskMade::default() })
    }
}

impl DiskSource for GcpSource {
    fn create_disk(&self, order: &DiskOrder) -> Result<DiskMade, SourceError> {
        let zone = zone_of(order)?;
        match self.disk(order) {
            Ok(found) => {
                if let Some(id) = &order.place.existing {
                    order.check_tag(id, is_tagged(&found, order))?;
                }
                return self.disk_made(zone, &found);
            }
            Err(error) if error.kind != FailureKind::NotFound => return Err(error),
            Err(error) if order.place.existing.is_some() => {
                return Err(SourceError::refused(error.text));
            }
            Err(_) => {}
        }
        let made = self.call("POST", zone, "disks", Some(&body(&self.cluster, zone, order)))?;
        self.finish(zone, made)?;
        self.disk_made(zone, &self.disk(order)?)
    }

    fn attach_disk(&self, order: &AttachOrder) -> Result<Vec<String>, SourceError> {
        let (zone, name) = (zone_of(&order.disk)?, name_of(&order.disk));
        if !is_attached(&self.disk(&order.disk)?, &order.machine) {
            let project = self.cloud.project.as_deref().unwrap_or_default();
            let source = format!("projects/{project}/zones/{zone}/disks/{name}");
            let path = format!("instances/{}/attachDisk", encode(&order.machine));
            let body = json!({"source": source, "deviceName": name});
            let attached = self.call("POST", zone, &path, Some(&body))?;
            self.finish(zone, attached)?;
        }
        Ok(vec![format!("/dev/disk/by-id/google-{name}")])
    }

    fn detach_disk(&self, order: &AttachOrder) -> Result<(), SourceError> {
        let (zone, name) = (zone_of(&order.disk)?, name_of(&order.disk));
        if !is_attached(&self.disk(&order.disk)?, &order.machine) {
            return Ok(());
        }
        let machine = encode(&order.machine);
        let path = format!("instances/{machine}/detachDisk?deviceName={}", encode(&name));
        let detached = self.call("POST", zone, &path, Some(&json!({})))?;
        self.finish(zone, detached)
    }

    fn delete_disk(&self, order: &DiskOrder) -> Result<(), SourceError> {
        let (zone, path) = (zone_of(order)?, format!("disks/{}", encode(&name_of(order))));
        let deleted = self.call("DELETE", zone, &path, None)?;
        self.finish(zone, deleted)
    }

    fn describe_disks(&self) -> Result<Vec<SourceDisk>, SourceError> {
        let filter = encode(&format!("labels.{CLUSTER_LABEL}={}", label(&self.cluster)));
        let mut found = Vec::new();
        for zone in &self.cloud.regions {
            let disks = self.list(zone, &format!("disks?maxResults=500&filter={filter}"))?;
            let own = disks.iter().filter(|of| of["labels"].get(VOLUME_LABEL).is_some());
            found.extend(own.map(|of| SourceDisk {
                token: word(of, &format!("/labels/{TOKEN_LABEL}")).to_owned(),
                id: word(of, "/name").to_owned(),
            }));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cloud_volume::CloudPlace;

    #[test]
    fn disk_has_a_name_by_its_token_its_labels_and_the_machines_that_have_it() {
        let place = CloudPlace { zone: Some("us-central1-a".into()), ..CloudPlace::default() };
        let token = "0123456789abcdef".to_owned();
        let (name, project) = ("data".to_owned(), "main".to_owned());
        let order = DiskOrder { token, name, project, place, size_gb: 10, id: None };
        let asked = body("My Lab", "us-central1-a", &order);
        assert_eq!(word(&asked, "/name"), "sluice-0123456789abcdef");
        assert_eq!(word(&asked, "/labels/sluice-cluster"), "my-lab");
        assert_eq!(word(&asked, "/sizeGb"), "10");
        let disk = json!({"users": ["https://a/projects/lab/zones/z/instances/gcp-7"]});
        assert!(is_attached(&disk, "gcp-7") && !is_attached(&disk, "gcp-70"));
        assert!(!is_attached(&json!({}), "gcp-7"));
        assert!(is_tagged(&json!({"labels": {"sluice-project": "main"}}), &order));
        assert!(!is_tagged(&json!({"labels": {"sluice-project": "other"}}), &order));
        assert!(!is_tagged(&json!({}), &order));
        let named = DiskOrder { id: Some("known".into()), ..order.clone() };
        assert_eq!(name_of(&named), "known");
        let nowhere = DiskOrder { place: CloudPlace::default(), ..order };
        assert!(zone_of(&nowhere).is_err());
    }
}
