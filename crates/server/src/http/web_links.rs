//! Links that open a web page of a job in a browser.

use crate::proxy;
use crate::shared::Shared;
use crate::shared::proxy_sessions::ProxyTarget;
use model::principal::Principal;
use model::reason::Refusal;
use model::secret::SecretValue;
use std::time::Instant;
use wire::client::{Answer, WebLinkQuery};

pub fn answer(shared: &Shared, by: Principal, wanted: &WebLinkQuery) -> Result<Answer, Refusal> {
    if !shared.read().config.job_pages {
        return Err(Refusal::Other(proxy::JOB_PAGES_OFF.into()));
    }
    let WebLinkQuery { job, rank, port, whole_path } = *wanted;
    let target = ProxyTarget { job, rank, port };
    let owner = proxy::check(shared, &by, target)?;
    if port == 0 {
        return Err(Refusal::Other("port 0: expected one from 1 to 65535".into()));
    }
    let secret = shared.volatile.proxy.make_link(by, owner, target, Instant::now());
    let secret = secret.ok_or_else(|| Refusal::Other("too many links wait to be opened".into()))?;
    let url = proxy::origin::job_page_url(shared, target, whole_path, &secret);
    Ok(Answer::WebLink { url: SecretValue(url) })
}
