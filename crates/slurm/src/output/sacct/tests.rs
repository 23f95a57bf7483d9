//! `sacct` against the captures.

use super::*;
use crate::output::samples::{at, moment};
use model::amount::Unit;
use model::id::{JobId, RunId, StepId};
use model::reason::{LaunchFailure, LaunchFault, Reason};
use model::record::{RecordState, StepRecord};
use model::run::{ExitStatus, LaunchKind, Outcome, Usage};
use model::streams::Streams;
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};

pub fn record(id: u32, name: &str, state: RecordState) -> JobRecord {
    JobRecord {
        job: JobId(id),
        attempt: 1,
        run: RunId(u128::from(id)),
        array_job: None,
        array_task: None,
        array_pending: None,
        het: None,
        name: name.into(),
        user: "alice".into(),
        uid: 1001,
        gid: 1001,
        group: "alice".into(),
        account: "physics".into(),
        partition: "gpu".into(),
        qos: "normal".into(),
        state,
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        submit: at(0, 46, 19),
        eligible: Some(at(0, 46, 19)),
        start: Some(at(0, 46, 19)),
        end: None,
        suspended_s: 0,
        time_limit: TimeLimit::Minutes(60),
        nodes: vec!["node1".into()],
        node_count: 1,
        cpus: 1,
        tasks: 1,
        req_cpus: 1,
        req_nodes: 1,
        req_mem: model::amount::Bytes::from_mib(1000),
        req_tres: Tres::default(),
        alloc_tres: Tres::default(),
        priority: 1000,
        restarts: 0,
        retry: None,
        work_dir: "/lab/jobs".into(),
        streams: None,
        submit_line: String::new(),
        comment: None,
        wckey: None,
        reservation: None,
        reservation_id: None,
        constraint: None,
        dependency: None,
        container: None,
        reason: Default::default(),
        kind: LaunchKind::Batch,
        script: None,
        environment: None,
        configuration: None,
        blob_bytes: Default::default(),
        memory_limit: None,
        failed_node: None,
        gpus: Vec::new(),
        usage: Usage::default(),
        steps: Vec::new(),
    }
}

fn step(id: StepId, name: &str, state: RecordState, exit: ExitStatus) -> StepRecord {
    StepRecord {
        id,
        name: name.into(),
        state,
        exit,
        start: at(0, 46, 19),
        end: None,
        nodes: vec!["node1".into()],
        cpus: 4,
        tasks: 1,
        usage: Usage::default(),
        submit_line: String::new(),
        cpu_frequency: None,
        container: None,
    }
}

const COMPLETED: RecordState = RecordState::Ended(Outcome::Completed);

/// The job of `s1-*`, as it runs and as it was cancelled.
pub fn train(cancelled: bool) -> JobRecord {
    let (state, exit) = if cancelled {
        (RecordState::Ended(Outcome::Cancelled { by: 0 }), ExitStatus { code: 0, signal: 15 })
    } else {
        (RecordState::Running, ExitStatus::default())
    };
    let mut job = record(3, "train", state);
    job.cpus = 4;
    job.steps = vec![step(StepId::Batch, "batch", state, exit)];
    job
}

