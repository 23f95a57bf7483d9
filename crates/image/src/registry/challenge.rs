//! What a registry asks for when it refuses (`WWW-Authenticate`), and how the answer is made from a user's credentials.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::config::Credentials;
use super::http::{Ask, Http, bad_answer, host_of, read_bounded};
use crate::error::{Error, Result, shown};

const TOKEN_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// Reads one `WWW-Authenticate` header; `None` when it asks for something that is not known.
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, parameters) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        for (name, value) in parameters_of(parameters) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer { realm: realm?, service })
    }
}

/// `name="value", name=value`; a quoted value may have commas.
fn parameters_of(text: &str) -> Vec<(String, String)> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_owned();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => match quoted.split_once('"') {
                Some((value, left)) => (value, left),
                None => break,
            },
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = left;
    }
    found
}

pub fn basic(credentials: &Credentials) -> String {
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", credentials.username, credentials.password))
    )
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Gets a token to pull from one repository. The scope is ours: a registry cannot make a user's credentials ask for more.
pub fn token(
    http: &Http,
    registry: &str,
    repository: &str,
    challenge: (&str, Option<&str>),
    credentials: Option<&Credentials>,
) -> Result<String> {
    let (realm, service) = challenge;
    let bad = |fault: &str| bad_answer(registry, fault);
    let address: ureq::http::Uri =
        realm.parse().map_err(|_| bad("its token server's address is none"))?;
    let host = host_of(&address);
    let over_tls = address.scheme_str() == Some("https");
    if !over_tls && http.scheme(&host) != "http" {
        return Err(bad(&format!(
            "its token server {} is without TLS, and not among the insecure hosts",
            shown(host.as_bytes())
        )));
    }
    let mut url = format!(
        "{realm}{}scope=repository%3A{}%3Apull",
        if realm.contains('?') { "&" } else { "?" },
        encode(repository)
    );
    if let Some(service) = service {
        url.push_str(&format!("&service={}", encode(service)));
    }
    let authorisation = credentials.map(basic);
    let ask = Ask {
        url: &url,
        accept: &["application/json"],
        authorisation: authorisation.as_deref(),
        from: 0,
        small: true,
    };
    let response = http.ask(&ask)?;
    match response.status().as_u16() {
        200 => {}
        400 | 401 | 403 | 404 => {
            let what = format!("a token for {repository}");
            return Err(Error::Unauthorised {
                what,
                registry: shown(host.as_bytes()),
                signed_in: credentials.is_some(),
            });
        }
        status => return Err(bad_answer(&host, &format!("status {status} for a token"))),
    }
    let bytes = read_bounded(&host, "a token", response, TOKEN_BYTES_MAX)?;
    let answer: TokenAnswer = serde_json::from_slice(&bytes)
        .map_err(|_| bad_answer(&host, "a token that is not readable"))?;
    let token = answer.token.or(answer.access_token).filter(|t| !t.is_empty());
    let token = token.ok_or_else(|| bad_answer(&host, "no token"))?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad_answer(&host, "a token with characters that no header may have"));
    }
    Ok(format!("Bearer {token}"))
}

/// Percent-encodes what is not plain in a query.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.map(str::to_owned) })
        };
        for (header, challenge) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"repository:a:pull,push\"",
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            ("bearer realm=https://x/t", bearer("https://x/t", None)),
            ("Bearer service=\"x\"", None),
            ("Negotiate", None),
            ("Bearer realm=\"unclosed", None),
        ] {
            assert_eq!(Challenge::parse(header), challenge, "{header}");
        }
        assert_eq!(encode("a b/c&d"), "a%20b/c%26d");
    }
}
