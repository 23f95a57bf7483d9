//! `squeue` against the captures: the same jobs, the same bytes.

use super::*;
use crate::output::samples::{self, alice, at, bob, moment, pending, running, train};
use model::array::IndexSet;
use model::id::JobId;
use model::range::Range;
use model::reason::{Limit, LimitKind, LimitScope, Reason};
use model::run::JobState;
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use wire::view::ArrayView;

fn shown(options: Options, jobs: &[JobView], now: Timestamp) -> String {
    let listing = Listing::new(options).expect("a good sort");
    let mut out = Vec::new();
    listing.render(&mut out, jobs, moment(now)).expect("memory takes it");
    String::from_utf8(out).expect("text")
}

fn format(text: &str) -> Options {
    Options { format: Some(text.to_owned()), ..Options::default() }
}

/// Five jobs under a QOS that caps GPUs per user, as in the captures `s3-*`.
fn capped() -> Vec<JobView> {
    let over = || {
        Reason::Limit(Box::new(Limit {
            scope: LimitScope::QosPerUser,
            kind: LimitKind::Tres(TresKind::gpu()),
            holder: "capped".into(),
            limit: 4,
            in_use: 4,
            asked: 2,
        }))
    };
    let with = |mut job: JobView, priority| {
        job.priority = priority;
        job
    };
    let mut wide = with(pending(8, "wrap", alice(), Reason::PartitionNodeLimit), 1778);
    wide.nodes = Range::exactly(3);
    vec![
        train(),
        wide,
        with(running(11, "cap1", bob(), "node1", at(0, 46, 25)), 1500),
        with(pending(12, "cap2", bob(), over()), 1384),
        with(pending(13, "cap5", bob(), over()), 1571),
    ]
}

fn sweep() -> Vec<JobView> {
    let tasks = (0..16).rev().map(samples::sweep_task);
    std::iter::once(samples::sweep_pending()).chain(tasks).collect()
}

#[test]
fn listing_without_jobs_has_its_header_alone() {
    for bits in 0..8 {
        let [no_header, long, repeated] = [1, 2, 4].map(|bit| bits & bit != 0);
        let options = Options { no_header, long, repeated, ..Options::default() };
        let lines = Listing::new(options.clone()).expect("a good sort").header_lines();
        let text = shown(options, &[], at(0, 46, 21));
        assert_eq!(text.lines().count(), lines, "{no_header} {long} {repeated}: {text}");
    }
}

#[test]
fn the_default_listing_is_that_of_slurm() {
    assert_eq!(
        shown(Options::default(), &[train()], at(0, 46, 21)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "                 3       gpu    train    alice  R       0:02      1 node1\n",
        )
    );
    assert_eq!(
        shown(Options::default(), &[], at(0, 46, 21)),
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
    );
}

#[test]
fn pending_jobs_come_before_running_ones_by_priority() {
    assert_eq!(
        shown(Options::default(), &capped(), at(0, 46, 27)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "                 8       gpu     wrap    alice PD       0:00      3 (PartitionNodeLimit)\n",
            "                13       gpu     cap5      bob PD       0:00      1 (QOSMaxGRESPerUser)\n",
            "                12       gpu     cap2      bob PD       0:00      1 (QOSMaxGRESPerUser)\n",
            "                11       gpu     cap1      bob  R       0:02      1 node1\n",
            "                 3       gpu    train    alice  R       0:08      1 node1\n",
        )
    );
}

#[test]
fn the_long_listing_has_its_date_and_cut_headers() {
    let options = Options { long: true, ..Options::default() };
    assert_eq!(
        shown(options, &capped(), at(0, 46, 27)),
        concat!(
            "Sun Nov 15 00:46:27 2026\n",
            "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)\n",
            "                 8       gpu     wrap    alice  PENDING       0:00   1:00:00      3 (PartitionNodeLimit)\n",
            "                13       gpu     cap5      bob  PENDING       0:00   1:00:00      1 (QOSMaxGRESPerUser)\n",
            "                12       gpu     cap2      bob  PENDING       0:00   1:00:00      1 (QOSMaxGRESPerUser)\n",
            "                11       gpu     cap1      bob  RUNNING       0:02   1:00:00      1 node1\n",
            "                 3       gpu    train    alice  RUNNING       0:08     10:00      1 node1\n",
        )
    );
}

