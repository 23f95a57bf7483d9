//! `squeue`: the list of jobs, encoded while it is gathered.

use crate::shared::Shared;
use crate::shared::forecast_queue::Estimates;
use crate::show::job_view::{JobViews, ShownSteps};
use crate::show::view_cache::ViewCache;
use cluster::Job;
use cluster::visibility::Viewer;
use jiff::fmt::temporal::DateTimeParser;
use model::array::IndexSet;
use model::change::JobRef;
use model::id::JobId;
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

/// The most rows that one answer expands pending array tasks into, and the bytes of an answer from which on it expands no more: each row
/// repeats the name of its job, and what that depends on.
const EXPANDED_MAX: usize = 1_000_000;
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Jobs whose views are made under one read lock, before the writer may go on.
const CHUNK: usize = 1024;

/// The longest listing that is made here; beyond it the client gets the views and makes the listing itself.
pub const LINES_BYTES_MAX: usize = 64 << 20;

/// An answer as bytes. The jobs are those of one instant; the state is not locked while all of them are encoded.
pub enum EncodedAnswer {
    /// An `Answer` as JSON.
    Json(Vec<u8>),
    /// The lines that `squeue` prints.
    Lines(Vec<u8>),
}

/// The lines that are asked for; `None` where none are, where they cannot be made here, or where they are more bytes than this.
pub fn lines(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    now: Timestamp,
    bytes_max: usize,
) -> Result<Option<EncodedAnswer>, Refusal> {
    let Some(asked) = &wanted.lines else { return Ok(None) };
    let list = List { shared, by, wanted, estimates, now, chosen: choose(shared, by, wanted)? };
    Ok(list.lines(asked, bytes_max).map(|lines| EncodedAnswer::Lines(lines.into_bytes())))
}

/// The jobs as views, in JSON.
pub fn jobs(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Result<EncodedAnswer, Refusal> {
    let list = List { shared, by, wanted, estimates, now, chosen: choose(shared, by, wanted)? };
    let failed = |e: serde_json::Error| Refusal::Other(format!("the jobs cannot be written: {e}"));
    list.views().map(EncodedAnswer::Json).map_err(failed)
}

/// The same jobs as views, without their steps: those that `pick` leaves of them.
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
    Ok(views_of(shared, by, &chosen, wanted.detail, estimates, now))
}

/// The views, for a listing, of those of these records that are in the queue and shown to the caller. The number of an array is that of
/// the record that holds its pending tasks: the tasks that have left it are named by numbers of their own, and may be very many.
pub fn queued_records(
    shared: &Shared,
    by: &Principal,
    records: impl IntoIterator<Item = JobId>,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Vec<JobView> {
    let chosen: Vec<ListedJob> = {
        let state = shared.read();
        let viewer = Viewer::new(&state, by);
        let known = records.into_iter().filter_map(|id| state.jobs.get(&id));
        let queued = known.filter(|job| !job.has_ended() && viewer.job(job));
        queued.map(|job| (job.clone(), None)).collect()
    };
    views_of(shared, by, &chosen, Detail::Listing, estimates, now)
}

fn views_of(
    shared: &Shared,
    by: &Principal,
    chosen: &[ListedJob],
    detail: Detail,
    estimates: Option<&Estimates>,
    now: Timestamp,
) -> Vec<JobView> {
    let cache = RefCell::new(ViewCache::default());
    let mut views = Vec::with_capacity(chosen.len());
    for some in chosen.chunks(CHUNK) {
        let state = shared.read();
        let jobs = JobViews::new(shared, &state, now, detail, &cache);
        let jobs = jobs.with_estimates(estimates).read_by(by).with_steps(ShownSteps::None);
        views.extend(some.iter().map(|(job, tasks)| jobs.job(job, tasks.as_ref())));
    }
    views
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
        let jobs = jobs.with_steps(ShownSteps::None);
        wanted.extend(some.iter().map(|(job, tasks)| is_wanted(&jobs.job(job, tasks.as_ref()))));
    }
    let mut wanted = wanted.into_iter();
    chosen.retain(|_| wanted.next().unwrap_or_default());
}

struct List<'a> {
    shared: &'a Shared,
    by: &'a Principal,
    wanted: &'a JobsQuery,
    estimates: Option<&'a Estimates>,
    now: Timestamp,
    chosen: Vec<ListedJob>,
}

