//! `[source.kubernetes]` of sluice.toml: the Kubernetes cluster whose pods are a source's machines.

use model::container::is_plain_path;
use model::pod_source::{ACCESS_MODES, ClaimMount, KubernetesConfig, PodRoot, Toleration};
use model::price::Price;
use model::time::parse_duration;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const LIST_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 253;

/// How long a pod may wait for a place where nothing is said, and at most.
const PENDING_S: u32 = 300;
const PENDING_MAX: Duration = Duration::from_secs(24 * 3600);

const GPU_RESOURCE: &str = "nvidia.com/gpu";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KubernetesToml {
    kubeconfig: Option<String>,
    context: Option<String>,
    namespace: Option<String>,
    runner_image: Option<String>,
    image: Option<String>,
    image_pull_secrets: Option<Vec<String>>,
    service_account: Option<String>,
    priority_class: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<Toleration>>,
    gpu_resource: Option<String>,
    claims: Option<Vec<ClaimMount>>,
    cpu_price: Option<f64>,
    memory_price: Option<f64>,
    gpu_price: Option<f64>,
    pending: Option<String>,
    root: Option<String>,
    /// A key of dstack's without effect here: the agent of a pod dials out, and nobody has to reach it.
    proxy_jump: Option<ProxyJumpToml>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "taken, and not needed")]
struct ProxyJumpToml {
    hostname: Option<String>,
    port: Option<u16>,
}

impl KubernetesToml {
    /// What is given, or what is wrong: the key, its value and what would be right.
    pub(super) fn config(&self) -> Result<KubernetesConfig, String> {
        // It is taken whatever it says.
        let _ = &self.proxy_jump;
        let kubeconfig = self.kubeconfig.clone();
        if let Some(path) = kubeconfig.as_deref().filter(|path| !is_plain_path(path)) {
            return Err(format!("kubeconfig: {path:?}: expected an absolute path"));
        }
        let required = |key: &str, given: &Option<String>| match text(key, given)? {
            Some(image) => Ok(image),
            None => Err(format!("{key}: missing: expected an image, as registry.lab/sluice:1")),
        };
        let tolerations = self.tolerations.clone().unwrap_or_default();
        let claims = self.claims.clone().unwrap_or_default();
        let pull_secrets = self.image_pull_secrets.clone().unwrap_or_default();
        let node_selector = self.node_selector.clone().unwrap_or_default();
        let lists = [
            ("tolerations", tolerations.len()),
            ("claims", claims.len()),
            ("image_pull_secrets", pull_secrets.len()),
            ("node_selector", node_selector.len()),
        ];
        if let Some((key, count)) = lists.into_iter().find(|(_, count)| *count > LIST_MAX) {
            return Err(format!("{key}: {count} of them: expected at most {LIST_MAX}"));
        }
        for claim in &claims {
            check_claim(claim)?;
        }
        for words in node_selector.iter().flat_map(|(key, value)| [key, value]) {
            text("node_selector", &Some(words.clone()))?;
        }
        for name in &pull_secrets {
            text("image_pull_secrets", &Some(name.clone()))?;
        }
        check_tolerations(&tolerations)?;
        let root = root(self.root.as_deref(), &claims)?;
        Ok(KubernetesConfig {
            kubeconfig,
            context: text("context", &self.context)?,
            namespace: text("namespace", &self.namespace)?,
            runner_image: required("runner_image", &self.runner_image)?,
            image: required("image", &self.image)?,
            pull_secrets,
            service_account: text("service_account", &self.service_account)?,
            priority_class: text("priority_class", &self.priority_class)?,
            node_selector,
            tolerations,
            gpu_resource: text("gpu_resource", &self.gpu_resource)?
                .unwrap_or_else(|| GPU_RESOURCE.to_owned()),
            claims,
            cpu_price: price("cpu_price", self.cpu_price)?,
            gib_price: price("memory_price", self.memory_price)?,
            gpu_price: price("gpu_price", self.gpu_price)?,
            pending_s: pending(self.pending.as_deref())?,
            root,
        })
    }
}

/// A name, an image or the value of a label: printable, and without blanks.
fn text(key: &str, given: &Option<String>) -> Result<Option<String>, String> {
    let is_plain = |text: &String| {
        text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"')
    };
    match given {
        Some(text) if !is_plain(text) => Err(format!("{key}: {text:?}: expected a plain name")),
        given => Ok(given.clone().filter(|text| !text.is_empty())),
    }
}

fn check_claim(claim: &ClaimMount) -> Result<(), String> {
    for given in [&Some(claim.claim_name.clone()), &claim.storage_class_name] {
        text("claims", given)?;
    }
    if !is_plain_path(&claim.path) || claim.path == "/" {
        return Err(format!("claims: {:?}: expected an absolute path", claim.path));
    }
    let is_size = |size: &&String| {
        let number = size.strip_suffix("Gi").or_else(|| size.strip_suffix("Ti"));
        number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
    };
    if let Some(size) = claim.size.as_ref().filter(|size| !is_size(size)) {
        return Err(format!("claims: size: {size:?}: expected 10Gi, 2Ti and the like"));
    }
    let says_how = claim.storage_class_name.is_some() || !claim.access_modes.is_empty();
    if claim.size.is_none() && says_how {
        let why = "storage_class_name and access_modes are of a claim that is made";
        return Err(format!("claims: {}: {why}: expected a size", claim.claim_name));
    }
    match claim.access_modes.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
        Some(mode) => {
            Err(format!("claims: access_modes: {mode:?}: expected {}", ACCESS_MODES.join(", ")))
        }
        None => Ok(()),
    }
}