/// The job 79: two nodes, four CPUs, four GPUs, a batch script and three steps, all within one second.
pub fn two_nodes() -> JobRecord {
    let mut job = record(79, "envcap", COMPLETED);
    let tres = Tres::parse("billing=4,cpu=4,gres/gpu=4,mem=4000M,node=2").expect("a good list");
    (job.req_tres, job.alloc_tres) = (tres.clone(), tres);
    (job.submit, job.start, job.end) = (at(0, 49, 16), Some(at(0, 49, 17)), Some(at(0, 49, 17)));
    job.nodes = vec!["node1".into(), "node2".into()];
    (job.node_count, job.cpus, job.req_mem) = (2, 4, model::amount::Bytes::from_mib(4000));
    job.usage.cpu_user_us = 84_500;
    let failed = RecordState::Ended(Outcome::Failed);
    let steps = [
        (StepId::Batch, "batch", COMPLETED, 0, 1, 1, 2876, 60),
        (StepId::Number(0), "bash", failed, 1, 2, 4, 4712, 11),
        (StepId::Number(1), "bash", COMPLETED, 0, 2, 4, 3148, 10),
        (StepId::Number(2), "bash", COMPLETED, 0, 1, 1, 2948, 1),
    ];
    for (id, name, state, code, nodes, tasks, kib, cpu_ms) in steps {
        let mut step = step(id, name, state, ExitStatus { code, signal: 0 });
        (step.start, step.end) = (at(0, 49, 17), Some(at(0, 49, 17)));
        step.nodes = job.nodes[..nodes].to_vec();
        (step.cpus, step.tasks) = (2 * nodes as u32, tasks);
        step.usage.memory_peak_bytes = kib * 1024;
        step.usage.cpu_system_us = cpu_ms * 1000;
        job.steps.push(step);
    }
    job
}

fn shown(options: &Options, records: &[JobRecord], now: Timestamp) -> String {
    let mut out = Vec::new();
    render(&mut out, options, "lab", records, moment(now)).expect("good fields");
    String::from_utf8(out).expect("text")
}

fn format(text: &str) -> Options {
    Options { format: Some(text.to_owned()), ..Options::default() }
}

#[test]
fn the_default_columns_are_those_of_slurm() {
    let now = at(0, 46, 21);
    assert_eq!(
        shown(&Options::default(), &[train(false)], now),
        concat!(
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n",
            "------------ ---------- ---------- ---------- ---------- ---------- -------- \n",
            "3                 train        gpu    physics          4    RUNNING      0:0 \n",
            "3.batch           batch               physics          4    RUNNING      0:0 \n",
        )
    );
    assert_eq!(
        shown(&Options::default(), &[train(true)], now),
        concat!(
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n",
            "------------ ---------- ---------- ---------- ---------- ---------- -------- \n",
            "3                 train        gpu    physics          4 CANCELLED+      0:0 \n",
            "3.batch           batch               physics          4  CANCELLED     0:15 \n",
        )
    );
    assert_eq!(
        shown(&Options::default(), &[], now),
        concat!(
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n",
            "------------ ---------- ---------- ---------- ---------- ---------- -------- \n",
        )
    );
}

#[test]
fn brief_has_three_columns() {
    let brief = Options { brief: true, ..Options::default() };
    assert_eq!(
        shown(&brief, &[two_nodes()], at(0, 50, 0)),
        concat!(
            "JobID             State ExitCode \n",
            "------------ ---------- -------- \n",
            "79            COMPLETED      0:0 \n",
            "79.batch      COMPLETED      0:0 \n",
            "79.0             FAILED      1:0 \n",
            "79.1          COMPLETED      0:0 \n",
            "79.2          COMPLETED      0:0 \n",
        )
    );
}