#[test]
fn start_lists_pending_jobs_only() {
    let options = Options { start: true, ..Options::default() };
    assert_eq!(
        shown(options, &capped(), at(0, 46, 27)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           NODELIST(REASON)\n",
            "                 8       gpu     wrap    alice PD                 N/A      3 (null)               (PartitionNodeLimit)\n",
            "                12       gpu     cap2      bob PD                 N/A      1 (null)               (QOSMaxGRESPerUser)\n",
            "                13       gpu     cap5      bob PD                 N/A      1 (null)               (QOSMaxGRESPerUser)\n",
        )
    );
}

/// A real Slurm says 2 of `-n64` on nodes of 32 CPUs before it has started.
#[test]
fn a_pending_job_shows_its_number_of_nodes() {
    let mut jobs = capped();
    jobs.iter_mut().for_each(|job| job.sched_nodes = Some("node[1-2]".into()));
    let options = Options { format: Some("%i %D".into()), no_header: true, ..Options::default() };
    assert_eq!(shown(options, &jobs, at(0, 46, 27)), "8 3\n13 2\n12 2\n11 1\n3 1\n");
}

#[test]
fn an_array_is_one_line_until_its_tasks_start() {
    assert_eq!(
        shown(Options::default(), &sweep(), at(0, 46, 52)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "        14_[16-23]       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "              14_0       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_1       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_2       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_3       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_4       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_5       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_6       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_7       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_8       gpu    sweep    alice  R       0:03      1 node1\n",
            "              14_9       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_10       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_11       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_12       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_13       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_14       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_15       gpu    sweep    alice  R       0:03      1 node1\n",
        )
    );
    let expanded = Options { expand_arrays: true, ..Options::default() };
    assert_eq!(
        shown(expanded, &sweep(), at(0, 46, 52)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "             14_16       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_17       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_18       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_19       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_20       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_21       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_22       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "             14_23       gpu    sweep    alice PD       0:00      1 (Resources)\n",
            "              14_0       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_1       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_2       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_3       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_4       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_5       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_6       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_7       gpu    sweep    alice  R       0:03      1 node2\n",
            "              14_8       gpu    sweep    alice  R       0:03      1 node1\n",
            "              14_9       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_10       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_11       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_12       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_13       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_14       gpu    sweep    alice  R       0:03      1 node1\n",
            "             14_15       gpu    sweep    alice  R       0:03      1 node1\n",
        )
    );
    assert_eq!(
        shown(format("%i %A %F %K %t %r %S %Q"), &sweep(), at(0, 46, 52)),
        concat!(
            "JOBID JOBID ARRAY_JOB_ID ARRAY_TASK_ID ST REASON START_TIME PRIORITY\n",
            "14_[16-23] 14 14 16-23 PD Resources N/A 1321\n",
            "14_0 15 14 0 R None 2026-11-15T00:46:49 1321\n",
            "14_1 16 14 1 R None 2026-11-15T00:46:49 1321\n",
            "14_2 17 14 2 R None 2026-11-15T00:46:49 1321\n",
            "14_3 18 14 3 R None 2026-11-15T00:46:49 1321\n",
            "14_4 19 14 4 R None 2026-11-15T00:46:49 1321\n",
            "14_5 20 14 5 R None 2026-11-15T00:46:49 1321\n",
            "14_6 21 14 6 R None 2026-11-15T00:46:49 1321\n",
            "14_7 22 14 7 R None 2026-11-15T00:46:49 1321\n",
            "14_8 23 14 8 R None 2026-11-15T00:46:49 1321\n",
            "14_9 24 14 9 R None 2026-11-15T00:46:49 1321\n",
            "14_10 25 14 10 R None 2026-11-15T00:46:49 1321\n",
            "14_11 26 14 11 R None 2026-11-15T00:46:49 1321\n",
            "14_12 27 14 12 R None 2026-11-15T00:46:49 1321\n",
            "14_13 28 14 13 R None 2026-11-15T00:46:49 1321\n",
            "14_14 29 14 14 R None 2026-11-15T00:46:49 1321\n",
            "14_15 30 14 15 R None 2026-11-15T00:46:49 1321\n",
        )
    );
}

