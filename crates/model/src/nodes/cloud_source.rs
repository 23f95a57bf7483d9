//! Who makes the machines of a source: a provider program, or a cloud by its own API, with what the site says of it.

use crate::pod_source::KubernetesConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kinds of sources, each with what it needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A provider program: an absolute path.
    Program(String),
    /// Amazon EC2.
    Aws(Box<CloudConfig>),
    /// Google Compute Engine.
    Gcp(Box<CloudConfig>),
    /// Lambda Cloud.
    Lambda(Box<CloudConfig>),
    /// Pods of a Kubernetes cluster.
    Kubernetes(Box<KubernetesConfig>),
}

impl SourceKind {
    /// The names of the kinds, as in sluice.toml.
    pub const NAMES: [&str; 5] = ["program", "aws", "gcp", "lambda", "kubernetes"];

    pub fn name(&self) -> &'static str {
        match self {
            Self::Program(_) => "program",
            Self::Aws(_) => "aws",
            Self::Gcp(_) => "gcp",
            Self::Lambda(_) => "lambda",
            Self::Kubernetes(_) => "kubernetes",
        }
    }

    /// Whether its machines are never the server's own. A provider program's may be.
    pub fn is_elsewhere(&self) -> bool {
        !matches!(self, Self::Program(_))
    }

    /// What a cloud is configured with; `None` for a provider program and for pods.
    pub fn cloud(&self) -> Option<&CloudConfig> {
        match self {
            Self::Program(_) | Self::Kubernetes(_) => None,
            Self::Aws(cloud) | Self::Gcp(cloud) | Self::Lambda(cloud) => Some(cloud),
        }
    }

    /// The price file is that of the other one, where this one names none.
    pub fn keep_prices(&mut self, of: &Self) {
        let (Self::Aws(cloud) | Self::Gcp(cloud) | Self::Lambda(cloud)) = self else { return };
        if cloud.prices.is_none() {
            cloud.prices = of.cloud().and_then(|of| of.prices.clone());
        }
    }

    /// What of it decides whose machines are seen, where that differs from the other one: by it, machines that were made before
    /// would not be found.
    pub fn other_owner(&self, other: &Self) -> Option<&'static str> {
        let (own, other) = match (self, other) {
            (Self::Program(own), Self::Program(other)) => {
                return (own != other).then_some("program");
            }
            (Self::Kubernetes(own), Self::Kubernetes(other)) => {
                let keys = [
                    ("kubeconfig", &own.kubeconfig, &other.kubeconfig),
                    ("context", &own.context, &other.context),
                    ("namespace", &own.namespace, &other.namespace),
                ];
                return keys.into_iter().find(|(_, own, other)| own != other).map(|(key, ..)| key);
            }
            (Self::Aws(own), Self::Aws(other))
            | (Self::Gcp(own), Self::Gcp(other))
            | (Self::Lambda(own), Self::Lambda(other)) => (own, other),
            _ => return Some("kind"),
        };
        let keys = [
            ("project", &own.project, &other.project),
            ("endpoint", &own.endpoint, &other.endpoint),
            ("credentials", &own.credentials, &other.credentials),
        ];
        keys.into_iter().find(|(_, own, other)| own != other).map(|(key, ..)| key)
    }

    /// How long the jobs of a spot machine run on after the notice that it will be taken back: EC2 gives two minutes, Google
    /// half a minute; a pod that is evicted has what its manifest says, of which most is for the jobs' own end.
    pub fn interruption_grace_s(&self) -> u32 {
        match self {
            Self::Gcp(_) => 15,
            Self::Kubernetes(_) => 5,
            Self::Program(_) | Self::Aws(_) | Self::Lambda(_) => 90,
        }
    }
}

