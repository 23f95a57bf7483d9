//! `GET /api/web/timeline`: nodes over time. Which jobs hold them until when, which are expected to start there, and what is
//! reserved.

use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::cluster_view;
use crate::show::job_list;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use axum::Extension;
use axum::extract::{Query, State};
use model::hostlist;
use model::id::JobId;
use model::principal::Principal;
use model::reservation::ReservationFlag;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slurm::output::text::job_text;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::diagnostics::CallKind;
use wire::view::JobView;

/// How long an answer waits for estimates; without them it shows what is known.
const ESTIMATES_TIMEOUT: Duration = Duration::from_secs(2);

/// The most nodes that the bars of one answer name, each as often as a bar is on it: a page draws as many shapes.
const BAR_NODES_MAX: usize = 20_000;

#[derive(Deserialize)]
pub struct TimelineQuery {
    /// Only the nodes of this job, and who else is there.
    job: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Timeline {
    now: Timestamp,
    nodes: Vec<String>,
    bars: Vec<Bar>,
    /// There are more bars than an answer holds.
    cut: bool,
    reservations: Vec<ReservedTime>,
}

/// A job on its nodes.
#[derive(Serialize, JsonSchema)]
struct Bar {
    job: JobId,
    shown: String,
    name: Arc<str>,
    user: String,
    start: Timestamp,
    /// `None` for a job without a time limit.
    end: Option<Timestamp>,
    nodes: Vec<String>,
    /// It has not started.
    expected: bool,
    /// The place is kept for it: no other job is started there that would be in its way.
    kept: bool,
}

#[derive(Serialize, JsonSchema)]
struct ReservedTime {
    name: String,
    start: Timestamp,
    end: Timestamp,
    nodes: Vec<String>,
    maintenance: bool,
}

pub async fn timeline(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(query): Query<TimelineQuery>,
) -> WebResult {
    let estimates = shared.forecasts.estimates(ESTIMATES_TIMEOUT).await;
    let reservations = match ask(&shared, &by, Call::Reservations).await? {
        Answer::Reservations(view) => view.reservations,
        _ => return Err(WebRefusal::unexpected()),
    };
    let reservations = reservations.into_iter().map(|view| {
        let maintenance = view.reservation.flags.contains(&ReservationFlag::Maint);
        let model::reservation::Reservation { name, start, end, nodes, .. } = view.reservation;
        ReservedTime { name, start, end, nodes, maintenance }
    });
    let reservations: Vec<ReservedTime> = reservations.collect();
    let _timer = shared.volatile.counters.begin_call(CallKind::Jobs, &by);
    // All jobs are looked through: that is as much work as a plan.
    let _long = calls::begin_long(&shared, &by, LongWork::Plan).await?;
    let answer = block_in_place(|| {
        let now = clock::now();
        let wanted = JobsQuery { detail: Detail::Listing, ..JobsQuery::default() };
        let views = job_list::job_views(&shared, &by, &wanted, Some(&*estimates), now, |_| ())?;
        let plan = shared.volatile.last_plan();
        let is_kept = |job: JobId| plan.estimates.contains_key(&job);
        let bars: Vec<Bar> = views.iter().filter_map(|view| bar(view, is_kept(view.id))).collect();
        let wanted = query.job.map(|id| nodes_of(&bars, JobId(id)));
        let is_wanted = |node: &String| wanted.as_ref().is_none_or(|nodes| nodes.contains(node));
        let bars = bars.into_iter().filter(|bar| bar.nodes.iter().any(is_wanted));
        let (bars, cut) = within_room(bars, BAR_NODES_MAX);
        let cluster = cluster_view::cluster(&shared, &by, now);
        let nodes = cluster.nodes.into_iter().map(|node| node.config.name);
        let nodes = nodes.filter(is_wanted).collect();
        Ok::<_, WebRefusal>(Timeline { now, nodes, bars, cut, reservations })
    })?;
    Ok(json_answer(&answer))
}

/// The first bars that name no more nodes than there is room for, and whether others were left out. A bar without nodes takes room
/// too.
fn within_room(bars: impl Iterator<Item = Bar>, mut room: usize) -> (Vec<Bar>, bool) {
    let mut kept = Vec::new();
    for bar in bars {
        let Some(left) = room.checked_sub(bar.nodes.len().max(1)) else { return (kept, true) };
        room = left;
        kept.push(bar);
    }
    (kept, false)
}

/// The nodes that a job has, or is expected to have.
fn nodes_of(bars: &[Bar], job: JobId) -> HashSet<String> {
    bars.iter().filter(|bar| bar.job == job).flat_map(|bar| bar.nodes.iter().cloned()).collect()
}

fn bar(job: &JobView, is_kept: bool) -> Option<Bar> {
    let nodes = match (&job.allocation, &job.sched_nodes) {
        (Some(allocation), _) => allocation.node_names().map(str::to_owned).collect(),
        (None, Some(nodes)) => hostlist::expand(nodes).ok()?,
        (None, None) => return None,
    };
    let mut shown = String::new();
    job_text::push_id(&mut shown, job, None);
    Some(Bar {
        job: job.id,
        shown,
        name: job.name.clone(),
        user: job.spec.owner.name.clone(),
        start: job.start?,
        end: job.end,
        nodes,
        expected: job.state.is_waiting(),
        kept: job.state.is_waiting() && is_kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(nodes: usize) -> Bar {
        Bar {
            job: JobId(1),
            shown: "1".into(),
            name: "wide".into(),
            user: "ann".into(),
            start: clock::now(),
            end: None,
            nodes: vec!["n1".into(); nodes],
            expected: false,
            kept: false,
        }
    }

    #[test]
    fn bars_are_bounded_by_the_nodes_that_they_name() {
        let kept = |widths: &[usize]| {
            let (bars, cut) = within_room(widths.iter().map(|width| on(*width)), 10);
            (bars.len(), cut)
        };
        assert_eq!(kept(&[]), (0, false));
        assert_eq!(kept(&[4, 6]), (2, false));
        assert_eq!(kept(&[4, 6, 1]), (2, true));
        assert_eq!(kept(&[11]), (0, true));
        assert_eq!(kept(&[0; 12]), (10, true));
    }
}
