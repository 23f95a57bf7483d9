//! `[source.cloud]` of sluice.toml: the cloud that makes a source's machines by its own API.

use model::cloud_source::{CloudConfig, OsImage, OsImages, SpotPolicy};
use model::container::is_plain_path;
use model::printable::is_unprintable;
use serde::Deserialize;
use std::collections::BTreeMap;

const REGIONS_MAX: usize = 64;
const LIST_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;
/// EC2 takes 50, of which some are the cluster's own and some a fleet's.
const TAGS_MAX: usize = 40;
const DISK_GB_MAX: u32 = 64 << 10;
const DISK_GB: u32 = 100;

/// The longest script: EC2 takes 16 KiB of user data with what the server adds to it.
const INSTALL_BYTES_MAX: usize = 8 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloudToml {
    regions: Option<Vec<String>>,
    endpoint: Option<String>,
    metadata: Option<String>,
    credentials: Option<String>,
    prices: Option<String>,
    types: Option<Vec<String>>,
    spot: Option<String>,
    image: Option<String>,
    images: Option<BTreeMap<String, String>>,
    disk_gb: Option<u32>,
    install: Option<String>,
    subnets: Option<BTreeMap<String, String>>,
    vpc_ids: Option<BTreeMap<String, String>>,
    vpc_name: Option<String>,
    default_vpcs: Option<bool>,
    public_ips: Option<bool>,
    os_images: Option<OsImagesToml>,
    security_groups: Option<Vec<String>>,
    identity: Option<String>,
    placement_group: Option<bool>,
    efa: Option<bool>,
    project: Option<String>,
    network: Option<String>,
    ssh_key: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    /// The credentials are in no file: they are given beside the table.
    #[serde(skip)]
    pub(super) has_given_credentials: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OsImagesToml {
    cpu: Option<OsImageToml>,
    nvidia: Option<OsImageToml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OsImageToml {
    name: String,
    owner: Option<OwnerToml>,
    /// A key of dstack's without effect here: nobody logs in to a machine, its user data starts the agent.
    #[allow(dead_code, reason = "taken, and not needed")]
    user: Option<String>,
}

/// The number of an account is a number of YAML and TOML where it is not in quotes.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the number of an account, or self")]
enum OwnerToml {
    Number(u64),
    Text(String),
}

impl CloudToml {
    /// What is given for a cloud of this kind, or what is wrong: the key, its value and what would be right.
    pub(super) fn config(&self, kind: &str) -> Result<CloudConfig, String> {
        self.check_keys(kind)?;
        let regions = self.regions.clone().unwrap_or_default();
        if regions.is_empty() || regions.len() > REGIONS_MAX {
            return Err(format!("regions: expected at least one, and at most {REGIONS_MAX}"));
        }
        names("regions", &regions)?;
        if let Some(region) = regions.iter().find(|region| kind == "gcp" && !is_zone(region)) {
            return Err(format!("regions: {region:?}: expected zones, as us-central1-a"));
        }
        let mut images = self.images.clone().unwrap_or_default();
        images.extend(self.image.iter().map(|image| (String::new(), image.clone())));
        names("images", images.values())?;
        let types = self.types.clone().unwrap_or_default();
        names("types", &types)?;
        if let Some(wrong) = types.iter().find(|name| !is_type(name)) {
            return Err(format!(
                "types: {wrong:?}: expected names of types, with * for any letters, as in g5.*"
            ));
        }
        let subnets = self.subnets.clone().unwrap_or_default();
        names("subnets", subnets.iter().flat_map(|(zone, subnet)| [zone, subnet]))?;
        let of_no_region =
            subnets.keys().find(|zone| !regions.iter().any(|r| zone.starts_with(r.as_str())));
        if let Some(zone) = of_no_region {
            return Err(format!("subnets: {zone:?}: expected zones of the regions"));
        }
        let vpc_ids = self.vpc_ids.clone().unwrap_or_default();
        self.check_vpcs(&regions, &subnets)?;
        let security_groups = self.security_groups.clone().unwrap_or_default();
        names("security_groups", &security_groups)?;
        let tags = self.tags.clone().unwrap_or_default();
        if tags.len() > TAGS_MAX || !tags.iter().all(is_tag) {
            return Err(format!("tags: expected at most {TAGS_MAX} names, each with a short text"));
        }
        let disk_gb = self.disk_gb.unwrap_or(DISK_GB);
        if !(1..=DISK_GB_MAX).contains(&disk_gb) {
            return Err(format!("disk_gb: {disk_gb}: expected 1 to {DISK_GB_MAX}"));
        }
        let install = self.install.clone().unwrap_or_default();
        if install.len() > INSTALL_BYTES_MAX || install.contains('\0') {
            return Err(format!("install: expected a script of at most {INSTALL_BYTES_MAX} bytes"));
        }
        let cloud = CloudConfig {
            regions,
            endpoint: address("endpoint", self.endpoint.as_deref())?,
            metadata: address("metadata", self.metadata.as_deref())?,
            credentials: path("credentials", self.credentials.as_deref())?,
            prices: path("prices", self.prices.as_deref())?,
            types,
            spot: spot_policy(self.spot.as_deref())?,
            images,
            disk_gb,
            install,
            subnets,
            vpc_ids,
            vpc_name: self.vpc_name.clone(),
            public_ips: self.public_ips,
            os_images: self.os_images()?,
            security_groups,
            identity: name("identity", self.identity.as_ref())?,
            placement_group: self.placement_group.unwrap_or_default(),
            efa: self.efa.unwrap_or_default(),
            project: name("project", self.project.as_ref())?,
            network: name("network", self.network.as_ref())?,
            ssh_key: name("ssh_key", self.ssh_key.as_ref())?,
            tags,
        };
        check_needs(kind, &cloud)?;
        if kind == "lambda" && cloud.credentials.is_none() && !self.has_given_credentials {
            return Err("credentials: missing: expected a file with an API key".into());
        }
        Ok(cloud)
    }

    /// Refuses VPCs of no region, two words for one VPC, and a region without any where default VPCs are not to be used.
    fn check_vpcs(
        &self,
        regions: &[String],
        subnets: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let ids = self.vpc_ids.iter().flatten();
        names("vpc_ids", ids.clone().flat_map(|(region, vpc)| [region, vpc]))?;
        if let Some((region, _)) = ids.clone().find(|(region, _)| !regions.contains(*region)) {
            return Err(format!("vpc_ids: {region:?}: expected one of the regions"));
        }
        let is_vpc_name = |name: &String| (1..=256).contains(&name.len()) && is_line(name);
        if let Some(name) = self.vpc_name.as_ref().filter(|name| !is_vpc_name(name)) {
            return Err(format!("vpc_name: {name:?}: expected the name of a VPC"));
        }
        if self.vpc_name.is_some() && self.vpc_ids.is_some() {
            return Err("vpc_ids: expected none beside vpc_name".into());
        }
        let has_vpc = |region: &String| {
            self.vpc_name.is_some()
                || ids.clone().any(|(of, _)| of == region)
                || subnets.keys().any(|zone| zone.starts_with(region.as_str()))
        };
        let may_be_default = self.default_vpcs.unwrap_or(true);
        match regions.iter().find(|region| !may_be_default && !has_vpc(region)) {
            Some(region) => Err(format!(
                "vpc_ids: missing for {region}: expected one, for default_vpcs is false"
            )),
            None => Ok(()),
        }
    }

    fn os_images(&self) -> Result<OsImages, String> {
        let Some(given) = &self.os_images else { return Ok(OsImages::default()) };
        let cpu = given.cpu.as_ref().map(|image| os_image("cpu", image)).transpose()?;
        let nvidia = given.nvidia.as_ref().map(|image| os_image("nvidia", image)).transpose()?;
        Ok(OsImages { cpu, nvidia })
    }

    /// Refuses a key that this kind of cloud does not have.
    fn check_keys(&self, kind: &str) -> Result<(), String> {
        let table: [(&str, bool, &[&str]); 16] = [
            ("metadata", self.metadata.is_some(), &["aws", "gcp"]),
            ("spot", self.spot.is_some(), &["aws", "gcp"]),
            ("subnets", self.subnets.is_some(), &["aws"]),
            ("vpc_ids", self.vpc_ids.is_some(), &["aws"]),
            ("vpc_name", self.vpc_name.is_some(), &["aws"]),
            ("default_vpcs", self.default_vpcs.is_some(), &["aws"]),
            ("public_ips", self.public_ips.is_some(), &["aws", "gcp"]),
            ("os_images", self.os_images.is_some(), &["aws"]),
            ("security_groups", self.security_groups.is_some(), &["aws", "gcp"]),
            ("identity", self.identity.is_some(), &["aws", "gcp"]),
            ("placement_group", self.placement_group.is_some(), &["aws"]),
            ("efa", self.efa.is_some(), &["aws"]),
            ("project", self.project.is_some(), &["gcp"]),
            ("network", self.network.is_some(), &["gcp"]),
            ("ssh_key", self.ssh_key.is_some(), &["lambda"]),
            ("tags", self.tags.is_some(), &["aws", "gcp"]),
        ];
        match table.iter().find(|(_, is_given, kinds)| *is_given && !kinds.contains(&kind)) {
            Some((key, _, kinds)) => {
                Err(format!("{key}: a source of kind {kind} has none, only {}", kinds.join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// What a kind cannot do without.
fn check_needs(kind: &str, cloud: &CloudConfig) -> Result<(), String> {
    let has_image = |region: &String| cloud.os_images.are_all() || cloud.image(region).is_some();
    let without = cloud.regions.iter().find(|region| !has_image(region));
    match (kind, without) {
        ("aws", Some(region)) => Err(format!(
            "image: missing for {region}: expected the image that has the program, or os_images of cpu and nvidia"
        )),
        ("gcp", Some(region)) => {
            Err(format!("image: missing for {region}: expected the image that has the program"))
        }
        ("gcp", None) if cloud.project.is_none() => {
            Err("project: missing: expected the id of a project".into())
        }
        ("lambda", _) if cloud.ssh_key.is_none() => {
            Err("ssh_key: missing: expected the name of an SSH key of the account".into())
        }
        _ => Ok(()),
    }
}

/// An image by its name, which may have spaces, and its owner.
fn os_image(of: &str, given: &OsImageToml) -> Result<OsImage, String> {
    let name = given.name.clone();
    if !(3..=128).contains(&name.len()) || !is_line(&name) {
        return Err(format!("os_images.{of}.name: {name:?}: expected the name of an image"));
    }
    let owner = match &given.owner {
        None => "self".to_owned(),
        // Zeros before the number are part of it.
        Some(OwnerToml::Number(number)) => format!("{number:012}"),
        Some(OwnerToml::Text(text)) => text.clone(),
    };
    let is_account = owner.len() == 12 && owner.bytes().all(|b| b.is_ascii_digit());
    if owner != "self" && !is_account {
        return Err(format!("os_images.{of}.owner: {owner:?}: expected 12 digits, or self"));
    }
    Ok(OsImage { name, owner })
}

fn is_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Whether it is a zone of Google's: its region, and a letter.
fn is_zone(text: &str) -> bool {
    let letter = text.rsplit_once('-').map(|(_, letter)| letter);
    letter.is_some_and(|letter| letter.len() == 1 && letter.bytes().all(|b| b.is_ascii_lowercase()))
}

fn is_name(text: &str) -> bool {
    let is_wrong = |c: char| is_unprintable(c) || c.is_whitespace() || "\"'\\<>&".contains(c);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(is_wrong)
}

/// Whether it may be the name of a type, or a pattern of names.
fn is_type(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-*?".contains(&b))
}

/// Whether a tag is as clouds take them: a name of up to 128 bytes, a text of up to 256, on one line.
fn is_tag((key, value): (&String, &String)) -> bool {
    (1..=128).contains(&key.len()) && value.len() <= 256 && is_line(key) && is_line(value)
}

fn names<'a>(key: &str, given: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    let mut count = 0;
    for one in given {
        count += 1;
        if !is_name(one) || count > LIST_MAX {
            return Err(format!("{key}: {one:?}: expected at most {LIST_MAX} plain names"));
        }
    }
    Ok(())
}

fn name(key: &str, given: Option<&String>) -> Result<Option<String>, String> {
    match given {
        Some(text) if !is_name(text) => Err(format!("{key}: {text:?}: expected a plain name")),
        given => Ok(given.cloned()),
    }
}

fn path(key: &str, given: Option<&str>) -> Result<Option<String>, String> {
    match given {
        Some(text) if !is_plain_path(text) => {
            Err(format!("{key}: {text:?}: expected an absolute path"))
        }
        given => Ok(given.map(str::to_owned)),
    }
}

fn address(key: &str, given: Option<&str>) -> Result<Option<String>, String> {
    let is_address = |text: &str| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        rest.is_some_and(|rest| is_name(rest) && !rest.contains(['@', '?', '#']))
    };
    match given {
        Some(text) if !is_address(text) => {
            Err(format!("{key}: {text:?}: expected an address, as in https://ec2.example.org"))
        }
        given => Ok(given.map(|text| text.trim_end_matches('/').to_owned())),
    }
}

fn spot_policy(given: Option<&str>) -> Result<SpotPolicy, String> {
    match given {
        None | Some("on-demand") => Ok(SpotPolicy::OnDemand),
        Some("spot") => Ok(SpotPolicy::Spot),
        Some("auto") => Ok(SpotPolicy::Auto),
        Some(text) => Err(format!("spot: {text:?}: expected on-demand, spot or auto")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, text: &str) -> Result<CloudConfig, String> {
        let given: CloudToml = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        given.config(kind)
    }

    #[test]
    fn cloud_has_what_is_given_and_usual_values_otherwise() {
        let small = read("aws", "regions = ['eu-west-1']\nimage = 'ami-1'").expect("it is good");
        assert_eq!((small.disk_gb, small.spot), (DISK_GB, SpotPolicy::OnDemand));
        assert_eq!(small.image("eu-west-1"), Some("ami-1"));
        let more = "regions = ['eu-west-1', 'eu-west-2']\nimage = 'ami-1'\nspot = 'auto'\nefa = true\n\
            images = { eu-west-2 = 'ami-2' }\nsubnets = { eu-west-1a = 'subnet-1' }\n\
            endpoint = 'http://127.0.0.1:5000/'\nvpc_ids = { eu-west-2 = 'vpc-2' }\ndefault_vpcs = false\n\
            public_ips = false\nos_images = { nvidia = { name = 'lab gpu', owner = 12345678901 } }\n";
        let more = read("aws", more).expect("it is good");
        let images = ["eu-west-1", "eu-west-2"].map(|region| more.image(region));
        assert_eq!(images, [Some("ami-1"), Some("ami-2")]);
        assert!(more.spot.takes(true) && more.spot.takes(false) && more.efa);
        assert_eq!(more.endpoint.as_deref(), Some("http://127.0.0.1:5000"));
        assert_eq!((more.vpc_ids["eu-west-2"].as_str(), more.public_ips), ("vpc-2", Some(false)));
        let image = OsImage { name: "lab gpu".into(), owner: "012345678901".into() };
        assert_eq!((more.os_images.of(true), more.os_images.of(false)), (Some(&image), None));
        let both = "regions = ['r']\nos_images = { cpu = { name = 'lab', user = 'ubuntu' }, nvidia = { name = 'lab' } }";
        let both = read("aws", both).expect("an image without an id");
        assert_eq!(both.os_images.of(false).map(|image| image.owner.as_str()), Some("self"));
        let key = "regions = ['us-1']\nssh_key = 'k'\ncredentials = '/etc/key'";
        assert!(read("lambda", key).is_ok());
    }

    #[test]
    fn wrong_values_are_said_with_their_key() {
        let table = [
            ("aws", "regions = []", "regions: expected at least one"),
            ("aws", "regions = ['a b']", "regions: \"a b\": expected"),
            ("aws", "regions = ['r']", "image: missing for r"),
            ("aws", "regions = ['r']\nspot = 'yes'", "spot: \"yes\": expected on-demand"),
            ("aws", "regions = ['r']\nproject = 'p'", "project: a source of kind aws has none"),
            ("aws", "regions = ['r']\nprices = 'p'", "prices: \"p\": expected an absolute path"),
            ("aws", "regions = ['r']\nendpoint = 'ftp://a'", "endpoint: \"ftp://a\": expected"),
            ("aws", "regions = ['r']\nsubnets = { za = 'subnet-1' }", "subnets: \"za\": expected"),
            ("aws", "regions = ['r']\ndisk_gb = 0", "disk_gb: 0: expected 1 to"),
            ("aws", "regions = ['r']\ntags = { \"\" = 'a' }", "tags: expected at most 40 names"),
            ("aws", "colour = 'red'", "unknown field `colour`"),
            (
                "aws",
                "regions = ['r']\nvpc_ids = { s = 'vpc-1' }",
                "vpc_ids: \"s\": expected one of",
            ),
            ("aws", "regions = ['r']\nvpc_name = ''", "vpc_name: \"\": expected the name"),
            (
                "aws",
                "regions = ['r']\nvpc_name = 'a'\nvpc_ids = { r = 'b' }",
                "vpc_ids: expected none",
            ),
            (
                "aws",
                "regions = ['r']\ndefault_vpcs = false",
                "vpc_ids: missing for r: expected one",
            ),
            (
                "aws",
                "regions = ['r']\nos_images = { cpu = { name = 'lab' } }",
                "image: missing for r: expected the image that has the program, or os_images",
            ),
            (
                "aws",
                "regions = ['r']\nos_images = { cpu = { name = 'lab', owner = 'me' } }",
                "os_images.cpu.owner: \"me\": expected 12 digits, or self",
            ),
            (
                "aws",
                "regions = ['r']\nos_images = { cpu = { name = 'a' } }",
                "os_images.cpu.name: \"a\": expected the name of an image",
            ),
            (
                "gcp",
                "regions = ['r']\nvpc_ids = { r = 'a' }",
                "vpc_ids: a source of kind gcp has none",
            ),
            (
                "lambda",
                "regions = ['r']\npublic_ips = false",
                "public_ips: a source of kind lambda",
            ),
            ("gcp", "regions = ['us-central1']\nimage = 'i'", "expected zones, as us-central1-a"),
            ("gcp", "regions = ['us-central1-a']\nimage = 'i'", "project: missing"),
            ("lambda", "regions = ['z']", "ssh_key: missing"),
            ("lambda", "regions = ['z']\nspot = 'auto'", "spot: a source of kind lambda has none"),
        ];
        for (kind, text, words) in table {
            let said = read(kind, text).expect_err(text);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
