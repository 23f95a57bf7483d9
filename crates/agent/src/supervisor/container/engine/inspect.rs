//! An image of an engine's own store as the engine describes it, and what of it would act on the node.

use image::ImageConfig;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotations that say something about an image and nothing to a runtime. Podman gives all of an image's annotations to
/// its runtime, which may take others for orders: crun's `run.oci.*` name programs that it runs as root.
const PLAIN_ANNOTATIONS: [&str; 2] = ["org.opencontainers.image.", "com.docker.official-images."];

pub(super) struct EngineImage {
    /// What is run: another image may have the same name a moment later.
    pub id: String,
    pub settings: ImageConfig,
    /// The paths at which the engine would mount volumes of its own.
    pub volumes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    id: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl EngineImage {
    /// Reads what `image inspect` says of one image; refuses an image that gives orders to the runtime.
    pub fn read(json: &[u8]) -> Result<EngineImage, String> {
        let unreadable = || "the engine's description of it cannot be read".to_owned();
        let [found] = serde_json::from_slice::<[Described; 1]>(json).map_err(|_| unreadable())?;
        let hex = found.id.strip_prefix("sha256:").unwrap_or(&found.id);
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unreadable());
        }
        let is_plain = |key: &str| PLAIN_ANNOTATIONS.iter().any(|plain| key.starts_with(plain));
        if let Some(key) =
            found.annotations.iter().flatten().map(|(key, _)| key).find(|key| !is_plain(key))
        {
            return Err(format!(
                "its annotation {key} goes to the container runtime: expected none but {}*",
                PLAIN_ANNOTATIONS.join("* and ")
            ));
        }
        let volumes = found.config.get("Volumes").and_then(Value::as_object);
        let volumes = volumes.into_iter().flatten().map(|(path, _)| path.clone()).collect();
        let settings = match &found.config {
            Value::Null => Some(ImageConfig::default()),
            config => ImageConfig::from_settings(config.to_string().as_bytes()),
        };
        Ok(EngineImage { id: found.id, settings: settings.ok_or_else(unreadable)?, volumes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(annotations: Value) -> Result<EngineImage, String> {
        let config = json!({ "Env": ["A=1"], "Volumes": { "/data": {} } });
        let described =
            json!({ "Id": "a".repeat(64), "Config": config, "Annotations": annotations });
        EngineImage::read(json!([described]).to_string().as_bytes())
    }

    #[test]
    fn annotations_for_a_runtime_are_refused() {
        for good in [json!(null), json!({}), json!({ "org.opencontainers.image.title": "x" })] {
            let image = read(good).expect("a plain image");
            assert_eq!(
                (image.settings.env, image.volumes),
                (vec!["A=1".into()], vec!["/data".into()])
            );
        }
        for key in
            ["run.oci.hooks.stdout", "module.wasm.image/variant", "org.systemd.property.X", "x"]
        {
            let refused = read(json!({ key: "1" })).err().unwrap_or_default();
            assert!(refused.contains(key), "{refused}");
        }
    }

    #[test]
    fn an_id_is_one() {
        for id in ["", "tools:1", "--privileged", "sha256:aa"] {
            let described = json!([{ "Id": id }]).to_string();
            assert!(EngineImage::read(described.as_bytes()).is_err(), "{id}");
        }
    }
}
