//! What the proxy changes in the heads of requests and answers: nothing of ours reaches the job, and nothing of the job's reaches
//! beyond its own path.

use crate::http::browser::{SESSION, SIGN_ON, cookie_pairs};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The cookie that lets a browser in.
pub const COOKIE: &str = "sluice_proxy";
/// Tells the job where the client finds it; left out where it has a whole host.
const FORWARDED_PREFIX: &str = "x-forwarded-prefix";
/// Tells a service the address of its client, and the scheme by which that asks.
pub const FORWARDED_FOR: &str = "x-forwarded-for";
pub const FORWARDED_PROTO: &str = "x-forwarded-proto";
/// The cookie that says whose pages a browser shows.
pub const BROWSER: &str = "sluice_browser";

/// The address of the client whose request a gateway passes on, the gateway's name, and its token, without which the server ignores
/// both.
pub const CLIENT: &str = "x-sluice-client";
pub const GATEWAY_NAME: &str = "x-sluice-gateway-name";
pub const GATEWAY_TOKEN: &str = "x-sluice-gateway";

/// Headers that are of one connection only.
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];

/// Headers that a client cannot have left out by naming them in `Connection`: they say whom a request is for and from, how long it
/// is, and which way it came.
const OF_REQUEST: [&str; 6] =
    ["host", "content-length", "authorization", "via", "cookie", FORWARDED_FOR];

/// Headers of an answer by which one page would speak for all of the host.
const OF_HOST: [&str; 9] = [
    "accept-ch",
    "alt-svc",
    "clear-site-data",
    "nel",
    "origin-agent-cluster",
    "public-key-pins",
    "report-to",
    "service-worker-allowed",
    "strict-transport-security",
];

