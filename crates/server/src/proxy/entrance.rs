//! The page of our own that a visit from another site gets first. A browser leaves the cookie of a session out of such a visit,
//! so nobody could tell that it is signed in to the server's own page; what follows a link of this page comes from this server.

use crate::http::html::escaped;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};

/// Nothing but the link works here, and no other site shows it in a frame.
const CONTENT_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page with one link, to the address that was asked for.
pub fn page(uri: &Uri) -> Response {
    let place = escaped(uri.path_and_query().map_or("/", |place| place.as_str()));
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Web page of a job</title>\n\
         <p><a href=\"{place}\">Open this web page of a job</a></p></html>\n"
    );
    let headers = [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", CONTENT_POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        // The address may hold the secret of a link.
        ("referrer-policy", "no-referrer"),
    ];
    (headers, text).into_response()
}
