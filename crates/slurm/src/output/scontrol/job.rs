//! `scontrol show job`.

use super::Options;
use super::record::RecordWriter;
use crate::output::Moment;
use crate::output::text::{job_text, push};
use crate::words::{self, NULL};
use model::allocation::NodeShare;
use model::amount::format_slurm_mb;
use model::partition::DefaultMemory;
use model::request::{GresBinding, Per};
use model::run::{HetComponent, LaunchKind};
use model::time::{Timestamp, format_elapsed_full, format_limit_full};
use std::fmt::Write;
use wire::view::JobView;

/// How long a job waits for few switches if it did not say.
const SWITCH_WAIT_S: u32 = 300;

/// The record of one job, or of the pending tasks of an array.
pub fn push(out: &mut String, job: &JobView, moment: Moment<'_>, options: Options) {
    let mut record = RecordWriter::new(out, options.oneliner);
    push_identity(&mut record, job, options);
    push_times(&mut record, job, moment);
    push_placement(&mut record, job, options);
    push_demand(&mut record, job);
    push_launch(&mut record, job);
    record.end();
}

fn push_identity(record: &mut RecordWriter<'_>, job: &JobView, options: Options) {
    let spec = &job.spec;
    let owner = &spec.owner;
    record.line(title(job));
    if let Some(het) = job.het {
        record.line(format!("HetJobIdSet={}", job_text::component_ids(het)));
    }
    record.line(format!(
        "UserId={}({}) GroupId={}({}) MCS_label=N/A",
        owner.name, owner.uid, owner.group, owner.gid
    ));
    let (account, qos) = (&job.account, &job.qos);
    record.line(format!(
        "Priority={} Nice={} Account={} QOS={}",
        job.priority,
        spec.nice,
        if account.is_empty() { NULL } else { account },
        if qos.is_empty() { NULL } else { qos }
    ));
    record.line(format!(
        "JobState={} Reason={} Dependency={}",
        words::job::long(job.state),
        words::reason::one_word(&job.reason),
        job.dependency.as_deref().unwrap_or(NULL)
    ));
    record.line(format!(
        "Requeue={} Restarts={} BatchFlag={} Reboot=0 ExitCode={}",
        u8::from(spec.requeue),
        job.restarts,
        u8::from(spec.launch.kind != LaunchKind::Interactive),
        job.exit
    ));
    if options.details {
        record.line(format!("DerivedExitCode={}", job.derived_exit));
    }
}

/// `JobId=16 ArrayJobId=14 ArrayTaskId=1 JobName=sweep`
fn title(job: &JobView) -> String {
    let mut title = format!("JobId={}", job.id);
    if let Some(array) = &job.array {
        let task = job_text::array_task(job, None);
        push!(title, " ArrayJobId={} ArrayTaskId={task}", array.array);
        if let Some(throttle) = array.throttle {
            push!(title, " ArrayTaskThrottle={throttle}");
        }
    }
    if let Some(HetComponent { first, offset, .. }) = job.het {
        push!(title, " HetJobId={first} HetJobOffset={offset}");
    }
    push!(title, " JobName={}", job.spec.name);
    title
}

fn push_times(record: &mut RecordWriter<'_>, job: &JobView, moment: Moment<'_>) {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "Unknown".into(), |t| moment.iso(t));
    let request = job.spec.request();
    let extras = job.extras.as_deref().cloned().unwrap_or_default();
    record.line(format!(
        "RunTime={} TimeLimit={} TimeMin={}",
        format_elapsed_full(job.elapsed_s(moment.now)),
        format_limit_full(job.time_limit),
        request.time_min.map_or_else(|| "N/A".to_owned(), format_limit_full)
    ));
    let (submit, eligible) = (moment.iso(job.submit), time(job.eligible));
    record.line(format!("SubmitTime={submit} EligibleTime={eligible}"));
    record.line(format!("AccrueTime={}", time(job.eligible.filter(|t| *t <= moment.now))));
    record.line(format!(
        "StartTime={} EndTime={} Deadline={}",
        time(job.start),
        time(job.end),
        request.deadline.map_or_else(|| "N/A".to_owned(), |t| moment.iso(t))
    ));
    if let Some(start) = job.start.filter(|_| !job.state.is_waiting()) {
        let told = extras.preempt_time.map_or_else(|| "None".into(), |t| moment.iso(t));
        record.line(format!("PreemptEligibleTime={} PreemptTime={told}", moment.iso(start)));
    }
    let planned = time(job.last_planned);
    let suspended = extras.suspend_time.map_or_else(|| "None".into(), |t| moment.iso(t));
    let before = extras.pre_suspend_s;
    record.line(format!(
        "SuspendTime={suspended} SecsPreSuspend={before} LastSchedEval={planned} Scheduler=Main"
    ));
}