#[test]
fn chosen_columns_have_widths_and_are_empty_in_steps_if_only_jobs_have_them() {
    let fields = "JobID,JobName%30,User,Account,Partition,QOS,State,ExitCode,Elapsed,Timelimit,Submit,Start,End,NNodes,NCPUS,NTasks,ReqTRES%50,AllocTRES%50,ReqMem,MaxRSS,AveCPU,TotalCPU,CPUTime,NodeList,WorkDir%30";
    assert_eq!(
        shown(&format(fields), &[two_nodes()], at(0, 50, 0)),
        concat!(
            "JobID                               JobName      User    Account  Partition        QOS      State ExitCode    Elapsed  Timelimit              Submit               Start                 End   NNodes      NCPUS   NTasks                                            ReqTRES                                          AllocTRES     ReqMem     MaxRSS     AveCPU   TotalCPU    CPUTime        NodeList                        WorkDir \n",
            "------------ ------------------------------ --------- ---------- ---------- ---------- ---------- -------- ---------- ---------- ------------------- ------------------- ------------------- -------- ---------- -------- -------------------------------------------------- -------------------------------------------------- ---------- ---------- ---------- ---------- ---------- --------------- ------------------------------ \n",
            "79                                   envcap     alice    physics        gpu     normal  COMPLETED      0:0   00:00:00   01:00:00 2026-11-15T00:49:16 2026-11-15T00:49:17 2026-11-15T00:49:17        2          4                 billing=4,cpu=4,gres/gpu=4,mem=4000M,node=2        billing=4,cpu=4,gres/gpu=4,mem=4000M,node=2      4000M                        00:00.084   00:00:00       node[1-2]                      /lab/jobs \n",
            "79.batch                              batch              physics                        COMPLETED      0:0   00:00:00            2026-11-15T00:49:17 2026-11-15T00:49:17 2026-11-15T00:49:17        1          2        1                                                                     cpu=2,gres/gpu=2,mem=2000M,node=1                 2876K   00:00:00  00:00.060   00:00:00           node1                                \n",
            "79.0                                   bash              physics                           FAILED      1:0   00:00:00            2026-11-15T00:49:17 2026-11-15T00:49:17 2026-11-15T00:49:17        2          4        4                                                                     cpu=4,gres/gpu=4,mem=4000M,node=2                 4712K   00:00:00  00:00.011   00:00:00       node[1-2]                                \n",
            "79.1                                   bash              physics                        COMPLETED      0:0   00:00:00            2026-11-15T00:49:17 2026-11-15T00:49:17 2026-11-15T00:49:17        2          4        4                                                                     cpu=4,gres/gpu=4,mem=4000M,node=2                 3148K   00:00:00  00:00.010   00:00:00       node[1-2]                                \n",
            "79.2                                   bash              physics                        COMPLETED      0:0   00:00:00            2026-11-15T00:49:17 2026-11-15T00:49:17 2026-11-15T00:49:17        1          2        1                                                                     cpu=2,gres/gpu=2,mem=2000M,node=1                 2948K   00:00:00  00:00.001   00:00:00           node1                                \n",
        )
    );
}

#[test]
fn job_on_nodes_with_a_price_has_its_cost_and_others_none() {
    let mut paid = two_nodes();
    paid.end = Some(at(1, 19, 17));
    paid.alloc_tres.set(TresKind::Cost, 25_000);
    let options = Options { no_header: true, ..format("jobid,cost,alloctres%60") };
    let text = shown(&options, &[paid, two_nodes()], at(1, 50, 0));
    let words = |line: usize| text.lines().nth(line).map(|line| line.split_whitespace().collect());
    let first: Option<Vec<&str>> = words(0);
    let tres = "billing=4,cost=2.5,cpu=4,gres/gpu=4,mem=4000M,node=2";
    assert_eq!(first, Some(vec!["79", "1.2500", tres]));
    let other: Option<Vec<&str>> = words(5);
    assert_eq!(other.map(|words| words.len()), Some(2), "{text}");
}

#[test]
fn units_can_be_chosen() {
    let options = Options { units: Units::In(Unit::Mebi), ..format("jobid,maxrss,reqmem") };
    assert_eq!(
        shown(&options, &[two_nodes()], at(0, 50, 0)),
        concat!(
            "JobID            MaxRSS     ReqMem \n",
            "------------ ---------- ---------- \n",
            "79                           4000M \n",
            "79.batch          2.81M            \n",
            "79.0              4.60M            \n",
            "79.1              3.07M            \n",
            "79.2              2.88M            \n",
        )
    );
    let raw = Options { units: Units::Own, no_header: true, ..format("maxrss%-8") };
    assert!(shown(&raw, &[two_nodes()], at(0, 50, 0)).ends_with("2948K    \n"));
}

