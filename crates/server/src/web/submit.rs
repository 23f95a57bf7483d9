//! `POST /api/web/submit` and `/api/web/check`: a batch script or a configuration of dstack that is pasted into the page. Checking
//! says what is wrong with it, or when and where it would start, and changes nothing.

use crate::http::batch_script::{self, BatchScript, Origin};
use crate::http::body_limits::HeldRequest;
use crate::http::call_bounds;
use crate::http::dstack::pasted_run;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::ask::{ask, ask_of_body};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use model::principal::Principal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Offer, Submission, SubmitForecast};

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
}

impl Checked {
    /// It cannot be submitted.
    fn wrong(language: Language, errors: Vec<String>) -> Self {
        Self { language, errors, notes: Vec::new(), starts: Vec::new(), offers: Vec::new() }
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
            let script = BatchScript { script: text, ..BatchScript::default() };
            let draft = batch_script::read(&script, Origin::of(shared, by))?;
            Ok((draft.submission, draft.notes))
        }
        Language::Dstack => pasted_run::read(shared, by, text),
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
    let offers = offers(&shared, &by, language, &submission).await;
    let call = Call::TestSubmit(Box::new(submission));
    let (starts, errors) = match ask_of_body(&shared, &by, held, call).await {
        Ok(Answer::Tested(starts)) => (starts, Vec::new()),
        Ok(_) => return Err(WebRefusal::unexpected()),
        Err(why) => (Vec::new(), vec![why.text]),
    };
    Ok(json_answer(&Checked { language, errors, notes, starts, offers }))
}

/// The offers for a configuration. A batch script has none: it is granted what it asks for.
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
        Ok(Answer::Offers(offers)) => offers.into_iter().take(OFFERS_MAX).collect(),
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
