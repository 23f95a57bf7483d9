//! The secret of a pod: its join file, and what its image is pulled with where its job brings that.

use super::manifest::{JOIN_KEY, metadata};
use crate::machines::source::{CreateOrder, SourceError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::secret::RegistryAuth;
use serde_json::{Value, json};

/// The registry of images that name none.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The join token is good once, for this node alone. What the image is pulled with is beside it, and no file of the pod.
pub fn secret(cluster: &str, order: &CreateOrder) -> Result<Value, SourceError> {
    let join = serde_json::to_vec(&order.join)
        .map_err(|e| SourceError::refused(format!("the join file: {e}")))?;
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(cluster, order),
        "type": "Opaque",
        "data": {JOIN_KEY: STANDARD.encode(join)},
    });
    if let Some(pod) = order.pod.as_ref().filter(|pod| pod.has_registry_auth) {
        // The secret has this type even where the login cannot be had any more: the type of a secret that is there never changes.
        let image = pod.image.as_deref().unwrap_or_default();
        let config = docker_config(image, order.registry_auth.as_ref());
        secret["type"] = json!("kubernetes.io/dockerconfigjson");
        secret["data"][".dockerconfigjson"] = json!(STANDARD.encode(config));
    }
    Ok(secret)
}

/// A login as Docker's configuration has it.
fn docker_config(image: &str, auth: Option<&RegistryAuth>) -> String {
    let Some(RegistryAuth { username, password }) = auth else {
        return json!({"auths": {}}).to_string();
    };
    let (username, password) = (&username.0, &password.0);
    let both = STANDARD.encode(format!("{username}:{password}"));
    let login = json!({"username": username, "password": password, "auth": both});
    json!({"auths": {registry_of(image): login}}).to_string()
}

/// The registry of an image, as a login names it.
fn registry_of(image: &str) -> &str {
    let host = image.split_once('/').map_or("", |(host, _)| host);
    let is_host = host.contains(['.', ':']) || host == "localhost";
    if is_host && !matches!(host, "docker.io" | "index.docker.io") { host } else { DOCKER_HUB }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::cloud::user_data::tests::order;
    use model::pod::{PodTemplate, PodUser};
    use model::secret::SecretValue;

    fn with_login() -> PodTemplate {
        PodTemplate {
            image: Some("registry.lab:5000/tool:1".into()),
            uid: 1000,
            gid: 100,
            groups: Vec::new(),
            user: PodUser::JobUser,
            has_registry_auth: true,
            claims: Vec::new(),
        }
    }

    #[test]
    fn login_of_the_job_is_beside_the_join_file() {
        let mut order = order("16cpu", "", false);
        let plain = secret("lab", &order).expect("a secret");
        assert_eq!(plain["type"], "Opaque");
        order.pod = Some(Box::new(with_login()));
        let value = |text: &str| SecretValue(text.to_owned());
        order.registry_auth =
            Some(RegistryAuth { username: value("ann"), password: value("pass:word") });
        let secret = secret("lab", &order).expect("a secret");
        assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
        assert_eq!(secret["data"]["join"], plain["data"]["join"]);
        let text = secret["data"][".dockerconfigjson"].as_str().expect("a text");
        let config = STANDARD.decode(text).expect("base 64");
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        let login = &config["auths"]["registry.lab:5000"];
        assert_eq!((&login["username"], &login["password"]), (&json!("ann"), &json!("pass:word")));
        assert_eq!(login["auth"], STANDARD.encode("ann:pass:word"));
    }

    #[test]
    fn secret_is_of_the_same_type_when_the_login_is_gone() {
        let mut order = order("16cpu", "", false);
        order.pod = Some(Box::new(with_login()));
        let secret = secret("lab", &order).expect("a secret");
        assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
        let text = secret["data"][".dockerconfigjson"].as_str().expect("a text");
        assert_eq!(STANDARD.decode(text).expect("base 64"), br#"{"auths":{}}"#);
    }

    #[test]
    fn registry_of_an_image_is_its_host_or_dockers() {
        let table = [
            ("ubuntu:24.04", DOCKER_HUB),
            ("lab/tool:1", DOCKER_HUB),
            ("docker.io/lab/tool", DOCKER_HUB),
            ("ghcr.io/lab/tool@sha256:ab", "ghcr.io"),
            ("localhost/tool", "localhost"),
            ("registry:5000/tool", "registry:5000"),
        ];
        for (image, registry) in table {
            assert_eq!(registry_of(image), registry, "{image}");
        }
    }
}
