//! The subnets that machines are made in: those that the site names, or one of each zone of its VPC, which EC2 tells.

use super::api::{Form, items, parse, value};
use super::{Ec2Source, FACTS_LIFE, PAGE};
use crate::machines::source::SourceError;
use std::collections::BTreeMap;
use std::time::Instant;

impl Ec2Source {
    /// The subnet of each zone of a region; empty where its machines are in the default VPC.
    pub(super) fn subnets(&self, region: &str) -> Result<BTreeMap<String, String>, SourceError> {
        let named = self.cloud.subnets.iter();
        let named = named.filter(|(zone, _)| self.region_of(zone) == Some(region));
        let named: BTreeMap<String, String> =
            named.map(|(zone, subnet)| (zone.clone(), subnet.clone())).collect();
        let has_vpc = self.cloud.vpc_name.is_some() || self.cloud.vpc_ids.contains_key(region);
        if !named.is_empty() || !has_vpc {
            return Ok(named);
        }
        if let Some((at, subnets)) = self.facts().subnets.get(region)
            && at.elapsed() < FACTS_LIFE
        {
            return Ok(subnets.clone());
        }
        let vpc = self.vpc(region)?;
        let found = self.subnets_of(region, &vpc)?;
        if found.is_empty() {
            let why = format!("VPC {vpc}: no subnet of it is available in {region}");
            return Err(SourceError::refused(why));
        }
        self.facts().subnets.insert(region.to_owned(), (Instant::now(), found.clone()));
        Ok(found)
    }

    /// The subnet of a machine in this place: a zone, or a region whose machines are in its default VPC. A zone without a subnet is
    /// refused: there the machine would be in another VPC than the site says.
    pub(super) fn subnet(&self, region: &str, place: &str) -> Result<Option<String>, SourceError> {
        let mut subnets = self.subnets(region)?;
        let found = subnets.remove(place);
        if found.is_none() && !subnets.is_empty() {
            let zones: Vec<String> = subnets.into_keys().collect();
            let why = format!("{place}: no subnet there, only in {}", zones.join(", "));
            return Err(SourceError::refused(why));
        }
        Ok(found)
    }

    /// The id of the VPC that the site says of a region.
    fn vpc(&self, region: &str) -> Result<String, SourceError> {
        if let Some(id) = self.cloud.vpc_ids.get(region) {
            return Ok(id.clone());
        }
        let name = self.cloud.vpc_name.as_deref().unwrap_or_default();
        let form = Form::default().with_filter(1, "tag:Name", [name]);
        let text = self.api.call(region, "DescribeVpcs", &form)?;
        let document = parse("DescribeVpcs", &text)?;
        let found = items(document.root_element(), "vpcSet");
        let ids: Vec<&str> = found.iter().filter_map(|item| value(*item, "vpcId")).collect();
        match ids.as_slice() {
            [id] => Ok((*id).to_owned()),
            [] => Err(SourceError::refused(format!("VPC {name}: there is none in {region}"))),
            more => Err(SourceError::refused(format!(
                "VPC {name}: there are {} in {region}: name one by vpc_ids",
                more.len()
            ))),
        }
    }

    /// One subnet of each zone of a VPC: one whose machines have public addresses, or none, as the site says it, where there is one.
    fn subnets_of(&self, region: &str, vpc: &str) -> Result<BTreeMap<String, String>, SourceError> {
        let wants_public = self.cloud.public_ips.unwrap_or(true);
        let form = Form::default().with("MaxResults", PAGE).with_filter(1, "vpc-id", [vpc]);
        let mut found: BTreeMap<String, (bool, String)> = BTreeMap::new();
        self.api.call_pages(region, "DescribeSubnets", &form, |root| {
            for item in items(root, "subnetSet") {
                let pair = (value(item, "availabilityZone"), value(item, "subnetId"));
                let is_there = value(item, "state").is_none_or(|state| state == "available");
                let ((Some(zone), Some(id)), true) = (pair, is_there) else { continue };
                let is_public = value(item, "mapPublicIpOnLaunch") == Some("true");
                let one = (is_public != wants_public, id.to_owned());
                let best = found.entry(zone.to_owned()).or_insert_with(|| one.clone());
                if one < *best {
                    *best = one;
                }
            }
        })?;
        Ok(found.into_iter().map(|(zone, (_, id))| (zone, id)).collect())
    }
}
