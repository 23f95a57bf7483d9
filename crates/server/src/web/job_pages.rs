//! Web pages of jobs beside the server's own, in one browser.

use crate::http::browser;
use crate::proxy;
use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use axum::http::{HeaderMap, StatusCode};
use cluster::rights::role_of;
use model::principal::{Principal, Role};

/// A page of a job that is open in this browser may have the same origin (`[proxy] listen = "off"`), and its script could use the
/// session. The owner of the job can do in the job whatever the session may, or the browser has no session. A marker that this server
/// has not signed counts as another's.
pub fn check(shared: &Shared, headers: &HeaderMap, by: &Principal) -> Result<(), WebRefusal> {
    if proxy::origin::is_own(shared) {
        return Ok(());
    }
    let is_plain = role_of(&shared.read(), by) == Role::User;
    let mut shown = browser::cookies(headers, proxy::BROWSER);
    let is_unsafe = shown.any(|marker| {
        let owner = shared.volatile.proxy.owner_shown(marker);
        owner.is_none_or(|owner| !is_plain || owner != by.uid)
    });
    if is_unsafe {
        let text = "this browser has, or had, web pages of jobs open, whose scripts could act for you here: close it and open \
                    it again, or use another, or a private window";
        return Err(WebRefusal::new(StatusCode::FORBIDDEN, text));
    }
    Ok(())
}
