//! The files of the page, which are part of the program. What is not in this table does not exist, whatever path is asked for.

use crate::auth::identity::fingerprint;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

static INDEX: Asset =
    Asset { name: "index.html", content_type: HTML, text: include_str!("../../page/index.html") };

/// The files below `/web/`.
static ASSETS: &[Asset] = &[
    script("administer.js", include_str!("../../page/administer.js")),
    script("api.js", include_str!("../../page/api.js")),
    script("app.js", include_str!("../../page/app.js")),
    script("changes.js", include_str!("../../page/changes.js")),
    script("changes_worker.js", include_str!("../../page/changes_worker.js")),
    script("chart.js", include_str!("../../page/chart.js")),
    script("csv.js", include_str!("../../page/csv.js")),
    script("dom.js", include_str!("../../page/dom.js")),
    script("format.js", include_str!("../../page/format.js")),
    script("job.js", include_str!("../../page/job.js")),
    script("lists.js", include_str!("../../page/lists.js")),
    script("overview.js", include_str!("../../page/overview.js")),
    script("queue.js", include_str!("../../page/queue.js")),
    script("queue_store.js", include_str!("../../page/queue_store.js")),
    script("router.js", include_str!("../../page/router.js")),
    script("stream.js", include_str!("../../page/stream.js")),
    script("submit.js", include_str!("../../page/submit.js")),
    script("timeline.js", include_str!("../../page/timeline.js")),
    script("usage.js", include_str!("../../page/usage.js")),
    script("virtual_list.js", include_str!("../../page/virtual_list.js")),
    Asset { name: "page.css", content_type: STYLE, text: include_str!("../../page/page.css") },
    Asset { name: "icon.svg", content_type: IMAGE, text: include_str!("../../page/icon.svg") },
];

const fn script(name: &'static str, text: &'static str) -> Asset {
    Asset { name, content_type: SCRIPT, text }
}

/// Changes with the files, so that a browser asks anew after an upgrade and takes nothing twice.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = ASSETS.iter().chain([&INDEX]).flat_map(|asset| asset.text.bytes()).collect();
    format!("\"{}\"", fingerprint(&all))
});

/// `GET /`
pub async fn index(headers: HeaderMap) -> Response {
    serve(&INDEX, &headers)
}

/// `GET /web/{file}`
pub async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => serve(asset, &headers),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn serve(asset: &Asset, headers: &HeaderMap) -> Response {
    let tag = TAG.as_str();
    let kept = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache")];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(header::CONTENT_TYPE, asset.content_type)], asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's own files, uncompressed; SPECIFICATION.md promises as much of them compressed.
    const BYTES_MAX: usize = 300_000;

    #[test]
    fn page_is_small_and_needs_nothing_from_elsewhere() {
        let all = || ASSETS.iter().chain([&INDEX]);
        let bytes: usize = all().map(|asset| asset.text.len()).sum();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
        for asset in all() {
            let names =
                ["http://", "https://"].iter().flat_map(|scheme| asset.text.split(scheme).skip(1));
            // The name of SVG is no address.
            let foreign = names.filter(|rest| !rest.starts_with("www.w3.org/2000/svg"));
            assert_eq!(foreign.count(), 0, "{} names another server", asset.name);
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                "<style",
                " onclick=",
            ] {
                assert!(!asset.text.contains(forbidden), "{}: {forbidden}", asset.name);
            }
        }
    }

    #[test]
    fn every_file_that_is_named_is_there() {
        let names: Vec<&str> = ASSETS.iter().map(|asset| asset.name).collect();
        for asset in ASSETS.iter().chain([&INDEX]) {
            let quoted =
                asset.text.split("\"/web/").skip(1).chain(asset.text.split("\"./").skip(1));
            for name in quoted.filter_map(|rest| rest.split('"').next()) {
                assert!(names.contains(&name), "{} names {name}", asset.name);
            }
        }
    }
}