fn check_tolerations(tolerations: &[Toleration]) -> Result<(), String> {
    let known = |key: &str, given: &Option<String>, words: &[&str]| match given.as_deref() {
        Some(word) if !words.contains(&word) => {
            Err(format!("tolerations: {key}: {word:?}: expected {}", words.join(" or ")))
        }
        _ => Ok(()),
    };
    for toleration in tolerations {
        known("operator", &toleration.operator, &["Exists", "Equal"])?;
        known("effect", &toleration.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"])?;
    }
    Ok(())
}

fn price(key: &str, given: Option<f64>) -> Result<Price, String> {
    let wrong = |dollars: f64| format!("{key}: {dollars}: expected dollars an hour");
    given.map_or(Ok(Price::default()), |dollars| {
        Price::from_dollars(dollars).ok_or_else(|| wrong(dollars))
    })
}

/// Whether jobs may be root in their pods. Where they may, no pod has a claim of several users that it could write to: modes of files
/// hold nobody back who is root.
fn root(given: Option<&str>, claims: &[ClaimMount]) -> Result<PodRoot, String> {
    let Some(text) = given else { return Ok(PodRoot::Never) };
    let Some((_, root)) = PodRoot::NAMES.into_iter().find(|(name, _)| *name == text) else {
        let names = PodRoot::NAMES.map(|(name, _)| name).join(", ");
        return Err(format!("root: {text:?}: expected {names}"));
    };
    let is_open = |claim: &&ClaimMount| !claim.read_only && !claim.is_of_user();
    match claims.iter().find(is_open).filter(|_| root != PodRoot::Never) {
        Some(claim) => Err(format!(
            "root: {text:?}: claim {} is several users' and can be written: \
             expected read_only, or {{uid}} in its name",
            claim.claim_name
        )),
        None => Ok(root),
    }
}

fn pending(given: Option<&str>) -> Result<u32, String> {
    let Some(text) = given else { return Ok(PENDING_S) };
    match parse_duration(text) {
        Ok(Some(length)) if length <= PENDING_MAX => Ok(length.as_secs() as u32),
        _ => Err(format!("pending: {text:?}: expected a time of at most 1d, as in 5m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGES: &str = "runner_image = 'lab/sluice:1'\nimage = 'ubuntu:24.04'\n";

    fn read(text: &str) -> Result<KubernetesConfig, String> {
        let given: KubernetesToml = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        given.config()
    }

    #[test]
    fn kubernetes_has_what_is_given_and_usual_values_otherwise() {
        let small = read(IMAGES).expect("it is good");
        assert_eq!((small.gpu_resource.as_str(), small.pending_s), (GPU_RESOURCE, PENDING_S));
        assert_eq!(small.kubeconfig, None, "the server is in the cluster");
        assert_eq!(small.root, PodRoot::Never);
        let more = format!(
            "{IMAGES}kubeconfig = '/etc/sluice/kubeconfig'\ncontext = 'lab'\nnamespace = 'jobs'\n\
             root = 'namespace'\npending = '30s'\ncpu_price = 0.05\nnode_selector = {{ pool = 'jobs' }}\n\
             tolerations = [{{ key = 'gpu', operator = 'Exists', effect = 'NoSchedule' }}]\n\
             claims = [{{ claim_name = 'home-{{uid}}', path = '/home', size = '1Gi' }}]\nproxy_jump = {{ port = 32000 }}\n"
        );
        let more = read(&more).expect("it is good");
        assert_eq!((more.namespace.as_deref(), more.pending_s), (Some("jobs"), 30));
        assert_eq!(Some(more.cpu_price), Price::from_dollars(0.05));
        assert!(more.tolerations[0].covers("gpu", "", "NoSchedule"));
        assert_eq!(more.claims[0].name_for(7), "home-7");
        assert_eq!(more.root, PodRoot::Namespace);
    }

    #[test]
    fn wrong_values_are_said_with_their_key() {
        let table = [
            ("kubeconfig = 'config'", "kubeconfig: \"config\": expected an absolute path"),
            ("namespace = 'two words'", "namespace: \"two words\": expected a plain name"),
            ("cpu_price = -1", "cpu_price: -1: expected dollars"),
            ("pending = 'soon'", "pending: \"soon\": expected a time"),
            ("root = 'yes'", "root: \"yes\": expected never, namespace, host"),
            (
                "root = 'host'\nclaims = [{ claim_name = 'a', path = '/b' }]",
                "root: \"host\": claim a is several users' and can be written",
            ),
            ("tolerations = [{ operator = 'In' }]", "operator: \"In\": expected Exists or Equal"),
            ("claims = [{ claim_name = 'a', path = 'b' }]", "claims: \"b\": expected an absolute"),
            ("claims = [{ claim_name = 'a', path = '/b', size = '1' }]", "size: \"1\": expected"),
            (
                "claims = [{ claim_name = 'a', path = '/b', access_modes = ['ReadWriteMany'] }]",
                "claims: a: storage_class_name and access_modes are of a claim that is made",
            ),
            (
                "claims = [{ claim_name = 'a', path = '/b', size = '1Gi', access_modes = ['rw'] }]",
                "access_modes: \"rw\": expected ReadWriteOnce",
            ),
            ("colour = 'red'", "unknown field `colour`"),
        ];
        for (line, words) in table {
            let said = read(&format!("{IMAGES}{line}\n")).expect_err(line);
            assert!(said.contains(words), "{words}: {said}");
        }
        let said = read("image = 'a'").expect_err("no image");
        assert!(said.contains("runner_image: missing"), "{said}");
    }
}