#[test]
fn array_tasks_have_their_index_and_a_job_that_never_started_has_no_start() {
    let cancelled = RecordState::Ended(Outcome::Cancelled { by: 1001 });
    let mut task = record(18, "sweep", cancelled);
    (task.array_job, task.array_task) = (Some(JobId(14)), Some(3));
    (task.start, task.end) = (Some(at(0, 46, 49)), Some(at(0, 47, 25)));
    task.nodes = vec!["node2".into()];
    let mut rest = record(14, "sweep", cancelled);
    (rest.array_job, rest.array_pending) = (Some(JobId(14)), Some("16-23".into()));
    (rest.start, rest.end, rest.cpus) = (None, Some(at(0, 47, 25)), 0);
    rest.nodes.clear();
    let options = Options {
        allocations_only: true,
        ..format("jobid,jobidraw,state%20,exitcode,elapsed,start,end,nodelist")
    };
    assert_eq!(
        shown(&options, &[task, rest], at(0, 48, 0)),
        concat!(
            "JobID        JobIDRaw                    State ExitCode    Elapsed               Start                 End        NodeList \n",
            "------------ ------------ -------------------- -------- ---------- ------------------- ------------------- --------------- \n",
            "14_3         18              CANCELLED by 1001      0:0   00:00:36 2026-11-15T00:46:49 2026-11-15T00:47:25           node2 \n",
            "14_[16-23]   14              CANCELLED by 1001      0:0   00:00:00                None 2026-11-15T00:47:25   None assigned \n",
        )
    );
}

#[test]
fn separators_are_between_or_after_the_cells() {
    let now = at(0, 46, 21);
    let with = |layout| Options { layout, ..Options::default() };
    let header = "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n";
    let lines =
        "3|train|gpu|physics|4|CANCELLED by 0|0:0\n3.batch|batch||physics|4|CANCELLED|0:15\n";
    let separated = with(Layout::Separated(Layout::SEPARATOR.into()));
    assert_eq!(shown(&separated, &[train(true)], now), format!("{header}{lines}"));
    let ended = Options {
        no_header: true,
        allocations_only: true,
        ..with(Layout::Ended(Layout::SEPARATOR.into()))
    };
    assert_eq!(shown(&ended, &[train(true)], now), "3|train|gpu|physics|4|CANCELLED by 0|0:0|\n");
    let commas = Options { layout: Layout::Separated(",".into()), ..format("jobid,state") };
    assert_eq!(shown(&commas, &[train(false)], now), "JobID,State\n3,RUNNING\n3.batch,RUNNING\n");
}

#[test]
fn a_negative_width_aligns_left() {
    let options = Options { allocations_only: true, ..format("jobid%15,user,state%20") };
    let expected = concat!(
        "          JobID      User                State \n",
        "--------------- --------- -------------------- \n",
        "              3     alice       CANCELLED by 0 \n",
    );
    assert_eq!(shown(&options, &[train(true)], at(0, 50, 0)), expected);
}

#[test]
fn the_long_listing_has_the_columns_of_slurm() {
    let options =
        Options { long: true, layout: Layout::Separated("|".into()), ..Options::default() };
    let text = shown(&options, &[two_nodes()], at(0, 50, 0));
    assert_eq!(
        text.lines().next(),
        Some(
            "JobID|JobIDRaw|JobName|Partition|MaxVMSize|MaxVMSizeNode|MaxVMSizeTask|AveVMSize|MaxRSS|MaxRSSNode|MaxRSSTask|AveRSS|MaxPages|MaxPagesNode|MaxPagesTask|AvePages|MinCPU|MinCPUNode|MinCPUTask|AveCPU|NTasks|AllocCPUS|Elapsed|State|ExitCode|AveCPUFreq|ReqCPUFreqMin|ReqCPUFreqMax|ReqCPUFreqGov|ReqMem|ConsumedEnergy|MaxDiskRead|MaxDiskReadNode|MaxDiskReadTask|AveDiskRead|MaxDiskWrite|MaxDiskWriteNode|MaxDiskWriteTask|AveDiskWrite|ReqTRES|AllocTRES|TRESUsageInAve|TRESUsageInMax|TRESUsageInMaxNode|TRESUsageInMaxTask|TRESUsageInMin|TRESUsageInMinNode|TRESUsageInMinTask|TRESUsageInTot|TRESUsageOutMax|TRESUsageOutMaxNode|TRESUsageOutMaxTask|TRESUsageOutAve|TRESUsageOutTot"
        )
    );
}