fn push_placement(record: &mut RecordWriter<'_>, job: &JobView, options: Options) {
    let spec = &job.spec;
    let request = spec.request();
    record.line(format!(
        "Partition={} AllocNode:Sid={}:{}",
        job.partition, spec.submit_host, spec.submit_sid
    ));
    record.line(format!(
        "ReqNodeList={} ExcNodeList={}",
        job_text::names_or_null(&request.node_list),
        job_text::names_or_null(&request.exclude)
    ));
    let expected = job
        .sched_nodes
        .as_ref()
        .map_or_else(String::new, |nodes| format!(" SchedNodeList={nodes}"));
    record.line(format!("NodeList={}{expected}", job_text::node_list(job)));
    let allocation = job.allocation.as_ref();
    if let Some(first) = allocation.and_then(|allocation| allocation.nodes.first()) {
        record.line(format!("BatchHost={}", first.node));
    }
    record.line(format!(
        "NumNodes={} NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:{}:{}:{}",
        node_counts(job),
        job.cpus,
        job.tasks,
        request.cpus_per_task.min,
        request.sockets_per_node.unwrap_or(0),
        job_text::star(request.cores_per_socket),
        job_text::star(request.threads_per_core)
    ));
    record.line(format!("TRES={}", job.tres));
    record.line(format!(
        "Socks/Node={} NtasksPerN:B:S:C={}:0:{}:{} CoreSpec=*",
        job_text::star(request.sockets_per_node),
        request.tasks_per_node.unwrap_or(0),
        job_text::star(request.tasks_per_socket),
        job_text::star(request.tasks_per_core)
    ));
    if let Some(allocation) = allocation.filter(|_| options.details) {
        record.line(format!("JOB_GRES={}", job_gres(&allocation.nodes)));
        allocation.nodes.iter().for_each(|share| record.detail(share_line(share)));
    }
}

/// `2`; while the job waits `2-4`, and `2-2` for `-N2`.
fn node_counts(job: &JobView) -> String {
    let is_given = job.state.is_waiting() && job.spec.request().nodes_given;
    match (&job.allocation, job.nodes.max) {
        (None, Some(max)) if max > job.nodes.min || is_given => {
            format!("{}-{max}", job.nodes.min)
        }
        _ => job_text::node_count(job).to_string(),
    }
}

/// `gpu:h100:4`: the sum over all nodes; `(null)` for none.
fn job_gres(shares: &[NodeShare]) -> String {
    let mut totals: Vec<model::allocation::GresShare> = Vec::new();
    for gres in shares.iter().flat_map(|share| &share.gres) {
        let same =
            |t: &&mut model::allocation::GresShare| t.name == gres.name && t.kind == gres.kind;
        match totals.iter_mut().find(same) {
            Some(total) => total.count += gres.count,
            None => totals.push(gres.clone()),
        }
    }
    gres_list(&totals, false)
}

fn gres_list(shares: &[model::allocation::GresShare], indices: bool) -> String {
    if shares.is_empty() {
        return NULL.to_owned();
    }
    let texts: Vec<String> =
        shares.iter().map(|share| job_text::gres_share(share, indices)).collect();
    texts.join(",")
}

fn share_line(share: &NodeShare) -> String {
    let gres = if share.gres.is_empty() { String::new() } else { gres_list(&share.gres, true) };
    format!("Nodes={} CPU_IDs={} Mem={} GRES={gres}", share.node, share.cpus, share.memory.mib())
}

