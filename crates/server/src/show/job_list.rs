//! `squeue`: the list of jobs, encoded while it is gathered.

use crate::shared::Shared;
use crate::shared::forecast_queue::Estimates;
use crate::show::job_view::JobViews;
use crate::show::view_cache::ViewCache;
use cluster::Job;
use cluster::visibility::Viewer;
use jiff::fmt::temporal::DateTimeParser;
use model::array::IndexSet;
use model::change::JobRef;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use slurm::output::Moment;
use slurm::output::squeue::Listing;
use std::cell::RefCell;
use std::sync::Arc;
use wire::client::{Detail, JobsQuery};
use wire::job_list::ListWriter;
use wire::listing::ListingQuery;
use wire::view::{ArrayView, JobView};

/// The most rows that one answer expands pending array tasks into.
const EXPANDED_MAX: usize = 1_000_000;

/// The bytes of an answer beyond which no more of them are expanded: each row repeats what its array has of its own.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Jobs that are encoded under one read lock, before the writer may go on.
const CHUNK: usize = 1024;

/// The longest listing that is made here; beyond it the client gets the views and makes the listing itself.
const LINES_BYTES_MAX: usize = 64 << 20;

/// An answer as bytes. The jobs are those of one instant; the state is not locked while all of them are encoded.
pub enum EncodedAnswer {
    /// An `Answer` as JSON.
    Json(Vec<u8>),
    /// The lines that `squeue` prints.
    Lines(Vec<u8>),
}

pub fn jobs(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Result<EncodedAnswer, Refusal> {
    let list = List { shared, wanted, estimates, now, chosen: choose(shared, by, wanted)? };
    let lines = wanted.lines.as_ref().and_then(|lines| list.lines(lines));
    if let Some(lines) = lines {
        return Ok(EncodedAnswer::Lines(lines.into_bytes()));
    }
    let failed = |e: serde_json::Error| Refusal::Other(format!("the jobs cannot be written: {e}"));
    list.views().map(EncodedAnswer::Json).map_err(failed)
}

/// The same jobs as views: those that `pick` leaves of them.
pub fn job_views(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    now: Timestamp,
    pick: impl FnOnce(&mut Vec<ListedJob>),
) -> Result<Vec<JobView>, Refusal> {
    let mut chosen = choose(shared, by, wanted)?;
    pick(&mut chosen);
    let cache = RefCell::new(ViewCache::default());
    let mut views = Vec::with_capacity(chosen.len());
    for some in chosen.chunks(CHUNK) {
        let state = shared.read();
        let jobs = JobViews::new(shared, &state, now, wanted.detail, &cache);
        let jobs = jobs.with_estimates(estimates);
        views.extend(some.iter().map(|(job, tasks)| jobs.job(job, tasks.as_ref())));
    }
    Ok(views)
}

/// Leaves those jobs of a list whose views are wanted. Only the views of a chunk are there at a time.
pub fn retain_views(
    shared: &Shared,
    chosen: &mut Vec<ListedJob>,
    detail: Detail,
    now: Timestamp,
    is_wanted: impl Fn(&JobView) -> bool,
) {
    let cache = RefCell::new(ViewCache::default());
    let mut wanted = Vec::with_capacity(chosen.len());
    for some in chosen.chunks(CHUNK) {
        let state = shared.read();
        let jobs = JobViews::new(shared, &state, now, detail, &cache);
        wanted.extend(some.iter().map(|(job, tasks)| is_wanted(&jobs.job(job, tasks.as_ref()))));
    }
    let mut wanted = wanted.into_iter();
    chosen.retain(|_| wanted.next().unwrap_or_default());
}

struct List<'a> {
    shared: &'a Shared,
    wanted: &'a JobsQuery,
    estimates: Option<&'a Estimates>,
    now: Timestamp,
    chosen: Vec<ListedJob>,
}

impl List<'_> {
    /// The lines as `squeue` prints them. `None` where they cannot be made here: the client's time zone is not known on
    /// this machine, or the listing would be too long.
    fn lines(&self, wanted: &ListingQuery) -> Option<String> {
        let zone = DateTimeParser::new().parse_time_zone(&wanted.zone).ok()?;
        let listing = Listing::new(wanted.options.clone()).ok()?;
        let mut page = listing.page(Moment::at(self.now, &zone), LINES_BYTES_MAX);
        page.expect(self.chosen.len());
        let cache = RefCell::new(ViewCache::default());
        let mut views = Vec::with_capacity(CHUNK.min(self.chosen.len()));
        for some in self.chosen.chunks(CHUNK) {
            let state = self.shared.read();
            let jobs = JobViews::new(self.shared, &state, self.now, Detail::Full, &cache);
            let jobs = jobs.with_estimates(self.estimates);
            views.extend(some.iter().map(|(job, tasks)| jobs.job(job, tasks.as_ref())));
            drop(jobs);
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
        let cache = RefCell::new(ViewCache::default());
        let mut list = ListWriter::default();
        let mut rows_left = EXPANDED_MAX;
        for some in self.chosen.chunks(CHUNK) {
            let state = self.shared.read();
            let jobs = JobViews::new(self.shared, &state, self.now, self.wanted.detail, &cache);
            let jobs = jobs.with_estimates(self.estimates);
            for (job, tasks) in some {
                let expanded = match (&job.pending, self.wanted.expand_arrays) {
                    (Some(pending), true) => Some(tasks.as_ref().unwrap_or(&pending.indices)),
                    _ => None,
                };
                let Some(indices) = expanded else {
                    list.push(&jobs.job(job, tasks.as_ref()))?;
                    continue;
                };
                let mut view = jobs.job(job, None);
                for index in indices.iter().take(rows_left) {
                    if list.row_bytes() > EXPANDED_BYTES_MAX {
                        break;
                    }
                    let index = Some(index);
                    let one = ArrayView { array: job.id, index, pending: None, throttle: None };
                    view.array = Some(Box::new(one));
                    list.push(&view)?;
                    rows_left -= 1;
                }
            }
        }
        list.answer(self.now)
    }
}

/// A job, and the pending tasks of it that are shown.
pub type ListedJob = (Arc<Job>, Option<IndexSet>);

fn choose(shared: &Shared, by: &Principal, wanted: &JobsQuery) -> Result<Vec<ListedJob>, Refusal> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    // A task that an array does not have is nothing to show; a job that is not there is said.
    if let [only] = wanted.filter.jobs.as_slice()
        && viewer.resolve(&JobRef { tasks: None, ..only.clone() }).is_empty()
    {
        return Err(Refusal::UnknownJob(only.id.to_string()));
    }
    let chosen = viewer.matching(&wanted.filter).into_iter();
    Ok(chosen.map(|chosen| (chosen.job.clone(), chosen.tasks)).collect())
}