#[test]
fn helpformat_lists_all_fields_and_others_are_refused() {
    assert_eq!(
        help_format(),
        concat!(
            "Account             AdminComment        AllocCPUS           AllocNodes         \n",
            "AllocTRES           AssocID             AveCPU              AveCPUFreq         \n",
            "AveDiskRead         AveDiskWrite        AvePages            AveRSS             \n",
            "AveVMSize           BlockID             Cluster             Comment            \n",
            "Constraints         ConsumedEnergy      ConsumedEnergyRaw   Container          \n",
            "Cost                CPUTime             CPUTimeRAW          DBIndex            \n",
            "DerivedExitCode     Elapsed             ElapsedRaw          Eligible           \n",
            "End                 ExitCode            FailureCause        Flags              \n",
            "GID                 Group               JobID               JobIDRaw           \n",
            "JobName             Layout              MaxDiskRead         MaxDiskReadNode    \n",
            "MaxDiskReadTask     MaxDiskWrite        MaxDiskWriteNode    MaxDiskWriteTask   \n",
            "MaxPages            MaxPagesNode        MaxPagesTask        MaxRSS             \n",
            "MaxRSSNode          MaxRSSTask          MaxVMSize           MaxVMSizeNode      \n",
            "MaxVMSizeTask       McsLabel            MinCPU              MinCPUNode         \n",
            "MinCPUTask          NCPUS               NNodes              NodeList           \n",
            "NTasks              Partition           Priority            QOS                \n",
            "QOSRAW              Reason              ReqCPUFreq          ReqCPUFreqGov      \n",
            "ReqCPUFreqMax       ReqCPUFreqMin       ReqCPUS             ReqMem             \n",
            "ReqNodes            ReqTRES             Reservation         ReservationId      \n",
            "Reserved            ResvCPU             ResvCPURAW          Start              \n",
            "State               StdErr              StdIn               StdOut             \n",
            "Submit              SubmitLine          Suspended           SystemComment      \n",
            "SystemCPU           Timelimit           TimelimitRaw        TotalCPU           \n",
            "TRESUsageInAve      TRESUsageInMax      TRESUsageInMaxNode  TRESUsageInMaxTask \n",
            "TRESUsageInMin      TRESUsageInMinNode  TRESUsageInMinTask  TRESUsageInTot     \n",
            "TRESUsageOutAve     TRESUsageOutMax     TRESUsageOutMaxNode TRESUsageOutMaxTask\n",
            "TRESUsageOutMin     TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot    \n",
            "UID                 User                UserCPU             WCKey              \n",
            "WCKeyID             WorkDir            \n",
        )
    );
    let mut out = Vec::new();
    let refused = render(&mut out, &format("bogus"), "lab", &[], moment(at(0, 0, 0)));
    let refused = refused.expect_err("no such field").to_string();
    assert_eq!((refused.as_str(), out.len()), ("Invalid field requested: \"bogus\"", 0));
}

#[test]
fn cpu_time_below_an_hour_has_milliseconds() {
    let mut job = record(1, "long", COMPLETED);
    job.usage = Usage { cpu_user_us: 3_599_999_000, cpu_system_us: 1_000, ..Usage::default() };
    let options = Options { no_header: true, ..format("usercpu,systemcpu,totalcpu") };
    assert_eq!(shown(&options, &[job], at(1, 0, 0)), " 59:59.999  00:00.001   01:00:00 \n");
}

#[test]
fn energy_is_the_jobs_in_joules() {
    let mut job = record(1, "warm", COMPLETED);
    job.usage.energy_mj = 17_200_999;
    let options = Options { no_header: true, ..format("consumedenergy,consumedenergyraw") };
    let text = shown(&options, &[job], at(1, 0, 0));
    let words: Vec<&str> = text.lines().next().expect("a line").split_whitespace().collect();
    assert_eq!(words, ["17.20K", "17200"]);
}

