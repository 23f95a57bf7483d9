use super::*;
use jiff::tz::TimeZone;
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope};
use model::tres::TresKind;
use serde_json::json;
use wire::explain::{NamedJob, ReservationWindow};

const NOW: Timestamp = Timestamp::from_secs(1_794_703_909);

/// A job as it comes over the wire; what the text does not show is left as it may be.
fn job(state: JobState) -> JobView {
    let request = model::request::Request::default();
    let owner = json!({
        "name": "alice", "uid": 1001, "gid": 1001, "group": "alice", "groups": [], "role": "user"
    });
    let launch = model::run::Launch::empty(model::run::LaunchKind::Batch);
    let spec = json!({
        "name": "train", "owner": owner, "components": [{"request": request}],
        "launch": launch, "kill_on_invalid_dependency": false, "nice": 0, "requeue": true,
        "submit_line": "", "submit_host": "", "submit_sid": 0
    });
    let view = json!({
        "id": 12, "name": "train", "spec": spec, "state": state, "reason": Reason::None,
        "partition": "gpu", "account": "physics", "qos": "capped", "priority": 1, "submit": NOW,
        "start": NOW, "end": NOW, "time_limit": TimeLimit::Minutes(60), "restarts": 0,
        "nodes": model::range::Range::exactly(1_u32), "cpus": 1, "tasks": 1,
        "tres": model::tres::Tres::new()
    });
    serde_json::from_value(view).expect("a job")
}

fn text(wait: WaitView) -> String {
    let waiting = ExplainedJob {
        shown: "12".into(),
        job: job(JobState::Pending),
        wait: Some(Box::new(wait)),
    };
    explained(&waiting, Moment { now: NOW, tz: &TimeZone::UTC })
}

fn names(list: &str) -> Vec<String> {
    hostlist::expand(list).expect("a host list")
}

fn expected() -> Option<ExpectedStart> {
    Some(ExpectedStart { start: NOW, partition: "gpu".into(), nodes: names("n[1-2]") })
}

#[test]
fn a_limit_is_explained_with_the_jobs_that_use_it() {
    let limit = Limit {
        scope: LimitScope::QosPerUser,
        kind: LimitKind::Tres(TresKind::gpu()),
        holder: "capped".into(),
        limit: 4,
        in_use: 4,
        asked: 2,
    };
    let holder =
        |job: &str, amount| ResourceHolder { job: job.into(), user: "alice".into(), amount };
    let wait = WaitView {
        reason: Some(Reason::Limit(Box::new(limit.clone()))),
        limit: Some(LimitHolders {
            limit,
            holders: vec![holder("7", 2), holder("8_3", 1)],
            others: 1,
            others_amount: 1,
        }),
        expected: expected(),
        ..WaitView::default()
    };
    assert_eq!(
        text(wait),
        "\
Job 12 (train, alice, partition gpu) waits: QOSMaxGRESPerUser
  QOS capped allows 4 GPUs for each user; 4 GPUs in use, 2 GPUs asked.
    held by job 7 (alice): 2 GPUs
    held by job 8_3 (alice): 1 GPU
    and by 1 more job with 1 GPU
  Expected start: 2026-11-15T00:51:49 on n[1-2] (partition gpu).
"
    );
}

