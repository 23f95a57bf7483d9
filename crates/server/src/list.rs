//! The list of jobs that `squeue` asks for, written as it is gathered.

use crate::foresight::Estimates;
use crate::shapes::Shapes;
use crate::shared::Shared;
use crate::views::Lens;
use cluster::Job;
use cluster::job_selection;
use jiff::fmt::temporal::DateTimeParser;
use model::array::IndexSet;
use model::change::JobRef;
use model::reason::Refusal;
use model::time::Timestamp;
use slurm::output::Moment;
use slurm::output::squeue::Listing;
use std::cell::RefCell;
use std::sync::Arc;
use wire::client::{Detail, JobsQuery};
use wire::job_list::ListWriter;
use wire::listing::ListingQuery;
use wire::view::ArrayView;

/// The most rows that one answer expands pending array tasks into.
const EXPANDED_MAX: usize = 1_000_000;

/// Jobs that are written before the writer is let in again.
const AT_ONCE: usize = 1024;

/// The longest listing that is made here; whoever wants more gets the views and makes it.
const LINES_BYTES_MAX: usize = 64 << 20;

/// An answer as bytes. The jobs are those of one instant; the state is not held while all are written.
pub enum Written {
    /// An `Answer`.
    Json(Vec<u8>),
    Lines(Vec<u8>),
}

pub fn jobs(
    shared: &Shared,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Result<Written, Refusal> {
    let list = List { shared, wanted, estimates, now, chosen: choose(shared, wanted)? };
    let lines = wanted.lines.as_ref().and_then(|lines| list.lines(lines));
    if let Some(lines) = lines {
        return Ok(Written::Lines(lines.into_bytes()));
    }
    let failed = |e: serde_json::Error| Refusal::Other(format!("the jobs cannot be written: {e}"));
    list.views().map(Written::Json).map_err(failed)
}

struct List<'a> {
    shared: &'a Shared,
    wanted: &'a JobsQuery,
    estimates: Option<&'a Estimates>,
    now: Timestamp,
    chosen: Vec<Chosen>,
}

impl List<'_> {
    /// As `squeue` prints them; none where that cannot be told here: its time zone is not known on this
    /// machine, or there would be too much of it.
    fn lines(&self, wanted: &ListingQuery) -> Option<String> {
        let zone = DateTimeParser::new().parse_time_zone(&wanted.zone).ok()?;
        let listing = Listing::new(wanted.options.clone()).ok()?;
        let mut page = listing.page(Moment { now: self.now, tz: &zone }, LINES_BYTES_MAX);
        page.expect(self.chosen.len());
        let shapes = RefCell::new(Shapes::default());
        let mut views = Vec::with_capacity(AT_ONCE.min(self.chosen.len()));
        for some in self.chosen.chunks(AT_ONCE) {
            let state = self.shared.read();
            let lens = Lens::new(self.shared, &state, self.now, Detail::Full, &shapes);
            let lens = lens.with_estimates(self.estimates);
            views.extend(some.iter().map(|(job, tasks)| lens.job(job, tasks.as_ref())));
            drop(lens);
            drop(state);
            views.iter().for_each(|view| page.push(view));
            views.clear();
            if page.is_full() {
                return None;
            }
        }
        page.finish()
    }

    fn views(&self) -> serde_json::Result<Vec<u8>> {
        let shapes = RefCell::new(Shapes::default());
        let mut list = ListWriter::default();
        let mut room = EXPANDED_MAX;
        for some in self.chosen.chunks(AT_ONCE) {
            let state = self.shared.read();
            let lens = Lens::new(self.shared, &state, self.now, self.wanted.detail, &shapes);
            let lens = lens.with_estimates(self.estimates);
            for (job, tasks) in some {
                let apart = match (&job.pending, self.wanted.expand_arrays) {
                    (Some(pending), true) => Some(tasks.as_ref().unwrap_or(&pending.indices)),
                    _ => None,
                };
                let Some(indices) = apart else {
                    list.push(&lens.job(job, tasks.as_ref()))?;
                    continue;
                };
                let mut view = lens.job(job, None);
                for index in indices.iter().take(room) {
                    let index = Some(index);
                    let one = ArrayView { array: job.id, index, pending: None, throttle: None };
                    view.array = Some(Box::new(one));
                    list.push(&view)?;
                    room -= 1;
                }
            }
        }
        list.answer(self.now)
    }
}

type Chosen = (Arc<Job>, Option<IndexSet>);

fn choose(shared: &Shared, wanted: &JobsQuery) -> Result<Vec<Chosen>, Refusal> {
    let state = shared.read();
    // A task that an array does not have is nothing to show; a job that is not there is said.
    if let [only] = wanted.filter.jobs.as_slice()
        && job_selection::resolve(&state, &JobRef { tasks: None, ..only.clone() }).is_empty()
    {
        return Err(Refusal::UnknownJob(only.id.to_string()));
    }
    let chosen = job_selection::matching(&state, &wanted.filter).into_iter();
    Ok(chosen.map(|chosen| (chosen.job.clone(), chosen.tasks)).collect())
}
