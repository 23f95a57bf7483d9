//! What a source offers: a kind of machine, and the node that one of it would be.

use crate::amount::Bytes;
use crate::gres::GPU;
use crate::machine_choice::{MachineKind, SourceRef};
use crate::node::{NodeConfig, NodeGres};
use crate::pod::PodKind;
use crate::price::Price;
use serde::{Deserialize, Serialize};

/// The most offers of one source.
pub const OFFERS_MAX: usize = 10_000;

/// A kind of machine that a source can make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// As the source calls it.
    pub id: String,
    pub cpus: u32,
    pub memory: Bytes,
    #[serde(default)]
    pub disk: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<OfferedGpus>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    pub price: Price,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spot: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedGpus {
    pub kind: String,
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl Offer {
    /// The features of such a machine as a node: its source's, and words of its own by which `--constraint` chooses it: its
    /// type, its region, and `spot` or `on-demand`.
    pub fn features(&self, of_source: &[String]) -> Vec<String> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
        let is_word = |word: &&str| (1..=64).contains(&word.len()) && word.bytes().all(is_plain);
        let mut features = of_source.to_vec();
        for word in self.words().into_iter().filter(is_word) {
            if !features.iter().any(|known| known == word) {
                features.push(word.to_owned());
            }
        }
        features
    }

    /// Whether the word is one of the offer's own features.
    pub fn is_called(&self, word: &str) -> bool {
        !word.is_empty() && self.words().contains(&word)
    }

    /// Its type, region, zone and market; what it has none of is empty.
    fn words(&self) -> [&str; 4] {
        let market = if self.spot { "spot" } else { "on-demand" };
        [self.type_name(), self.region.as_str(), self.zone().unwrap_or_default(), market]
    }

    /// The type of the machine. A source that has a type in several places names its offers `g5.xlarge@eu-west-1a`, and
    /// `g5.xlarge@eu-west-1a/spot`.
    pub fn type_name(&self) -> &str {
        self.id.split('@').next().unwrap_or(&self.id)
    }

    /// The place in the offer's name, where it is not its region.
    pub fn zone(&self) -> Option<&str> {
        let (_, place) = self.id.split_once('@')?;
        place.split('/').next().filter(|zone| !zone.is_empty() && *zone != self.region)
    }

    /// What a node is that is a machine of this kind.
    pub fn kind(&self, source: SourceRef<'_>) -> MachineKind {
        MachineKind {
            source: source.name.to_owned(),
            backend: source.backend.to_owned(),
            offer: self.type_name().to_owned(),
            region: self.region.clone(),
            zone: self.zone().map(str::to_owned),
            open_zone: self.zone().is_none(),
            spot: self.spot,
            pod: match source {
                SourceRef { makes_root_pods: true, .. } => PodKind::ForAnyOrRoot,
                SourceRef { makes_pods: true, .. } => PodKind::ForAny,
                _ => PodKind::NoPod,
            },
            project: source.project.map(str::to_owned),
        }
    }

    /// The same with less: a pod has what its job asks for, in whole MiB, as its agent says it. Its price is that of the largest
    /// of its parts.
    pub fn part(&self, cpus: u32, memory: Bytes, gpus: u32, disk: Bytes) -> Self {
        let has = self.gpus.as_ref().map_or(0, |has| has.count);
        let share = |part: u64, whole: u64| {
            let units = u128::from(self.price.units()) * u128::from(part.min(whole));
            u64::try_from(units.div_ceil(u128::from(whole.max(1)))).unwrap_or(u64::MAX)
        };
        let units = share(cpus.into(), self.cpus.into())
            .max(share(memory.0, self.memory.0))
            .max(share(gpus.into(), has.into()));
        let whole = |amount: Bytes| Bytes::from_mib(amount.0.div_ceil(1 << 20));
        Self {
            cpus: cpus.min(self.cpus),
            memory: whole(memory).min(self.memory),
            disk: whole(disk).min(self.disk),
            gpus: self
                .gpus
                .clone()
                .filter(|_| gpus > 0)
                .map(|has| OfferedGpus { count: gpus.min(has.count), ..has }),
            price: Price::from_units(units),
            ..self.clone()
        }
    }

    /// The node that a machine of this source and kind would be.
    pub fn node_of(&self, source: SourceRef<'_>, name: &str, features: &[String]) -> NodeConfig {
        let machine = Some(Box::new(self.kind(source)));
        NodeConfig { machine, ..self.node(name, features) }
    }

    /// The node that a machine of this kind would be.
    pub fn node(&self, name: &str, features: &[String]) -> NodeConfig {
        let gpus = self.gpus.iter().map(|gpus| NodeGres {
            device_memory: gpus.memory,
            ..NodeGres::plain(GPU, Some(&gpus.kind), u64::from(gpus.count))
        });
        NodeConfig {
            tmp_disk: self.disk,
            features: self.features(features),
            gres: gpus.collect(),
            price: Some(self.price),
            dynamic: true,
            ..NodeConfig::plain(name, self.cpus, self.memory)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_an_offer_is_in_whole_mebibytes_and_costs_the_largest_of_its_parts() {
        let node = Offer {
            id: "node".into(),
            cpus: 16,
            memory: Bytes::from_gib(64),
            disk: Bytes::from_gib(10),
            gpus: Some(OfferedGpus { kind: "a100".into(), count: 8, memory: None }),
            region: String::new(),
            price: Price::from_units(1600),
            spot: false,
        };
        let small = node.part(2, Bytes(16_000_000), 0, Bytes(1));
        assert_eq!((small.cpus, small.memory.mib(), small.disk.mib()), (2, 16, 1));
        assert_eq!((small.gpus, small.price.units()), (None, 200));
        let gpus = node.part(2, Bytes::from_gib(1), 4, Bytes(0));
        assert_eq!((gpus.gpus.map(|gpus| gpus.count), gpus.price.units()), (Some(4), 800));
        assert_eq!(node.part(64, Bytes::from_gib(640), 64, Bytes(0)).price, node.price);
    }

    #[test]
    fn machine_has_its_type_its_region_and_its_market_as_features() {
        let offer = Offer {
            id: "m5.large".into(),
            cpus: 2,
            memory: Bytes::from_gib(8),
            disk: Bytes(0),
            gpus: None,
            region: "eu-west-1".into(),
            price: Price::default(),
            spot: true,
        };
        let cloud = ["cloud".to_owned(), "spot".to_owned()];
        assert_eq!(offer.features(&cloud), ["cloud", "spot", "m5.large", "eu-west-1"]);
        let in_zone = Offer { id: "m5.large@eu-west-1a/spot".into(), ..offer.clone() };
        let words = ["m5.large", "eu-west-1", "eu-west-1a", "spot"];
        assert_eq!(in_zone.features(&[]), words);
        assert!(words.iter().all(|word| in_zone.is_called(word)) && !in_zone.is_called(""));
        assert_eq!(in_zone.kind(SourceRef::named("aws")).zone.as_deref(), Some("eu-west-1a"));
        let odd = Offer { id: "a b".into(), region: String::new(), spot: false, ..offer };
        assert_eq!(odd.node("n", &cloud[..1]).features, ["cloud", "on-demand"]);
    }
}
