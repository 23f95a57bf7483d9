//! What pods a cluster could hold: an offer for each sort of node that takes them. A pod is the part of it that its job asks for.

use crate::machines::cloud::machine_facts::gpu_kind;
use crate::machines::cloud::rest::word;
use model::amount::Bytes;
use model::machine::{Offer, OfferedGpus};
use model::pod_source::KubernetesConfig;
use model::price::Price;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a pod has beside what its job asks for: the agent and its supervisors.
pub const RUNNER_MEMORY: Bytes = Bytes::from_mib(128);

pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
pub const PRODUCT_LABEL: &str = "nvidia.com/gpu.product";
/// What clouds label nodes with that they may take back.
pub const SPOT_LABELS: [(&str, &str); 3] = [
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
];

/// The offers of a list of nodes, each sort once.
pub fn of_nodes(config: &KubernetesConfig, nodes: &[Value]) -> Vec<Offer> {
    let found = nodes.iter().filter(|node| takes_pods(config, node));
    let found = found.filter_map(|node| offer(config, node));
    let by_id: BTreeMap<String, Offer> = found.map(|offer| (offer.id.clone(), offer)).collect();
    by_id.into_values().collect()
}

/// The labels of the GPUs that an offer has: a pod with a number of GPUs alone would be given those of any node.
pub fn products(
    config: &KubernetesConfig,
    nodes: &[Value],
    wanted: &OfferedGpus,
) -> BTreeSet<String> {
    let is_like = |gpus: OfferedGpus| gpus.kind == wanted.kind && gpus.memory == wanted.memory;
    let has = |node: &&Value| offer(config, node).and_then(|offer| offer.gpus).is_some_and(is_like);
    let found = nodes.iter().filter(|node| takes_pods(config, node)).filter(has);
    let labels = found.filter_map(|node| node["metadata"]["labels"][PRODUCT_LABEL].as_str());
    labels.map(str::to_owned).collect()
}

/// Whether pods of the source may be on the node.
fn takes_pods(config: &KubernetesConfig, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let has = |(key, value): (&String, &String)| labels[key].as_str() == Some(value.as_str());
    let is_chosen = config.node_selector.iter().all(has);
    let conditions = node["status"]["conditions"].as_array();
    let is_ready = |of: &Value| word(of, "/type") == "Ready" && word(of, "/status") == "True";
    let is_tolerated = |taint: &Value| {
        let effect = word(taint, "/effect");
        let (key, value) = (word(taint, "/key"), word(taint, "/value"));
        effect == "PreferNoSchedule"
            || config.tolerations.iter().any(|of| of.covers(key, value, effect))
    };
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    is_chosen
        && node["spec"]["unschedulable"] != true
        && conditions.into_iter().flatten().any(is_ready)
        && taints.all(is_tolerated)
}

fn offer(config: &KubernetesConfig, node: &Value) -> Option<Offer> {
    let labels = &node["metadata"]["labels"];
    let has = |name: &str| {
        let value = &node["status"]["allocatable"][name];
        value.as_str().and_then(quantity).unwrap_or(0.0)
    };
    let (cpus, memory) = (has("cpu") as u32, Bytes(has("memory") as u64));
    let memory = Bytes::from_mib(memory.0.checked_sub(RUNNER_MEMORY.0)? >> 20);
    let count = has(&config.gpu_resource) as u32;
    let gpus = (count > 0).then(|| OfferedGpus {
        kind: product_kind(labels[PRODUCT_LABEL].as_str().unwrap_or("gpu")),
        count,
        memory: labels["nvidia.com/gpu.memory"]
            .as_str()
            .and_then(|mib| mib.parse().ok())
            .map(Bytes::from_mib),
    });
    let region = labels[REGION_LABEL].as_str().unwrap_or_default().to_owned();
    let spot = SPOT_LABELS.iter().any(|(key, value)| labels[*key].as_str() == Some(*value));
    let gib = memory.mib().div_ceil(1024);
    let parts = [
        (config.cpu_price, u64::from(cpus)),
        (config.gib_price, gib),
        (config.gpu_price, u64::from(count)),
    ];
    // What the API says is checked later (`answer_bounds`).
    let cost = |(price, amount): (Price, u64)| price.units().saturating_mul(amount);
    let price = parts.map(cost).into_iter().fold(0, u64::saturating_add);
    let of_gpus = gpus.as_ref().map(|gpus| format!("-{}x{}", gpus.kind, gpus.count));
    let place = if region.is_empty() { String::new() } else { format!("@{region}") };
    let market = if spot { "/spot" } else { "" };
    Some(Offer {
        id: format!("{cpus}cpu-{gib}gb{}{place}{market}", of_gpus.unwrap_or_default()),
        cpus,
        memory,
        disk: Bytes::from_mib((has("ephemeral-storage") as u64) >> 20),
        gpus,
        region,
        price: Price::from_units(price),
        spot,
    })
    .filter(|offer| offer.cpus > 0 && offer.memory.0 > 0)
}

