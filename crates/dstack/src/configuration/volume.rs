//! `type: volume` as a type: a disk of a cloud, or a claim of Kubernetes.

use super::resources::bytes;
use super::value::Value;
use model::amount::Bytes;
use model::cloud_volume::{ClaimTerms, CloudPlace};
use model::volume::VolumePlace;

const KUBERNETES: &str = "kubernetes";

#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    pub name: Option<String>,
    pub size: Option<Bytes>,
    pub place: CloudPlace,
}

impl Volume {
    pub(super) fn of(value: &Value) -> Self {
        let text = |key: &str| value.get(key).as_owned_text();
        // `off`, which is -1, is for ever.
        let cleanup = value.get("auto_cleanup_duration").as_duration();
        let cleanup_s = cleanup.and_then(|length| u32::try_from(length.as_secs()).ok());
        let claim = (text("backend").as_deref() == Some(KUBERNETES)).then(|| ClaimTerms {
            storage_class_name: text("storage_class_name"),
            access_modes: value.get("access_modes").texts(),
            read_only: value.get("read_only").as_bool().unwrap_or(false),
        });
        Self {
            name: text("name"),
            size: value.get("size").as_number().map(bytes),
            place: CloudPlace {
                backend: text("backend").unwrap_or_default(),
                source: String::new(),
                region: text("region").unwrap_or_default(),
                zone: text("availability_zone"),
                existing: text("volume_id").or_else(|| text("claim_name")),
                cleanup_s,
                claim: claim.map(Box::new),
            },
        }
    }

    pub fn place(&self) -> VolumePlace {
        VolumePlace::Cloud(Box::new(self.place.clone()))
    }
}
