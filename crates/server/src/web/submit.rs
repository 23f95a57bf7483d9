//! `POST /api/web/submit` and `/api/web/check`: a batch script or a configuration of dstack that is pasted into the page. Checking
//! says what is wrong with it, or when and where it would start, and changes nothing.

use crate::http::batch_script::{self, Origin};
use crate::http::body_limits::HeldRequest;
use crate::http::call_bounds;
use crate::http::counted_call;
use crate::http::dstack::pasted_run;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::ask::{ask, ask_of_body};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use cluster::requested::requested_gpus;
use dstack::no_offer;
use dstack::request::for_offers;
use model::principal::Principal;
use model::reason::{NeverFits, Reason, Refusal, UnmetConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use slurm::words::{note, reason};
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Offer, Submission, SubmitForecast};

/// The name under which lines speak of a script that was pasted.
const FILE: &str = "script";

/// The first offers for a run are shown.
const OFFERS_MAX: usize = 20;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Pasted {
    script: String,
}

/// The language of what was pasted: a script names its interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Language {
    Slurm,
    Dstack,
}

impl Language {
    fn of(text: &str) -> Self {
        if text.starts_with("#!") { Self::Slurm } else { Self::Dstack }
    }
}

/// What is said of a text of neither language, whose faults as YAML would be none of its author's.
const NEITHER: &str = "expected a batch script, whose first line names its interpreter (#!/bin/sh), or a dstack configuration, \
                       which says its type (type: task)";

/// Whether a text is meant as a configuration: each one says its type.
fn says_type(text: &str) -> bool {
    let is_type = |line: &str| {
        let quotes = ['"', '\''];
        let key = line.trim_start_matches(quotes).strip_prefix("type");
        key.is_some_and(|rest| rest.trim_start_matches(quotes).trim_start().starts_with(':'))
    };
    text.trim_start().starts_with('{') || text.lines().any(is_type)
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Checked {
    language: Language,
    errors: Vec<String>,
    notes: Vec<String>,
    /// When and where it would start; empty where it cannot.
    #[schemars(with = "Vec<serde_json::Value>")]
    starts: Vec<SubmitForecast>,
    /// What a run of dstack's language would be given, the best first.
    #[schemars(with = "Vec<serde_json::Value>")]
    offers: Vec<Offer>,
    /// What it asks for.
    gpus: u64,
}

impl Checked {
    /// It cannot be submitted.
    fn wrong(language: Language, errors: Vec<String>) -> Self {
        let (notes, starts, offers) = (Vec::new(), Vec::new(), Vec::new());
        Self { language, errors, notes, starts, offers, gpus: 0 }
    }
}

/// What was pasted, as a submission and lines about it; or what is wrong with it.
fn read_pasted(
    shared: &Shared,
    by: &Principal,
    text: &str,
) -> Result<(Submission, Vec<String>), Vec<String>> {
    match Language::of(text) {
        Language::Slurm => {
            let draft = batch_script::check(FILE, text, Origin::of(shared, by))?;
            Ok((draft.submission, draft.notes))
        }
        Language::Dstack => pasted_run::read(shared, by, text).map_err(|errors| {
            if says_type(text) { errors } else { vec![format!("{FILE}:1:1: {NEITHER}")] }
        }),
    }
}

fn pasted(body: &Bytes) -> Result<String, WebRefusal> {
    call_bounds::check(body).map_err(|why| WebRefusal::bad(why.to_string()))?;
    Ok(read::<Pasted>(body)?.script)
}

pub async fn check(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> WebResult {
    let text = pasted(&body)?;
    let language = Language::of(&text);
    let (submission, notes) = match block_in_place(|| read_pasted(&shared, &by, &text)) {
        Ok(found) => found,
        Err(errors) => return Ok(json_answer(&Checked::wrong(language, errors))),
    };
    let patient = for_offers(&submission);
    let offers = offers(&shared, &by, language, &patient).await;
    let gpus = requested_gpus(submission.spec.request());
    let mut checked = Checked { notes, offers, gpus, ..Checked::wrong(language, Vec::new()) };
    let call = Call::TestSubmit(Box::new(submission));
    match counted_call::answer(&shared, &by, Some(held), call).await {
        Ok(Answer::Tested(starts)) => checked.starts = starts,
        Ok(_) => return Err(WebRefusal::unexpected()),
        Err(Refusal::NoCapacityNow) if language == Language::Dstack => {
            checked.errors.push(no_offer::WOULD_WAIT.to_owned());
            // When that would be.
            let test = ask(&shared, &by, Call::TestSubmit(Box::new(patient))).await;
            if let Ok(Answer::Tested(starts)) = test {
                checked.starts = starts;
            }
        }
        Err(why) => match waits(&why) {
            Some(note) => checked.notes.push(note),
            None => checked.errors.push(WebRefusal::from(why).text),
        },
    }
    Ok(json_answer(&checked))
}

/// A submit takes a job that a limit keeps from starting, and what it waits for may change: it is no error. `None` for what a submit
/// refuses.
fn waits(why: &Refusal) -> Option<String> {
    let Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Waits(reason), .. }) = why
    else {
        return None;
    };
    let word = reason::text(reason);
    let limit = match &**reason {
        Reason::Limit(limit) => format!(": {}", note::limit_text(limit)),
        _ => String::new(),
    };
    Some(format!("it is taken, and as things stand it would not start ({word}){limit}"))
}

