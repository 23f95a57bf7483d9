//! The pods of a source as the API tells them: a list, and from its version on what changes. A version that the API has forgotten
//! (410) is followed by another list.

use super::client::{Answer, Client};
use super::manifest::{self, TOKEN_LABEL};
use super::pod_state::{self, PodFailure};
use crate::machines::cloud::rest::word;
use crate::machines::source::{FailedMachine, SourceError};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// How long one watch lasts, seconds. After it, pods that wait for a place are looked at anew.
pub const WATCH_S: u32 = 20;

/// The same while pods wait: whose time is over is found out soon.
const SHORT_WATCH_S: u32 = 2;

/// The status, and the code of an event, of a version that is too old.
const GONE: u16 = 410;

/// What is known of the pods.
#[derive(Default)]
pub struct PodCache {
    /// `None`: nothing is known, and the pods are to be listed.
    version: Option<String>,
    /// By name.
    pods: BTreeMap<String, Value>,
    /// Names and texts of failures that were told.
    told: HashSet<(String, String)>,
}

/// The pods of a cluster's label, all pages of them, and the list's version.
pub fn list(client: &Client, cluster: &str) -> Result<(Vec<Value>, String), SourceError> {
    client.list(&selection(client, cluster), "pods")
}

fn selection(client: &Client, cluster: &str) -> String {
    format!("{}?labelSelector={}%3D{cluster}", client.path("pods"), manifest::CLUSTER_LABEL)
}

impl PodCache {
    /// Waits until a pod fails, or for the time of a watch.
    pub fn failures(
        &mut self,
        client: &Client,
        cluster: &str,
        pending_s: u32,
        now: impl Fn() -> i64,
    ) -> Result<Vec<FailedMachine>, SourceError> {
        let version = match self.version.clone() {
            Some(version) => version,
            None => self.list(client, cluster)?,
        };
        let failed = self.take_failed(pending_s, now());
        if !failed.is_empty() {
            return Ok(failed);
        }
        let is_short = self.has_waiting();
        let length = if is_short { SHORT_WATCH_S } else { WATCH_S };
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={length}&resourceVersion={version}",
            selection(client, cluster)
        );
        let mut events = match client.watch(&path)? {
            Ok(events) => events,
            Err(Answer { status: GONE, .. }) => {
                self.version = None;
                return Ok(Vec::new());
            }
            Err(answer) => return Err(answer.failure("watch")),
        };
        while let Some(event) = events.read_event()? {
            let gone = self.take_event(&event)?;
            let mut failed = self.take_failed(pending_s, now());
            failed.extend(gone);
            let is_over = self.version.is_none() || self.has_waiting() && !is_short;
            if !failed.is_empty() || is_over {
                return Ok(failed);
            }
        }
        Ok(self.take_failed(pending_s, now()))
    }

    fn has_waiting(&self) -> bool {
        self.pods.values().any(|pod| word(pod, "/status/phase") == "Pending")
    }

    fn list(&mut self, client: &Client, cluster: &str) -> Result<String, SourceError> {
        let (pods, version) = list(client, cluster)?;
        let named = |pod: Value| (word(&pod, "/metadata/name").to_owned(), pod);
        self.pods = pods.into_iter().map(named).collect();
        self.told.retain(|(name, _)| self.pods.contains_key(name));
        self.version = Some(version.clone());
        Ok(version)
    }

    /// Takes an event in. A pod that is gone is told here: it is not among the pods any more.
    fn take_event(&mut self, event: &Value) -> Result<Option<FailedMachine>, SourceError> {
        let object = &event["object"];
        let kind = word(event, "/type");
        if kind == "ERROR" {
            // The next round begins with a list.
            self.version = None;
            if object["code"].as_u64() == Some(GONE.into()) {
                return Ok(None);
            }
            let status = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let answer = Answer { status: status.unwrap_or(500), value: object.clone() };
            return Err(answer.failure("watch"));
        }
        let version = word(object, "/metadata/resourceVersion");
        if !version.is_empty() {
            self.version = Some(version.to_owned());
        }
        let name = word(object, "/metadata/name").to_owned();
        match kind {
            "ADDED" | "MODIFIED" => drop(self.pods.insert(name, object.clone())),
            "DELETED" => {
                self.pods.remove(&name);
                self.told.retain(|(told, _)| *told != name);
                return Ok(failed(object, pod_state::gone(object)));
            }
            // A bookmark has a version alone; what is not known is passed over.
            _ => {}
        }
        Ok(None)
    }

    /// Pods that have failed and were not told yet.
    fn take_failed(&mut self, pending_s: u32, now: i64) -> Vec<FailedMachine> {
        let mut found = Vec::new();
        for (name, pod) in &self.pods {
            let Some(failure) = pod_state::failure(pod, pending_s, now) else { continue };
            if self.told.insert((name.clone(), failure.text.clone())) {
                found.extend(failed(pod, failure));
            }
        }
        found
    }
}

fn failed(pod: &Value, PodFailure { kind, text }: PodFailure) -> Option<FailedMachine> {
    let token = pod["metadata"]["labels"][TOKEN_LABEL].as_str()?.to_owned();
    Some(FailedMachine { token, kind, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, name: &str, version: &str, status: Value) -> Value {
        json!({"type": kind, "object": {
            "metadata": {
                "name": name,
                "resourceVersion": version,
                "labels": {TOKEN_LABEL: format!("t-{name}")},
            },
            "status": status,
        }})
    }

    #[test]
    fn each_failure_is_told_once_and_a_deleted_pod_is_one() {
        let mut cache = PodCache { version: Some("1".into()), ..PodCache::default() };
        let running = json!({"phase": "Running"});
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        cache.take_event(&event("ADDED", "a", "2", running.clone())).expect("an event");
        cache.take_event(&event("ADDED", "b", "3", running)).expect("an event");
        assert!(cache.take_failed(60, 0).is_empty());
        cache.take_event(&event("MODIFIED", "a", "4", evicted)).expect("an event");
        let told = cache.take_failed(60, 0);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].token, "t-a");
        assert_eq!(told[0].text, "its pod failed: Evicted");
        assert!(cache.take_failed(60, 0).is_empty(), "it was told");
        let gone = cache.take_event(&event("DELETED", "b", "5", json!({}))).expect("an event");
        assert_eq!(gone.map(|of| of.token).as_deref(), Some("t-b"));
        assert_eq!(cache.version.as_deref(), Some("5"));
    }

    #[test]
    fn bookmark_moves_the_version_and_one_that_is_gone_is_listed_anew() {
        let mut cache = PodCache { version: Some("1".into()), ..PodCache::default() };
        let metadata = json!({"metadata": {"resourceVersion": "9"}});
        let bookmark = json!({"type": "BOOKMARK", "object": metadata});
        cache.take_event(&bookmark).expect("an event");
        assert_eq!(cache.version.as_deref(), Some("9"));
        let gone = json!({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}});
        assert_eq!(cache.take_event(&gone), Ok(None));
        assert_eq!(cache.version, None);
        cache.version = Some("9".into());
        let broken = json!({"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}});
        assert!(cache.take_event(&broken).is_err() && cache.version.is_none());
    }
}
