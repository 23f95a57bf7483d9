//! The head of a response.

use std::io;
use wire::client::STANDBY_LAG_HEADER;

/// The longest head of a response, and the most headers in it.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

pub const OK: u16 = 200;
pub const UNAUTHORIZED: u16 = 401;
pub const FORBIDDEN: u16 = 403;
pub const INTERNAL_ERROR: u16 = 500;
pub const BAD_GATEWAY: u16 = 502;
pub const UNAVAILABLE: u16 = 503;
pub const SWITCHING_PROTOCOLS: u16 = 101;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    Bytes(usize),
    Chunked,
    /// The connection has changed to another protocol.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub is_json: bool,
    /// The body is compressed with zstd.
    pub is_zstd: bool,
    /// How old the state is, in milliseconds, that a standby has answered from.
    pub standby_lag_ms: Option<u64>,
    pub body: BodyLength,
}

impl Head {
    /// Whether a standby has found no leader, or lost it.
    pub fn is_without_leader(&self) -> bool {
        self.standby_lag_ms.is_some() && [BAD_GATEWAY, UNAVAILABLE].contains(&self.status)
    }
}

/// The head that `unread` begins with, and its length; `None` while it is not whole.
pub fn parse_head(unread: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(unread).map_err(|e| invalid(&format!("no HTTP answer: {e}")))?;
    let httparse::Status::Complete(length) = parsed else {
        if unread.len() > HEAD_BYTES_MAX {
            return Err(invalid("the head of the answer is too long"));
        }
        return Ok(None);
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let status = response.code.unwrap_or(0);
    let is_chunked = header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    let content_length = header("content-length").and_then(|text| text.parse().ok());
    let body = match content_length {
        _ if status == SWITCHING_PROTOCOLS => BodyLength::None,
        _ if is_chunked => BodyLength::Chunked,
        Some(bytes) => BodyLength::Bytes(bytes),
        None => return Err(invalid("the answer does not say how long it is")),
    };
    let is_json = header("content-type") == Some("application/json");
    let is_zstd = match header("content-encoding") {
        None => false,
        Some("zstd") => true,
        Some(other) => return Err(invalid(&format!("the answer is encoded as {other:?}"))),
    };
    let standby_lag_ms = header(STANDBY_LAG_HEADER).and_then(|text| text.parse().ok());
    Ok(Some((Head { status, is_json, is_zstd, standby_lag_ms, body }, length)))
}

pub fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_wherever_it_is_cut() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-length: 5\r\n\r\n";
        for cut in 0..whole.len() {
            assert!(matches!(parse_head(&whole[..cut]), Ok(None)), "{cut}");
        }
        let (standby_lag_ms, body) = (None, BodyLength::Bytes(5));
        let head = Head { status: 200, is_json: false, is_zstd: false, standby_lag_ms, body };
        let parsed = parse_head(&[&whole[..], b"hello"].concat()).expect("well formed");
        assert_eq!(parsed, Some((head, whole.len())));
    }

    #[test]
    fn a_body_has_a_length_or_is_chunked_or_there_is_none() {
        let body = |text: &str| parse_head(text.as_bytes()).expect("right").map(|(h, _)| h.body);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(body(chunked), Some(BodyLength::Chunked));
        assert_eq!(body("HTTP/1.1 101 Switching\r\n\r\n"), Some(BodyLength::None));
    }

    #[test]
    fn answer_of_a_standby_says_how_old_it_is() {
        let head = |status: u16, lag: &str| {
            let text = format!("HTTP/1.1 {status} X\r\n{lag}Content-Length: 0\r\n\r\n");
            parse_head(text.as_bytes()).expect("right").expect("whole").0
        };
        let lag = "sluice-standby-lag-ms: 1500\r\n";
        assert_eq!(head(200, lag).standby_lag_ms, Some(1500));
        assert!(head(503, lag).is_without_leader() && head(502, lag).is_without_leader());
        assert!(!head(200, lag).is_without_leader() && !head(503, "").is_without_leader());
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for bad in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(parse_head(bad).is_err());
        }
    }

    #[test]
    fn an_oversized_head_is_an_error() {
        let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        head.resize(HEAD_BYTES_MAX, b'x');
        assert!(matches!(parse_head(&head), Ok(None)));
        head.resize(HEAD_BYTES_MAX + 1, b'x');
        let error = parse_head(&head).expect_err("too long");
        assert_eq!(error.to_string(), "the head of the answer is too long");
    }
}