impl List<'_> {
    /// The lines as `squeue` prints them. `None` where they cannot be made here: the client's time zone is not known on
    /// this machine, or the listing would be longer than `bytes_max`.
    fn lines(&self, wanted: &ListingQuery, bytes_max: usize) -> Option<String> {
        let zone = DateTimeParser::new().parse_time_zone(&wanted.zone).ok()?;
        let listing = Listing::new(wanted.options.clone()).ok()?;
        let mut page = listing.page(Moment::at(self.now, &zone), bytes_max);
        page.expect(self.chosen.len());
        let cache = RefCell::new(ViewCache::default());
        let mut views = Vec::with_capacity(CHUNK.min(self.chosen.len()));
        let steps = if wanted.options.steps { ShownSteps::Running } else { ShownSteps::None };
        for some in self.chosen.chunks(CHUNK) {
            let state = self.shared.read();
            let jobs = JobViews::new(self.shared, &state, self.now, Detail::Full, &cache);
            let jobs = jobs.with_estimates(self.estimates).with_steps(steps);
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
        let mut room = ExpansionRoom { rows: EXPANDED_MAX, bytes: EXPANDED_BYTES_MAX };
        let mut views = Vec::with_capacity(CHUNK.min(self.chosen.len()));
        for some in self.chosen.chunks(CHUNK) {
            let state = self.shared.read();
            let jobs = JobViews::new(self.shared, &state, self.now, self.wanted.detail, &cache);
            let jobs = jobs.with_estimates(self.estimates).read_by(self.by);
            // `squeue -s` that makes its lines itself asks for a listing with the steps that run.
            let lists_steps = self.wanted.steps && self.wanted.detail == Detail::Listing;
            let jobs = if lists_steps { jobs.with_steps(ShownSteps::Running) } else { jobs };
            for (job, tasks) in some {
                let expanded = match (&job.pending, self.wanted.expand_arrays) {
                    (Some(pending), true) => Some(tasks.as_ref().unwrap_or(&pending.indices)),
                    _ => None,
                };
                let shown = tasks.as_ref().filter(|_| expanded.is_none());
                views.push((jobs.job(job, shown), expanded));
            }
            drop(jobs);
            drop(state);
            // One array may be thousands of rows: nobody waits for the state while they are written.
            for (view, expanded) in views.drain(..) {
                match expanded {
                    Some(indices) => room.push(&mut list, view, indices)?,
                    None => list.push(&view)?,
                }
            }
        }
        list.answer(self.now)
    }
}

/// What an answer has room for of tasks that are expanded: rows, and bytes of all rows.
struct ExpansionRoom {
    rows: usize,
    bytes: usize,
}

impl ExpansionRoom {
    /// A row for each of these tasks of an array, as far as there is room.
    fn push(
        &mut self,
        list: &mut ListWriter,
        mut view: JobView,
        indices: &IndexSet,
    ) -> serde_json::Result<()> {
        for index in indices.iter() {
            if self.rows == 0 || list.row_bytes() >= self.bytes {
                return Ok(());
            }
            let index = Some(index);
            let one = ArrayView { array: view.id, index, pending: None, throttle: None };
            view.array = Some(Box::new(one));
            list.push(&view)?;
            self.rows -= 1;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::testing::{TestServer, user};

    #[tokio::test(flavor = "multi_thread")]
    async fn tasks_of_an_array_are_expanded_as_far_as_an_answer_has_room() {
        let server = TestServer::start().await;
        server.node_up().await;
        server.submit("name: wide").await.expect("a job");
        let wanted = JobsQuery::default();
        let views = job_views(&server.shared, &user(), &wanted, None, clock::now(), |_| ());
        let view = views.expect("views").remove(0);
        let indices = IndexSet::from_range(0, 999);
        let written = |rows: usize, bytes: usize| {
            let (mut list, mut room) = (ListWriter::default(), ExpansionRoom { rows, bytes });
            room.push(&mut list, view.clone(), &indices).expect("rows");
            (room.rows, list.row_bytes())
        };
        let (left, whole) = written(2000, usize::MAX);
        assert_eq!(left, 1000, "all of them have room");
        assert_eq!(written(10, usize::MAX).0, 0);
        let (left, half) = written(2000, whole / 2);
        assert!(left > 1000 && half < whole, "{left} {half} {whole}");
    }
}