#[test]
fn throttles_and_steps_of_arrays_are_shown() {
    let array = |id: u32, indices: &str, throttle, reason, name: &str| {
        let mut job = pending(id, name, alice(), reason);
        let pending = IndexSet::parse(indices, 1000).expect("good indices");
        job.array = Some(Box::new(ArrayView {
            array: JobId(id),
            index: None,
            pending: Some(pending),
            throttle,
        }));
        job
    };
    let mut jobs = vec![
        array(16277, "3-100", Some(2), Reason::ArrayTaskLimit, "lim"),
        array(16278, "1-45:2", None, Reason::HeldByUser, "gap"),
        array(16279, "0-20:5", None, Reason::HeldByUser, "stp"),
    ];
    // The captured order is by priority.
    (jobs[0].priority, jobs[2].priority) = (1002, 1001);
    for (id, task) in [(16280, 1), (16281, 2)] {
        let mut job = running(id, "lim", alice(), "node1", at(1, 12, 58));
        job.array = Some(Box::new(ArrayView {
            array: JobId(16277),
            index: Some(task),
            pending: None,
            throttle: Some(2),
        }));
        jobs.push(job);
    }
    assert_eq!(
        shown(format("%i %K %R"), &jobs, at(1, 13, 1)),
        concat!(
            "JOBID ARRAY_TASK_ID NODELIST(REASON)\n",
            "16277_[3-100%2] 3-100%2 (JobArrayTaskLimit)\n",
            "16279_[0,5,10,15,20] 0,5,10,15,20 (JobHeldUser)\n",
            "16278_[1-45:2] 1-45:2 (JobHeldUser)\n",
            "16277_1 1 node1\n",
            "16277_2 2 node1\n",
        )
    );
    assert_eq!(
        shown(Options::default(), &jobs, at(1, 13, 1)),
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "   16277_[3-100%2]       gpu      lim    alice PD       0:00      1 (JobArrayTaskLimit)\n",
            "16279_[0,5,10,15,2       gpu      stp    alice PD       0:00      1 (JobHeldUser)\n",
            "    16278_[1-45:2]       gpu      gap    alice PD       0:00      1 (JobHeldUser)\n",
            "           16277_1       gpu      lim    alice  R       0:03      1 node1\n",
            "           16277_2       gpu      lim    alice  R       0:03      1 node1\n",
        )
    );
}

#[test]
fn every_letter_has_its_header_and_cell() {
    let letters = "%A|%a|%B|%C|%c|%D|%d|%e|%E|%F|%f|%G|%g|%H|%h|%i|%I|%j|%J|%k|%K|%l|%L|%m|%M|%n|%N|%o|%O|%p|%P|%q|%Q|%r|%R|%s|%S|%t|%T|%u|%U|%v|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%b";
    assert_eq!(
        shown(format(letters), &[train()], at(0, 46, 22)),
        concat!(
            "JOBID|ACCOUNT|EXEC_HOST|CPUS|MIN_CPUS|NODES|MIN_TMP_DISK|END_TIME|DEPENDENCY|ARRAY_JOB_ID|FEATURES|GROUP|GROUP|SOCKETS_PER_NODE|OVER_SUBSCRIBE|JOBID|CORES_PER_SOCKET|NAME|THREADS_PER_CORE|COMMENT|ARRAY_TASK_ID|TIME_LIMIT|TIME_LEFT|MIN_MEMORY|TIME|REQ_NODES|NODELIST|COMMAND|CONTIGUOUS|PRIORITY|PARTITION|QOS|PRIORITY|REASON|NODELIST(REASON)||START_TIME|ST|STATE|USER|UID|RESERVATION|SUBMIT_TIME|WCKEY|LICENSES|EXC_NODES|CORE_SPEC|NICE|SCHEDNODES|S:C:T|WORK_DIR|TRES_PER_NODE\n",
            "3|physics|node1|4|4|1|0|2026-11-15T00:56:19|(null)|3|(null)|1001|alice|*|OK|3|*|train|*|(null)|N/A|10:00|9:57|8G|0:03||node1|(null)|0|0.00000032875687|gpu|normal|1412|None|node1||2026-11-15T00:46:19|R|RUNNING|alice|1001|(null)|2026-11-15T00:46:19|(null)|(null)||N/A|0|(null)|*:*:*|/lab/jobs|gres:gpu:2\n",
        )
    );
}

