//! The objects of a pod for the API: the pod, whose command is the agent, and the claims that it mounts.

use super::offers::{PRODUCT_LABEL, REGION_LABEL, RUNNER_MEMORY, SPOT_LABELS};
use crate::machines::source::{CreateOrder, SourceError};
use model::pod::{JOIN_DIR, PROGRAM_DIR, PodTemplate, PodUser, STATE_DIR};
use model::pod_source::{ClaimMount, KubernetesConfig, PodRoot, USUAL_ACCESS_MODE};
use serde_json::{Map, Value, json};
use slurm::option::Command;
use std::collections::BTreeSet;

/// What is made by us says so.
pub const MANAGED_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGER: &str = "sluice";

pub const CLUSTER_LABEL: &str = "sluice-cluster";
pub const TOKEN_LABEL: &str = "sluice-token";

/// How long a pod that is evicted has for the end of its jobs: the grace of an interruption and `KillWait` are in it.
const GRACE_S: u32 = 60;

/// The key of the join file in its secret, and the name of its file.
pub const JOIN_KEY: &str = "join";

/// The longest value of a label.
const LABEL_BYTES_MAX: usize = 63;

/// The name of the pod of a token, and of its secret.
pub fn name(token: &str) -> String {
    format!("sluice-{token}")
}

/// The cluster's name, if it can be a label's value.
pub fn cluster_label(cluster: &str) -> Result<&str, SourceError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = [cluster.bytes().next(), cluster.bytes().last()];
    let is_label = cluster.len() <= LABEL_BYTES_MAX
        && cluster.bytes().all(is_plain)
        && ends.iter().all(|end| end.is_some_and(|b| b.is_ascii_alphanumeric()));
    let expected = format!("expected at most {LABEL_BYTES_MAX} letters, digits and - _ .");
    let wrong = || SourceError::refused(format!("ClusterName {cluster}: {expected}"));
    is_label.then_some(cluster).ok_or_else(wrong)
}

pub fn metadata(cluster: &str, order: &CreateOrder) -> Value {
    json!({
        "name": name(&order.token),
        "labels": {
            MANAGED_LABEL: MANAGER,
            CLUSTER_LABEL: cluster,
            TOKEN_LABEL: order.token,
        },
        "annotations": {"sluice-node": order.node},
    })
}

/// `products`: the labels of the GPUs that the offer has.
pub fn pod(
    config: &KubernetesConfig,
    cluster: &str,
    order: &CreateOrder,
    template: &PodTemplate,
    products: &BTreeSet<String>,
) -> Value {
    let may_be_root = template.uid == 0 || !template.user.is_job_user();
    let mut spec = json!({
        "restartPolicy": "Never",
        "hostname": order.node,
        "enableServiceLinks": false,
        "automountServiceAccountToken": config.service_account.is_some(),
        // Another process than the agent is the first one, and reaps what jobs leave behind.
        "shareProcessNamespace": true,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(config, template, may_be_root),
        "initContainers": [{
            "name": "program",
            "image": config.runner_image,
            "command": ["/bin/sh", "-c", copy_program()],
            "resources": resources(config, order),
            "securityContext": security(may_be_root),
            "volumeMounts": [{"name": "program", "mountPath": PROGRAM_DIR}],
        }],
        "containers": [{
            "name": "job",
            "image": template.image.as_deref().unwrap_or(&config.image),
            "command": agent_command(order, template),
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "SLUICE_STATE", "value": STATE_DIR},
            ],
            "resources": resources(config, order),
            "securityContext": security(may_be_root),
            "volumeMounts": mounts(config, template),
        }],
        "volumes": volumes(config, &order.token, template),
        "affinity": affinity(order, products),
    });
    if !template.user.is_job_user() && config.root == PodRoot::Namespace {
        spec["hostUsers"] = json!(false);
    }
    let selector = selector(config, order);
    let own = template.has_registry_auth.then(|| name(&order.token));
    let references: Vec<Value> =
        config.pull_secrets.iter().chain(&own).map(|name| json!({"name": name})).collect();
    if own.is_some() {
        // The registry is asked with the credentials of whoever asks, also where the node has the image.
        spec["containers"][0]["imagePullPolicy"] = json!("Always");
    }
    let more = [
        ("nodeSelector", (!selector.is_empty()).then_some(Value::Object(selector))),
        ("imagePullSecrets", (!references.is_empty()).then(|| references.into())),
        ("tolerations", (!config.tolerations.is_empty()).then(|| json!(config.tolerations))),
        ("serviceAccountName", config.service_account.as_ref().map(|name| json!(name))),
        ("priorityClassName", config.priority_class.as_ref().map(|name| json!(name))),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            spec[key] = value;
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(cluster, order),
        "spec": spec,
    })
}

