use super::*;
use crate::command::explain::testing::{NOW, job, names, record};
use ::server::explanation::lost_nodes::LostNodes;
use jiff::tz::TimeZone;
use model::activity::{Activity, ActivityKind, ActivityTarget};
use model::id::JobId;
use model::machine::{FailureKind, HoldCause, MachineAnswer, SourceHold};
use model::price::{Cost, Price};
use model::reason::{Limit, LimitKind, LimitScope, NeverFits, Reason};
use model::run::{Hold, Outcome};
use model::service::{Scaling, Service};
use model::shortage::{MissingResource, NodeClassReport, Shortage};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use std::sync::Arc;
use wire::explain::{
    ExpectedStart, LicenseShortage, LimitHolders, NamedJob, NodeReservation, ReservationWindow,
    ResourceHolder, TermJob, UnmetTerm, WaitView,
};

fn text(wait: WaitView) -> String {
    let waiting = ExplainedJob {
        shown: "12".into(),
        job: job(JobState::Pending),
        wait: Some(Box::new(wait)),
    };
    let subject = Subject { explained: Some(waiting), ..Subject::default() };
    explained(&subject, None, Moment::at(NOW, &TimeZone::UTC))
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
fn job_that_breaks_a_limit_by_itself_is_said_not_to_start() {
    let limit = Limit {
        scope: LimitScope::QosPerJob,
        kind: LimitKind::Wall,
        holder: "capped".into(),
        limit: 30,
        in_use: 0,
        asked: 60,
    };
    let wait = WaitView {
        reason: Some(Reason::Limit(Box::new(limit.clone()))),
        limit_never_met: Some(limit),
        ahead: 2,
        expected: expected(),
        ..WaitView::default()
    };
    assert_eq!(
        text(wait),
        "\
Job 12 (train, alice, partition gpu) waits: QOSMaxWallDurationPerJobLimit
  QOS capped allows 00:30:00 for one job; 01:00:00 asked.
  It does not start as it is, whatever else ends: shorten it (scontrol update JobId=12 TimeLimit=00:30:00), \
         or take another QOS (scontrol update JobId=12 QOS=…), or have an administrator change the limit of QOS capped.
"
    );
}

#[test]
fn job_whose_dependency_cannot_be_met_is_not_said_to_wait_for_others() {
    let wait = WaitView {
        reason: Some(Reason::DependencyNeverSatisfied),
        ahead: 2,
        ..WaitView::default()
    };
    let said = text(wait);
    assert!(said.contains("Expected start: not known: it does not start unless"), "{said}");
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
                Some(NeverFits::Gres {
                    name: "gpu".into(),
                    asked: 6,
                    most: 0,
                    larger_memory: false,
                    kinds_there: Vec::new(),
                }),
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
  A place is kept for it: jobs behind it may not delay it.
  Expected start: 2026-11-15T00:51:49 on n[1-2] (partition gpu).
"
    );
}

