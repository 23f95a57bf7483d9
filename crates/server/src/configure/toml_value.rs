//! Values of sluice.toml that are written as texts, each with its form.

use model::amount::Bytes;
use model::container::{Mount, is_plain_path};
use model::hostlist;
use model::site::CONTAINER_DISK_MIN;
use model::time::parse_duration;
use serde::Deserialize;
use std::time::Duration;

/// `head.example:6821`
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct HostPort(pub(super) String);

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.rsplit_once(':');
        let is_good = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
        if parts.is_some_and(is_good) {
            return Ok(Self(text));
        }
        Err(format!("{text:?}: expected HOST:PORT, as in head.example:6821"))
    }
}

/// The least and the most that an agent's certificate may be good for. Renewal takes a heartbeat.
const CERTIFICATE_LIFE_MIN: Duration = Duration::from_secs(10);
const CERTIFICATE_LIFE_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

/// How long an agent's certificate is good for: `365d`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct CertificateLife(pub(super) Duration);

impl TryFrom<String> for CertificateLife {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bounds = CERTIFICATE_LIFE_MIN..=CERTIFICATE_LIFE_MAX;
        match parse_duration(&text) {
            Ok(Some(life)) if bounds.contains(&life) => Ok(Self(life)),
            _ => Err(format!("{text:?}: expected a time from 10s to 3650d, as in 365d")),
        }
    }
}

/// A host list: `login[1-2]`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Hosts(pub(super) Vec<String>);

impl TryFrom<String> for Hosts {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        hostlist::expand(&text).map(Self).map_err(|e| e.to_string())
    }
}

/// An absolute path of a folder for volumes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct SharedFolder(pub(super) String);

impl TryFrom<String> for SharedFolder {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_plain_path(&text) && !text.trim_matches('/').is_empty() {
            return Ok(Self(text));
        }
        Err(format!("{text:?}: expected the absolute path of a folder, as in /mnt/data"))
    }
}

/// An absolute path.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct FolderText(pub(super) String);

impl TryFrom<String> for FolderText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_plain_path(&text) {
            return Ok(Self(text));
        }
        Err(format!("{text:?}: expected the absolute path of a folder, as in /etc/cdi"))
    }
}

/// An amount as text: `100GB`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Size(pub(super) Bytes);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Bytes::parse_dstack(&text).map(Self).map_err(|e| e.to_string())
    }
}

/// What one container may write. Less would not hold what a container has to begin with.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct DiskSize(pub(super) Bytes);

impl TryFrom<String> for DiskSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Size(size) = Size::try_from(text.clone())?;
        if size < CONTAINER_DISK_MIN {
            return Err(format!("{text:?}: expected at least 16MB"));
        }
        Ok(Self(size))
    }
}

/// A mount of the node, which a node without its folder does without.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct MountText(pub(super) Mount);

impl TryFrom<String> for MountText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mount = Mount::parse(&text).map_err(|e| e.to_string())?;
        Ok(Self(Mount { optional: true, ..mount }))
    }
}
