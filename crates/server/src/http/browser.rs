//! What a browser sends along by itself: its cookies, and from which page a request comes.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::Response;

/// The cookie of a browser that is signed in to the page at `/`.
pub const SESSION: PageCookie =
    PageCookie { plain: "sluice_session", prefixed: "__Host-Http-sluice_session" };

/// The cookie of a browser that is at the identity provider.
pub const SIGN_ON: PageCookie =
    PageCookie { plain: "sluice_sign_on", prefixed: "__Host-Http-sluice_sign_on" };

/// A cookie of the server's own page. Other hosts of its domain and other ports of its host set cookies that are sent here too: who
/// could set this one would have the browser signed in as himself.
pub struct PageCookie {
    plain: &'static str,
    /// A browser takes a name with this prefix over TLS and from this host alone, and where it knows all of the prefix from no script.
    prefixed: &'static str,
}

impl PageCookie {
    /// Plain HTTP is answered to this machine alone, and a browser takes no prefixed name by it.
    pub fn name(&self, is_loopback: bool) -> &'static str {
        if is_loopback { self.plain } else { self.prefixed }
    }

    pub fn is_named(&self, name: &str) -> bool {
        name == self.plain || name == self.prefixed
    }

    /// The values in a request by either name.
    pub fn all<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h str> + use<'h> {
        let (plain, prefixed) = (self.plain, self.prefixed);
        cookies(headers, plain).chain(cookies(headers, prefixed))
    }

    /// Elsewhere than on this machine the cookie goes over TLS only.
    pub fn set(&self, response: &mut Response, value: &str, same_site: &str, is_loopback: bool) {
        let (name, secure) = (self.name(is_loopback), if is_loopback { "" } else { "; Secure" });
        let line = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}{secure}");
        if let Ok(line) = HeaderValue::from_str(&line) {
            response.headers_mut().append(header::SET_COOKIE, line);
        }
    }
}

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
    fn cookies_of_the_page_have_names_over_tls_that_other_hosts_cannot_set() {
        let set = |is_loopback: bool| {
            let mut response = Response::new(Body::empty());
            SIGN_ON.set(&mut response, "x", "Lax", is_loopback);
            let line =
                response.headers().get(header::SET_COOKIE).and_then(|line| line.to_str().ok());
            line.map(str::to_owned)
        };
        let plain = "sluice_sign_on=x; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(set(true).as_deref(), Some(plain));
        assert_eq!(set(false), Some(format!("__Host-Http-{plain}; Secure")));
        let sent =
            request(Method::GET, &[("cookie", "sluice_session=a; __Host-Http-sluice_session=b")]);
        assert!(
            cookies(sent.headers(), SESSION.name(false)).eq(["b"]),
            "the other may be anybody's"
        );
        assert!(SESSION.all(sent.headers()).eq(["a", "b"]));
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
