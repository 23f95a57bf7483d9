//! Events: what happened to runs, nodes, projects and users, as far as who asks is shown it.

use super::answer::{ApiResult, Json};
use super::secret;
use crate::auth::principal;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::dstack_id::{submission_id, uuid, volume_id};
use crate::show::history;
use axum::Extension;
use axum::extract::State;
use dstack::api::event::{Event, EventTarget, ListEvents};
use dstack::occurrence::{self, Actor, Occurrence, Target};
use model::activity::{Activity, ActivityTarget};
use model::fleet::MAIN_PROJECT;
use model::id::RunId;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::HistoryFilter;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::block_in_place;

/// The most events of one answer; the client asks for as many at most.
const EVENTS_MAX: usize = 100;

/// The most records that the events of one answer are made from: the newest before the page.
pub(super) const RECORDS_MAX: u32 = 1000;

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ListEvents>,
) -> ApiResult<Vec<Event>> {
    let _long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    // Jobs of many nodes have many events: other calls go on meanwhile.
    Ok(Json(block_in_place(|| page(&shared, &by, &wanted))?))
}

fn page(shared: &Shared, by: &Principal, wanted: &ListEvents) -> Result<Vec<Event>, Refusal> {
    let mut found = occurrences(shared, by, wanted)?;
    found.retain(|one| is_on_page(one.at, wanted));
    let projects: BTreeSet<String> = shared.read().accounts.keys().cloned().collect();
    let of_fleets = wanted.within_fleets.as_ref().map(|ids| ids_within_fleets(shared, ids));
    let is_wanted = |event: &Event| {
        let within = |ids: &BTreeSet<String>| event.targets.iter().any(|t| ids.contains(&t.id));
        is_wanted(event, wanted) && of_fleets.as_ref().is_none_or(within)
    };
    found.sort_by_key(|one| (one.at, one.number));
    if !wanted.ascending {
        found.reverse();
    }
    let limit = wanted.limit.map_or(EVENTS_MAX, |limit| limit as usize).min(EVENTS_MAX);
    let events = found.iter().map(|one| event(one, &projects)).filter(is_wanted);
    let Some(previous) = &wanted.prev_id else { return Ok(events.take(limit).collect()) };
    let mut events: Vec<Event> = events.collect();
    if let Some(at) = events.iter().position(|event| event.id == *previous) {
        events.drain(..=at);
    }
    events.truncate(limit);
    Ok(events)
}

/// Whether what happened then comes after the place that the client has come to. Of the same moment there may be more only
/// where it names the last event that it has.
fn is_on_page(at: Timestamp, wanted: &ListEvents) -> bool {
    let Some(place) = wanted.prev_recorded_at.map(Timestamp::from) else { return true };
    let order = if wanted.ascending { at.cmp(&place) } else { place.cmp(&at) };
    order.is_gt() || order.is_eq() && wanted.prev_id.is_some()
}

/// The ids of fleets, and of the instances that they have now.
fn ids_within_fleets(shared: &Shared, fleets: &[String]) -> BTreeSet<String> {
    let state = shared.read();
    let mut ids: BTreeSet<String> = fleets.iter().cloned().collect();
    let named =
        state.partitions.iter().filter(|fleet| fleets.contains(&uuid("fleet", &fleet.name)));
    ids.extend(named.flat_map(|fleet| &fleet.nodes).map(|node| uuid("instance", node)));
    ids
}

fn occurrences(
    shared: &Shared,
    by: &Principal,
    wanted: &ListEvents,
) -> Result<Vec<Occurrence>, Refusal> {
    // dstack's client knows its own kinds of things alone.
    let is_known = |activity: &Activity| {
        !matches!(activity.target, ActivityTarget::Job { .. } | ActivityTarget::Site { .. })
    };
    let noted = || {
        let noted = calls::activities(shared, by).into_iter();
        noted.filter(is_known).collect::<Vec<Activity>>()
    };
    let asked = [&wanted.within_runs, &wanted.target_runs].into_iter().flatten();
    let of_runs = asked.clone().flatten();
    let runs: Vec<RunId> = of_runs.filter_map(|id| id.parse().ok()).collect();
    if asked.count() > 0 && runs.is_empty() {
        // No run has such an id. A filter without runs would be one for all of them.
        return Ok(noted().iter().map(occurrence::of_activity).collect());
    }
    let accounts = accounts(shared, wanted);
    if accounts.as_ref().is_some_and(Vec::is_empty) {
        // Nor has any account runs of these projects.
        return Ok(noted().iter().map(occurrence::of_activity).collect());
    }
    let place = wanted.prev_recorded_at.map(Timestamp::from);
    let filter = HistoryFilter {
        runs,
        accounts: accounts.unwrap_or_default(),
        from: place.filter(|_| wanted.ascending),
        until: place.filter(|_| !wanted.ascending),
        duplicates: true,
        limit: Some(RECORDS_MAX),
        ..HistoryFilter::default()
    };
    let records = history::history(shared, by, &filter)?;
    let of_runs = occurrence::of_records(records).into_iter();
    let noted = noted();
    Ok(of_runs.chain(noted.iter().map(occurrence::of_activity)).collect())
}

