//! What a site says about registries, and a user's credentials for one pull.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryConfig {
    /// For a registry (`docker.io`), the hosts that are asked before it, in this order. A mirror never gets credentials.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Hosts (`localhost:5000`) that are spoken to without TLS.
    pub insecure: BTreeSet<String>,
    /// Certificates of authorities that are trusted beside the machine's own, as PEM.
    pub ca_file: Option<PathBuf>,
    pub timeouts: Timeouts,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeouts {
    /// For resolving a name and connecting.
    pub connect: Duration,
    /// For every single read and write: a registry that is silent for so long is given up.
    pub silence: Duration,
    /// For a window in which at least `download::SLOW_BYTES` must come.
    pub slow: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(15), silence: seconds(30), slow: seconds(60) }
    }
}

/// A user's name and password, or token, for one registry. Held for one pull; never stored, logged or shown.
#[derive(Clone)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}
