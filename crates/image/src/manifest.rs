//! Manifests and configurations as registries and archives hold them: the fields that are used, everything else skipped.

use serde::Deserialize;

use crate::config::{ImageConfig, RawConfig};
use crate::digest::Digest;
use crate::error::{Error, Result, shown};
use crate::platform::Platform;

pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// As many as Docker makes. Each is named in the options of one mount, which the kernel takes a page of.
pub const LAYERS_MAX: usize = 127;
pub const LAYER_BYTES_MAX: u64 = 1 << 40;

pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What names a blob, and how long it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// A manifest of one image, or the list of manifests for several platforms.
#[derive(Debug)]
pub enum Document {
    Image(Manifest),
    Index(Vec<Descriptor>),
}

#[derive(Debug, Clone)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    #[serde(default)]
    schema_version: u32,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    /// What a document is follows from its fields: registries do not agree on media types.
    pub fn parse(what: &str, bytes: &[u8]) -> Result<Self> {
        let not = |fault: String| Error::NotAnImage { what: what.to_owned(), fault };
        let raw: RawDocument = serde_json::from_slice(bytes).map_err(|e| {
            not(format!("its manifest is not readable: {}", shown(e.to_string().as_bytes())))
        })?;
        match (raw.config, raw.layers, raw.manifests) {
            (Some(config), Some(layers), None) => {
                let manifest = Manifest { config, layers };
                manifest.check(what)?;
                Ok(Self::Image(manifest))
            }
            (None, None, Some(manifests)) => Ok(Self::Index(manifests)),
            _ if raw.schema_version == 1 => Err(not(
                "its manifest is of schema 1, which registries gave up; push it again".into(),
            )),
            _ => Err(not("its manifest has neither config and layers nor manifests".into())),
        }
    }
}

impl Manifest {
    fn check(&self, what: &str) -> Result<()> {
        let not = |fault: String| Error::NotAnImage { what: what.to_owned(), fault };
        let known = [
            "application/vnd.oci.image.config.v1+json",
            "application/vnd.docker.container.image.v1+json",
            "",
        ];
        if !known.contains(&self.config.media_type.as_str()) {
            let found = shown(self.config.media_type.as_bytes());
            return Err(not(format!("it is an artifact of type {found}, not a container image")));
        }
        if self.config.size > CONFIG_BYTES_MAX {
            return Err(not(format!(
                "its configuration has {} bytes, more than {CONFIG_BYTES_MAX}",
                self.config.size
            )));
        }
        if self.layers.len() > LAYERS_MAX {
            return Err(not(format!(
                "it has {} layers, more than {LAYERS_MAX}",
                self.layers.len()
            )));
        }
        if let Some(layer) = self.layers.iter().find(|l| l.size > LAYER_BYTES_MAX) {
            return Err(not(format!(
                "its layer {} has {} bytes, more than {LAYER_BYTES_MAX}",
                layer.digest.short(),
                layer.size
            )));
        }
        if let Some(layer) = self.layers.iter().find(|l| l.media_type.contains("encrypted")) {
            return Err(not(format!("its layer {} is encrypted", layer.digest.short())));
        }
        Ok(())
    }
}

/// The image of a list that is for this machine.
pub fn choose(what: &str, manifests: &[Descriptor], wanted: &Platform) -> Result<Descriptor> {
    let of_image = |d: &&Descriptor| d.platform.as_ref().is_none_or(|p| p.os != "unknown");
    let candidates: Vec<_> = manifests.iter().filter(of_image).collect();
    let rank = |d: &&&Descriptor| d.platform.as_ref().and_then(|p| wanted.rank(p));
    let best = candidates.iter().filter(|d| rank(d).is_some()).min_by_key(rank);
    if let Some(found) = best {
        return Ok((*found).clone());
    }
    // A layout with one image often leaves the platform to the image's configuration.
    if let [only] = candidates[..]
        && only.platform.is_none()
    {
        return Ok(only.clone());
    }
    let mut found: Vec<String> = candidates
        .iter()
        .filter_map(|d| d.platform.as_ref())
        .map(|p| shown(p.to_string().as_bytes()))
        .take(20)
        .collect();
    found.dedup();
    if found.is_empty() {
        found.push("no platform at all".into());
    }
    Err(Error::WrongPlatform { what: what.to_owned(), wanted: wanted.to_string(), found })
}