/// dstack's `priority` comes before the 32 bits of Slurm's.
#[test]
fn priority_of_a_run_is_shown_whole_and_as_a_part_of_one_at_most() {
    let job = JobView { priority: (90 << 32) + 5, ..train() };
    let text = shown(format("%Q %p"), &[job], at(0, 46, 22));
    assert_eq!(text, "PRIORITY PRIORITY\n386547056645 1.00000000000000\n");
}

#[test]
fn long_names_have_twenty_columns() {
    let names = "JobID,JobArrayID,Name,UserName,State,StateCompact,Reason,ReasonList,TimeUsed,TimeLimit,TimeLeft,NumNodes,NumCPUs,tres-per-node,tres-alloc:50,NodeList,Partition,QOS,Account,Priority,SubmitTime,StartTime,EndTime";
    let options = Options { long_format: Some(names.to_owned()), ..Options::default() };
    assert_eq!(
        shown(options, &[train()], at(0, 46, 22)),
        concat!(
            "JOBID               JOBID               NAME                USER                STATE               ST                  REASON              NODELIST(REASON)    TIME                TIME_LIMIT          TIME_LEFT           NODES               CPUS                TRES_PER_NODE       TRES_ALLOC                                        NODELIST            PARTITION           QOS                 ACCOUNT             PRIORITY            SUBMIT_TIME         START_TIME          END_TIME            \n",
            "3                   3                   train               alice               RUNNING             R                   None                node1               0:03                10:00               9:57                1                   4                   gres:gpu:2          cpu=4,mem=8G,node=1,billing=4,gres/gpu=2          node1               gpu                 normal              physics             0.00000032875687    2026-11-15T00:46:19 2026-11-15T00:46:19 2026-11-15T00:56:19 \n",
        )
    );
}

#[test]
fn every_column_of_the_manual_has_a_name() {
    let names = [
        "admin_comment,AssocID,BurstBuffer,BurstBufferState,Cluster,ClusterFeature,CPUFreq",
        "MCSLabel,NTPerBoard,Prefer,Profile,ResizeTime,ResvPort,SPerBoard,system_comment",
        "tres-bind,tres-freq,Container",
    ];
    let long_format = Some(names.join(","));
    let options = Options { long_format, no_header: true, ..Options::default() };
    let text = shown(options, &[train()], at(0, 46, 22));
    let cells: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(cells.len(), 18, "{text}");
    assert_eq!(cells[..2], ["(null)", "0"]);
}

#[test]
fn steps_are_listed_with_the_id_of_their_job() {
    let options = Options { steps: true, ..Options::default() };
    assert_eq!(
        shown(options, &[train()], at(0, 46, 21)),
        concat!(
            "         STEPID     NAME PARTITION     USER      TIME NODELIST\n",
            "        3.batch    batch       gpu    alice      0:02 node1\n",
        )
    );
}

