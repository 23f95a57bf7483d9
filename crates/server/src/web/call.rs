//! `POST /api/web/call`: any call that commands make, for what the page changes beside jobs.

use crate::http::body_limits::HeldRequest;
use crate::http::call_bounds;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::ask::{ask_held, first_refusal};
use crate::web::guard::{self, Admission};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use cluster::authorise::{Act, authorise};
use model::hostlist;
use model::principal::Principal;
use model::reservation_request::NodesChoice;
use serde::Deserialize;
use std::sync::Arc;
use wire::client::Call;

#[derive(Deserialize)]
struct Wanted {
    call: Call,
}

pub async fn call(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(admission): Extension<Admission>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> WebResult {
    call_bounds::check(&body).map_err(|why| WebRefusal::bad(why.to_string()))?;
    let Wanted { call } = read(&body)?;
    // Its answer is made in another form.
    if matches!(call, Call::Jobs(_)) {
        return Err(WebRefusal::bad("the queue is at /api/web/jobs"));
    }
    let is_session = matches!(admission, Admission::Session { .. });
    if is_session && !only_looks(&call) && guard::looks_only(&shared, &by) {
        return Err(WebRefusal::new(StatusCode::FORBIDDEN, guard::LOOKS_ONLY));
    }
    let call = with_names_of_hosts(&shared, &by, call)?;
    let found = ask_held(&shared, &by, Some(held), call).await?;
    match first_refusal(&found.answer) {
        Some(why) => Err(why),
        None => Ok(found.make(|answer| json_answer(&answer))),
    }
}

/// The call with the names that its host lists stand for. `scontrol` reads the lists of its arguments before it calls; a field of the
/// page is sent as it was typed. Nothing is expanded for a caller whom all of these calls refuse: a short list may stand for many names.
fn with_names_of_hosts(shared: &Shared, by: &Principal, call: Call) -> Result<Call, WebRefusal> {
    if matches!(
        call,
        Call::UpdateNode { .. } | Call::CreateReservation(_) | Call::UpdateReservation { .. }
    ) {
        authorise(&shared.read(), by, Act::Operate)?;
    }
    match call {
        Call::UpdateNode { nodes, change } => {
            let is_all = matches!(&nodes[..], [all] if all.eq_ignore_ascii_case("ALL"));
            let nodes = if is_all {
                shared.read().nodes.keys().cloned().collect()
            } else {
                names_of_hosts(&nodes)?
            };
            Ok(Call::UpdateNode { nodes, change })
        }
        Call::CreateReservation(mut ask) => {
            ask.nodes = ask.nodes.take().map(with_named_nodes).transpose()?;
            Ok(Call::CreateReservation(ask))
        }
        Call::UpdateReservation { name, mut ask } => {
            ask.nodes = ask.nodes.take().map(with_named_nodes).transpose()?;
            Ok(Call::UpdateReservation { name, ask })
        }
        other => Ok(other),
    }
}

fn with_named_nodes(nodes: NodesChoice) -> Result<NodesChoice, WebRefusal> {
    match nodes {
        NodesChoice::All => Ok(NodesChoice::All),
        NodesChoice::Named(names) => names_of_hosts(&names).map(NodesChoice::Named),
    }
}

/// All lists together have the bound of one.
fn names_of_hosts(lists: &[String]) -> Result<Vec<String>, WebRefusal> {
    hostlist::expand(&lists.join(",")).map_err(|error| WebRefusal::bad(error.to_string()))
}

/// Whether a call is known to change nothing and to tell no secret; one that is not named here counts as a change.
fn only_looks(call: &Call) -> bool {
    matches!(
        call,
        Call::Ping
            | Call::TestSubmit(_)
            | Call::AwaitStart { .. }
            | Call::AwaitEnd { .. }
            | Call::AwaitCommit { .. }
            | Call::Jobs(_)
            | Call::QueueHead { .. }
            | Call::Cluster
            | Call::Config
            | Call::History(_)
            | Call::UsageReport(_)
            | Call::Activities
            | Call::ActivityHistory(_)
            | Call::Usage { .. }
            | Call::Script { .. }
            | Call::Accounts
            | Call::Shares
            | Call::Priorities
            | Call::SubmitChoices
            | Call::Triggers
            | Call::Projects
            | Call::Agents
            | Call::Tokens
            | Call::Secrets { .. }
            | Call::Volumes { .. }
            | Call::Machines
            | Call::Fleets
            | Call::Reservations
            | Call::Licenses
            | Call::Offers(_)
            | Call::Explain(_)
            | Call::WhatIf(_)
            | Call::Diagnostics { reset: false }
            | Call::Versions
    )
}
