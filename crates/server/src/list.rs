//! The list of jobs that `squeue` asks for, written as it is gathered.

use crate::foresight::Estimates;
use crate::shapes::Shapes;
use crate::shared::Shared;
use crate::views::Lens;
use cluster::job::Job;
use cluster::select;
use model::array::IndexSet;
use model::reason::Refusal;
use model::time::Timestamp;
use std::cell::RefCell;
use std::sync::Arc;
use wire::client::JobsWanted;
use wire::job_list::ListWriter;
use wire::view::ArrayView;

/// The most rows that one answer expands pending array tasks into.
const EXPANDED_MAX: usize = 1_000_000;

/// Jobs that are written before the writer is let in again.
const AT_ONCE: usize = 1024;

/// The answer as bytes. The jobs are those of one instant; the state is not held while all are written.
pub fn jobs(
    shared: &Shared,
    wanted: &JobsWanted,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Result<Vec<u8>, Refusal> {
    let failed = |e: serde_json::Error| Refusal::Other(format!("the jobs cannot be written: {e}"));
    let chosen = choose(shared, wanted)?;
    let shapes = RefCell::new(Shapes::default());
    let mut list = ListWriter::default();
    let mut room = EXPANDED_MAX;
    for some in chosen.chunks(AT_ONCE) {
        let state = shared.read();
        let lens = Lens::new(shared, &state, now, wanted.detail, &shapes);
        let lens = lens.with_estimates(estimates);
        for (job, tasks) in some {
            let apart = match (&job.pending, wanted.expand_arrays) {
                (Some(pending), true) => Some(tasks.as_ref().unwrap_or(&pending.indices)),
                _ => None,
            };
            let Some(indices) = apart else {
                list.push(&lens.job(job, tasks.as_ref())).map_err(failed)?;
                continue;
            };
            let mut view = lens.job(job, None);
            for index in indices.iter().take(room) {
                let one =
                    ArrayView { array: job.id, index: Some(index), pending: None, throttle: None };
                view.array = Some(Box::new(one));
                list.push(&view).map_err(failed)?;
                room -= 1;
            }
        }
    }
    list.answer(now).map_err(failed)
}

type Chosen = (Arc<Job>, Option<IndexSet>);

fn choose(shared: &Shared, wanted: &JobsWanted) -> Result<Vec<Chosen>, Refusal> {
    let state = shared.read();
    if let [only] = wanted.filter.jobs.as_slice()
        && select::resolve(&state, only).is_empty()
    {
        return Err(Refusal::UnknownJob(only.id.to_string()));
    }
    let own = |job: &Job| state.jobs.get(&job.id).cloned();
    let chosen = select::matching(&state, &wanted.filter).into_iter();
    Ok(chosen.filter_map(|chosen| Some((own(chosen.job)?, chosen.tasks))).collect())
}
