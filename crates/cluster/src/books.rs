//! The books' record of a job, made from the state; the same for running and for ended attempts.

use crate::billing::bill;
use crate::event::Event;
use crate::requested::{self, effective_limit, memory_per_unit, requested_tres};
use crate::state::State;
use crate::state::job::{EndRecord, Job};
use model::allocation::{Allocation, NodeShare};
use model::amount::Bytes;
use model::attempt::suspended_whole_s;
use model::bounds;
use model::container::{Container, NO_CONTAINER};
use model::filename::FilenameContext;
use model::gres::GPU;
use model::hostlist;
use model::id::{JobId, RunId};
use model::limits::{CgroupPolicy, Limits};
use model::partition::DefaultMemory;
use model::record::{GpusOfNodes, JobRecord, RecordState, StepRecord};
use model::run::{LaunchKind, Outcome, Step};
use model::streams::Streams;
use model::time::Timestamp;
use model::tres::TresKind;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// What the kernel holds a job to on the first of its nodes, where that is not what it was granted there: `MinRAMSpace`,
/// `AllowedRAMSpace` and `MaxRAMPercent` of cgroup.conf.
fn memory_limit(state: &State, allocation: &Allocation) -> Option<Bytes> {
    let share = allocation.nodes.first()?;
    let node_memory = state.nodes.get(&share.node).map_or(Bytes(0), |node| node.config.memory);
    let policy = CgroupPolicy { node_memory, ..state.config.limits.clone() };
    Limits::of(share, &policy).memory.filter(|limit| *limit != share.memory)
}

/// The GPUs of each node by their kinds; nothing where no kind is known.
fn gpus_of(allocation: &Allocation) -> Vec<GpusOfNodes> {
    let mut nodes_by_kinds: BTreeMap<Vec<(String, u64)>, Vec<&str>> = BTreeMap::new();
    for share in &allocation.nodes {
        let gpus = share.gres.iter().filter(|gres| gres.name == GPU);
        let kinds = gpus.map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count)).collect();
        nodes_by_kinds.entry(kinds).or_default().push(&share.node);
    }
    nodes_by_kinds.retain(|kinds, _| kinds.iter().any(|(kind, _)| !kind.is_empty()));
    let each = nodes_by_kinds.into_iter();
    each.map(|(kinds, nodes)| GpusOfNodes { nodes: hostlist::compress(nodes), kinds }).collect()
}

