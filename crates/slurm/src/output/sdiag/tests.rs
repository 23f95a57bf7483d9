use super::*;
use jiff::tz::TimeZone;
use wire::diagnostics::{CallCount, CallKind, JobCounts, UserCount};

fn call(kind: CallKind, count: u64, total_us: u64) -> CallCount {
    CallCount { kind, count, total_us }
}

fn user(uid: u32, name: &str, count: u64, total_us: u64) -> UserCount {
    UserCount { uid, name: name.into(), count, total_us }
}

/// The figures of a capture of a real Slurm, as far as they are counted here.
fn captured() -> DiagnosticsView {
    DiagnosticsView {
        now: Timestamp::from_secs(1_794_703_909),
        since: Timestamp::from_secs(1_794_703_496),
        calls_open: 3,
        jobs: JobCounts { submitted: 112, started: 80, completed: 58, cancelled: 20, failed: 0 },
        pending: 3,
        plans: PlanCounts {
            made: 58,
            last_us: 640,
            max_us: 9439,
            total_us: 41_412,
            last_at: Some(Timestamp::from_secs(1_794_703_887)),
            last_queue: 2,
            total_queue: 60,
            last_tried: 2,
            total_tried: 58,
            last_slots: 4,
            total_slots: 180,
            backfilled: 4,
            backfilled_since_start: 4,
        },
        clock_us: 33,
        calls: vec![
            call(CallKind::OneJob, 14, 6368),
            call(CallKind::SubmitBatch, 83, 96_512),
            call(CallKind::ChangeAccounts, 14, 5326),
        ],
        users: vec![user(1001, "alice", 299, 303_959), user(0, "root", 335, 384_790)],
        ..DiagnosticsView::default()
    }
}

fn text(view: &DiagnosticsView, order: CallOrder) -> String {
    let utc = TimeZone::UTC;
    let moment = Moment::at(view.now, &utc);
    render(view, order, moment)
}

#[test]
fn the_layout_is_that_of_slurm() {
    let expected = "\
*******************************************************
sdiag output at Sun Nov 15 00:51:49 2026 (1794703909)
Data since      Sun Nov 15 00:44:56 2026 (1794703496)
*******************************************************
Server thread count:  3
Agent queue size:     0
Agent count:          0
Agent thread count:   0
DBD Agent queue size: 0

Jobs submitted: 112
Jobs started:   80
Jobs completed: 58
Jobs canceled:  20
Jobs failed:    0

Job states ts:  Sun Nov 15 00:51:49 2026 (1794703909)
Jobs pending:   3
Jobs running:   0

Main schedule statistics (microseconds):
\tLast cycle:   640
\tMax cycle:    9439
\tTotal cycles: 58
\tMean cycle:   714
\tMean depth cycle:  1
\tCycles per minute: 9
\tLast queue length: 2

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 4
\tTotal backfilled jobs (since last stats cycle start): 4
\tTotal backfilled heterogeneous job components: 0
\tTotal cycles: 58
\tLast cycle when: Sun Nov 15 00:51:27 2026 (1794703887)
\tLast cycle: 640
\tMax cycle:  9439
\tMean cycle: 714
\tLast depth cycle: 2
\tLast depth cycle (try sched): 2
\tDepth Mean: 1
\tDepth Mean (try depth): 1
\tLast queue length: 2
\tQueue length mean: 1
\tLast table size: 4
\tMean table size: 3

Latency for 1000 calls to gettimeofday(): 33 microseconds

Remote Procedure Call statistics by message type
\tREQUEST_SUBMIT_BATCH_JOB                ( 4003) count:83     ave_time:1162   total_time:96512
\tREQUEST_JOB_INFO_SINGLE                 ( 2021) count:14     ave_time:454    total_time:6368
\tACCOUNTING_UPDATE_MSG                   (10001) count:14     ave_time:380    total_time:5326

Remote Procedure Call statistics by user
\troot            (       0) count:335    ave_time:1148   total_time:384790
\talice           (    1001) count:299    ave_time:1016   total_time:303959

Pending RPC statistics
\tNo pending RPCs
";
    assert_eq!(text(&captured(), CallOrder::Count), expected);
}

#[test]
fn without_plans_the_means_are_left_out() {
    let view = DiagnosticsView { plans: PlanCounts::default(), ..captured() };
    let view = DiagnosticsView { since: view.now, ..view };
    let text = text(&view, CallOrder::Count);
    assert!(text.contains("\tLast cycle when: N/A\n"), "{text}");
    for absent in ["Mean cycle", "Cycles per minute", "Depth Mean", "Mean table size"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

#[test]
fn calls_are_sorted_by_the_chosen_order() {
    let numbers = |order| {
        let text = text(&captured(), order);
        let inside =
            |line: &str| Some(line.split_once('(')?.1.split_once(')')?.0.trim().to_owned());
        let lines = text.lines().filter(|line| line.contains("total_time:"));
        lines.filter_map(inside).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(numbers(CallOrder::Number), "2021 4003 10001 0 1001");
    assert_eq!(numbers(CallOrder::TotalTime), "4003 2021 10001 0 1001");
    assert_eq!(numbers(CallOrder::MeanTime), "4003 2021 10001 0 1001");
}

#[test]
fn several_servers_have_a_line_each() {
    let server = |name: &str, is_leader, seen_ms| wire::client::ServerView {
        name: name.into(),
        addresses: Vec::new(),
        version: "1.0".into(),
        is_leader,
        seen_ms,
        events_behind: 4,
        term: 3,
    };
    let all = [server("a", true, 0), server("b", false, 10), server("c", false, 90_000)];
    let expected = "\nServers\n\ta: leads, term 3\n\tb: follows, 4 events behind\n\tc: is down\n";
    assert_eq!(super::servers(&all), expected);
    assert_eq!(super::servers(&[]), "");
}