#[test]
fn ended_jobs_show_their_reason_only_if_it_explains_the_end() {
    let ended = |id, name, owner, state, priority| {
        let mut job = pending(id, name, owner, Reason::None);
        (job.state, job.priority) = (state, priority);
        (job.start, job.end) = (Some(at(0, 46, 0)), Some(at(0, 46, 0)));
        job
    };
    let mut refused = ended(6, "wrap", alice(), JobState::Failed, 0);
    refused.reason = Reason::BadConstraints;
    let mut done = ended(1, "hostname", alice(), JobState::Completed, 0);
    done.end = Some(at(0, 46, 1));
    let shares = ["node1", "node2"].map(|name| samples::share(name, 1, 1000, &[], 1));
    done.allocation = Some(Box::new(samples::allocation(shares.to_vec())));
    let cancelled = ended(13, "cap5", bob(), JobState::Cancelled, 0);
    let text = shown(Options::default(), &[refused, done, cancelled], at(0, 50, 0));
    assert_eq!(
        text,
        concat!(
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
            "                13       gpu     cap5      bob CA       0:00      1 \n",
            "                 1       gpu hostname    alice CD       0:01      2 node[1-2]\n",
            "                 6       gpu     wrap    alice  F       0:00      1 (BadConstraints)\n",
        )
    );
}

#[test]
fn sort_letters_choose_the_order() {
    let ids = |sort: &str| {
        let options = Options { sort: Some(sort.into()), no_header: true, ..format("%i,") };
        shown(options, &capped(), at(0, 46, 27)).replace('\n', "")
    };
    assert_eq!(ids("-i"), "13,12,11,8,3,");
    assert_eq!(ids("i"), "3,8,11,12,13,");
    assert_eq!(ids("u,-i"), "8,3,13,12,11,");
    assert_eq!(ids("t,-p"), "8,13,12,11,3,");
    assert_eq!(ids("S"), "3,11,8,12,13,");
    assert_eq!(
        Listing::new(Options { sort: Some("!".into()), ..Options::default() }).err(),
        Some(BadSort("!".into()))
    );
}

#[test]
fn unlimited_time_limits_are_shown() {
    let mut job = running(5, "long", alice(), "node1", at(0, 0, 0));
    (job.time_limit, job.end) = (TimeLimit::Unlimited, None);
    let text = shown(format("%l %L %e %M"), &[job], at(25, 1, 2));
    assert_eq!(text, "TIME_LIMIT TIME_LEFT END_TIME TIME\nUNLIMITED UNLIMITED NONE 1-01:01:02\n");
}

#[test]
fn an_unknown_column_gives_a_warning_and_the_rest_is_shown() {
    let listing =
        Listing::new(Options { long_format: Some("JobID:6,bogus".into()), ..Options::default() })
            .expect("a good sort");
    assert_eq!(listing.warnings(), ["Invalid job format specification: bogus"]);
}

#[test]
fn a_list_arrives_as_it_was_sent_and_what_is_common_travels_once() {
    let mut jobs = vec![samples::pending(1, "one", samples::alice(), Reason::Priority); 3];
    jobs[1].id = model::id::JobId(2);
    jobs[1].name = "two".into();
    jobs[2].reason = Reason::Resources;
    jobs.push(samples::sweep_task(1));
    let mut list = wire::job_list::ListWriter::default();
    jobs.iter().for_each(|job| list.push(job).expect("writable"));
    let now = at(1, 0, 0);
    let sent = String::from_utf8(list.answer(now).expect("writable")).expect("text");
    assert_eq!(sent.matches("\"spec\"").count(), 2, "{sent}");
    let read = |text: &str| match serde_json::from_str(text)? {
        wire::client::Answer::Jobs { now, jobs } => Ok((now, jobs.0)),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&sent).expect("readable"), (now, jobs));
    let astray = sent.replacen("\"of\":0", "\"of\":7", 1);
    let error: serde_json::Error = read(&astray).expect_err("points nowhere");
    assert!(error.to_string().contains("7 of 2 common parts"), "{error}");
    let none = wire::job_list::ListWriter::default().answer(now).expect("writable");
    assert_eq!(read(&String::from_utf8(none).expect("text")).expect("readable"), (now, vec![]));
}