/// An image's configuration with the digests of its unpacked layers, bottom first.
pub struct ConfigFile {
    pub config: ImageConfig,
    pub diff_ids: Vec<Digest>,
}

impl ConfigFile {
    pub fn parse(what: &str, bytes: &[u8], wanted: &Platform) -> Result<Self> {
        let not = |fault: String| Error::NotAnImage { what: what.to_owned(), fault };
        let raw: RawConfig = serde_json::from_slice(bytes).map_err(|e| {
            not(format!("its configuration is not readable: {}", shown(e.to_string().as_bytes())))
        })?;
        let platform = raw.platform();
        if !platform.architecture.is_empty() && wanted.rank(&platform).is_none() {
            let found = vec![shown(platform.to_string().as_bytes())];
            return Err(Error::WrongPlatform {
                what: what.to_owned(),
                wanted: wanted.to_string(),
                found,
            });
        }
        if raw.rootfs.diff_ids.len() > LAYERS_MAX {
            return Err(not(format!(
                "it has {} layers, more than {LAYERS_MAX}",
                raw.rootfs.diff_ids.len()
            )));
        }
        let diff_ids = raw.rootfs.diff_ids.clone();
        Ok(Self { config: raw.into_config(), diff_ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amd64() -> Platform {
        Platform { os: "linux".into(), architecture: "amd64".into(), variant: None }
    }

    fn index(entries: &[(&str, &str, Option<&str>)]) -> Vec<Descriptor> {
        let json: Vec<_> = entries
            .iter()
            .map(|(os, arch, variant)| {
                let digest = Digest::of(format!("{os}{arch}{variant:?}").as_bytes());
                serde_json::json!({"digest": digest, "size": 1,
                    "platform": {"os": os, "architecture": arch, "variant": variant}})
            })
            .collect();
        let document = serde_json::json!({"schemaVersion": 2, "manifests": json}).to_string();
        match Document::parse("x", document.as_bytes()) {
            Ok(Document::Index(manifests)) => manifests,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_image_for_this_machine_is_chosen_by_architecture_and_variant() {
        let list = index(&[
            ("unknown", "unknown", None),
            ("linux", "arm64", Some("v8")),
            ("windows", "amd64", None),
            ("linux", "amd64", None),
        ]);
        assert_eq!(choose("x", &list, &amd64()).unwrap().digest, list[3].digest);
        let arm = Platform { os: "linux".into(), architecture: "arm64".into(), variant: None };
        assert_eq!(choose("x", &list, &arm).unwrap().digest, list[1].digest);
        let error = choose("x", &list[..2], &amd64()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x is not for this machine (linux/amd64); it has linux/arm64/v8"
        );
    }

    #[test]
    fn a_higher_variant_than_the_machines_is_not_chosen() {
        let list = index(&[("linux", "arm", Some("v7")), ("linux", "arm", Some("v6"))]);
        let v6 =
            Platform { os: "linux".into(), architecture: "arm".into(), variant: Some("v6".into()) };
        assert_eq!(choose("x", &list, &v6).unwrap().digest, list[1].digest);
        let v7 = Platform { variant: Some("v7".into()), ..v6 };
        assert_eq!(choose("x", &list, &v7).unwrap().digest, list[0].digest);
    }

    #[test]
    fn what_is_not_an_image_is_said() {
        let chart = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"{}","size":2}},"layers":[]}}"#,
            Digest::of(b"")
        );
        for (text, says) in [
            ("nonsense", "not readable"),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema 1"),
            ("{}", "neither"),
            (&chart, "artifact"),
        ] {
            let error = Document::parse("x", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says) && error.starts_with("x is not an image"), "{error}");
        }
    }
}