#[test]
fn energy_is_listed_among_what_was_allocated() {
    let mut job = record(1, "warm", COMPLETED);
    let before =
        shown(&Options { no_header: true, ..format("alloctres%80") }, &[job.clone()], at(1, 0, 0));
    assert!(!before.contains("energy"), "{before}");
    job.usage.energy_mj = 17_200_999;
    let text = shown(&Options { no_header: true, ..format("alloctres%80") }, &[job], at(1, 0, 0));
    assert!(text.lines().next().expect("a line").contains("energy=17200"), "{text}");
}

#[test]
fn requested_memory_is_that_of_the_whole_job() {
    let mut job = two_nodes();
    job.req_mem = model::amount::Bytes::from_mib(2000);
    let options = Options { allocations_only: true, no_header: true, ..format("reqmem") };
    assert_eq!(shown(&options, &[job], at(0, 50, 0)).trim(), "4000M");
    let plain = record(1, "plain", COMPLETED);
    assert_eq!(shown(&options, &[plain], at(0, 50, 0)).trim(), "1000M");
}

#[test]
fn cause_of_a_failed_launch_is_a_column_of_the_job() {
    let mut job = record(1, "unstarted", RecordState::Ended(Outcome::LaunchFailed));
    let what = "/nonexist/x.out: No such file or directory";
    job.reason = Reason::NotLaunched(Box::new(LaunchFailure::new(LaunchFault::Other, what)));
    let options = Options { no_header: true, ..format("reason%16,failurecause%42") };
    let text = shown(&options, &[job], at(1, 0, 0));
    assert_eq!(text.trim_end(), format!("JobLaunchFailure {what}"));
}

#[test]
fn image_of_a_container_is_a_column_of_the_job_and_of_its_steps() {
    let mut job = record(1, "done", COMPLETED);
    let options = Options { no_header: true, ..format("container") };
    assert_eq!(shown(&options, std::slice::from_ref(&job), at(1, 0, 0)).trim(), "");
    job.container = Some("docker://alpine".into());
    let mut own = step(StepId::Number(0), "true", COMPLETED, ExitStatus::default());
    own.container = Some("debian".into());
    job.steps = vec![own, step(StepId::Number(1), "true", COMPLETED, ExitStatus::default())];
    let lines = shown(&options, &[job], at(1, 0, 0));
    let cells: Vec<&str> = lines.lines().map(str::trim).collect();
    assert_eq!(cells, ["docker://alpine", "debian", ""]);
}

#[test]
fn files_of_a_batch_job_are_columns_of_the_job() {
    let mut job = record(1, "done", COMPLETED);
    let options = Options { no_header: true, ..format("stdin%9,stdout%6,stderr%6") };
    assert_eq!(shown(&options, std::slice::from_ref(&job), at(1, 0, 0)).trim(), "");
    job.streams = Some(Streams {
        stdin: "/dev/null".into(),
        stdout: "/a/out".into(),
        stderr: "/a/err".into(),
    });
    assert_eq!(shown(&options, &[job], at(1, 0, 0)).trim(), "/dev/null /a/out /a/err");
}

#[test]
fn the_word_all_means_all_columns() {
    let format = Some("jobid,ALL".to_owned());
    let layout = Layout::Separated("|".into());
    let options = Options { format, layout, ..Options::default() };
    let mut out = Vec::new();
    render(&mut out, &options, "lab", &[], moment(at(0, 46, 27))).expect("good fields");
    let header = String::from_utf8(out).expect("text");
    assert_eq!(header.trim_end().split('|').count(), ACCT_FIELDS.len());
}

#[test]
fn names_of_later_versions_are_known() {
    let format = Some("JobID,Planned%12,PlannedCPURAW,Restarts".to_owned());
    let layout = Layout::Separated("|".into());
    let options = Options { format, layout, ..Options::default() };
    let mut job = record(3, "train", RecordState::Running);
    (job.start, job.restarts, job.req_cpus) = (Some(at(0, 46, 29)), 2, 4);
    let mut out = Vec::new();
    render(&mut out, &options, "lab", &[job], moment(at(0, 47, 0))).expect("good fields");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text, "JobID|Planned|PlannedCPURAW|Restarts\n3|00:00:10|40|2\n");
}
