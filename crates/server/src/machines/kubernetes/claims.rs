//! Volumes that runs name as claims of Kubernetes. A claim is made and deleted here, and the manifests of pods name it: nobody
//! attaches it.

use super::client::Client;
use super::manifest::{self, CLUSTER_LABEL, MANAGED_LABEL, MANAGER, TOKEN_LABEL};
use super::offers::quantity;
use super::{KubernetesSource, is_there_already, of_namespace};
use crate::machines::cloud::rest::word;
use crate::machines::source::{
    AttachOrder, DiskMade, DiskOrder, DiskSource, PROJECT_TAG, SourceDisk, SourceError,
};
use model::amount::Bytes;
use serde_json::{Value, json};

/// The name of a claim: that of a new one follows from its token, and no second one can be made.
fn name_of(order: &DiskOrder) -> String {
    order.place.existing.clone().unwrap_or_else(|| manifest::name(&order.token))
}

fn body(cluster: &str, order: &DiskOrder) -> Value {
    let metadata = json!({
        "name": name_of(order),
        "labels": {MANAGED_LABEL: MANAGER, CLUSTER_LABEL: cluster, TOKEN_LABEL: order.token},
        "annotations": {"sluice-volume": order.name},
    });
    let terms = order.place.claim.as_deref().cloned().unwrap_or_default();
    let size = format!("{}Gi", order.size_gb);
    let class = terms.storage_class_name.as_deref();
    manifest::claim_object(metadata, &size, &terms.access_modes, class)
}

/// The claim as the API tells it. One that was there before must not be ours: it would be another volume, or somebody's home.
fn made(order: &DiskOrder, claim: &Value) -> Result<DiskMade, SourceError> {
    let id = word(claim, "/metadata/name").to_owned();
    let labels = &claim["metadata"]["labels"];
    let is_own = labels[TOKEN_LABEL] == order.token.as_str();
    match order.place.existing {
        Some(_) if labels[MANAGED_LABEL] == MANAGER => {
            return Err(SourceError::refused(format!("claim {id} was made by Sluice for another")));
        }
        Some(_) if labels[PROJECT_TAG] != order.project.as_str() => {
            return Err(SourceError::refused(format!(
                "claim {id} has no label {PROJECT_TAG}={}: who may change it says so whose it is",
                order.project
            )));
        }
        None if !is_own => {
            return Err(SourceError::refused(format!("claim {id} is there, and none of ours")));
        }
        _ => {}
    }
    let places = ["/status/capacity/storage", "/spec/resources/requests/storage"];
    let size = places.into_iter().find_map(|place| quantity(word(claim, place)));
    let modes = claim["spec"]["accessModes"].as_array().into_iter().flatten();
    let access_modes = modes.filter_map(Value::as_str).map(str::to_owned).collect();
    let size = size.filter(|bytes| *bytes >= 1.0).map(|bytes| Bytes(bytes as u64));
    Ok(DiskMade { id, size, access_modes, ..DiskMade::default() })
}

impl KubernetesSource {
    /// The claim, be it one that an earlier call made whose answer was lost.
    fn put_claim(&self, client: &Client, order: &DiskOrder) -> Result<Value, SourceError> {
        let found = client.path(&format!("persistentvolumeclaims/{}", name_of(order)));
        if order.place.existing.is_some() {
            return client.get(&found)?.accepted("claim").map_err(of_namespace);
        }
        let claim = body(manifest::cluster_label(&self.cluster)?, order);
        let path = client.path("persistentvolumeclaims");
        let answer = client.call("POST", &path, Some(&claim))?;
        if is_there_already(&answer) {
            return client.get(&found)?.accepted("claim");
        }
        answer.accepted("claim").map_err(of_namespace)
    }
}

impl DiskSource for KubernetesSource {
    fn create_disk(&self, order: &DiskOrder) -> Result<DiskMade, SourceError> {
        self.with_client(self.limit, |client| made(order, &self.put_claim(client, order)?))
    }