/// The record of `id` as it is now, or as it ends with `ended`.
pub fn record_of(state: &State, id: JobId, ended: Option<&EndRecord>) -> JobRecord {
    let job = &state.jobs[&id];
    let ended = ended.or(job.ended());
    let request = job.spec.request();
    let launch = &job.spec.launch;
    let script_image = launch.container.as_deref().and_then(Container::image_name);
    let allocation = match job.attempt() {
        Some(attempt) => Some(&*attempt.allocation),
        None => ended.and_then(|e| e.allocation.as_deref()),
    };
    let req_tres = requested_tres(state, job);
    let partition = requested::partitions(state, job).collect::<Vec<_>>().join(",");
    let mut alloc_tres = allocation.map(|a| a.tres()).unwrap_or_default();
    if allocation.is_some() {
        let billed = bill(state, &partition, &alloc_tres);
        alloc_tres.set(TresKind::Billing, billed);
    }
    let start = start_of(job, ended);
    let stored = job.attempt().map_or(&[][..], |attempt| &attempt.steps);
    let steps = with_changed_steps(stored, ended.map_or(&[][..], |ended| &ended.steps));
    let mut step_texts = StepTexts { left: bounds::RECORD_STEP_TEXT_BYTES.most };
    let record_state = match ended {
        Some(ended) => RecordState::Ended(ended.outcome),
        None if job.attempt().is_some_and(|a| a.suspended) => RecordState::Suspended,
        None if job.attempt().is_some() => RecordState::Running,
        None => RecordState::Pending,
    };
    JobRecord {
        job: id,
        attempt: attempt_number(job, start),
        run: job.run,
        array_job: job.task.map(|t| t.array).or(job.pending.as_ref().map(|_| id)),
        array_task: job.task.map(|t| t.index),
        array_pending: job
            .pending
            .as_ref()
            .map(|p| model::array::format_pending(&p.indices, p.throttle)),
        het: job.het,
        name: job.spec.name.to_string(),
        user: job.spec.owner.name.clone(),
        uid: job.spec.owner.uid,
        gid: job.spec.owner.gid,
        group: job.spec.owner.group.clone(),
        account: job.account.to_string(),
        partition,
        qos: job.qos.to_string(),
        state: record_state,
        exit: ended.map(|e| e.exit).or(job.attempt().map(|a| a.exit)).unwrap_or_default(),
        derived_exit: ended.map(|e| e.derived_exit).unwrap_or_default(),
        submit: job.shown_submit(),
        eligible: Some(job.begin.map_or(job.submit, |b| b.max(job.submit))),
        start,
        end: ended.map(|e| e.end),
        suspended_s: match (ended, start) {
            (Some(ended), Some(start)) => suspended_whole_s(start, ended.end, ended.suspended_ms),
            _ => 0,
        },
        time_limit: effective_limit(state, job),
        nodes: allocation.map(|a| a.node_names().map(str::to_string).collect()).unwrap_or_default(),
        node_count: allocation.map_or(request.nodes.min, |a| a.nodes.len() as u32),
        cpus: allocation.map_or(0, |a| a.cpu_count()),
        tasks: request.task_count(),
        req_cpus: req_tres.amount(&TresKind::Cpu) as u32,
        req_nodes: request.nodes.min,
        req_mem: memory_per_unit(state, job).map(DefaultMemory::amount).unwrap_or_default(),
        req_tres,
        alloc_tres,
        priority: ended
            .and_then(|e| e.priority)
            .unwrap_or_else(|| job.kept_priority(&state.config.parameters.priority)),
        restarts: job.attempts.saturating_sub(1),
        retry: job.spec.retry.as_deref().cloned(),
        work_dir: job.spec.launch.work_dir.to_string(),
        streams: streams(job, allocation.map(|a| a.nodes.as_slice()).unwrap_or_default()),
        submit_line: job.spec.submit_line.to_string(),
        comment: job.spec.comment.clone(),
        wckey: job.spec.wckey.clone(),
        reservation: job.attempt().and_then(|a| a.reservation.clone()),
        reservation_id: job.attempt().and_then(|attempt| {
            state.reservations.get(attempt.reservation.as_ref()?).map(|r| r.id)
        }),
        constraint: request.constraint.as_ref().map(|c| c.to_string()),
        dependency: job.spec.dependency.as_ref().map(|d| d.to_string()),
        container: launch.shown_image(steps.iter().copied()).map(str::to_owned),
        reason: ended.map(|e| e.reason.clone()).unwrap_or_default(),
        kind: job.spec.launch.kind,
        script: job.spec.launch.script,
        environment: job.spec.launch.environment,
        configuration: job.spec.launch.configuration.as_deref().copied(),
        blob_bytes: job.spec.launch.blob_bytes,
        memory_limit: ended
            .filter(|e| e.outcome == Outcome::OutOfMemory)
            .and_then(|_| memory_limit(state, allocation?)),
        failed_node: ended.and_then(|ended| ended.failed_node.clone()),
        gpus: allocation.map(gpus_of).unwrap_or_default(),
        usage: ended
            .map(|e| e.usage.clone())
            .or(job.attempt().map(|a| a.usage.clone()))
            .unwrap_or_default(),
        steps: steps
            .into_iter()
            .map(|step| {
                let job_end = ended.map(|e| (e.outcome, e.end));
                step_record(step, script_image, job_end, &mut step_texts)
            })
            .collect(),
    }
}

/// The steps of an attempt, with those in `changed` as they are there: an end carries the steps that ended with it, and no others.
/// Both are in the order of their creation.
pub(crate) fn with_changed_steps<T: Borrow<Step>>(
    stored: impl IntoIterator<Item = T>,
    changed: impl IntoIterator<Item = T>,
) -> Vec<T> {
    let id = |step: &T| <T as Borrow<Step>>::borrow(step).id;
    let mut changed = changed.into_iter().peekable();
    let as_changed = |step: T| changed.next_if(|other| id(other) == id(&step)).unwrap_or(step);
    let mut steps: Vec<T> = stored.into_iter().map(as_changed).collect();
    steps.extend(changed);
    steps
}

/// The files of a batch job. A run of dstack's language has a log instead.
fn streams(job: &Job, nodes: &[NodeShare]) -> Option<Streams> {
    let launch = &job.spec.launch;
    let context = FilenameContext {
        job_id: job.id.0,
        array_job_id: job.task.map_or(job.id, |task| task.array).0,
        array_task_id: job.task.map(|task| task.index),
        step: None,
        node_name: nodes.first().map_or("", |share| &share.node),
        node_index: 0,
        task: 0,
        user: &job.spec.owner.name,
        job_name: &job.spec.name,
    };
    let is_array = job.task.is_some() || job.pending.is_some();
    let streams = || Streams::of(launch, is_array, &context);
    (launch.kind == LaunchKind::Batch).then(streams).flatten()
}

/// The runs that an event takes out of lists: the books keep that beside their records.
pub fn deleted_runs(event: &Event) -> &[RunId] {
    match event {
        Event::RunsDeleted { runs } => runs,
        _ => &[],
    }
}