fn push_demand(record: &mut RecordWriter<'_>, job: &JobView) {
    let request = job.spec.request();
    let memory = job_text::memory(job);
    let per = if matches!(memory, DefaultMemory::PerCpu(_)) { "CPU" } else { "Node" };
    record.line(format!(
        "MinCPUsNode={} MinMemory{per}={} MinTmpDiskNode={}",
        job_text::min_cpus_per_node(request),
        job_text::memory_text(memory),
        request.disk.map_or_else(|| "0".to_owned(), |disk| format_slurm_mb(disk.mib()))
    ));
    let features = request.constraint.as_ref().map(ToString::to_string);
    record.line(format!("Features={} DelayBoot=00:00:00", features.as_deref().unwrap_or(NULL)));
    if let Some(prefer) = &request.prefer {
        record.line(format!("Prefer={prefer}"));
    }
    if let Some(reservation) = job.reservation() {
        record.line(format!("Reservation={reservation}"));
    }
    record.line(format!(
        "OverSubscribe={} Contiguous={} Licenses={} Network=(null)",
        job_text::over_subscribe(request.sharing),
        u8::from(request.contiguous),
        job_text::licenses(request)
    ));
}

fn push_launch(record: &mut RecordWriter<'_>, job: &JobView) {
    let spec = &job.spec;
    let request = spec.request();
    record.line(format!("Command={}", job_text::command(job)));
    record.line(format!("WorkDir={}", spec.launch.work_dir));
    if let Some(comment) = job.extras.as_ref().and_then(|f| f.admin_comment.as_ref()) {
        record.line(format!("AdminComment={comment} "));
    }
    if let Some(comment) = &spec.comment {
        record.line(format!("Comment={comment} "));
    }
    if let Some(streams) = job_text::streams(job) {
        record.line(format!("StdErr={}", streams.stderr));
        record.line(format!("StdIn={}", streams.stdin));
        record.line(format!("StdOut={}", streams.stdout));
    }
    if let Some(switches) = request.switches {
        let wait = u64::from(switches.wait_s.unwrap_or(SWITCH_WAIT_S));
        record.line(format!("Switches={}@{}", switches.count, format_elapsed_full(wait)));
    }
    record.line("Power=");
    if request.spread {
        record.line("SpreadJob=Yes");
    }
    match request.gres_binding {
        GresBinding::Enforce => record.line("GresEnforceBind=Yes"),
        GresBinding::Ignore => record.line("GresEnforceBind=No"),
        GresBinding::Prefer => {}
    }
    if let Some(cpus) = request.cpus_per_gpu {
        record.line(format!("CpusPerTres=gres:gpu:{cpus}"));
    }
    if let DefaultMemory::PerGpu(each) = job_text::memory(job) {
        record.line(format!("MemPerTres=gres:gpu:{}", each.mib()));
    }
    let per = [
        ("TresPerJob", Per::Job),
        ("TresPerNode", Per::Node),
        ("TresPerSocket", Per::Socket),
        ("TresPerTask", Per::Task),
    ];
    for (key, per) in per {
        if let Some(text) = job_text::gres_request(request, per) {
            record.line(format!("{key}={text}"));
        }
    }
    if let Some(tasks) = request.tasks_per_gpu {
        record.line(format!("NtasksPerTRES={tasks}"));
    }
    if let Some(mail) = &spec.mail {
        let user = mail.user.as_deref().unwrap_or(&spec.owner.name);
        let types: Vec<&str> = mail.types.iter().map(|kind| kind.name()).collect();
        record.line(format!("MailUser={user} MailType={}", types.join(",")));
    }
    if let Some(image) = spec.launch.shown_image(&job.steps) {
        record.line(format!("Container={image}"));
    }
    // Ours, and so after all fields of Slurm; as one word, as every value that scripts may split at white space.
    if let Some(cause) = words::reason::failure_cause(&job.reason) {
        record.line(format!("FailureCause={}", cause.replace(' ', "_")));
    }
    record.line("");
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