#[test]
fn each_class_of_nodes_is_explained_by_what_it_lacks() {
    let missing = |what, nodes: &str, (asked, most_free, total)| Shortage {
        what,
        nodes: names(nodes),
        asked,
        most_free,
        total,
    };
    let class = |nodes: &str, never, free: &str, missing| NodeClassReport {
        partition: "gpu".into(),
        nodes: names(nodes),
        wanted: 2,
        never,
        free: if free.is_empty() { Vec::new() } else { names(free) },
        missing,
    };
    let gpu = || MissingResource::Gres("gpu".into());
    let wait = WaitView {
        reason: Some(Reason::Resources),
        ahead: 3,
        ahead_first: vec![NamedJob { job: "9".into(), user: "bob".into() }],
        backfill_slot: expected(),
        expected: expected(),
        classes: vec![
            class("n[1-8]", None, "", vec![missing(gpu(), "n[1-8]", (6, 4, 8))]),
            class(
                "m[1-4]",
                None,
                "m4",
                vec![
                    missing(MissingResource::Drained, "m1", (0, 0, 0)),
                    missing(MissingResource::Cpus, "m[2-3]", (8, 1, 32)),
                ],
            ),
            class(
                "c1",
                Some(NeverFits::Gres { name: "gpu".into(), asked: 6, most: 0 }),
                "",
                vec![],
            ),
        ],
        ..WaitView::default()
    };
    assert_eq!(
        text(wait),
        "\
Job 12 (train, alice, partition gpu) waits: Resources
  Its turn has come; not enough is free for it.
  8 nodes n[1-8]: at most 4 of 8 GPUs free, 6 asked.
  4 nodes m[1-4]:
    m1: drained
    m[2-3]: at most 1 of 32 CPUs free, 8 asked
    1 node free, 2 needed at once
  1 node c1: has 0 GPUs; 6 asked.
  Ahead of it: 3 jobs; first 9 (bob).
  A place is kept for it: 2026-11-15T00:51:49 on n[1-2] (partition gpu).
  Expected start: 2026-11-15T00:51:49 on n[1-2] (partition gpu).
"
    );
}

#[test]
fn jobs_ahead_that_are_hidden_are_counted_and_not_named() {
    let said = text(WaitView { ahead: 3, ..WaitView::default() });
    assert!(said.contains("  Ahead of it: 3 jobs.\n"), "{said}");
}

#[test]
fn dependencies_licenses_and_reservations_are_explained() {
    let other = |id, state, end| TermJob {
        job: format!("{id}"),
        id: JobId(id),
        state,
        end: Some(NOW).filter(|_| end),
    };
    let term = |term: &str, failed, jobs: Vec<TermJob>, count| UnmetTerm {
        term: term.into(),
        failed,
        jobs,
        count,
    };
    let wait = WaitView {
        reason: Some(Reason::Dependency),
        dependency: vec![
            term("afterok:3", false, vec![other(3, JobState::Running, true)], 1),
            term("afterok:4", true, vec![other(4, JobState::Failed, true)], 3),
        ],
        begin: Some(NOW),
        licenses: vec![LicenseShortage {
            name: "matlab".into(),
            asked: 2,
            free: 1,
            holders: vec![ResourceHolder { job: "5".into(), user: "bob".into(), amount: 3 }],
            others: 0,
            others_amount: 0,
        }],
        reservation: Some(ReservationWindow { name: "course".into(), window: Some((NOW, NOW)) }),
        ..WaitView::default()
    };
    assert_eq!(
        text(wait),
        "\
Job 12 (train, alice, partition gpu) waits: Dependency
  It waits for other jobs.
  afterok:3: job 3 is RUNNING, until 2026-11-15T00:51:49 at the latest.
  afterok:4 can never be met: job 4 is FAILED since 2026-11-15T00:51:49; and 2 more jobs.
  Nor is it to start before 2026-11-15T00:51:49.
  Licence matlab: 1 free, 2 asked.
    held by job 5 (bob): 3
  Reservation course: from 2026-11-15T00:51:49 to 2026-11-15T00:51:49.
  Expected start: not known.
"
    );
}

#[test]
fn running_and_ended_jobs_are_explained() {
    let line = |state| {
        let over = ExplainedJob { shown: "12".into(), job: job(state), wait: None };
        explained(&over, Moment { now: NOW, tz: &TimeZone::UTC })
    };
    assert_eq!(
        line(JobState::Completed),
        "Job 12 (train, alice, partition gpu) has ended: COMPLETED at 2026-11-15T00:51:49.\n"
    );
    assert!(line(JobState::Running).contains("runs since 2026-11-15T00:51:49 on"));
}