/// The record of `id` at `now`, which counts the time of a suspension that lasts.
pub fn record_at(state: &State, id: JobId, now: Timestamp) -> JobRecord {
    let mut record = record_of(state, id, None);
    if let Some(attempt) = state.jobs[&id].attempt() {
        record.suspended_s = suspended_whole_s(attempt.start, now, attempt.suspended_total_ms(now));
    }
    record
}

/// The number of the attempt under which a job is recorded.
pub fn attempt(job: &Job) -> u32 {
    attempt_number(job, start_of(job, job.ended()))
}

/// A waiting job is recorded under the number of its next attempt.
fn attempt_number(job: &Job, start: Option<Timestamp>) -> u32 {
    if start.is_some() { job.attempts } else { job.attempts + 1 }
}

fn start_of(job: &Job, ended: Option<&EndRecord>) -> Option<Timestamp> {
    job.attempt().map(|a| a.start).or(ended.and_then(|e| e.start))
}

/// The bytes that a record has left for names and submit lines of its steps. Those of the first steps are whole; beyond the bound they
/// are cut, so that a job with as many steps as it may have is no hundreds of megabytes in the books. What is counted and charged is
/// no text.
struct StepTexts {
    left: usize,
}

impl StepTexts {
    fn take(&mut self, name: &str, submit_line: &str) -> (String, String) {
        if let Some(left) = self.left.checked_sub(name.len() + submit_line.len()) {
            self.left = left;
            return (name.to_owned(), submit_line.to_owned());
        }
        (
            bounds::cut_copy(name, bounds::CUT_STEP_NAME_BYTES),
            bounds::cut_copy(submit_line, bounds::CUT_STEP_LINE_BYTES),
        )
    }

    /// The image of a step counts as the other texts do, and is cut as a name is.
    fn take_image(&mut self, image: &str) -> String {
        if let Some(left) = self.left.checked_sub(image.len()) {
            self.left = left;
            return image.to_owned();
        }
        bounds::cut_copy(image, bounds::CUT_STEP_NAME_BYTES)
    }
}

fn step_record(
    step: &Step,
    script_image: Option<&str>,
    job_end: Option<(Outcome, Timestamp)>,
    texts: &mut StepTexts,
) -> StepRecord {
    let (name, submit_line) = texts.take(&step.name, &step.submit_line);
    let image = step.image.as_deref().or(script_image).filter(|image| *image != NO_CONTAINER);
    // A step whose end was never reported ended with its job at the latest.
    let end = step.end.as_ref().map(|e| (e.outcome, e.time)).or(job_end);
    StepRecord {
        id: step.id,
        name,
        state: end.map_or(RecordState::Running, |(outcome, _)| RecordState::Ended(outcome)),
        exit: step.exit,
        start: step.start,
        end: end.map(|(_, time)| time),
        nodes: step.nodes.clone(),
        cpus: step.cpus,
        tasks: step.tasks,
        usage: step.usage.clone(),
        submit_line,
        cpu_frequency: step.cpu_frequency,
        container: image.map(|image| texts.take_image(image)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_many_steps_are_whole_up_to_their_bound_and_cut_beyond_it() {
        let mut texts = StepTexts { left: bounds::RECORD_STEP_TEXT_BYTES.most };
        let name = "n".repeat(bounds::JOB_NAME_BYTES.most);
        let line = "x".repeat(bounds::SUBMIT_LINE_BYTES.most);
        let mut bytes = 0;
        for step in 0..bounds::STEPS.most {
            let (name, line) = texts.take(&name, &line);
            assert!(step > 0 || line.len() == bounds::SUBMIT_LINE_BYTES.most, "the first is whole");
            bytes += name.len() + line.len();
        }
        let each = bounds::CUT_STEP_NAME_BYTES.most + bounds::CUT_STEP_LINE_BYTES.most;
        assert!(
            bytes <= bounds::RECORD_STEP_TEXT_BYTES.most + bounds::STEPS.most * each,
            "{bytes}"
        );
        let (name, line) = texts.take(&name, &line);
        assert!(name.ends_with("n...") && line.ends_with("x..."), "{name} {line}");
        // As most programs are called.
        let mut texts = StepTexts { left: 0 };
        let short = ("python".to_owned(), "srun -n 4 python train.py".to_owned());
        assert_eq!(texts.take(&short.0, &short.1), short);
        assert_eq!(texts.take_image("debian"), "debian");
        let cut = texts.take_image(&"i".repeat(bounds::TEXT_BYTES.most));
        assert_eq!(cut.len(), bounds::CUT_STEP_NAME_BYTES.most);
    }
}