#[test]
fn machine_that_is_made_or_not_is_explained() {
    let price = Price::from_dollars(2.5).expect("a price");
    let (source, offer) = ("cloud".to_owned(), "small".to_owned());
    let holds = |cause| MachineAnswer::HeldBack(vec![SourceHold { source: "cloud".into(), cause }]);
    let table = [
        (
            MachineAnswer::Ordered { source, offer, price },
            "A machine is asked for: small of source cloud, $2.5 an hour.",
        ),
        (MachineAnswer::Coming, "A machine that is on its way has room for it."),
        (
            MachineAnswer::Bound,
            "No machine is made for it: it names its nodes or a reservation, or is part of a heterogeneous job.",
        ),
        (
            MachineAnswer::NoOffer,
            "No machine is made for it: no source of its partitions offers one that could hold it.",
        ),
        (
            holds(HoldCause::Machines { most: 2 }),
            "No machine is made for it: source cloud: it has 2 machines, as many as it may have.",
        ),
        (
            holds(HoldCause::Budget),
            "No machine is made for it: source cloud: an hour of one more is beyond the month's budget.",
        ),
        (
            holds(HoldCause::AccountBudget { account: "lab".into(), month: Cost::default() }),
            "No machine is made for it: source cloud: jobs of account lab may cost $0.0000 a month, and an hour of one more is beyond it.",
        ),
        (
            holds(HoldCause::Failed {
                kind: FailureKind::Unknown,
                text: "its agent did not join in time".into(),
                until: Some(Timestamp::from_secs(1_793_491_200)),
            }),
            "No machine is made for it: source cloud: it failed a short while ago: its agent did not join in time; it is left alone until 2026-11-01T00:00:00.",
        ),
        (
            holds(HoldCause::Failed {
                kind: FailureKind::NoCapacity,
                text: "sold out".into(),
                until: None,
            }),
            "No machine is made for it: source cloud: it failed a short while ago (no capacity): sold out.",
        ),
    ];
    for (answer, line) in table {
        let said = text(WaitView { machine: Some(answer), ..WaitView::default() });
        assert!(said.contains(&format!("  {line}\n")), "{line}: {said}");
    }
}

#[test]
fn replica_that_the_load_does_not_ask_for_is_held_by_its_service() {
    let scaling =
        Scaling { min: 0, target_milli: 1000, window_s: 60, up_delay_s: 0, down_delay_s: 0 };
    for (scaling, expected) in
        [(Some(scaling), "  Its service does not need it now"), (None, "  Its owner holds it")]
    {
        let mut replica = job(JobState::Pending);
        let service = Service { scaling, ..Service::at(80) };
        let spec = Arc::make_mut(&mut replica.spec);
        Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
        replica.hold = Some(Hold::User);
        let wait = WaitView { reason: Some(Reason::HeldByUser), ..WaitView::default() };
        let waiting =
            ExplainedJob { shown: "12_0".into(), job: replica, wait: Some(Box::new(wait)) };
        let subject = Subject { explained: Some(waiting), ..Subject::default() };
        let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
        assert!(said.contains(expected) && said.contains("not known while it is held"), "{said}");
    }
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
            term("afterok:5_1", true, Vec::new(), 0),
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
  afterok:5_1 can never be met: what it names was cancelled before it started.
  Nor is it to start before 2026-11-15T00:51:49.
  Licence matlab: 1 free, 2 asked.
    held by job 5 (bob): 3
  Reservation course: from 2026-11-15T00:51:49 to 2026-11-15T00:51:49.
  Expected start: not known: the end of what it depends on is not known.
"
    );
}

#[test]
fn reservations_of_nodes_and_nodes_that_are_gone_are_named() {
    let reservation =
        NodeReservation { name: "course".into(), nodes: names("n[1-2]"), start: NOW, end: NOW };
    let reserved = WaitView {
        reason: Some(Reason::NodesReserved),
        node_reservations: vec![reservation],
        ..WaitView::default()
    };
    let said = text(reserved);
    let line = "  Reservation course has n[1-2] from 2026-11-15T00:51:49 to 2026-11-15T00:51:49.\n";
    assert!(said.contains(line), "{said}");
    let gone = |reason| WaitView {
        reason: Some(reason),
        gone_nodes: names("n[7-8]"),
        ..WaitView::default()
    };
    let line = "  It names n[7-8], which the cluster does not have any more; `scontrol update JobId=12 NodeList=…` names another.\n";
    let end = "  Expected start: not known: it names what is gone.\n";
    for (nodes, sentence) in [("n[7-8]", "are gone."), ("n[6-7]", "are down or drained.")] {
        let said = text(gone(Reason::RequiredNodesUnavailable { nodes: names(nodes) }));
        assert!(said.contains(&format!("  Nodes that it names {sentence}\n")), "{said}");
        assert!(said.contains(line) && said.ends_with(end), "{said}");
    }
    let said = text(gone(Reason::BadConstraints));
    assert!(said.contains(line) && said.ends_with(end), "{said}");
}

