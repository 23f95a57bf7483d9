//! Who asks slurmrestd's API, and in which version: the calls that are made for it, and the forms of answers and refusals.

use crate::clock;
use crate::http::answer::refused;
use crate::http::body_limits::HeldRequest;
use crate::http::counted_call::{self, HeldAnswer};
use crate::http::{call_bounds, calls, named_fields};
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::principal::Principal;
use model::reason::Refusal;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slurm::openapi::Version;
use slurm::openapi::field::Context;
use slurm::openapi::rest::{self, Written};
use slurm::words;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call};

/// An answer that says why something is not done.
pub struct Refused(Box<Response>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

pub type RestResult = Result<Response, Refused>;

pub struct Client {
    pub shared: Arc<Shared>,
    pub by: Principal,
    pub version: Version,
}

impl FromRequestParts<Arc<Shared>> for Client {
    type Rejection = Refused;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let by = parts.extensions.get::<Principal>().cloned();
        let version = parts.extensions.get::<Version>().copied();
        match (by, version) {
            (Some(by), Some(version)) => Ok(Self { shared: shared.clone(), by, version }),
            _ => {
                let text = "it is not known who asks";
                let answer = refused(StatusCode::INTERNAL_SERVER_ERROR, text);
                Err(Refused(Box::new(answer)))
            }
        }
    }
}

impl Client {
    pub fn context(&self) -> Context {
        let state = self.shared.read();
        Context {
            version: self.version,
            cluster: state.config.name.clone(),
            gres: state.config.parameters.gres_types.clone(),
            now: clock::now(),
        }
    }

    pub async fn ask(&self, call: Call) -> Result<Answer, Refused> {
        self.ask_with(None, call).await
    }

    /// The same for a call that was read from the body of a request, which counts until the call is done.
    pub async fn ask_with(&self, held: Option<HeldRequest>, call: Call) -> Result<Answer, Refused> {
        let answered = counted_call::answer(&self.shared, &self.by, held, call).await;
        answered.map_err(|why| self.refusal(&why))
    }

    /// The same for an answer that may be long.
    pub async fn ask_held(&self, call: Call) -> Result<HeldAnswer, Refused> {
        let answered = counted_call::held_answer(&self.shared, &self.by, None, call).await;
        answered.map_err(|why| self.refusal(&why))
    }

    /// What is made of all that the cluster has of a kind, when it is the caller's turn for as much work as a plan. No call that takes a
    /// turn is made in it.
    pub async fn at_turn<T>(&self, make: impl FnOnce() -> T) -> Result<T, Refused> {
        let begun = calls::begin_long(&self.shared, &self.by, LongWork::Plan).await;
        let _long = begun.map_err(|why| self.refusal(&why))?;
        Ok(block_in_place(make))
    }

    /// What a request's body says, within the bounds of all requests.
    pub fn read<T: DeserializeOwned>(&self, body: &Bytes) -> Result<T, Refused> {
        call_bounds::check(body).map_err(|why| self.refusal(&why))?;
        named_fields::from_slice(body)
            .map_err(|error| self.bad(&format!("the request cannot be read: {error}")))
    }

    pub fn refusal(&self, why: &Refusal) -> Refused {
        let status = match why {
            Refusal::AccessDenied => StatusCode::FORBIDDEN,
            Refusal::UnknownJob(_) | Refusal::UnknownNode(_) | Refusal::UnknownThing { .. } => {
                StatusCode::NOT_FOUND
            }
            _ => StatusCode::BAD_REQUEST,
        };
        let number = words::refusal::slurm_error(why).map_or(0, |error| error.number);
        self.refused(status, &words::refusal::text(why), number)
    }

    /// Something was asked for that cannot be.
    pub fn bad(&self, text: &str) -> Refused {
        self.refused(StatusCode::BAD_REQUEST, text, 0)
    }

    pub fn unknown(&self, kind: &str, name: &str) -> Refused {
        self.refused(StatusCode::NOT_FOUND, &format!("there is no {kind} {name}"), 0)
    }

    /// The server answered a call with what does not belong to it.
    pub fn unexpected(&self) -> Refused {
        let text = "the server failed; its log says why";
        self.refused(StatusCode::INTERNAL_SERVER_ERROR, text, 0)
    }

    fn refused(&self, status: StatusCode, text: &str, number: u32) -> Refused {
        let document = rest::refused(&self.context(), text, number);
        Refused(Box::new((status, self.document(&document)).into_response()))
    }

    pub fn document(&self, value: &Value) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
    }

    pub fn send(&self, written: Written) -> RestResult {
        match written {
            Ok(bytes) => Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response()),
            Err(_) => Err(self.unexpected()),
        }
    }
}
