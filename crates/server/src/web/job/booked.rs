//! The page of a job that has left the server's memory, as the books have it, with the rights of `sacct`.

use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use crate::web::job::{JobPage, StepRow, amounts};
use crate::web::job_end::{self, JobEnd};
use crate::web::job_rows::{JobRow, shown_record};
use cluster::authorise::{Act, authorise};
use model::amount::Bytes;
use model::change::JobRef;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::{JobRecord, RecordState};
use model::tres::{Tres, TresKind};
use std::sync::Arc;

pub async fn page(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobRef,
) -> Result<JobPage, WebRefusal> {
    let attempts = job_end::booked(shared, by, wanted).await?;
    let end = JobEnd::of(shared, by, &attempts, None).await?;
    let last = attempts.last().ok_or_else(|| Refusal::UnknownJob(wanted.shown_id()))?;
    let may_read = authorise(&shared.read(), by, Act::ReadTextsOf(last.uid)).is_ok();
    let has_run = last.start.is_some();
    Ok(JobPage {
        job: JobRow::of_record(last),
        name: own_name(last),
        // Nothing changes a job that has left memory.
        may_manage: false,
        may_read,
        may_enter: false,
        comment: last.comment.clone(),
        submit_line: last.submit_line.as_str().into(),
        dependency: last.dependency.clone(),
        exit_code: last.exit.code,
        exit_signal: last.exit.signal,
        restarts: last.restarts,
        request: request(last),
        tres: amounts(if has_run { &last.alloc_tres } else { &last.req_tres }),
        allocation: Vec::new(),
        steps: last.steps.iter().map(StepRow::of_record).collect(),
        explanation: Vec::new(),
        named: Vec::new(),
        expected: None,
        end,
        is_final: matches!(last.state, RecordState::Ended(_)),
    })
}

fn own_name(record: &JobRecord) -> String {
    match record.array_task {
        Some(_) => shown_record(record),
        None => record.job.to_string(),
    }
}

fn request(record: &JobRecord) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("Nodes", record.req_nodes.to_string()),
        ("Tasks", record.tasks.to_string()),
        ("CPUs", record.req_cpus.to_string()),
    ];
    let memory = record.req_tres.get(&TresKind::Mem).map_or(record.req_mem, Bytes::from_mib);
    if memory.0 > 0 {
        rows.push(("Memory", format!("{} MiB", memory.mib())));
    }
    let devices = devices(&record.req_tres);
    if !devices.is_empty() {
        rows.push(("Devices in all", devices));
    }
    rows
}

/// `gres/gpu=2`
fn devices(tres: &Tres) -> String {
    let devices = tres.iter().map(|(kind, amount)| (kind.to_string(), amount));
    let devices = devices.filter(|(kind, _)| kind.starts_with("gres/"));
    devices.map(|(kind, amount)| format!("{kind}={amount}")).collect::<Vec<_>>().join(", ")
}