/// The accounts whose runs are wanted: a bound on records must not be used up by those of other projects. `None` for all, which
/// the main project shows.
fn accounts(shared: &Shared, wanted: &ListEvents) -> Option<Vec<String>> {
    let ids = wanted.within_projects.as_ref()?;
    if ids.contains(&uuid("project", MAIN_PROJECT)) {
        return None;
    }
    // Nobody waits for the state while all of them are compared.
    let mut accounts: Vec<String> = shared.read().accounts.keys().cloned().collect();
    accounts.retain(|name| ids.contains(&uuid("project", name)));
    Some(accounts)
}

/// `projects`: those that are accounts.
fn event(one: &Occurrence, projects: &BTreeSet<String>) -> Event {
    let actor = one.actor.as_ref().map(|actor| match actor {
        Actor::Named(name) => name.clone(),
        Actor::Uid(uid) => principal::of_uid(*uid, *uid).name,
    });
    let targets: Vec<EventTarget> = one.targets.iter().map(|one| target(one, projects)).collect();
    let first = targets.first().map(|target| target.id.as_str()).unwrap_or_default();
    Event {
        id: uuid("event", &format!("{first} {} {}", one.at.0, one.number)),
        message: one.message.clone(),
        recorded_at: one.at.into(),
        actor_user_id: actor.as_ref().map(|name| uuid("user", name)),
        is_actor_user_deleted: actor.as_ref().map(|_| false),
        actor_user: actor,
        targets,
    }
}

fn target(target: &Target, projects: &BTreeSet<String>) -> EventTarget {
    let project = match target {
        Target::User(_) => None,
        Target::Project(name) => Some(name.as_str()),
        _ => {
            let own = target.account().filter(|account| projects.contains(*account));
            own.or(Some(MAIN_PROJECT))
        }
    };
    EventTarget {
        kind: target.kind().to_owned(),
        project_id: project.map(|name| uuid("project", name)),
        project_name: project.map(str::to_owned),
        is_project_deleted: project.map(|_| false),
        id: match target {
            Target::Run { run, .. } => run.to_string(),
            Target::Job { run, restarts, rank, .. } => {
                submission_id(&run.to_string(), *restarts, *rank)
            }
            Target::Instance(name) => uuid("instance", name),
            Target::Fleet { name, .. } => uuid("fleet", name),
            Target::Secret { project, name } => secret::id(project, name),
            Target::Volume { project, name, created } => volume_id(project, name, *created),
            Target::Project(name) => uuid("project", name),
            Target::User(name) => uuid("user", name),
            Target::Other { kind, name } => uuid(kind, name),
        },
        name: target.name().to_owned(),
    }
}

/// Each filter that is set wants one of its ids among the targets.
fn is_wanted(event: &Event, wanted: &ListEvents) -> bool {
    let of_kind = |kind: &str, ids: &Option<Vec<String>>| match ids {
        None => true,
        Some(ids) => event.targets.iter().any(|t| t.kind == kind && ids.contains(&t.id)),
    };
    let within_projects = match &wanted.within_projects {
        None => true,
        Some(ids) => {
            // The main project shows the runs of all, here as in its lists.
            let in_main = ids.contains(&uuid("project", MAIN_PROJECT));
            let project = |target: &EventTarget| {
                let own = target.project_id.as_ref().is_some_and(|id| ids.contains(id));
                own || in_main && is_of_run(target)
            };
            event.targets.iter().any(project)
        }
    };
    let types = wanted.include_target_types.as_ref();
    let actors = wanted.actors.as_ref();
    of_kind("project", &wanted.target_projects)
        && of_kind("user", &wanted.target_users)
        && of_kind("instance", &wanted.target_instances)
        && of_kind("run", &wanted.target_runs)
        && of_kind("job", &wanted.target_jobs)
        && of_kind("fleet", &wanted.target_fleets)
        && of_kind("volume", &wanted.target_volumes)
        && of_kind("gateway", &wanted.target_gateways)
        && of_kind("secret", &wanted.target_secrets)
        && within_projects
        // The runs themselves were asked for by their ids already.
        && (wanted.within_runs.is_none() || event.targets.iter().any(is_of_run))
        && types.is_none_or(|types| event.targets.iter().any(|t| types.contains(&t.kind)))
        && actors.is_none_or(|actors| actors.contains(&event.actor_user_id))
}

fn is_of_run(target: &EventTarget) -> bool {
    target.kind == "run" || target.kind == "job"
}
