//! Volumes of EBS for volumes of the cluster.

use super::super::prices::Prices;
use super::api::{ApiError, Form, items, parse, value};
use super::{CLUSTER_TAG, Ec2Source, TOKEN_TAG};
use crate::machines::source::{
    AttachOrder, DiskMade, DiskOrder, DiskSource, PROJECT_TAG, SourceDisk, SourceError,
};
use model::amount::Bytes;
use model::machine::FailureKind;
use roxmltree::Node;

/// The tag of a disk that is a volume of the cluster: the disks of machines have the other tags too.
const VOLUME_TAG: &str = "sluice-volume";

/// The states in which there is a disk.
const LIVE_STATES: [&str; 3] = ["creating", "available", "in-use"];

/// The letters of the devices that EC2 recommends for further disks: `/dev/sdf` and on.
const DEVICE_LETTERS: std::ops::RangeInclusive<char> = 'f'..='p';

/// A disk as EC2 tells it.
struct Volume {
    id: String,
    token: String,
    zone: Option<String>,
    size_gb: Option<u64>,
    is_of_volume: bool,
    /// The project that may register it.
    project: Option<String>,
    /// The machine that it is attached to, and the device's name there.
    attached: Option<(String, String)>,
}

/// `None` for a disk that is not there any more.
fn read(item: Node<'_, '_>) -> Option<Volume> {
    let state = value(item, "status").unwrap_or_default();
    if !LIVE_STATES.contains(&state) {
        return None;
    }
    let tags = items(item, "tagSet");
    let tag = |key: &str| {
        let found = tags.iter().find(|tag| value(**tag, "key") == Some(key));
        found.and_then(|tag| value(*tag, "value"))
    };
    let attachments = items(item, "attachmentSet");
    let attached = attachments.iter().find_map(|of| {
        let is_gone = value(*of, "status") == Some("detached");
        let machine = value(*of, "instanceId").filter(|_| !is_gone)?;
        Some((machine.to_owned(), value(*of, "device").unwrap_or_default().to_owned()))
    });
    Some(Volume {
        id: value(item, "volumeId")?.to_owned(),
        token: tag(TOKEN_TAG).unwrap_or_default().to_owned(),
        zone: value(item, "availabilityZone").map(str::to_owned),
        size_gb: value(item, "size").and_then(|size| size.parse().ok()),
        is_of_volume: tag(VOLUME_TAG).is_some(),
        project: tag(PROJECT_TAG).map(str::to_owned),
        attached,
    })
}

/// The device files at which Linux may have a disk: on machines of today by the disk's own number, on older ones by the letter.
fn devices(id: &str, device: &str) -> Vec<String> {
    let serial = id.replace('-', "");
    let letter = device.trim_start_matches("/dev/sd").trim_start_matches("/dev/xvd");
    vec![
        format!("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{serial}"),
        format!("/dev/xvd{letter}"),
        format!("/dev/sd{letter}"),
    ]
}

impl Ec2Source {
    fn list_disks(&self, region: &str, form: &Form) -> Result<Vec<Volume>, ApiError> {
        let mut found = Vec::new();
        self.api.call_pages(region, "DescribeVolumes", form, |root| {
            found.extend(items(root, "volumeSet").into_iter().filter_map(read));
        })?;
        Ok(found)
    }

    /// The disk of this id; the cloud says itself that there is none.
    fn disk(&self, region: &str, id: &str) -> Result<Volume, SourceError> {
        let form = Form::default().with_list("VolumeId", [id]);
        let found = self.list_disks(region, &form)?.into_iter().next();
        found.ok_or_else(|| SourceError::not_found(format!("no disk {id} in {region}")))
    }

    fn disk_of_token(&self, region: &str, token: &str) -> Result<Option<Volume>, SourceError> {
        let form = Form::default()
            .with_filter(1, &format!("tag:{CLUSTER_TAG}"), [self.cluster.as_str()])
            .with_filter(2, &format!("tag:{TOKEN_TAG}"), [token]);
        Ok(self.list_disks(region, &form)?.into_iter().find(|of| of.is_of_volume))
    }

    /// The disk of an order, by its id or by its token.
    fn known_disk(&self, order: &DiskOrder) -> Result<Volume, SourceError> {
        let region = order.place.region.as_str();
        if let Some(id) = &order.id {
            return self.disk(region, id);
        }
        let found = self.disk_of_token(region, &order.token)?;
        found.ok_or_else(|| SourceError::not_found(format!("no disk in {region} has its token")))
    }

    /// The zone of a new disk: the one that is asked for, else one that machines can be in.
    fn disk_zone(&self, order: &DiskOrder) -> Result<String, SourceError> {
        let region = order.place.region.as_str();
        if let Some(zone) = &order.place.zone {
            return Ok(zone.clone());
        }
        if let Some(zone) = self.subnets(region)?.into_keys().next() {
            return Ok(zone);
        }
        let form = Form::default().with_filter(1, "state", ["available"]);
        let text = self.api.call(region, "DescribeAvailabilityZones", &form)?;
        let document = parse("DescribeAvailabilityZones", &text)?;
        let zones = items(document.root_element(), "availabilityZoneInfo");
        let mut zones: Vec<&str> = zones.iter().filter_map(|of| value(*of, "zoneName")).collect();
        zones.sort_unstable();
        let first = zones.first().map(|zone| (*zone).to_owned());
        first.ok_or_else(|| SourceError::refused(format!("no zone is available in {region}")))
    }

