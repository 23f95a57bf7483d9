//! Pods of a Kubernetes cluster as machines. A pod is made for one node of a job, of the job's image and with what the job asks
//! for; its command is the agent, which dials the server and runs the job as processes of the pod.
//!
//! `access` and `exec_plugin` say who calls, `client` calls, `offers` is what nodes could hold, `manifest` what a pod is, `pod_secret`
//! what it joins and pulls with, `pod_state` what became of it, `watch` hears of it, and `claims` are the volumes that runs name. The calls are few, over the HTTP client that
//! clouds are called with: `kube` would bring a second one, its types of every object of Kubernetes, and a runtime of its own into
//! calls that block.

mod access;
mod claims;
mod client;
mod exec_plugin;
mod manifest;
mod offers;
mod pod_secret;
mod pod_state;
mod watch;

use super::cloud::rest::word;
use super::cloud::secret::{CredentialText, SecretText};
use super::source::{
    CreateOrder, DeleteOrder, DiskSource, FailedMachine, MachineSource, SourceError, SourceMachine,
};
use crate::clock;
use access::Access;
use client::Client;
use exec_plugin::ExecPlugin;
use manifest::TOKEN_LABEL;
use model::machine::{FailureKind, Offer, SourceConfig};
use model::pod_source::KubernetesConfig;
use model::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use watch::{PodCache, WATCH_S};

/// How long a pod has from its deletion to its end: nothing is on its node any more.
const DELETE_GRACE_S: u32 = 5;

/// How much longer than a watch its connection may last.
const WATCH_RESERVE: Duration = Duration::from_secs(15);

pub struct KubernetesSource {
    cluster: String,
    config: KubernetesConfig,
    kubeconfig: Option<CredentialText>,
    limit: Duration,
    plugin: ExecPlugin,
    pods: Mutex<PodCache>,
}

impl KubernetesSource {
    pub fn new(
        config: &SourceConfig,
        pods: &KubernetesConfig,
        cluster: &str,
        given: Option<&SecretText>,
    ) -> Self {
        Self {
            cluster: cluster.to_owned(),
            config: pods.clone(),
            kubeconfig: CredentialText::of(pods.kubeconfig.as_ref(), given),
            limit: Duration::from_secs(config.call_limit_s.into()),
            plugin: ExecPlugin::default(),
            pods: Mutex::default(),
        }
    }

    fn client(&self, limit: Duration) -> Result<Client, SourceError> {
        let access =
            Access::read(&self.config, self.kubeconfig.as_ref(), &self.plugin, self.limit)?;
        Client::new(access, limit)
    }

    /// Makes a call. A credential that may not be accepted any more is asked for anew with the next one.
    fn with_client<T>(
        &self,
        limit: Duration,
        call: impl FnOnce(&Client) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let done = call(&self.client(limit)?);
        if done.as_ref().is_err_and(|error| error.kind == FailureKind::Refused) {
            self.plugin.forget();
        }
        done
    }

    /// The join file, before its pod: where it is there from an earlier call, with the newer token.
    fn put_secret(&self, client: &Client, order: &CreateOrder) -> Result<(), SourceError> {
        let secret = pod_secret::secret(&self.cluster, order)?;
        let answer = client.call("POST", &client.path("secrets"), Some(&secret))?;
        if !is_there_already(&answer) {
            return answer.accepted("secret").map(drop).map_err(of_namespace);
        }
        let path = client.path(&format!("secrets/{}", manifest::name(&order.token)));
        client.call("PUT", &path, Some(&secret))?.accepted("secret").map(drop)
    }

    /// The claims that the site has made where they are missing. They stay: what is in them is the users'.
    fn put_claims(&self, client: &Client, uid: u32) -> Result<(), SourceError> {
        let path = client.path("persistentvolumeclaims");
        for claim in self.config.claims.iter().filter_map(|mount| manifest::claim(mount, uid)) {
            let answer = client.call("POST", &path, Some(&claim))?;
            if !is_there_already(&answer) {
                answer.accepted("claim").map_err(of_namespace)?;
            }
        }
        Ok(())
    }

    /// The pod, be it one that an earlier call made whose answer was lost. A quota counts that one too, and refuses another before
    /// its name is looked at. One that is not made leaves no secret behind: nobody would delete it.
    fn put_pod(&self, client: &Client, token: &str, pod: &Value) -> Result<Value, SourceError> {
        let name = manifest::name(token);
        let path = client.path(&format!("pods/{name}"));
        let answer = client.call("POST", &client.path("pods"), Some(pod))?;
        if is_there_already(&answer) {
            return client.get(&path)?.accepted("pod");
        }
        let refused = match answer.accepted("pod").map_err(of_namespace) {
            Err(error) if matches!(error.kind, FailureKind::Quota | FailureKind::Refused) => error,
            // What may be made yet is asked for again.
            other => return other,
        };
        let found = client.get(&path)?.accepted("pod");
        if found.is_err() {
            let secret = client.path(&format!("secrets/{name}"));
            let deleted = client.call("DELETE", &secret, None);
            if let Err(error) = deleted.and_then(|answer| answer.accepted("secret")) {
                tracing::debug!(%error, name, "the secret of a pod that is not made stays");
            }
        }
        found.map_err(|_| refused)
    }

