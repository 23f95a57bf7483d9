//! An image's own settings: what its author meant to be run, as whom and where.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::platform::Platform;

/// Everything is as the image says it; defaults are the caller's to fill in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `NAME=VALUE`, in the image's order.
    #[serde(default)]
    pub env: Vec<String>,
    #[serde(default)]
    pub entrypoint: Vec<String>,
    #[serde(default)]
    pub cmd: Vec<String>,
    /// Empty: the root.
    #[serde(default)]
    pub working_dir: String,
    /// `NAME`, `UID`, either with `:GROUP` or `:GID`; empty: root.
    #[serde(default)]
    pub user: String,
    /// As in `8080/tcp`.
    #[serde(default)]
    pub exposed_ports: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub stop_signal: Option<String>,
    /// As in `amd64`; empty for a root file system without a configuration.
    #[serde(default)]
    pub architecture: String,
}

/// The configuration's JSON, in which `null` stands for empty.
#[derive(Deserialize)]
pub struct RawConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default)]
    config: Option<RawSettings>,
    pub rootfs: RootFs,
}

#[derive(Deserialize)]
pub struct RootFs {
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawSettings {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    labels: Option<BTreeMap<String, String>>,
    stop_signal: Option<String>,
}

impl RawConfig {
    pub fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }

    pub fn into_config(self) -> ImageConfig {
        ImageConfig { architecture: self.architecture, ..self.config.unwrap_or_default().into() }
    }
}

impl ImageConfig {
    /// The settings of a configuration alone, as container engines show them; `None` if that is no such JSON.
    pub fn from_settings(json: &[u8]) -> Option<ImageConfig> {
        serde_json::from_slice::<RawSettings>(json).ok().map(ImageConfig::from)
    }
}

impl From<RawSettings> for ImageConfig {
    fn from(raw: RawSettings) -> ImageConfig {
        ImageConfig {
            env: raw.env.unwrap_or_default(),
            entrypoint: raw.entrypoint.unwrap_or_default(),
            cmd: raw.cmd.unwrap_or_default(),
            working_dir: raw.working_dir.unwrap_or_default(),
            user: raw.user.unwrap_or_default(),
            exposed_ports: raw.exposed_ports.unwrap_or_default().into_keys().collect(),
            labels: raw.labels.unwrap_or_default(),
            stop_signal: raw.stop_signal.filter(|s| !s.is_empty()),
            architecture: String::new(),
        }
    }
}
