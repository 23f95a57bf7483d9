//! What a browser sends along by itself: its cookies, and from which page a request comes.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};

/// The cookie of a browser that is signed in to the page at `/`.
pub const SESSION: &str = "sluice_session";

/// All cookies of a request, by name and value.
pub fn cookie_pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|one| one.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// The values of one of our cookies in a request: a page may have put another before it.
pub fn cookies<'h>(headers: &'h HeaderMap, own: &'h str) -> impl Iterator<Item = &'h str> {
    cookie_pairs(headers).filter_map(move |(name, value)| (name == own).then_some(value))
}

/// Whether a request with a cookie comes from a page of this server, or from none. Another port of the same host is another
/// server, whatever the browser sends there and from there; a person who follows a link comes from anywhere.
pub fn is_own_page(request: &Request) -> bool {
    if is_from_elsewhere(request) && !is_visit(request) {
        return false;
    }
    match text(request, header::ORIGIN.as_str()) {
        None => true,
        Some(origin) => is_own_origin(request, origin),
    }
}

/// Whether a browser says that a page of another origin makes this request, or led to it.
pub fn is_from_elsewhere(request: &Request) -> bool {
    let site = text(request, "sec-fetch-site");
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

/// Whether a browser says that a page of another host makes this request, or led to it.
pub fn is_from_another_site(request: &Request) -> bool {
    text(request, "sec-fetch-site") == Some("cross-site")
}

/// Whether a browser asks for a page to show it.
pub fn is_visit(request: &Request) -> bool {
    text(request, "sec-fetch-mode") == Some("navigate") && request.method() == Method::GET
}

/// Whether a request that changes something comes from a page of this server. Every browser says where such a request comes
/// from, so one that does not is refused.
pub fn is_change_of_own_page(request: &Request) -> bool {
    let origin = text(request, header::ORIGIN.as_str());
    is_own_page(request) && origin.is_some_and(|origin| is_own_origin(request, origin))
}

fn is_own_origin(request: &Request, origin: &str) -> bool {
    let host = text(request, header::HOST.as_str());
    let host = host.or(request.uri().authority().map(|host| host.as_str()));
    let of_origin = origin.split_once("://").map(|(_, host)| host);
    of_origin.is_some() && of_origin == host
}

fn text<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(method: Method, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        for (name, value) in headers {
            let name = name.parse::<header::HeaderName>().expect("a name");
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        request
    }

    #[test]
    fn change_must_say_that_it_comes_from_a_page_of_this_server() {
        let own = ("origin", "http://head:6820");
        let host = ("host", "head:6820");
        let asked =
            |headers: &[(&str, &str)]| is_change_of_own_page(&request(Method::POST, headers));
        assert!(asked(&[host, own]));
        assert!(asked(&[host, own, ("sec-fetch-site", "same-origin")]));
        assert!(!asked(&[host]), "without an origin");
        assert!(!asked(&[host, ("origin", "null")]));
        assert!(!asked(&[host, ("origin", "http://evil.example")]));
        assert!(!asked(&[host, ("origin", "http://head:8080")]), "another port");
        assert!(!asked(&[host, own, ("sec-fetch-site", "same-site")]));
        assert!(!asked(&[host, own, ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn visit_comes_from_anywhere_and_a_read_from_an_own_page() {
        let asked = |headers: &[(&str, &str)]| is_own_page(&request(Method::GET, headers));
        assert!(asked(&[]));
        assert!(asked(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
        assert!(!asked(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]));
    }
}
