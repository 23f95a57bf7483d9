//! The version that a client says in its requests: one that is newer than the API here is refused, as by dstack's own server.

use super::DSTACK_VERSION;
use super::answer::Refused;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dstack::api::error::{ApiError, Code};
use model::printable::printable;

const HEADER: &str = "x-api-version";

/// Says that the client is of the server's own version.
const LATEST: &str = "latest";

/// Refused versions are quoted up to this many characters.
const QUOTED_MAX: usize = 64;

pub async fn check(request: Request, next: Next) -> Response {
    let said = request.headers().get(HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match said.as_deref().map_or(Ok(()), check_version) {
        Ok(()) => next.run(request).await,
        Err(refused) => Refused(refused).into_response(),
    }
}

fn check_version(said: &str) -> Result<(), ApiError> {
    if said == LATEST {
        return Ok(());
    }
    let quoted: String = printable(said).chars().take(QUOTED_MAX).collect();
    let version = major_and_minor(said)
        .ok_or_else(|| ApiError::refused_without_code(format!("Invalid version: {quoted}")))?;
    if Some(version) <= major_and_minor(DSTACK_VERSION) {
        return Ok(());
    }
    let text = format!(
        "The client/CLI version ({quoted}) is incompatible with the server version ({DSTACK_VERSION})."
    );
    Err(ApiError::refused(Code::Error, text))
}

/// `0.22` of `0.22.5`, `0.22.5rc1`, `0.22`.
fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.splitn(3, '.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?);
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_up_to_the_servers_are_taken_whatever_their_patch() {
        for good in ["latest", "0.18.0", "0.22", "0.22.5", "0.22.99", "0.22.6rc1", "0.22rc1"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for new in ["0.23.0", "0.23", "1.0.0"] {
            let said = check_version(new).expect_err("too new").body.to_string();
            assert!(said.contains(&format!("({new}) is incompatible")), "{said}");
        }
        for bad in ["banana", "", "1", "0.x.1", "-1.2", "9999999999.1"] {
            let said = check_version(bad).expect_err("no version").body.to_string();
            assert!(said.contains("Invalid version: "), "{bad}: {said}");
        }
    }
}