#[test]
fn hold_of_a_job_that_was_put_back_is_told_with_who_may_release_it() {
    let table = [
        (Reason::LaunchFailedHeld, Hold::Admin, "only an operator can release it, when that"),
        (Reason::RequeuedHeld, Hold::Admin, "only an operator can release it."),
        (Reason::RequeuedHeld, Hold::User, "`scontrol release` lets it go."),
    ];
    for (reason, hold, words) in table {
        let wait = WaitView { reason: Some(reason), ..WaitView::default() };
        let held = JobView { hold: Some(hold), ..job(JobState::Pending) };
        let held = ExplainedJob { shown: "12".into(), job: held, wait: Some(Box::new(wait)) };
        let subject = Subject { explained: Some(held), ..Subject::default() };
        let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
        assert!(said.contains(words) && said.contains("not known while it is held."), "{said}");
    }
}

#[test]
fn running_job_is_explained() {
    let running = ExplainedJob { shown: "12".into(), job: job(JobState::Running), wait: None };
    let subject = Subject { explained: Some(running), ..Subject::default() };
    let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
    assert!(said.contains("runs since 2026-11-15T00:51:49 on"), "{said}");
}

/// A job that the server has forgotten.
fn of_books(attempts: Vec<JobRecord>) -> Subject {
    Subject { attempts, ..Subject::default() }
}

#[test]
fn lost_node_of_several_is_named() {
    let mut ended = record(Outcome::NodeFail, (0, 0), Reason::NodeFail);
    ended.nodes = vec!["n1".into(), "n2".into(), "n3".into()];
    ended.node_count = 3;
    let activity = |node: &str, what: ActivityKind| Activity {
        number: 1,
        at: NOW,
        actor: None,
        target: ActivityTarget::Node(node.into()),
        what,
        info: String::new(),
    };
    // What became of other nodes, and a drain, cost the job nothing.
    let mut trail =
        vec![activity("n2", ActivityKind::NodeDown), activity("n9", ActivityKind::NodeDown)];
    trail.push(activity("n1", ActivityKind::NodeDrained("fan".into())));
    for (more, cause) in [
        (None, "  Node n2 was lost under it; it ran on n[1-3].\n"),
        (
            Some(activity("n3", ActivityKind::NodeSetDown("fire".into()))),
            "  Nodes n[2-3] were lost under it; it ran on n[1-3].\n",
        ),
    ] {
        trail.extend(more);
        let mut lost_nodes = LostNodes::default();
        lost_nodes.note(&ended, &trail);
        let subject = Subject { lost_nodes, ..of_books(vec![ended.clone()]) };
        let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
        assert!(said.contains(cause), "{said}");
    }
}

#[test]
fn each_end_is_explained_by_its_cause() {
    let table = [
        (Outcome::Completed, (0, 0), Reason::None, "It completed."),
        (Outcome::Failed, (3, 0), Reason::NonZeroExit, "It ended with exit code 3."),
        (Outcome::Failed, (0, 9), Reason::NonZeroExit, "It ended with signal 9 (SIGKILL)."),
        (
            Outcome::Failed,
            (127, 0),
            Reason::NonZeroExit,
            "It ended with exit code 127, a shell's for a command that it does not find.",
        ),
        (
            Outcome::Failed,
            (139, 0),
            Reason::NonZeroExit,
            "It ended with exit code 139, a shell's for signal 11 (SIGSEGV) or the program's own.",
        ),
        (Outcome::Cancelled { by: 0 }, (0, 0), Reason::None, "It was cancelled by root."),
        (
            Outcome::Timeout,
            (0, 0),
            Reason::TimeLimit,
            "It used up the CPU time that its limit allows.",
        ),
        (
            Outcome::OutOfMemory,
            (0, 125),
            Reason::OutOfMemory,
            "The kernel killed a process of it at its memory limit of 1G on a node, at a peak of 512M.",
        ),
        (Outcome::NodeFail, (0, 0), Reason::NodeFail, "A node was lost under it (n1)."),
        (
            Outcome::LaunchFailed,
            (0, 53),
            Reason::NotLaunched(Box::new(
                "cannot open /x/out: No such file or directory".to_owned().into(),
            )),
            "It could not be started on n1: cannot open /x/out: No such file or directory.",
        ),
    ];
    for (outcome, exit, reason, cause) in table {
        let subject = of_books(vec![record(outcome, exit, reason)]);
        let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        assert_eq!(lines[1], cause, "{said}");
        assert_eq!(
            lines[2],
            "Used: 00:05:00 of 00:20:00 CPU time (25 %); 512M of 1G memory; 00:10:00 of 01:00:00 of time."
        );
    }
}

