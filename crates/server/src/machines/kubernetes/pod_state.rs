//! What the API says of a pod: whether it serves, waits, or will not serve, and why.

use crate::machines::cloud::rest::{shown, word};
use model::machine::FailureKind;
use serde_json::Value;

/// Why a pod does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFailure {
    pub kind: FailureKind,
    pub text: String,
}

/// Reasons of a waiting container that only another manifest mends.
const BROKEN: [&str; 6] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// Why the pod will not serve, or serves no more; `None` for one that serves or may serve yet. `pending_s`: how long it may wait
/// for a place. `now`: seconds since the epoch.
pub fn failure(pod: &Value, pending_s: u32, now: i64) -> Option<PodFailure> {
    let status = &pod["status"];
    match word(status, "/phase") {
        "Failed" => Some(ended(pod)),
        "Succeeded" => Some(of(FailureKind::Unknown, "its agent has ended".to_owned())),
        "Pending" => broken(pod).or_else(|| unplaced(pod, pending_s, now)),
        _ => None,
    }
}

/// Why a pod is gone that is not there any more.
pub fn gone(pod: &Value) -> PodFailure {
    let text = disruption(pod).unwrap_or_else(|| "its pod was deleted".to_owned());
    of(FailureKind::NoCapacity, text)
}

fn of(kind: FailureKind, text: String) -> PodFailure {
    PodFailure { kind, text }
}

/// A pod that has ended: it was evicted or preempted, or the agent died.
fn ended(pod: &Value) -> PodFailure {
    let status = &pod["status"];
    if let Some(text) = disruption(pod) {
        return of(FailureKind::NoCapacity, text);
    }
    let (reason, message) = (word(status, "/reason"), word(status, "/message"));
    if !reason.is_empty() {
        return of(FailureKind::NoCapacity, said("its pod failed", reason, message));
    }
    let terminated = containers(pod).map(|of| &of["state"]["terminated"]);
    let why = terminated.map(|of| (word(of, "/reason"), of["exitCode"].as_i64().unwrap_or(0)));
    let why = why.filter(|(reason, _)| !reason.is_empty()).find(|(_, code)| *code != 0);
    let text = match why {
        Some(("OOMKilled", _)) => "its pod ran out of memory".to_owned(),
        Some((reason, code)) => format!("its pod failed: {}, exit code {code}", shown(reason)),
        None => "its pod failed".to_owned(),
    };
    of(FailureKind::Unknown, text)
}

/// What the cluster says when it takes a pod away.
fn disruption(pod: &Value) -> Option<String> {
    let condition =
        condition(pod, "DisruptionTarget").filter(|of| word(of, "/status") == "True")?;
    Some(said("its pod was taken away", word(condition, "/reason"), word(condition, "/message")))
}

fn said(what: &str, reason: &str, message: &str) -> String {
    let words = [what, reason, message].into_iter().filter(|word| !word.is_empty());
    words.map(shown).collect::<Vec<_>>().join(": ")
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = pod["status"]["conditions"].as_array()?.iter();
    all.find(|of| word(of, "/type") == kind)
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    lists.flat_map(move |list| pod["status"][list].as_array().into_iter().flatten())
}

/// A container that cannot be started: an image that is not found, a secret that is missing.
fn broken(pod: &Value) -> Option<PodFailure> {
    let mut all = containers(pod);
    let one = all.find(|of| BROKEN.contains(&word(of, "/state/waiting/reason")))?;
    let waiting = &one["state"]["waiting"];
    let image = format!("image {}", word(one, "/image"));
    let text = said(&image, word(waiting, "/reason"), word(waiting, "/message"));
    Some(of(FailureKind::Refused, text))
}

/// A pod that no node has had room for, for so long.
fn unplaced(pod: &Value, pending_s: u32, now: i64) -> Option<PodFailure> {
    let scheduled = condition(pod, "PodScheduled").filter(|of| word(of, "/status") == "False")?;
    let made = word(pod, "/metadata/creationTimestamp").parse::<jiff::Timestamp>().ok()?;
    let is_over = made.as_second() + i64::from(pending_s) <= now;
    let (reason, message) = (word(scheduled, "/reason"), word(scheduled, "/message"));
    let text = || said("no place for its pod", reason, message);
    is_over.then(|| of(FailureKind::NoCapacity, text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// 2026-11-18 00:00:00.
    const MADE: i64 = 1_795_046_400;

    fn pod(status: Value) -> Value {
        let made = jiff::Timestamp::from_second(MADE).expect("a time").to_string();
        json!({"metadata": {"creationTimestamp": made}, "status": status})
    }

    fn at(status: Value, seconds: i64) -> Option<PodFailure> {
        failure(&pod(status), 60, MADE + seconds)
    }

    #[test]
    fn pod_that_waits_for_a_place_fails_after_its_time() {
        let status = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }]});
        assert_eq!(at(status.clone(), 59), None);
        let failed = at(status, 60).expect("its time is over");
        assert_eq!(failed.kind, FailureKind::NoCapacity);
        assert!(failed.text.contains("Insufficient cpu"), "{failed:?}");
    }

    #[test]
    fn image_that_is_not_found_is_told_with_its_name() {
        let waiting = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [{
                "image": "lab/none:1",
                "state": {"waiting": {"reason": reason, "message": "not\nfound"}},
            }]})
        };
        assert_eq!(at(waiting("ContainerCreating"), 0), None);
        assert_eq!(at(waiting("ErrImagePull"), 0), None, "it is tried again");
        let failed = at(waiting("ImagePullBackOff"), 0).expect("it fails");
        assert_eq!((failed.kind, failed.text.lines().count()), (FailureKind::Refused, 1));
        assert!(failed.text.starts_with("image lab/none:1: ImagePullBackOff"), "{failed:?}");
    }

    #[test]
    fn evicted_preempted_and_killed_pods_are_told_with_their_reason() {
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
        let failed = at(evicted, 0).expect("it failed");
        assert_eq!(failed.text, "its pod failed: Evicted: low on memory");
        assert_eq!(failed.kind, FailureKind::NoCapacity);
        let preempted = json!({"phase": "Failed", "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "preempting to accommodate a higher priority pod",
        }]});
        let failed = at(preempted.clone(), 0).expect("it failed");
        assert!(failed.text.contains("PreemptionByScheduler"), "{failed:?}");
        assert_eq!(gone(&pod(preempted)).text, failed.text);
        assert_eq!(gone(&pod(json!({}))).text, "its pod was deleted");
        let killed = json!({"phase": "Failed", "containerStatuses": [{
            "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
        }]});
        assert_eq!(at(killed, 0).expect("it failed").text, "its pod ran out of memory");
        assert_eq!(at(json!({"phase": "Running"}), 1_000_000), None);
    }
}