/// Who the processes of all containers are. Where nothing is said, they are whom their image says.
fn pod_security(config: &KubernetesConfig, template: &PodTemplate, may_be_root: bool) -> Value {
    let mut context = json!({
        "runAsNonRoot": !may_be_root,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let user = match template.user {
        PodUser::JobUser => Some((template.uid, template.gid, template.groups.clone())),
        PodUser::Root => Some((0, 0, Vec::new())),
        PodUser::OfImage => None,
    };
    if let Some((uid, gid, groups)) = user {
        context["runAsUser"] = json!(uid);
        context["runAsGroup"] = json!(gid);
        context["supplementalGroups"] = json!(groups);
    }
    if owns_claims(config, template) {
        context["fsGroup"] = json!(template.gid);
    }
    context
}

fn agent_command(order: &CreateOrder, template: &PodTemplate) -> Vec<String> {
    let mut words = vec![format!("{PROGRAM_DIR}/sluice"), "agent".into(), "--pod".into()];
    if !template.user.is_job_user() {
        words.extend(["--pod-user".into(), template.uid.to_string()]);
    }
    words.extend([
        "--join".into(),
        format!("{JOIN_DIR}/join"),
        "--node".into(),
        order.node.clone(),
        "--dynamic".into(),
        "--conf".into(),
        format!("{} NodeAddr=$(POD_IP)", order.conf),
    ]);
    words
}

/// What the init container does: the program is copied, and each of Slurm's commands is a link to it.
fn copy_program() -> String {
    let names = Command::ALL.map(Command::name).join(" ");
    format!(
        "cp \"$(command -v sluice)\" {PROGRAM_DIR}/sluice && cd {PROGRAM_DIR} && \
         for name in {names}; do ln -sf sluice $name; done"
    )
}

/// Whether Kubernetes may give all that the pod mounts to its group, as a fresh claim needs it: what is in a claim of several users
/// would be readable and writable for each one's group in turn.
fn owns_claims(config: &KubernetesConfig, template: &PodTemplate) -> bool {
    config.claims.iter().all(|claim| claim.read_only || claim.is_of_user())
        && template.claims.iter().all(|claim| claim.read_only || claim.is_own)
}

/// What the job asks for, as the least and the most.
fn resources(config: &KubernetesConfig, order: &CreateOrder) -> Value {
    let offer = &order.offer;
    let memory = offer.memory.mib() + RUNNER_MEMORY.mib();
    let mut amounts = json!({"cpu": offer.cpus.to_string(), "memory": format!("{memory}Mi")});
    if let Some(gpus) = &offer.gpus {
        amounts[&config.gpu_resource] = json!(gpus.count.to_string());
    }
    if offer.disk.mib() > 0 {
        amounts["ephemeral-storage"] = json!(format!("{}Mi", offer.disk.mib()));
    }
    json!({"requests": amounts, "limits": amounts})
}

fn security(may_be_root: bool) -> Value {
    if may_be_root {
        return json!({"allowPrivilegeEscalation": false});
    }
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

fn selector(config: &KubernetesConfig, order: &CreateOrder) -> Map<String, Value> {
    let own = config.node_selector.iter().map(|(key, value)| (key.clone(), json!(value)));
    let region = Some(&order.offer.region).filter(|region| !region.is_empty());
    own.chain(region.map(|region| (REGION_LABEL.to_owned(), json!(region)))).collect()
}

/// Nodes with the GPUs of the offer, and in its market: of a job that nobody may interrupt no pod is on a spot node.
fn affinity(order: &CreateOrder, products: &BTreeSet<String>) -> Value {
    let gpus = order.offer.gpus.as_ref().map(|_| {
        if products.is_empty() {
            json!({"key": PRODUCT_LABEL, "operator": "DoesNotExist"})
        } else {
            json!({"key": PRODUCT_LABEL, "operator": "In", "values": products})
        }
    });
    let market = |operator: &'static str| {
        SPOT_LABELS.map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]}))
    };
    // One of the terms has to match, and all that is in it.
    let terms: Vec<Vec<Value>> = if order.offer.spot {
        market("In").into_iter().map(|spot| gpus.iter().cloned().chain([spot]).collect()).collect()
    } else {
        vec![gpus.iter().cloned().chain(market("NotIn")).collect()]
    };
    let terms: Vec<Value> =
        terms.into_iter().map(|term| json!({"matchExpressions": term})).collect();
    let required = json!({"nodeSelectorTerms": terms});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
}

