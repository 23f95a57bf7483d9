//! Tasks of several groups in lists of runs, by the real router.

use super::tests::{Api, purge};
use crate::testing::{submission, user};
use model::id::JobId;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const GROUPS: u64 = 3;

/// A run of three groups, which wait for a retry: the later a group, the later it was submitted anew.
async fn retried(api: &Api, name: &str) {
    let mut run = submission("");
    run.spec.name = name.into();
    let group = run.spec.clone();
    run.het_components.extend([group.clone(), group]);
    api.server.shared.writer.submit(Box::new(run), user()).await.expect("a run");
    let mut state = api.server.shared.state.write();
    let of_run = state.jobs.values().filter(|job| &*job.spec.name == name);
    let groups: Vec<JobId> = of_run.map(|job| job.id).collect();
    assert_eq!(groups.len() as u64, GROUPS);
    for (offset, id) in (0..GROUPS).zip(groups) {
        let job = Arc::make_mut(state.jobs.get_mut(&id).expect("a group"));
        job.requeued = Some(job.submit + Duration::from_millis(2 * offset));
    }
}

/// The names on one page after another, the oldest first.
async fn pages(api: &Api, limit: usize, ascending: bool) -> Vec<String> {
    let (mut seen, mut last) = (Vec::new(), json!({}));
    loop {
        let wanted = json!({"ascending": ascending, "limit": limit, "prev_run_id": last["id"],
            "prev_submitted_at": last["submitted_at"]});
        let (_, page) = api.send("/api/runs/list", wanted, Some(user())).await;
        let page = page.as_array().expect("a page").clone();
        for run in &page {
            let nodes = &run["run_spec"]["configuration"]["nodes"];
            assert_eq!(*nodes, json!(GROUPS), "a run has all its groups: {run}");
            seen.push(run["run_spec"]["run_name"].as_str().expect("a name").to_owned());
        }
        assert!(seen.len() <= 4, "each run once: {seen:?}");
        match page.last() {
            Some(run) if page.len() == limit => last = Value::clone(run),
            _ => break,
        }
    }
    if !ascending {
        seen.reverse();
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_groups_are_listed_once_in_memory_and_in_the_books() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let names = ["a1", "b2", "c3", "d4"];
    for name in names {
        retried(&api, name).await;
        if name == "c3" {
            assert_eq!(pages(&api, 2, true).await, names[..3], "all are in memory");
            purge(&api).await;
            assert_eq!(pages(&api, 2, true).await, names[..3], "all are in the books");
        }
    }
    for (limit, ascending) in [(1, true), (2, true), (3, false), (2, false), (9, false)] {
        assert_eq!(pages(&api, limit, ascending).await, names, "{limit} {ascending}");
    }
}
