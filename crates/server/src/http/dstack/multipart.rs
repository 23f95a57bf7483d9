//! The form with one file in it that dstack's client uploads.

use super::answer::Refused;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;

/// A file that was uploaded as the form's field `file`.
pub struct UploadedFile {
    /// The client names it by its hash.
    pub name: String,
    pub bytes: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for UploadedFile {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| Refused::because(error.body_text()))?;
        let wrong = || Refused::because("expected multipart/form-data with one field, file");
        let (name, from, to) = file(&kind, &body).ok_or_else(wrong)?;
        Ok(Self { name, bytes: body.slice(from..to) })
    }
}

/// The file's name, and where its bytes begin and end.
fn file(kind: &str, body: &[u8]) -> Option<(String, usize, usize)> {
    let (kind, parameters) = kind.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|one| one.trim().strip_prefix("boundary="))?;
    let first = format!("--{}\r\n", boundary.trim_matches('"'));
    let head = body.strip_prefix(first.as_bytes())?;
    let length = find(head, b"\r\n\r\n")?;
    let from = first.len() + length + 4;
    let head = std::str::from_utf8(&head[..length]).ok()?;
    let is_disposition =
        |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let disposition = head.split("\r\n").find(is_disposition)?;
    if parameter(disposition, "name")? != "file" {
        return None;
    }
    let name = parameter(disposition, "filename").unwrap_or_default().to_owned();
    let end = format!("\r\n--{}--", boundary.trim_matches('"'));
    // The last one: the bytes between may hold anything.
    let rest = &body[from..];
    let tail = rest.len().saturating_sub(end.len() + 2);
    let to = from + tail + find(&rest[tail..], end.as_bytes())?;
    Some((name, from, to))
}

fn parameter<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = |one: &'a str| one.trim().strip_prefix(name)?.strip_prefix('=');
    line.split(';').find_map(value).map(|value| value.trim_matches('"'))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_the_form_is_found_whatever_its_bytes_are() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"ab\"\r\n\r\n\0--b\r\nx\r\n\r\n--b--\r\n";
        let (name, from, to) = file("multipart/form-data; boundary=b", body).expect("a file");
        assert_eq!((name.as_str(), &body[from..to]), ("ab", &b"\0--b\r\nx\r\n"[..]));
        for (kind, body) in [
            ("application/json", &b"{}"[..]),
            ("multipart/form-data; boundary=b", b""),
            (
                "multipart/form-data; boundary=b",
                b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx",
            ),
            ("multipart/form-data; boundary=b", b"--b\r\nX: y\r\n\r\nx\r\n--b--\r\n"),
        ] {
            assert_eq!(file(kind, body), None, "{kind}");
        }
    }
}
