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
use axum::extract::State;
use model::hostlist;
use model::id::JobId;
use model::principal::Principal;
use model::reservation::ReservationFlag;
use model::time::Timestamp;
use serde::Serialize;
use slurm::output::text::job_text;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::diagnostics::CallKind;
use wire::view::JobView;

/// How long an answer waits for estimates; without them it shows what is known.
const ESTIMATES_TIMEOUT: Duration = Duration::from_secs(2);

/// The most bars of one answer: a screen shows no more.
const BARS_MAX: usize = 5_000;

#[derive(Serialize)]
struct Timeline {
    now: Timestamp,
    nodes: Vec<String>,
    bars: Vec<Bar>,
    reservations: Vec<ReservedTime>,
}

/// A job on its nodes.
#[derive(Serialize)]
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
}

#[derive(Serialize)]
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
        let bars = views.iter().filter_map(bar).take(BARS_MAX).collect();
        let cluster = cluster_view::cluster(&shared, &by, now);
        let nodes = cluster.nodes.into_iter().map(|node| node.config.name).collect();
        Ok::<_, WebRefusal>(Timeline { now, nodes, bars, reservations })
    })?;
    Ok(json_answer(&answer))
}

fn bar(job: &JobView) -> Option<Bar> {
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
    })
}
