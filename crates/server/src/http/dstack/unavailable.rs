//! Routes of what a later capability brings, and routes that there are none of: each is answered in dstack's error shape.

use super::answer::Refused;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use dstack::api::error::ApiError;

/// What a client is told who asks for it.
const EXPORTS: &str =
    "exports are not available yet: the fleets of the cluster are for all its projects";
const SSH_KEYS: &str = "ssh keys are registered by `sluice key add`";

const WILDCARD_DOMAIN: &str = "the domain of gateways is `domain` of [proxy] in sluice.toml";

const SSH_PROXY: &str = "the server itself is the SSH proxy";

/// Routes that are refused, and why.
pub const REFUSED: &[(&str, &str)] = &[
    ("/api/users/public_keys/add", SSH_KEYS),
    ("/api/users/public_keys/delete", SSH_KEYS),
    ("/api/sshproxy/get_upstream", SSH_PROXY),
    ("/api/project/{project}/gateways/set_wildcard_domain", WILDCARD_DOMAIN),
    ("/api/project/{project}/exports/create", EXPORTS),
    ("/api/project/{project}/exports/update", EXPORTS),
    ("/api/project/{project}/exports/delete", EXPORTS),
    ("/api/project/{project}/exports/list", EXPORTS),
    ("/api/project/{project}/imports/delete", EXPORTS),
    ("/api/project/{project}/imports/list", EXPORTS),
];

/// A path, or a method of a path, that nothing answers.
pub fn unknown_route(method: &Method) -> Response {
    let error = match *method {
        Method::GET | Method::HEAD => ApiError::unknown_path(),
        _ => ApiError::unknown_method(),
    };
    Refused(error).into_response()
}