    /// The secret goes with its pod, whoever deletes it. Where this fails it is deleted by ourselves.
    fn bind_secret(&self, client: &Client, pod: &Value) {
        let (name, uid) = (word(pod, "/metadata/name"), word(pod, "/metadata/uid"));
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        let path = client.path(&format!("secrets/{name}"));
        let bound = client.call("PATCH", &path, Some(&patch));
        if let Err(error) = bound.and_then(|answer| answer.accepted("secret")) {
            tracing::debug!(%error, name, "the secret of a pod is not bound to it");
        }
    }
}

impl MachineSource for KubernetesSource {
    fn offers(&self) -> Result<Vec<Offer>, SourceError> {
        self.with_client(self.limit, |client| {
            let nodes = list_nodes(client)?;
            let offers = offers::of_nodes(&self.config, &nodes);
            if offers.is_empty() {
                let why = "no node is ready that node_selector and tolerations let pods be on";
                return Err(SourceError::refused(why));
            }
            Ok(offers)
        })
    }

    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError> {
        let cluster = manifest::cluster_label(&self.cluster)?;
        let Some(template) = &order.pod else {
            return Err(SourceError::refused("a pod is made for a job, and there is none"));
        };
        self.with_client(self.limit, |client| {
            let products = match &order.offer.gpus {
                Some(gpus) => offers::products(&self.config, &list_nodes(client)?, gpus),
                None => BTreeSet::new(),
            };
            let pod = manifest::pod(&self.config, cluster, order, template, &products);
            check_user_namespace(client, &pod)?;
            self.put_claims(client, template.uid)?;
            self.put_secret(client, order)?;
            let made = self.put_pod(client, &order.token, &pod)?;
            self.bind_secret(client, &made);
            machine(&made).ok_or_else(|| SourceError::unknown("pod: the answer is none of ours"))
        })
    }

    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError> {
        let cluster = manifest::cluster_label(&self.cluster)?;
        let (pods, _) = self.with_client(self.limit, |client| watch::list(client, cluster))?;
        // A pod that is being deleted is none that a machine is found again by.
        let is_there = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        Ok(pods.iter().filter(is_there).filter_map(machine).collect())
    }

    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError> {
        let name = manifest::name(&order.token);
        self.with_client(self.limit, |client| {
            let query = format!("pods/{name}?gracePeriodSeconds={DELETE_GRACE_S}");
            let deleted = client.call("DELETE", &client.path(&query), None)?.accepted("pod");
            let secret = client.path(&format!("secrets/{name}"));
            let secret = client.call("DELETE", &secret, None)?.accepted("secret");
            match secret {
                Err(error) if error.kind != FailureKind::NotFound => Err(error),
                _ => deleted.map(drop),
            }
        })
    }

    fn failures(&self) -> Result<Option<Vec<FailedMachine>>, SourceError> {
        let cluster = manifest::cluster_label(&self.cluster)?;
        let limit = Duration::from_secs(WATCH_S.into()) + WATCH_RESERVE;
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let now = || clock::now().secs();
        let told = self.with_client(limit, |client| {
            pods.failures(client, cluster, self.config.pending_s, now)
        });
        told.map(Some)
    }

    fn disks(&self) -> Option<&dyn DiskSource> {
        Some(self)
    }
}

/// The nodes of the cluster, all pages of them.
fn list_nodes(client: &Client) -> Result<Vec<Value>, SourceError> {
    client.list("/api/v1/nodes", "nodes").map(|(nodes, _)| nodes)
}

/// Refuses a pod that is to have a user namespace of its own where the cluster leaves that out, as one without the feature does and
/// says nothing: its root would be the node's. The cluster is asked without making the pod, which would run until it were deleted.
fn check_user_namespace(client: &Client, pod: &Value) -> Result<(), SourceError> {
    if pod["spec"]["hostUsers"] != false {
        return Ok(());
    }
    let answer = client.call("POST", &client.path("pods?dryRun=All"), Some(pod))?;
    match answer.status {
        200..300 if answer.value["spec"]["hostUsers"] != false => Err(SourceError::refused(
            "pod: the cluster leaves hostUsers out, and root of the pod would be root of its node: \
             expected a cluster with user namespaces",
        )),
        // For one of a webhook that cannot be asked so.
        400 => Err(answer.failure("pod")),
        // What is refused otherwise is refused by the call itself, which finds a pod that is there.
        _ => Ok(()),
    }
}

fn is_there_already(answer: &client::Answer) -> bool {
    answer.status == 409 && word(&answer.value, "/reason") == "AlreadyExists"
}

/// What is made in a namespace that is not there is refused.
fn of_namespace(error: SourceError) -> SourceError {
    match error.kind {
        FailureKind::NotFound => SourceError::refused(error.text),
        _ => error,
    }
}

fn machine(pod: &Value) -> Option<SourceMachine> {
    let token = pod["metadata"]["labels"][TOKEN_LABEL].as_str()?.to_owned();
    let since = word(pod, "/metadata/creationTimestamp").parse::<jiff::Timestamp>().ok();
    Some(SourceMachine {
        token,
        id: word(pod, "/metadata/name").to_owned(),
        since: since.map(|at| Timestamp::from_secs(at.as_second())),
    })
}