    fn attach_disk(&self, _order: &AttachOrder) -> Result<Vec<String>, SourceError> {
        Err(SourceError::refused("a claim is mounted by the manifest of its pod"))
    }

    fn detach_disk(&self, _order: &AttachOrder) -> Result<(), SourceError> {
        Ok(())
    }

    fn delete_disk(&self, order: &DiskOrder) -> Result<(), SourceError> {
        if order.place.existing.is_some() {
            return Err(SourceError::refused("a claim that was there before stays"));
        }
        self.with_client(self.limit, |client| {
            let path = client.path(&format!("persistentvolumeclaims/{}", name_of(order)));
            client.call("DELETE", &path, None)?.accepted("claim").map(drop)
        })
    }

    fn describe_disks(&self) -> Result<Vec<SourceDisk>, SourceError> {
        let cluster = manifest::cluster_label(&self.cluster)?;
        self.with_client(self.limit, |client| {
            let claims = client.path("persistentvolumeclaims");
            let path = format!("{claims}?labelSelector={CLUSTER_LABEL}%3D{cluster}");
            let (found, _) = client.list(&path, "claims")?;
            let disk = |of: &Value| SourceDisk {
                token: word(of, &format!("/metadata/labels/{TOKEN_LABEL}")).to_owned(),
                id: word(of, "/metadata/name").to_owned(),
            };
            Ok(found.iter().map(disk).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cloud_volume::{ClaimTerms, CloudPlace};
    use model::machine::FailureKind;

    fn order(existing: Option<&str>) -> DiskOrder {
        let claim = ClaimTerms {
            storage_class_name: Some("fast".into()),
            access_modes: vec!["ReadWriteMany".into()],
            read_only: false,
        };
        let existing = existing.map(str::to_owned);
        let place = CloudPlace { existing, claim: Some(Box::new(claim)), ..CloudPlace::default() };
        let token = "0123456789abcdef".to_owned();
        let (name, project) = ("data".to_owned(), "main".to_owned());
        DiskOrder { token, name, project, place, size_gb: 10, id: None }
    }

    #[test]
    fn claim_is_made_with_its_labels_and_what_its_volume_says() {
        let asked = body("lab", &order(None));
        assert_eq!(word(&asked, "/metadata/name"), "sluice-0123456789abcdef");
        assert_eq!(word(&asked, "/metadata/labels/sluice-cluster"), "lab");
        let spec = json!({
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": "fast",
        });
        assert_eq!(asked["spec"], spec);
        let told = made(&order(None), &asked).expect("it is ours");
        assert_eq!((told.id, told.size), (name_of(&order(None)), Some(Bytes::from_gib(10))));
        assert_eq!(told.access_modes, ["ReadWriteMany"]);
    }

    #[test]
    fn claim_that_was_there_is_registered_for_the_project_that_its_label_names() {
        let wanted = order(Some("old"));
        let claim = |labels: Value| {
            json!({
                "metadata": {"name": "old", "labels": labels},
                "spec": {"accessModes": ["ReadWriteOnce"]},
                "status": {"capacity": {"storage": "5Gi"}},
            })
        };
        let told = made(&wanted, &claim(json!({PROJECT_TAG: "main"}))).expect("it is registered");
        assert_eq!((told.id.as_str(), told.size), ("old", Some(Bytes::from_gib(5))));
        let ours = made(&wanted, &claim(json!({MANAGED_LABEL: MANAGER})));
        assert!(ours.is_err_and(|error| error.kind == FailureKind::Refused), "somebody's volume");
        for labels in [json!({"app": "db"}), json!({PROJECT_TAG: "other"})] {
            let foreign = made(&wanted, &claim(labels));
            assert!(foreign.is_err_and(|error| error.text.contains("sluice-project=main")));
        }
        assert!(made(&order(None), &claim(Value::Null)).is_err(), "its name is taken");
    }
}