fn mounts(config: &KubernetesConfig, template: &PodTemplate) -> Value {
    let own = [
        json!({"name": "program", "mountPath": PROGRAM_DIR, "readOnly": true}),
        json!({"name": "join", "mountPath": JOIN_DIR, "readOnly": true}),
        json!({"name": "shm", "mountPath": "/dev/shm"}),
    ];
    let claims = config.claims.iter().enumerate().map(
        |(at, of)| json!({"name": volume_name(at), "mountPath": of.path, "readOnly": of.read_only}),
    );
    let of_job = template.claims.iter().enumerate().map(|(at, of)| {
        json!({"name": job_volume_name(at), "mountPath": of.path, "readOnly": of.read_only})
    });
    own.into_iter().chain(claims).chain(of_job).collect()
}

/// The claim that a pod of this user mounts, where the site has it made.
pub fn claim(mount: &ClaimMount, uid: u32) -> Option<Value> {
    let size = mount.size.as_ref()?;
    let metadata = json!({
        "name": mount.name_for(uid),
        "labels": {MANAGED_LABEL: MANAGER},
    });
    let class = mount.storage_class_name.as_deref();
    Some(claim_object(metadata, size, &mount.access_modes, class))
}

/// A claim.
pub fn claim_object(metadata: Value, size: &str, modes: &[String], class: Option<&str>) -> Value {
    let modes = match modes {
        [] => json!([USUAL_ACCESS_MODE]),
        modes => json!(modes),
    };
    let mut spec = json!({"accessModes": modes, "resources": {"requests": {"storage": size}}});
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
    })
}

fn volumes(config: &KubernetesConfig, token: &str, template: &PodTemplate) -> Value {
    // Whoever is in the pod is one user, who is not the owner of the file.
    let items = json!([{"key": JOIN_KEY, "path": JOIN_KEY}]);
    let secret = json!({"secretName": name(token), "defaultMode": 0o444, "items": items});
    let own = [
        json!({"name": "program", "emptyDir": {}}),
        json!({"name": "join", "secret": secret}),
        json!({"name": "shm", "emptyDir": {"medium": "Memory"}}),
    ];
    let claims = config.claims.iter().enumerate().map(|(at, of)| {
        let claim = json!({"claimName": of.name_for(template.uid), "readOnly": of.read_only});
        json!({"name": volume_name(at), "persistentVolumeClaim": claim})
    });
    let of_job = template.claims.iter().enumerate().map(|(at, of)| {
        let claim = json!({"claimName": of.claim_name, "readOnly": of.read_only});
        json!({"name": job_volume_name(at), "persistentVolumeClaim": claim})
    });
    own.into_iter().chain(claims).chain(of_job).collect()
}

fn volume_name(at: usize) -> String {
    format!("claim-{at}")
}

