//! One request and its answer between a client and a server inside a job, whichever path of the proxy it came by.

use super::both_ways;
use super::headers;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;

/// An answer of the proxy itself, in one line.
pub fn said(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

pub fn redirect(status: StatusCode, place: &str) -> Response {
    let mut response = status.into_response();
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// The head of a request as the job's server gets it.
#[derive(Clone)]
pub struct OutgoingHead {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl OutgoingHead {
    /// `by_token`: the `Authorization` was for the proxy. `prefix`: where the client finds the job's server.
    pub fn of(parts: Parts, uri: Uri, by_token: bool, prefix: &str) -> Self {
        let host = parts.uri.authority().map(|host| host.as_str().to_owned());
        let mut headers = headers::to_job(parts.headers, by_token, prefix);
        if let Some(Ok(host)) = host.map(|host| HeaderValue::from_str(&host))
            && !headers.contains_key(header::HOST)
        {
            headers.insert(header::HOST, host);
        }
        Self { method: parts.method, uri, headers }
    }

    /// Adds a line of the proxy's own.
    pub fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.append(name, value);
    }

    /// Sets a line of the proxy's own, in place of those that its client has sent.
    pub fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    pub fn leave_out(&mut self, names: &[&str]) {
        headers::leave_out(&mut self.headers, names);
    }

    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// The request, which is not sent a second time.
    pub fn into_request(self, body: Body) -> hyper::Request<Body> {
        let mut request = hyper::Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        request
    }

    pub fn with(&self, body: Body) -> hyper::Request<Body> {
        let mut request = hyper::Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// The path and query that the job's server sees: those of the request, or another path (`rest`, without its first slash).
pub fn inner_uri(asked: &Uri, rest: Option<&str>) -> Option<Uri> {
    let Some(rest) = rest else {
        let place = asked.path_and_query().cloned();
        return Some(place.map_or_else(Uri::default, Uri::from));
    };
    let mut place = String::with_capacity(asked.path().len() + 1);
    place.extend(["/", rest]);
    if let Some(query) = asked.query() {
        place.extend(["?", query]);
    }
    // Its text is not copied.
    Uri::try_from(place).ok()
}

/// The client's connection where the request asks for a WebSocket: a server inside a job changes to no other protocol, asked or unasked.
pub fn take_websocket(request: &mut Request) -> Option<OnUpgrade> {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.filter(|_| headers::is_websocket(request.headers()))
}

/// Passes the bytes of a connection on that has become a websocket, until one side ends it, or none has come for `idle`: `None` where that
/// is bounded on the way. `held` is kept until then.
pub fn join_upgraded<B>(
    answer: &mut hyper::Response<B>,
    of_client: OnUpgrade,
    idle: Option<Duration>,
    held: impl Send + 'static,
) {
    join_upgraded_until(answer, of_client, idle, std::future::pending(), held);
}

/// The same, which ends with `end` too.
pub fn join_upgraded_until<B>(
    answer: &mut hyper::Response<B>,
    of_client: OnUpgrade,
    idle: Option<Duration>,
    end: impl Future<Output = ()> + Send + 'static,
    held: impl Send + 'static,
) {
    let of_job = hyper::upgrade::on(answer);
    tokio::spawn(async move {
        let _held = held;
        if let (Ok(client), Ok(job)) = tokio::join!(of_client, of_job) {
            tokio::select! {
                _ = both_ways::pass(TokioIo::new(client), TokioIo::new(job), idle) => {}
                () = end => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_becomes_a_websocket_and_nothing_else() {
        for (protocol, expected) in [("websocket", true), ("WebSocket", true), ("h2c", false)] {
            let request = Request::get("/").header(header::CONNECTION, "upgrade");
            let request = request.header(header::UPGRADE, protocol).body(Body::empty());
            let mut request = request.expect("a request");
            let upgrade = hyper::upgrade::on(&mut request);
            request.extensions_mut().insert(upgrade);
            assert_eq!(take_websocket(&mut request).is_some(), expected, "{protocol}");
            assert!(request.extensions().get::<OnUpgrade>().is_none(), "it is taken");
        }
    }
}