#[test]
fn memory_limit_that_is_not_what_was_granted_is_told_with_both() {
    let ended = record(Outcome::OutOfMemory, (0, 125), Reason::OutOfMemory);
    let ended = JobRecord { memory_limit: Some(model::amount::Bytes::from_gib(2)), ..ended };
    let said = explained(&of_books(vec![ended]), None, Moment::at(NOW, &TimeZone::UTC));
    let cause = "The kernel killed a process of it at its memory limit of 2G on a node \
                 (1G was granted; cgroup.conf sets the limit), at a peak of 512M.";
    assert!(said.contains(cause), "{said}");
    assert!(said.contains("512M of 2G memory"), "{said}");
}

#[test]
fn run_is_told_which_node_failed_and_what_to_try_in_its_own_words() {
    let run = |outcome, exit, reason| {
        let failed_node = Some("n2".to_owned());
        JobRecord { kind: LaunchKind::Task, failed_node, ..record(outcome, exit, reason) }
    };
    let said = |record| explained(&of_books(vec![record]), None, Moment::at(NOW, &TimeZone::UTC));
    let failed = said(run(Outcome::Failed, (3, 0), Reason::NonZeroExit));
    let cause = "It ended with exit code 3; the first of its nodes to fail was n2.";
    assert!(failed.contains(cause), "{failed}");
    let killed = said(run(Outcome::OutOfMemory, (0, 125), Reason::OutOfMemory));
    assert!(killed.contains("the first of its nodes to fail was n2."), "{killed}");
    assert!(killed.contains("more memory, as with `memory` of `resources` (it had"), "{killed}");
}

#[test]
fn ends_that_can_be_mended_are_told_with_what_to_try() {
    let missing: model::reason::LaunchFailure = "cannot open /x/out".to_owned().into();
    let table = [
        (Outcome::Failed, (126, 0), Reason::NonZeroExit, "`chmod +x` the program"),
        (Outcome::Timeout, (0, 0), Reason::TimeLimit, "fewer CPU seconds"),
        (Outcome::Deadline, (0, 0), Reason::Deadline, "a later --deadline"),
        (
            Outcome::LaunchFailed,
            (0, 53),
            Reason::NotLaunched(Box::new(missing)),
            "make what is missing there",
        ),
        (
            Outcome::LaunchFailed,
            (0, 53),
            Reason::UserRefused(model::reason::UserFault::Unknown),
            "have the account made the same",
        ),
    ];
    for (outcome, exit, reason, advice) in table {
        let subject = of_books(vec![record(outcome, exit, reason)]);
        let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
        assert!(said.contains(&format!("  To try: {advice}")), "{said}");
    }
}

#[test]
fn job_that_ran_as_long_as_it_might_reached_its_time_limit() {
    let ended = record(Outcome::Timeout, (0, 0), Reason::TimeLimit);
    let ended = JobRecord { time_limit: TimeLimit::Minutes(10), ..ended };
    let subject = of_books(vec![ended]);
    let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
    assert!(said.contains("  It reached its time limit of 00:10:00.\n"), "{said}");
    assert!(said.contains("  To try: a longer limit (--time)"), "{said}");
}