/// Whether the request asks for a WebSocket on its connection. Any other protocol is left out: requests within HTTP/2 (`h2c`) would
/// reach a replica past the service's limits.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|one| one.to_str().ok());
    let mut words = connection.flat_map(|line| line.split(','));
    let mut protocols = headers.get_all(header::UPGRADE).iter();
    headers.contains_key(header::UPGRADE)
        && protocols.all(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Leaves the headers out whose names are among these.
pub fn leave_out(headers: &mut HeaderMap, names: &[&str]) {
    // Most heads have few headers, and none of these.
    let found: Vec<HeaderName> =
        headers.keys().filter(|name| names.contains(&name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Leaves out what is of one connection, also what `Connection` names, as far as that may be.
fn strip(headers: &mut HeaderMap, upgrades: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|one| one.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .filter(|name: &HeaderName| *name != header::UPGRADE)
        .filter(|name| !OF_REQUEST.contains(&name.as_str()))
        .collect();
    for name in named {
        headers.remove(name);
    }
    let upgrade = headers.remove(header::UPGRADE).filter(|_| upgrades);
    leave_out(headers, &OF_CONNECTION);
    if let Some(protocol) = upgrade {
        headers.insert(header::UPGRADE, protocol);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

fn is_ours(name: &str) -> bool {
    [COOKIE, BROWSER].contains(&name) || [SESSION, SIGN_ON].iter().any(|own| own.is_named(name))
}

/// The head of a request as the job gets it. `by_token`: the `Authorization` was for the proxy.
pub fn to_job(mut headers: HeaderMap, by_token: bool, prefix: &str) -> HeaderMap {
    let upgrades = is_websocket(&headers);
    strip(&mut headers, upgrades);
    if headers.contains_key(header::COOKIE) {
        let others: Vec<String> = cookie_pairs(&headers)
            .filter(|(name, _)| !is_ours(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        headers.remove(header::COOKIE);
        if let Ok(line) = HeaderValue::from_str(&others.join("; "))
            && !others.is_empty()
        {
            headers.insert(header::COOKIE, line);
        }
    }
    if by_token {
        headers.remove(header::AUTHORIZATION);
    }
    leave_out(&mut headers, &[FORWARDED_PREFIX, CLIENT, GATEWAY_NAME, GATEWAY_TOKEN]);
    if prefix != "/"
        && let Ok(line) = HeaderValue::from_str(prefix)
    {
        headers.insert(const { HeaderName::from_static(FORWARDED_PREFIX) }, line);
    }
    headers
}

/// The head of an answer as the client gets it.
pub fn to_client(headers: &mut HeaderMap, prefix: &str, is_whole: bool) {
    strip(headers, true);
    leave_out(headers, &OF_HOST);
    if headers.contains_key(header::SET_COOKIE) {
        let cookies: Vec<HeaderValue> = headers
            .get_all(header::SET_COOKIE)
            .iter()
            .filter_map(|one| HeaderValue::from_str(&below(one.to_str().ok()?, prefix)?).ok())
            .collect();
        headers.remove(header::SET_COOKIE);
        for cookie in cookies {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
    let place = headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
    if let Some(place) = place.filter(|place| !is_whole && is_of_job(place, prefix))
        && let Ok(inside) =
            HeaderValue::from_str(&format!("{}{place}", prefix.trim_end_matches('/')))
    {
        headers.insert(header::LOCATION, inside);
    }
}

/// A path of the job's own server; `//host` is another host. One that was told its prefix may have put it before the path itself.
fn is_of_job(place: &str, prefix: &str) -> bool {
    let bare = prefix.trim_end_matches('/');
    let behind = place.strip_prefix(bare).filter(|_| !bare.is_empty());
    let has_prefix =
        behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    place.starts_with('/') && !place.starts_with("//") && !has_prefix
}

/// A cookie of the job's, held to its own path; nothing for one that would replace ours.
fn below(cookie: &str, prefix: &str) -> Option<String> {
    let mut parts = cookie.split(';').map(str::trim);
    let pair = parts.next()?;
    let (name, _) = pair.split_once('=')?;
    // A browser sends a cookie without a name as its value alone, which may look like ours.
    if name.trim().is_empty() || is_ours(name.trim()) {
        return None;
    }
    let mut path = prefix.to_owned();
    let mut kept = vec![pair.to_owned()];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "path" if value.starts_with(prefix) => path = value.to_owned(),
            // All pages of the server have one name.
            "path" | "domain" => {}
            _ => kept.push(part.to_owned()),
        }
    }
    kept.push(format!("Path={path}"));
    Some(kept.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::browser::cookies;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(
                name.parse::<HeaderName>().expect("a name"),
                value.parse().expect("a value"),
            );
        }
        map
    }

    fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
        headers.get(name).and_then(|value| value.to_str().ok())
    }

    #[test]
    fn nothing_of_ours_reaches_the_job() {
        let asked = headers(&[
            ("authorization", "Bearer secret"),
            ("cookie", "a=1; sluice_proxy=other; sluice_proxy=secret; b=2; sluice_browser=secret"),
            ("cookie", "sluice_session=secret; __Host-Http-sluice_session=secret"),
            ("cookie", "sluice_sign_on=secret; __Host-Http-sluice_sign_on=secret"),
            ("connection", "keep-alive, x-own"),
            ("x-own", "1"),
            ("host", "head:6820"),
            ("x-sluice-gateway", "secret"),
            ("x-sluice-client", "secret"),
            ("x-sluice-gateway-name", "secret"),
        ]);
        assert!(cookies(&asked, COOKIE).eq(["other", "secret"]));
        let sent = to_job(asked.clone(), true, "/proxy/jobs/1/80/");
        assert!(!format!("{sent:?}").contains("secret"), "{sent:?}");
        assert_eq!(
            (value(&sent, "cookie"), value(&sent, "host")),
            (Some("a=1; b=2"), Some("head:6820"))
        );
        assert_eq!((value(&sent, "connection"), value(&sent, "x-own")), (None, None));
        let forged = headers(&[("x-forwarded-prefix", "/forged/")]);
        assert_eq!(value(&to_job(forged, true, "/"), "x-forwarded-prefix"), None);
        // A page of the job's may have a login of its own.
        let sent = to_job(asked, false, "/proxy/jobs/1/80/");
        assert_eq!(value(&sent, "authorization"), Some("Bearer secret"));
    }

    #[test]
    fn connection_does_not_take_away_what_a_request_is_judged_by() {
        let asked = headers(&[
            ("connection", "Host, content-length, authorization, via, cookie"),
            ("connection", "x-forwarded-for, x-own"),
            ("host", "web.apps.example"),
            ("content-length", "5"),
            ("authorization", "Bearer of-the-job"),
            ("via", "1.1 sluice-gateway"),
            ("cookie", "a=1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-own", "1"),
        ]);
        let sent = to_job(asked, false, "/");
        for name in OF_REQUEST {
            assert!(sent.contains_key(name), "{name}");
        }
        assert_eq!((value(&sent, "connection"), value(&sent, "x-own")), (None, None));
    }

    #[test]
    fn websocket_passes_and_other_words_of_the_connection_do_not() {
        let asked = headers(&[("connection", "Upgrade, close"), ("upgrade", "websocket")]);
        assert!(is_websocket(&asked));
        let sent = to_job(asked, false, "/");
        assert_eq!(
            (value(&sent, "connection"), value(&sent, "upgrade")),
            (Some("upgrade"), Some("websocket"))
        );
        for (connection, protocols) in [
            ("close", vec!["websocket"]),
            ("upgrade, http2-settings", vec!["h2c"]),
            ("upgrade", vec!["websocket", "h2c"]),
            ("upgrade", vec!["h2c", "websocket"]),
            ("upgrade", vec!["websocket, h2c"]),
            ("upgrade", vec![]),
        ] {
            let mut lines = vec![("connection", connection), ("http2-settings", "AAMAAABk")];
            lines.extend(protocols.iter().map(|protocol| ("upgrade", *protocol)));
            let asked = headers(&lines);
            assert!(!is_websocket(&asked), "{lines:?}");
            let sent = to_job(asked, false, "/");
            assert_eq!((value(&sent, "connection"), value(&sent, "upgrade")), (None, None));
        }
    }

    #[test]
    fn page_of_a_job_does_not_speak_for_the_host() {
        let mut answer = headers(&[("strict-transport-security", "max-age=1"), ("etag", "x")]);
        for name in OF_HOST {
            answer.append(name, HeaderValue::from_static("/"));
        }
        to_client(&mut answer, "/proxy/jobs/1/80/", false);
        assert_eq!((answer.len(), value(&answer, "etag")), (1, Some("x")));
    }

    #[test]
    fn cookies_and_redirects_of_a_job_stay_below_its_path() {
        let prefix = "/proxy/jobs/1/80/";
        for (set, expected) in [
            ("a=1", Some("a=1; Path=/proxy/jobs/1/80/")),
            ("a=1; Path=/; HttpOnly; Domain=head", Some("a=1; HttpOnly; Path=/proxy/jobs/1/80/")),
            ("a=1; path=/proxy/jobs/1/80/lab", Some("a=1; Path=/proxy/jobs/1/80/lab")),
            ("a=1; Path=/proxy/jobs/2/80/", Some("a=1; Path=/proxy/jobs/1/80/")),
            ("sluice_proxy=x; Path=/", None),
            ("sluice_session=x; Path=/", None),
        ] {
            let mut answer = headers(&[("set-cookie", set)]);
            to_client(&mut answer, prefix, false);
            assert_eq!(value(&answer, "set-cookie"), expected, "{set}");
        }
        for (place, is_whole, expected) in [
            ("/lab?x", false, "/proxy/jobs/1/80/lab?x"),
            ("/lab", true, "/lab"),
            ("//evil/", false, "//evil/"),
            ("https://other/", false, "https://other/"),
            ("lab", false, "lab"),
            ("/proxy/jobs/1/80/lab", false, "/proxy/jobs/1/80/lab"),
            ("/proxy/jobs/1/80?x", false, "/proxy/jobs/1/80?x"),
            ("/proxy/jobs/1/8000/", false, "/proxy/jobs/1/80/proxy/jobs/1/8000/"),
        ] {
            let mut answer = headers(&[("location", place)]);
            to_client(&mut answer, prefix, is_whole);
            assert_eq!(value(&answer, "location"), Some(expected), "{place}");
        }
    }
}
