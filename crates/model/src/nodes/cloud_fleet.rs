//! A fleet of dstack's language whose instances are machines of sources: `nodes: 0..8`.

use crate::amount::Bytes;
use crate::fleet::Blocks;
use crate::machine::Offer;
use crate::machine_choice::{MachineChoice, SourceRef};
use crate::price::Price;
use crate::range::Range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which machines a fleet has made, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudFleet {
    /// How many instances are kept, even where nothing runs.
    pub min: u32,
    /// How many instances are made when the fleet is applied.
    pub target: u32,
    /// Whether there were so many since then, or as many as its sources could make: from then on `min` are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target_reached: bool,
    /// `None` for as many as its sources may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    #[serde(default)]
    pub choice: MachineChoice,
    /// The most that an hour of one may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_max: Option<Price>,
    #[serde(default)]
    pub bounds: OfferBounds,
    pub blocks: Blocks,
    #[serde(default, skip_serializing_if = "InstanceOptions::is_usual")]
    pub options: InstanceOptions,
}

/// What the source is told of each instance beside its type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceOptions {
    /// The cloud's own name of capacity that is reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// `placement: cluster`: the instances are close together, where the cloud and the type can be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cluster: bool,
}

impl InstanceOptions {
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What an offer must have; `None` is anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferBounds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Range<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Range<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Range<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuBounds>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuBounds {
    /// Any of these; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    pub count: Range<u32>,
    /// The memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Range<Bytes>>,
}

impl CloudFleet {
    /// How many instances it is to have also where nothing runs.
    pub fn wanted(&self) -> u32 {
        if self.target_reached { self.min } else { self.target.max(self.min) }
    }

    /// Whether an instance of the fleet may be such a machine.
    pub fn allows(&self, source: SourceRef<'_>, offer: &Offer) -> bool {
        self.choice.allows(&offer.kind(source))
            && self.price_max.is_none_or(|most| offer.price <= most)
            && self.bounds.hold(offer)
    }
}

impl OfferBounds {
    fn hold(&self, offer: &Offer) -> bool {
        let is_gpu_well = |bounds: &GpuBounds| match &offer.gpus {
            None => bounds.count.contains(&0),
            Some(gpus) => {
                let is_kind = |kind: &String| kind.eq_ignore_ascii_case(&gpus.kind);
                bounds.count.contains(&gpus.count)
                    && (bounds.kinds.is_empty() || bounds.kinds.iter().any(is_kind))
                    && match (&bounds.memory, &gpus.memory) {
                        (Some(asked), Some(has)) => asked.contains(has),
                        // A source that does not tell it may have it.
                        _ => true,
                    }
            }
        };
        // A source that does not tell its disks may have them.
        let has_disk = |asked: &Range<Bytes>| offer.disk == Bytes(0) || asked.contains(&offer.disk);
        self.cpus.as_ref().is_none_or(|asked| asked.contains(&offer.cpus))
            && self.memory.as_ref().is_none_or(|asked| asked.contains(&offer.memory))
            && self.disk.as_ref().is_none_or(has_disk)
            && self.gpus.as_ref().is_none_or(is_gpu_well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::OfferedGpus;

    #[test]
    fn fleet_takes_offers_within_its_bounds_and_its_price() {
        let memory = Some(Bytes::from_gib(80));
        let gpus = OfferedGpus { kind: "h100".into(), count: 8, memory };
        let offer = Offer {
            id: "p5".into(),
            cpus: 192,
            memory: Bytes::from_gib(2000),
            disk: Bytes::from_gib(100),
            gpus: Some(gpus),
            region: "us".into(),
            price: Price::from_dollars(30.0).expect("a price"),
            spot: false,
        };
        let fleet = CloudFleet {
            min: 0,
            target: 0,
            target_reached: false,
            max: Some(8),
            choice: MachineChoice::default(),
            price_max: Price::from_dollars(40.0),
            bounds: OfferBounds::default(),
            blocks: Blocks::Count(1),
            options: InstanceOptions::default(),
        };
        let aws = SourceRef::named("aws");
        assert!(fleet.allows(aws, &offer));
        let with = |bounds: OfferBounds| CloudFleet { bounds, ..fleet.clone() };
        let gpu = |kinds: &[&str], count: Range<u32>| OfferBounds {
            gpus: Some(GpuBounds {
                kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
                count,
                memory: Some(Range::at_least(Bytes::from_gib(40))),
            }),
            ..OfferBounds::default()
        };
        let cpus = |cpus| OfferBounds { cpus: Some(cpus), ..OfferBounds::default() };
        assert!(with(gpu(&["H100"], Range::at_least(1))).allows(aws, &offer));
        assert!(!with(gpu(&["A100"], Range::at_least(1))).allows(aws, &offer));
        assert!(!with(gpu(&[], Range::exactly(4))).allows(aws, &offer));
        assert!(with(cpus(Range::at_least(64))).allows(aws, &offer));
        assert!(!with(cpus(Range::between(1, 64))).allows(aws, &offer));
        let dear = CloudFleet { price_max: Price::from_dollars(20.0), ..fleet.clone() };
        assert!(!dear.allows(aws, &offer));
        let spot = Offer { spot: true, ..offer };
        assert!(!fleet.allows(aws, &spot));
    }
}
