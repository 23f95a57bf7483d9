//! The form of a machine's making: where, from which image, with which network, disk and tags.

use super::api::Form;
use super::instance_type::InstanceType;
use super::{CLUSTER_TAG, TOKEN_TAG};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::cloud_fleet::InstanceOptions;
use model::cloud_source::CloudConfig;

/// What EC2 tells of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub architecture: String,
    pub root_device: String,
}

/// How the tags begin that say what is the cluster's.
const OWN_TAGS: &str = "sluice-";

/// The most tags of one thing.
const TAGS_MAX: usize = 50;

pub struct RunOrder<'a> {
    pub source: &'a str,
    pub cluster: &'a str,
    pub cloud: &'a CloudConfig,
    pub kind: &'a InstanceType,
    pub image: &'a Image,
    /// A region or a zone.
    pub place: &'a str,
    pub subnet: Option<&'a str>,
    /// The zone that it must be in; a subnet of the zone says it already.
    pub zone: Option<&'a str>,
    pub options: &'a InstanceOptions,
    pub spot: bool,
    pub token: &'a str,
    pub node: &'a str,
    pub user_data: &'a str,
}

impl RunOrder<'_> {
    /// A group is in one zone: each place has its own.
    pub fn placement_group(&self) -> String {
        format!("sluice-{}-{}-{}", self.cluster, self.source, self.place)
    }

    pub fn form(&self) -> Form {
        let own = [("Name", self.node), (CLUSTER_TAG, self.cluster), (TOKEN_TAG, self.token)];
        let given = self.cloud.tags_with(&self.options.tags).into_iter();
        // A tag by which machines and disks are known again is nobody else's: it goes to the disk of the machine too.
        let given = given.filter(|(key, _)| *key != "Name" && !key.starts_with(OWN_TAGS));
        let tags: Vec<(&str, &str)> = own.into_iter().chain(given).take(TAGS_MAX).collect();
        let mut form = Form::default()
            .with("ImageId", &*self.image.id)
            .with("InstanceType", &*self.kind.name)
            .with("MinCount", "1")
            .with("MaxCount", "1")
            .with("ClientToken", self.token)
            .with("UserData", STANDARD.encode(self.user_data))
            .with("MetadataOptions.HttpTokens", "required")
            .with("BlockDeviceMapping.1.DeviceName", &*self.image.root_device)
            .with("BlockDeviceMapping.1.Ebs.VolumeSize", self.cloud.disk_gb.to_string())
            .with("BlockDeviceMapping.1.Ebs.VolumeType", "gp3")
            .with("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true");
        for (at, kind) in ["instance", "volume"].into_iter().enumerate() {
            let of = format!("TagSpecification.{}", at + 1);
            form = form.with(&format!("{of}.ResourceType"), kind);
            for (at, (key, value)) in tags.iter().copied().enumerate() {
                let tag = format!("{of}.Tag.{}", at + 1);
                form = form.with(&format!("{tag}.Key"), key).with(&format!("{tag}.Value"), value);
            }
        }
        if let Some(zone) = self.zone.filter(|_| self.subnet.is_none()) {
            form = form.with("Placement.AvailabilityZone", zone);
        }
        if let Some(profile) = &self.cloud.identity {
            form = form.with("IamInstanceProfile.Name", &**profile);
        }
        let is_close = self.cloud.placement_group || self.options.is_cluster;
        if is_close && self.kind.has_cluster_placement {
            form = form.with("Placement.GroupName", self.placement_group());
        }
        if let Some(reservation) = &self.options.reservation {
            let target = "CapacityReservationSpecification.CapacityReservationTarget";
            form = form.with(&format!("{target}.CapacityReservationId"), &**reservation);
        }
        self.with_network(self.with_market(form))
    }

    /// A machine that stays is deleted too when it shuts itself down: nobody would start it again.
    fn with_market(&self, form: Form) -> Form {
        if self.spot {
            let options = "InstanceMarketOptions.SpotOptions";
            form.with("InstanceMarketOptions.MarketType", "spot")
                .with(&format!("{options}.SpotInstanceType"), "one-time")
                .with(&format!("{options}.InstanceInterruptionBehavior"), "terminate")
        } else {
            form.with("InstanceInitiatedShutdownBehavior", "terminate")
        }
    }

    /// The subnet and the security groups are the machine's, or those of its first interface where something is said of that.
    fn with_network(&self, mut form: Form) -> Form {
        let groups = self.cloud.security_groups.iter().map(String::as_str);
        let has_adapter = self.cloud.efa && self.kind.has_efa;
        let (owner, group) = if has_adapter || self.cloud.public_ips.is_some() {
            form = form
                .with("NetworkInterface.1.DeviceIndex", "0")
                .with("NetworkInterface.1.DeleteOnTermination", "true");
            ("NetworkInterface.1.", "NetworkInterface.1.SecurityGroupId")
        } else {
            ("", "SecurityGroupId")
        };
        if has_adapter {
            form = form.with("NetworkInterface.1.InterfaceType", "efa");
        }
        if let Some(public) = self.cloud.public_ips {
            form = form.with("NetworkInterface.1.AssociatePublicIpAddress", public.to_string());
        }
        if let Some(subnet) = self.subnet {
            form = form.with(&format!("{owner}SubnetId"), subnet);
        }
        form.with_list(group, groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;

    #[test]
    fn form_has_what_the_site_and_the_type_say() {
        let kind = InstanceType {
            name: "p5.48xlarge".into(),
            cpus: 192,
            memory: Bytes::from_gib(2000),
            gpus: None,
            architectures: vec!["x86_64".into()],
            has_spot: true,
            has_efa: true,
            has_cluster_placement: true,
        };
        let image = Image {
            id: "ami-1".into(),
            architecture: "x86_64".into(),
            root_device: "/dev/xvda".into(),
        };
        let plain = CloudConfig { disk_gb: 50, ..CloudConfig::default() };
        let options = InstanceOptions {
            reservation: Some("cr-1".into()),
            tags: ["Name", "sluice-project", "sluice-token", "sluice-volume", "team"]
                .map(|key| (key.to_owned(), "vision".to_owned()))
                .into(),
            is_cluster: false,
        };
        let order = |cloud, subnet, spot| RunOrder {
            source: "ec2",
            cluster: "lab",
            cloud,
            kind: &kind,
            image: &image,
            place: "eu-west-1a",
            subnet,
            zone: Some("eu-west-1a"),
            options: &options,
            spot,
            token: "1-ab",
            node: "ec2-1",
            user_data: "#!/bin/sh\n",
        };
        let form = order(&plain, None, false).form();
        for (name, value) in [
            ("TagSpecification.1.Tag.4.Key", "team"),
            ("TagSpecification.2.Tag.4.Key", "team"),
            ("TagSpecification.1.Tag.1.Value", "ec2-1"),
            (
                "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
                "cr-1",
            ),
            ("ClientToken", "1-ab"),
            ("UserData", "IyEvYmluL3NoCg=="),
            ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
            ("TagSpecification.1.Tag.3.Value", "1-ab"),
            ("TagSpecification.2.ResourceType", "volume"),
            ("InstanceInitiatedShutdownBehavior", "terminate"),
            ("Placement.AvailabilityZone", "eu-west-1a"),
        ] {
            assert_eq!(form.value(name), Some(value), "{name}");
        }
        for name in ["Placement.GroupName", "SubnetId", "InstanceMarketOptions.MarketType"] {
            assert_eq!(form.value(name), None, "{name}");
        }
        let full = CloudConfig {
            efa: true,
            placement_group: true,
            security_groups: vec!["sg-1".into()],
            identity: Some("nodes".into()),
            tags: [("team", "all"), ("cost", "7")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..plain.clone()
        };
        let form = order(&full, Some("subnet-1"), true).form();
        for (name, value) in [
            ("Placement.GroupName", "sluice-lab-ec2-eu-west-1a"),
            ("NetworkInterface.1.InterfaceType", "efa"),
            ("NetworkInterface.1.SubnetId", "subnet-1"),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
            ("IamInstanceProfile.Name", "nodes"),
            ("TagSpecification.1.Tag.4.Key", "cost"),
            ("TagSpecification.1.Tag.5.Key", "team"),
            ("TagSpecification.1.Tag.5.Value", "vision"),
            ("InstanceMarketOptions.MarketType", "spot"),
        ] {
            assert_eq!(form.value(name), Some(value), "{name}");
        }
        assert_eq!((form.value("SubnetId"), form.value("SecurityGroupId.1")), (None, None));
        let public = "NetworkInterface.1.AssociatePublicIpAddress";
        assert_eq!((form.value("Placement.AvailabilityZone"), form.value(public)), (None, None));
        let private = CloudConfig { public_ips: Some(false), efa: false, ..full.clone() };
        let form = order(&private, Some("subnet-1"), false).form();
        for (name, value) in [
            (public, Some("false")),
            ("NetworkInterface.1.DeviceIndex", Some("0")),
            ("NetworkInterface.1.SubnetId", Some("subnet-1")),
            ("NetworkInterface.1.SecurityGroupId.1", Some("sg-1")),
            ("NetworkInterface.1.InterfaceType", None),
            ("SubnetId", None),
        ] {
            assert_eq!(form.value(name), value, "{name}");
        }
    }
}
