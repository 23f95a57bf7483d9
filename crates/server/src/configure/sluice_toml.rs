//! sluice.toml: what slurm.conf has no words for. The file may be absent; an unknown key is an error.

use crate::error::ServerError;
use cluster::ClusterConfig;
use model::amount::Bytes;
use model::container::Mount;
use model::site::ContainerSite;
use serde::Deserialize;
use slurm::conf::Files;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "sluice.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SluiceToml {
    containers: Containers,
    metrics: Metrics,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metrics {
    /// `/metrics` is given without a token.
    open: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Containers {
    runtime: Option<String>,
    default_image: Option<String>,
    store: Option<String>,
    store_size: Option<Size>,
    pulls: Option<u32>,
    mount_home: Option<bool>,
    mounts: Vec<MountText>,
    mirrors: BTreeMap<String, Vec<String>>,
    insecure_registries: Vec<String>,
    authorities: Option<String>,
}

/// An amount as text: `100GB`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Size(Bytes);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Bytes::parse_dstack(&text).map(Self).map_err(|e| e.to_string())
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct MountText(Mount);

impl TryFrom<String> for MountText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mount = Mount::parse(&text).map_err(|e| e.to_string())?;
        Ok(Self(Mount { optional: true, ..mount }))
    }
}

pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<SluiceToml, ServerError> {
    let path = dir.join(FILE);
    let wrong = |why: String| ServerError::Configuration(format!("{}{why}", path.display()));
    let text = match files.read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(SluiceToml::default()),
        Err(e) => return Err(wrong(format!(": {e}"))),
    };
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        let place = line.map(|line| format!(":{line}")).unwrap_or_default();
        wrong(format!("{place}: {}", error.message().lines().collect::<Vec<_>>().join(", ")))
    })
}

impl SluiceToml {
    pub fn apply(self, config: &mut ClusterConfig) {
        config.open_metrics = self.metrics.open;
        let given = self.containers;
        let usual = ContainerSite::default();
        config.site.containers = ContainerSite {
            runtime: given.runtime,
            default_image: given.default_image,
            store: given.store,
            store_size: given.store_size.map_or(usual.store_size, |size| size.0),
            pulls: given.pulls.unwrap_or(usual.pulls).max(1),
            mount_home: given.mount_home.unwrap_or(usual.mount_home),
            mounts: given.mounts.into_iter().map(|mount| mount.0).collect(),
            mirrors: given.mirrors,
            insecure: given.insecure_registries,
            authorities: given.authorities,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slurm::conf::MemoryFiles;

    fn site(text: &str) -> Result<ContainerSite, String> {
        let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
        let found = read(&files, Path::new("/etc/sluice")).map_err(|e| e.to_string())?;
        let mut config = ClusterConfig::default();
        found.apply(&mut config);
        Ok(config.site.containers)
    }

    #[test]
    fn keys_of_containers_act_and_absent_ones_have_defaults() {
        assert_eq!(site(""), Ok(ContainerSite::default()));
        let text = "[containers]\nstore_size = '2GB'\nmounts = ['/data::ro']\nmount_home = false\n\
                    insecure_registries = ['localhost:5000']\n[containers.mirrors]\n\
                    'docker.io' = ['mirror.example:5000']\n";
        let found = site(text).expect("it is good");
        assert_eq!((found.store_size, found.mount_home), (Bytes(2 << 30), false));
        assert!(found.mounts[0].read_only && found.mounts[0].optional);
        assert_eq!(found.mirrors["docker.io"], ["mirror.example:5000"]);
        assert_eq!(found.insecure, ["localhost:5000"]);
    }

    #[test]
    fn metrics_are_open_only_if_the_site_says_so() {
        for (text, expected) in [("", false), ("[metrics]\nopen = true\n", true)] {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
            assert_eq!(config.open_metrics, expected, "{text}");
        }
    }

    #[test]
    fn wrong_keys_and_values_are_refused_with_their_line() {
        let table = [
            ("[containers]\nstroe = '/x'\n", "/etc/sluice/sluice.toml:2: unknown field `stroe`"),
            ("[containers]\n\nstore_size = 'much'\n", "/etc/sluice/sluice.toml:3: "),
            ("[containers]\nmounts = ['data']\n", "expected absolute paths"),
            ("[containers\n", "/etc/sluice/sluice.toml:1: "),
        ];
        for (text, expected) in table {
            let error = site(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