    fn made(&self, region: &str, disk: Volume) -> Result<DiskMade, SourceError> {
        let prices = Prices::load(self.cloud.prices.as_deref(), "aws")?;
        let price = disk.size_gb.and_then(|size| prices.disk_price(region, size));
        let size = disk.size_gb.map(Bytes::from_gib);
        Ok(DiskMade { id: disk.id, zone: disk.zone, size, price, ..DiskMade::default() })
    }
}

impl DiskSource for Ec2Source {
    fn create_disk(&self, order: &DiskOrder) -> Result<DiskMade, SourceError> {
        let region = order.place.region.as_str();
        if let Some(id) = &order.place.existing {
            let found = self.disk(region, id).map_err(|error| match error.kind {
                FailureKind::NotFound => SourceError::refused(error.text),
                _ => error,
            })?;
            order.check_tag(id, found.project.as_ref() == Some(&order.project))?;
            return self.made(region, found);
        }
        if let Some(found) = self.disk_of_token(region, &order.token)? {
            return self.made(region, found);
        }
        let zone = self.disk_zone(order)?;
        let mut form = Form::default()
            .with("AvailabilityZone", &*zone)
            .with("Size", order.size_gb.to_string())
            .with("VolumeType", "gp3")
            .with("ClientToken", &*order.token)
            .with("TagSpecification.1.ResourceType", "volume");
        let tags = [
            ("Name", order.name.as_str()),
            (CLUSTER_TAG, self.cluster.as_str()),
            (TOKEN_TAG, order.token.as_str()),
            (VOLUME_TAG, order.name.as_str()),
        ];
        for (at, (key, text)) in tags.into_iter().enumerate() {
            let tag = format!("TagSpecification.1.Tag.{}", at + 1);
            form = form.with(&format!("{tag}.Key"), key).with(&format!("{tag}.Value"), text);
        }
        let text = self.api.call(region, "CreateVolume", &form)?;
        let document = parse("CreateVolume", &text)?;
        let made = read(document.root_element());
        let made = made.ok_or_else(|| SourceError::unknown("CreateVolume: it has no volume"))?;
        self.made(region, Volume { zone: made.zone.or(Some(zone)), ..made })
    }

    fn attach_disk(&self, order: &AttachOrder) -> Result<Vec<String>, SourceError> {
        let region = order.disk.place.region.as_str();
        let disk = self.known_disk(&order.disk)?;
        if let Some((machine, device)) = &disk.attached {
            if *machine == order.machine {
                return Ok(devices(&disk.id, device));
            }
            let why = format!("disk {} is still attached to {machine}", disk.id);
            return Err(SourceError::unknown(why));
        }
        let form = Form::default().with_filter(1, "attachment.instance-id", [&*order.machine]);
        let others = self.list_disks(region, &form)?;
        let is_taken = |letter: &char| {
            let mut devices = others.iter().filter_map(|of| Some(&of.attached.as_ref()?.1));
            devices.any(|device| device.ends_with(*letter))
        };
        let mut letters = DEVICE_LETTERS;
        let letter = letters.find(|letter| !is_taken(letter));
        let full = || SourceError::refused(format!("{} has no room for a disk", order.machine));
        let device = format!("/dev/sd{}", letter.ok_or_else(full)?);
        let form = Form::default()
            .with("VolumeId", &*disk.id)
            .with("InstanceId", &*order.machine)
            .with("Device", &*device);
        self.api.call(region, "AttachVolume", &form)?;
        Ok(devices(&disk.id, &device))
    }

    fn detach_disk(&self, order: &AttachOrder) -> Result<(), SourceError> {
        let region = order.disk.place.region.as_str();
        let is_attached = |disk: &Volume| {
            disk.attached.as_ref().is_some_and(|(machine, _)| *machine == order.machine)
        };
        let disk = self.known_disk(&order.disk)?;
        if !is_attached(&disk) {
            return Ok(());
        }
        let form = Form::default().with("VolumeId", &*disk.id).with("InstanceId", &*order.machine);
        self.api.call(region, "DetachVolume", &form)?;
        if is_attached(&self.disk(region, &disk.id)?) {
            return Err(SourceError::unknown(format!("disk {} is being detached", disk.id)));
        }
        Ok(())
    }

    fn delete_disk(&self, order: &DiskOrder) -> Result<(), SourceError> {
        let disk = self.known_disk(order)?;
        let form = Form::default().with("VolumeId", &*disk.id);
        Ok(self.api.call(&order.place.region, "DeleteVolume", &form).map(drop)?)
    }

    fn describe_disks(&self) -> Result<Vec<SourceDisk>, SourceError> {
        let form = Form::default().with("MaxResults", "500");
        let form = form.with_filter(1, &format!("tag:{CLUSTER_TAG}"), [self.cluster.as_str()]);
        let mut found = Vec::new();
        for region in &self.cloud.regions {
            let disks = self.list_disks(region, &form)?.into_iter().filter(|of| of.is_of_volume);
            found.extend(disks.map(|of| SourceDisk { token: of.token, id: of.id }));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_looked_for_by_its_own_number_and_by_its_letter() {
        let found = devices("vol-0ab", "/dev/sdg");
        assert_eq!(found[0], "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0ab");
        assert_eq!(found[1..], ["/dev/xvdg", "/dev/sdg"]);
    }
}