/// The offers for a configuration, those on free nodes first. A batch script has none: it is granted what it asks for.
async fn offers(
    shared: &Arc<Shared>,
    by: &Principal,
    language: Language,
    submission: &Submission,
) -> Vec<Offer> {
    if language != Language::Dstack {
        return Vec::new();
    }
    match ask(shared, by, Call::Offers(Box::new(submission.clone()))).await {
        Ok(Answer::Offers(mut offers)) => {
            offers.sort_by_key(Offer::turn);
            offers.truncate(OFFERS_MAX);
            offers
        }
        // Why there are none is said by the test of the same submission.
        Ok(_) | Err(_) => Vec::new(),
    }
}

pub async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> WebResult {
    let text = pasted(&body)?;
    let refused = |errors: Vec<String>| WebRefusal::new(StatusCode::CONFLICT, errors.join("; "));
    let read = block_in_place(|| read_pasted(&shared, &by, &text));
    let (submission, _) = read.map_err(refused)?;
    match ask_of_body(&shared, &by, held, Call::Submit(Box::new(submission))).await? {
        Answer::Submitted { job, name, .. } => {
            Ok(json_answer(&json!({ "job": job, "name": name })))
        }
        _ => Err(WebRefusal::unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::reason::{Limit, LimitKind, LimitScope};

    #[test]
    fn limit_that_keeps_a_job_from_starting_is_named_and_no_error() {
        let limit = Limit {
            scope: LimitScope::QosPerJob,
            kind: LimitKind::Wall,
            holder: "short".into(),
            limit: 30,
            in_use: 0,
            asked: 60,
        };
        let never = |why: NeverFits| Refusal::NodeConfiguration(why.into());
        let reason = Reason::Limit(Box::new(limit));
        let note = waits(&never(NeverFits::Waits(Box::new(reason)))).expect("a note");
        for part in ["QOSMaxWallDurationPerJobLimit", "QOS short allows 00:30:00", "01:00:00 asked"]
        {
            assert!(note.contains(part), "{note}");
        }
        let held =
            waits(&never(NeverFits::Waits(Box::new(Reason::PartitionDown)))).expect("a note");
        assert!(held.ends_with("(PartitionDown)"), "{held}");
        assert_eq!(waits(&never(NeverFits::Cpus { asked: 9, most: 4 })), None);
    }
}