/// `NVIDIA-A100-SXM4-80GB` is `a100`, `Tesla-T4` is `t4`, `NVIDIA-GeForce-RTX-4090` is `geforce_rtx_4090`, and a slice has its
/// profile: `a100_1g.5gb`.
fn product_kind(product: &str) -> String {
    let (device, slice) = match product.split_once("-MIG-") {
        Some((device, slice)) => (device, Some(slice)),
        None => (product, None),
    };
    let words = device.split('-').filter(|word| !["", "NVIDIA", "Tesla"].contains(word));
    let words: Vec<&str> = words.collect();
    let is_model = |word: &&str| word.bytes().any(|b| b.is_ascii_digit());
    let name = match words.first().filter(|word| is_model(word)) {
        Some(model) => (*model).to_owned(),
        None if words.is_empty() => "gpu".to_owned(),
        None => words.join("_"),
    };
    gpu_kind(&slice.map_or_else(|| name.clone(), |slice| format!("{name}_{slice}")))
}

/// A quantity of Kubernetes: `3920m`, `32Gi`, `1500M`.
pub fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let power = |base: f64, of: i32| base.powi(of);
    let factor = match suffix {
        "" => 1.0,
        "m" => 0.001,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => power(1024.0, 1),
        "Mi" => power(1024.0, 2),
        "Gi" => power(1024.0, 3),
        "Ti" => power(1024.0, 4),
        "Pi" => power(1024.0, 5),
        _ => return None,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::gpu_model::is_model;
    use model::pod_source::Toleration;
    use serde_json::json;

    fn config() -> KubernetesConfig {
        KubernetesConfig {
            gpu_resource: "nvidia.com/gpu".into(),
            cpu_price: Price::from_units(10),
            gpu_price: Price::from_units(1000),
            ..KubernetesConfig::default()
        }
    }

    fn node(more: Value) -> Value {
        let mut node = json!({
            "metadata": {"labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920",
                "pool": "jobs",
            }},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "15890m", "memory": "65011712Ki", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            node["spec"][key] = value.clone();
        }
        node
    }

    #[test]
    fn nodes_of_one_sort_are_one_offer_with_what_pods_may_have_there() {
        let found = of_nodes(&config(), &[node(json!({})), node(json!({}))]);
        assert_eq!(found.len(), 1, "{found:?}");
        let offer = &found[0];
        assert_eq!((offer.cpus, offer.memory.mib()), (15, 65011712 / 1024 - 128));
        let gpus = offer.gpus.as_ref().expect("GPUs");
        assert_eq!((gpus.kind.as_str(), gpus.count), ("a100", 8));
        assert_eq!(gpus.memory, Some(Bytes::from_mib(81920)));
        assert_eq!(offer.price.units(), 15 * 10 + 8 * 1000);
        assert_eq!(offer.id, "15cpu-62gb-a100x8");
    }

    #[test]
    fn node_that_says_more_than_there_is_costs_no_less_for_it() {
        let mut node = node(json!({}));
        node["status"]["allocatable"]["memory"] = json!("99999999999999999999");
        let config = KubernetesConfig { gib_price: Price::from_units(u64::MAX / 2), ..config() };
        assert_eq!(of_nodes(&config, &[node])[0].price.units(), u64::MAX);
    }

    #[test]
    fn gpus_of_an_offer_are_found_again_by_their_labels() {
        let mut other = node(json!({}));
        other["metadata"]["labels"][PRODUCT_LABEL] = json!("Tesla-T4");
        let nodes = [node(json!({})), other];
        let offers = of_nodes(&config(), &nodes);
        let of_kind = |kind: &str| {
            let mut gpus = offers.iter().filter_map(|offer| offer.gpus.as_ref());
            let wanted = gpus.find(|gpus| gpus.kind == kind).expect(kind);
            products(&config(), &nodes, wanted).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of_kind("a100"), ["NVIDIA-A100-SXM4-80GB"]);
        assert_eq!(of_kind("t4"), ["Tesla-T4"]);
    }

    #[test]
    fn nodes_that_take_no_pods_of_ours_are_no_offer() {
        let taint = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        assert!(of_nodes(&config(), &[node(taint.clone())]).is_empty());
        let toleration = Toleration {
            key: Some("gpu".into()),
            operator: Some("Exists".into()),
            ..Toleration::default()
        };
        let tolerant = KubernetesConfig { tolerations: vec![toleration], ..config() };
        assert_eq!(of_nodes(&tolerant, &[node(taint)]).len(), 1);
        assert!(of_nodes(&config(), &[node(json!({"unschedulable": true}))]).is_empty());
        let selector = [("pool".to_owned(), "web".to_owned())].into();
        let chosen = KubernetesConfig { node_selector: selector, ..config() };
        assert!(of_nodes(&chosen, &[node(json!({}))]).is_empty());
    }

    #[test]
    fn products_are_the_kinds_that_jobs_ask_for() {
        let table = [
            ("NVIDIA-A100-SXM4-80GB", "a100"),
            ("Tesla-T4", "t4"),
            ("NVIDIA-GeForce-RTX-4090", "geforce_rtx_4090"),
            ("NVIDIA-RTX-A6000", "rtx_a6000"),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100_1g.5gb"),
            ("gpu", "gpu"),
            ("NVIDIA", "gpu"),
        ];
        for (product, kind) in table {
            assert_eq!(product_kind(product), kind, "{product}");
        }
        assert!(is_model(&product_kind("NVIDIA-GeForce-RTX-4090"), "RTX4090"));
        assert!(!is_model(&product_kind("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"), "A100"), "a slice");
    }

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        let table = [("2", 2.0), ("500m", 0.5), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 1073741824.0)];
        for (text, value) in table {
            assert_eq!(quantity(text), Some(value), "{text}");
        }
        assert_eq!((quantity("x"), quantity("1x"), quantity("")), (None, None, None));
    }
}