/// The name, in a pod, of the volume of a claim that its job names.
fn job_volume_name(at: usize) -> String {
    format!("volume-{at}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::cloud::user_data::tests::order;
    use crate::machines::kubernetes::pod_secret::secret;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use model::amount::Bytes;
    use model::machine::OfferedGpus;
    use model::pod::PodClaim;
    use model::pod_source::Toleration;
    use model::secret::{RegistryAuth, SecretValue};

    fn template() -> PodTemplate {
        PodTemplate {
            image: Some("lab/tool:1".into()),
            uid: 1000,
            gid: 100,
            groups: vec![7],
            user: PodUser::JobUser,
            has_registry_auth: false,
            claims: Vec::new(),
        }
    }

    fn config() -> KubernetesConfig {
        KubernetesConfig {
            runner_image: "lab/sluice:1".into(),
            image: "ubuntu:24.04".into(),
            gpu_resource: "nvidia.com/gpu".into(),
            ..KubernetesConfig::default()
        }
    }

    fn products() -> BTreeSet<String> {
        ["NVIDIA-A100-SXM4-80GB".to_owned()].into()
    }

    #[test]
    fn pod_is_on_a_node_with_the_gpus_of_its_offer_and_in_its_market() {
        let terms = |order: &CreateOrder, products: &BTreeSet<String>| {
            let found = affinity(order, products);
            let required = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            found.pointer(&format!("{required}/nodeSelectorTerms")).cloned().expect("terms")
        };
        let operators = |term: &Value| -> Vec<String> {
            let all = term["matchExpressions"].as_array().into_iter().flatten();
            all.map(|of| of["operator"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let mut order = order("16cpu", "", false);
        let plain = terms(&order, &BTreeSet::new());
        assert_eq!(operators(&plain[0]), ["NotIn"; 3], "no spot node");
        order.offer.gpus = Some(OfferedGpus { kind: "a100".into(), count: 2, memory: None });
        let labelled = terms(&order, &products());
        assert_eq!(operators(&labelled[0]), ["In", "NotIn", "NotIn", "NotIn"]);
        assert_eq!(operators(&terms(&order, &BTreeSet::new())[0])[0], "DoesNotExist");
        order.offer.spot = true;
        let spot = terms(&order, &products());
        assert_eq!(spot.as_array().map(Vec::len), Some(3), "one of the labels");
        assert_eq!(operators(&spot[0]), ["In"; 2]);
    }

    #[test]
    fn pod_has_what_its_job_asks_for_and_runs_the_agent_in_the_jobs_image() {
        let mut order = order("16cpu", "", false);
        order.offer.gpus = Some(OfferedGpus { kind: "a100".into(), count: 2, memory: None });
        order.offer.disk = Bytes::from_mib(500);
        let pod = pod(&config(), "lab", &order, &template(), &products());
        let job = &pod["spec"]["containers"][0];
        let asked = json!({
            "cpu": "2", "memory": "1152Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "500Mi",
        });
        assert_eq!(job["resources"], json!({"requests": asked, "limits": asked}));
        assert_eq!(job["image"], "lab/tool:1");
        assert_eq!(job["command"][0], "/sluice/sluice");
        assert_eq!(pod["spec"]["initContainers"][0]["image"], "lab/sluice:1");
        assert_eq!(pod["spec"]["securityContext"]["runAsUser"], 1000);
        assert_eq!(pod["metadata"]["name"], "sluice-1-ab");
        assert_eq!(pod["metadata"]["labels"][TOKEN_LABEL], "1-ab");
        for key in ["nodeSelector", "tolerations", "imagePullSecrets", "serviceAccountName"] {
            assert!(pod["spec"].get(key).is_none(), "{key}");
        }
        assert!(!pod.to_string().contains("once"), "the join token is in the secret alone");
        let secret = secret("lab", &order).expect("a secret");
        let join = secret["data"]["join"].as_str().expect("a text");
        let join = STANDARD.decode(join).expect("base 64");
        assert!(String::from_utf8_lossy(&join).contains("\"token\":\"once\""));
    }

    #[test]
    fn image_is_pulled_with_what_its_job_brings_which_is_no_file_of_the_pod() {
        let mut order = order("16cpu", "", false);
        let value = |text: &str| SecretValue(text.to_owned());
        order.registry_auth =
            Some(RegistryAuth { username: value("ann"), password: value("pass:word") });
        let config = KubernetesConfig { pull_secrets: vec!["site".into()], ..config() };
        let template = PodTemplate { has_registry_auth: true, ..template() };
        let pod = pod(&config, "lab", &order, &template, &products());
        let names = json!([{"name": "site"}, {"name": "sluice-1-ab"}]);
        assert_eq!(pod["spec"]["imagePullSecrets"], names);
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        let mounted = json!([{"key": "join", "path": "join"}]);
        assert_eq!(pod["spec"]["volumes"][1]["secret"]["items"], mounted);
        assert!(!pod.to_string().contains("pass:word"));
    }

    #[test]
    fn job_that_is_root_in_its_pod_is_there_for_its_own_user_alone() {
        let made = |root: PodRoot, user: PodUser| {
            let config = KubernetesConfig { root, ..config() };
            let template = PodTemplate { user, ..template() };
            pod(&config, "lab", &order("16cpu", "", false), &template, &products())
        };
        let own = made(PodRoot::Namespace, PodUser::Root);
        let host = made(PodRoot::Host, PodUser::Root);
        let context = &own["spec"]["securityContext"];
        assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&json!(0), &json!(0)));
        assert_eq!(context["runAsNonRoot"], false);
        assert_eq!(context["supplementalGroups"], json!([]));
        let words = own["spec"]["containers"][0]["command"].as_array().expect("words");
        assert_eq!(words[2..5], ["--pod", "--pod-user", "1000"]);
        assert_eq!(own["spec"]["hostUsers"], false, "it is nobody on the node");
        assert!(host["spec"].get("hostUsers").is_none());
        let of_image = made(PodRoot::Namespace, PodUser::OfImage);
        let context = &of_image["spec"]["securityContext"];
        assert!(context.get("runAsUser").is_none() && context["runAsNonRoot"] == false);
        assert_eq!(of_image["spec"]["hostUsers"], false);
    }

    #[test]
    fn claim_of_several_users_keeps_the_groups_of_its_files() {
        let group = |claim_name: &str, read_only: bool| {
            let mount = ClaimMount {
                claim_name: claim_name.to_owned(),
                path: "/data".into(),
                read_only,
                ..ClaimMount::default()
            };
            let config = KubernetesConfig { claims: vec![mount], ..config() };
            let order = order("16cpu", "", false);
            let pod = pod(&config, "lab", &order, &template(), &products());
            pod["spec"]["securityContext"]["fsGroup"].clone()
        };
        assert_eq!(group("home-{uid}", false), 100);
        assert_eq!(group("data", true), 100);
        assert_eq!(group("data", false), Value::Null);
    }

    #[test]
    fn pod_mounts_the_claims_that_its_job_names_beside_those_of_the_site() {
        let claim = |claim_name: &str, is_own: bool| PodClaim {
            claim_name: claim_name.to_owned(),
            of_ranks: Vec::new(),
            path: format!("/volumes/{claim_name}"),
            read_only: false,
            is_own,
            is_exclusive: true,
        };
        let home = ClaimMount {
            claim_name: "home-{uid}".into(),
            path: "/home".into(),
            ..ClaimMount::default()
        };
        let config = KubernetesConfig { claims: vec![home], ..config() };
        let pod = |claims: Vec<PodClaim>| {
            let template = PodTemplate { claims, ..template() };
            pod(&config, "lab", &order("16cpu", "", false), &template, &products())
        };
        let made = pod(vec![claim("data", true)]);
        let spec = &made["spec"];
        let last = |list: &Value| list.as_array().and_then(|list| list.last().cloned());
        let mount = json!({"name": "volume-0", "mountPath": "/volumes/data", "readOnly": false});
        assert_eq!(last(&spec["containers"][0]["volumeMounts"]), Some(mount));
        let source = json!({"claimName": "data", "readOnly": false});
        let volume = json!({"name": "volume-0", "persistentVolumeClaim": source});
        assert_eq!(last(&spec["volumes"]), Some(volume));
        assert_eq!(spec["volumes"].as_array().map(Vec::len), Some(5), "the site's is there too");
        assert_eq!(spec["securityContext"]["fsGroup"], 100, "a fresh claim is root's");
        let registered = pod(vec![claim("data", true), claim("old", false)]);
        let group = &registered["spec"]["securityContext"]["fsGroup"];
        assert!(group.is_null(), "what is in it stays as it is");
    }

    /// All that a manifest of ours may have. The same file is held to the schema of Kubernetes by `setup/python_clients.rs`.
    #[test]
    fn pod_is_placed_as_the_site_says_and_its_manifests_are_those_that_are_validated() {
        let toleration = Toleration {
            key: Some("gpu".into()),
            operator: Some("Exists".into()),
            ..Toleration::default()
        };
        let mount = ClaimMount {
            claim_name: "home-{uid}".into(),
            path: "/home".into(),
            size: Some("10Gi".into()),
            storage_class_name: Some("fast".into()),
            access_modes: vec!["ReadWriteMany".into()],
            ..ClaimMount::default()
        };
        let config = KubernetesConfig {
            tolerations: vec![toleration],
            node_selector: [("pool".to_owned(), "jobs".to_owned())].into(),
            pull_secrets: vec!["registry".into()],
            service_account: Some("runner".into()),
            priority_class: Some("batch".into()),
            claims: vec![mount.clone()],
            ..config()
        };
        let mut order = order("16cpu@eu", "eu", false);
        order.offer.gpus = Some(OfferedGpus { kind: "a100".into(), count: 2, memory: None });
        order.offer.disk = Bytes::from_mib(500);
        let mut secret = secret("lab", &order).expect("a secret");
        secret["data"]["join"] = json!(STANDARD.encode("join"));
        let claim = claim(&mount, template().uid).expect("a claim");
        let pod = pod(&config, "lab", &order, &template(), &products());
        let made = json!([claim, secret, pod]);
        let expected: Value = serde_json::from_str(include_str!("manifests.json")).expect("JSON");
        assert_eq!(made, expected);
    }

    #[test]
    fn cluster_whose_name_is_no_label_is_told_so() {
        assert!(cluster_label("lab-1").is_ok());
        for name in ["", "two words", "-lab", &"x".repeat(64)] {
            assert!(cluster_label(name).is_err(), "{name}");
        }
    }
}
