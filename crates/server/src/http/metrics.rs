//! `GET /metrics`: for an operator's token, or for anybody where the site has opened it.

use crate::http::answer::refused;
use crate::http::authenticate::{self, Caller};
use crate::metrics;
use crate::shared::Shared;
use crate::shared::scrapes::Reader;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use cluster::authorise::{Act, authorise};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::block_in_place;

pub const PATH: &str = wire::client::METRICS_PATH;

/// The version of the text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn metrics(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let reader = match reader(&shared, &request) {
        Ok(reader) => reader,
        Err(refusal) => return *refusal,
    };
    // Strangers see no jobs.
    let (loads, is_due) = match reader {
        Reader::Operator => shared.volatile.live_loads.take(Instant::now()),
        Reader::Anonymous => Default::default(),
    };
    let make = || metrics::scrape(&shared, reader, &loads);
    let text = block_in_place(|| shared.volatile.scrapes.get(reader, make));
    if is_due {
        let shared = shared.clone();
        tokio::spawn(async move {
            let loads = metrics::live_load::ask(&shared).await;
            shared.volatile.live_loads.put(loads, Instant::now());
        });
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

fn reader(shared: &Shared, request: &Request) -> Result<Reader, Box<Response>> {
    let is_open = shared.read().config.open_metrics;
    match authenticate::caller(shared, request) {
        Caller::Known(who) if authorise(&shared.read(), &who, Act::Operate).is_ok() => {
            Ok(Reader::Operator)
        }
        Caller::Known(_) | Caller::NoToken if is_open => Ok(Reader::Anonymous),
        Caller::Known(_) => {
            Err(Box::new(refused(StatusCode::FORBIDDEN, "metrics are for operators")))
        }
        other => Err(Box::new(authenticate::refusal(other))),
    }
}