#[test]
fn job_whose_dependency_failed_is_explained_with_what_it_depended_on() {
    let mut view = job(JobState::Cancelled);
    let parsed = model::dependency::Dependency::parse("afterok:11,afterany:9");
    let mut spec = (*view.spec).clone();
    spec.dependency = Some(Box::new(parsed.expect("a dependency")));
    view.spec = spec.into();
    let cancelled = Outcome::Cancelled { by: 0 };
    let last = record(cancelled, (0, 0), Reason::DependencyNeverSatisfied);
    let one = ExplainedJob { shown: "12".into(), job: view, wait: None };
    let subject = Subject { explained: Some(one), ..of_books(vec![last]) };
    let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
    let expected =
        "  It depended on afterok:11,afterany:9; `sluice explain 11` says how that job ended.\n";
    assert!(said.contains(expected), "{said}");
    let mut kept = record(cancelled, (0, 0), Reason::DependencyNeverSatisfied);
    kept.dependency = Some("afterok:11,afterany:9".into());
    let said = explained(&of_books(vec![kept]), None, Moment::at(NOW, &TimeZone::UTC));
    assert!(said.contains(expected), "{said}");
}

#[test]
fn requeued_job_is_explained_with_its_attempts() {
    let first = record(Outcome::NodeFail, (0, 0), Reason::NodeFail);
    let second = JobRecord { attempt: 2, ..record(Outcome::Failed, (1, 0), Reason::NonZeroExit) };
    let subject = of_books(vec![first, second]);
    let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
    assert!(
        said.starts_with("Job 12 (train, alice, partition gpu) has ended: FAILED at 2026-11-15T00:51:49, after 00:10:00 on n1.\n"),
        "{said}"
    );
    assert!(
        said.contains("  Attempt 1: NODE_FAIL at 2026-11-15T00:51:49. A node was lost"),
        "{said}"
    );
    let first = record(Outcome::Requeued, (0, 0), Reason::RequeuedBy(0));
    let second = JobRecord { attempt: 2, ..record(Outcome::Failed, (1, 0), Reason::NonZeroExit) };
    let subject = of_books(vec![first, second]);
    let said = explained(&subject, None, Moment::at(NOW, &TimeZone::UTC));
    assert!(said.contains("It was put back into the queue by root.\n"), "{said}");
}

#[test]
fn job_that_waited_for_a_further_attempt_is_not_said_to_have_never_started() {
    let utc = TimeZone::UTC;
    let moment = Moment::at(NOW, &utc);
    let first = record(Outcome::Requeued, (3, 0), Reason::NonZeroExit);
    let waited = |attempt| JobRecord {
        attempt,
        start: None,
        ..record(Outcome::Cancelled { by: 0 }, (0, 0), Reason::None)
    };
    let said = explained(&of_books(vec![first, waited(2)]), None, moment);
    assert!(said.contains("; it was not started again after attempt 1.\n"), "{said}");
    assert!(said.contains("  Attempt 1: REQUEUED at "), "{said}");
    let said = explained(&of_books(vec![waited(1)]), None, moment);
    assert!(said.contains("; it never started.\n"), "{said}");
}

#[test]
fn lines_that_the_server_told_stand_for_those_of_files_here() {
    let mut ended = record(Outcome::Failed, (1, 0), Reason::NonZeroExit);
    ended.streams = Some(model::streams::Streams {
        stdin: "/dev/null".into(),
        stdout: "/far/out".into(),
        stderr: "/far/err".into(),
    });
    let told = ["epoch 3".to_owned()];
    let utc = TimeZone::UTC;
    let moment = Moment::at(NOW, &utc);
    let subject = of_books(vec![ended.clone()]);
    let said = explained(&subject, Some(&told), moment);
    let lines = "  Its output: /far/out\n    | epoch 3\n  Its output: /far/err\n";
    assert!(said.ends_with(lines), "{said}");
    let run = JobRecord { kind: LaunchKind::Task, ..ended };
    let subject = of_books(vec![run]);
    let said = explained(&subject, Some(&told), moment);
    assert!(said.ends_with("  Its log: sluice logs train\n    | epoch 3\n"), "{said}");
}