/// What the site says of a cloud. It holds no secret: credentials are in the file that it names, in the server's environment,
/// or with the metadata service of the server's own machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudConfig {
    /// Regions that machines are made in, the preferred one first; for Google, zones.
    pub regions: Vec<String>,
    /// The address of the API, where it is not the cloud's public one. `{region}` in it is the region.
    pub endpoint: Option<String>,
    /// The address of the metadata service of the server's machine and of the machines that are made.
    pub metadata: Option<String>,
    /// The file with the credentials.
    pub credentials: Option<String>,
    /// The file with prices, where those that the program carries do not count.
    pub prices: Option<String>,
    /// Types of machines, with `*` for any letters; none: every type that has a price.
    pub types: Vec<String>,
    pub spot: SpotPolicy,
    /// The image of each region's machines, or of all for the key `""`.
    pub images: BTreeMap<String, String>,
    /// The disk of each machine.
    pub disk_gb: u32,
    /// Lines of a shell script that install the program on the machine; empty: the image has it.
    pub install: String,
    /// EC2: the subnet of each zone. An offer is made for each of these zones; without them, one for each region.
    pub subnets: BTreeMap<String, String>,
    /// EC2: the VPC of a region's machines, by id. EC2 tells its subnets, where `subnets` names none in the region.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vpc_ids: BTreeMap<String, String>,
    /// EC2: the name of the VPC that every region has, in the place of `vpc_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_name: Option<String>,
    /// Whether machines have public addresses; `None`: as their subnet says it (EC2), or yes (Google).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_ips: Option<bool>,
    /// EC2: images that are known by their names. They count before `images`.
    #[serde(skip_serializing_if = "OsImages::is_empty")]
    pub os_images: OsImages,
    /// EC2: by id. Google: network tags.
    pub security_groups: Vec<String>,
    /// EC2: the instance profile, by name. Google: the service account, by mail address.
    pub identity: Option<String>,
    /// EC2: machines of types that can be are made in one placement group for each zone.
    pub placement_group: bool,
    /// EC2: machines of types that have the Elastic Fabric Adapter get one.
    pub efa: bool,
    /// Google: the project.
    pub project: Option<String>,
    /// Google: the network, as the API names it.
    pub network: Option<String>,
    /// Lambda: the name of the SSH key that it makes no machine without.
    pub ssh_key: Option<String>,
    /// EC2: tags of each machine. Google: labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Images of EC2 by their names: of machines without GPUs, and of machines with GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsImages {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<OsImage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<OsImage>,
}

impl OsImages {
    pub fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.nvidia.is_none()
    }

    /// Whether every machine's image is known by its name.
    pub fn are_all(&self) -> bool {
        self.cpu.is_some() && self.nvidia.is_some()
    }

    pub fn of(&self, has_gpus: bool) -> Option<&OsImage> {
        if has_gpus { self.nvidia.as_ref() } else { self.cpu.as_ref() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsImage {
    pub name: String,
    /// The account that the image is of, by its number, or `self`.
    pub owner: String,
}

/// Which machines a source may make: those that stay, those that the cloud may take back, or both, the cheaper first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpotPolicy {
    #[default]
    OnDemand,
    Spot,
    Auto,
}

impl SpotPolicy {
    pub fn takes(self, spot: bool) -> bool {
        match self {
            Self::OnDemand => !spot,
            Self::Spot => spot,
            Self::Auto => true,
        }
    }
}

impl CloudConfig {
    /// Whether machines of this type may be made.
    pub fn takes_type(&self, name: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|pattern| is_like(pattern, name))
    }

    /// The tags of a machine: the source's, and those of its fleet, which count before them.
    pub fn tags_with<'a>(
        &'a self,
        of_fleet: &'a BTreeMap<String, String>,
    ) -> BTreeMap<&'a str, &'a str> {
        let both = self.tags.iter().chain(of_fleet);
        both.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    pub fn image(&self, region: &str) -> Option<&str> {
        let found = self.images.get(region).or_else(|| self.images.get(""));
        found.map(String::as_str)
    }
}

/// Whether a name is as the pattern says, in which `*` is any number of letters.
fn is_like(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_has_the_same_machines_while_what_it_asks_and_as_whom_stays() {
        let program = |path: &str| SourceKind::Program(path.to_owned());
        let cloud = CloudConfig { credentials: Some("/etc/a".into()), ..CloudConfig::default() };
        let aws = |cloud: CloudConfig| SourceKind::Aws(Box::new(cloud));
        assert_eq!(program("/a").other_owner(&program("/a")), None);
        assert_eq!(program("/a").other_owner(&program("/b")), Some("program"));
        assert_eq!(program("/a").other_owner(&aws(cloud.clone())), Some("kind"));
        let key = CloudConfig { credentials: Some("/etc/b".into()), ..cloud.clone() };
        let types = CloudConfig { types: vec!["g5.*".into()], ..cloud.clone() };
        assert_eq!(aws(cloud.clone()).other_owner(&aws(key)), Some("credentials"));
        assert_eq!(aws(cloud).other_owner(&aws(types)), None);
    }

    #[test]
    fn types_are_taken_by_patterns() {
        let cloud = |types: &[&str]| CloudConfig {
            types: types.iter().map(|text| (*text).to_owned()).collect(),
            ..CloudConfig::default()
        };
        assert!(cloud(&[]).takes_type("p5.48xlarge"));
        let table = [
            ("g5.xlarge", "g5.xlarge", true),
            ("g5.xlarge", "g5.xlarge2", false),
            ("g5.*", "g5.xlarge", true),
            ("g5.*", "g5g.xlarge", false),
            ("*.metal", "m5.metal", true),
            ("*.metal", "m5.metal-24xl", false),
            ("p*.48*", "p5.48xlarge", true),
            ("*", "any", true),
            ("a*a", "a", false),
        ];
        for (pattern, name, is_taken) in table {
            assert_eq!(cloud(&[pattern]).takes_type(name), is_taken, "{pattern} {name}");
        }
    }
}
