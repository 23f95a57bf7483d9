//! The files of the page, which are part of the program. What is not in this table does not exist, whatever path is asked for.

use crate::auth::identity::fingerprint;
use crate::clock;
use crate::web::guard::policy_with_styles;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
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

/// The files below `/web/VERSION/`.
static ASSETS: &[Asset] = &[
    script("administer.js", include_str!("../../page/administer.js")),
    script("api.js", include_str!("../../page/api.js")),
    script("app.js", include_str!("../../page/app.js")),
    script("array.js", include_str!("../../page/array.js")),
    script("below_map.js", include_str!("../../page/below_map.js")),
    script("changes.js", include_str!("../../page/changes.js")),
    script("changes_worker.js", include_str!("../../page/changes_worker.js")),
    script("chart.js", include_str!("../../page/chart.js")),
    script("csv.js", include_str!("../../page/csv.js")),
    script("dom.js", include_str!("../../page/dom.js")),
    script("ended_jobs.js", include_str!("../../page/ended_jobs.js")),
    script("explainer.js", include_str!("../../page/explainer.js")),
    script("first_requests.js", include_str!("../../page/first_requests.js")),
    script("form_values.js", include_str!("../../page/form_values.js")),
    script("format.js", include_str!("../../page/format.js")),
    script("forms.js", include_str!("../../page/forms.js")),
    script("gantt.js", include_str!("../../page/gantt.js")),
    script("job.js", include_str!("../../page/job.js")),
    script("job_output.js", include_str!("../../page/job_output.js")),
    script("job_text.js", include_str!("../../page/job_text.js")),
    script("job_use.js", include_str!("../../page/job_use.js")),
    script("list_columns.js", include_str!("../../page/list_columns.js")),
    script("list_tables.js", include_str!("../../page/list_tables.js")),
    script("lists.js", include_str!("../../page/lists.js")),
    script("log_text.js", include_str!("../../page/log_text.js")),
    script("node_map.js", include_str!("../../page/node_map.js")),
    script("numbered_text.js", include_str!("../../page/numbered_text.js")),
    script("overview.js", include_str!("../../page/overview.js")),
    script("prefetch.js", include_str!("../../page/prefetch.js")),
    script("queue.js", include_str!("../../page/queue.js")),
    script("queue_store.js", include_str!("../../page/queue_store.js")),
    script("rights.js", include_str!("../../page/rights.js")),
    script("router.js", include_str!("../../page/router.js")),
    script("session_note.js", include_str!("../../page/session_note.js")),
    script("shell.js", include_str!("../../page/shell.js")),
    script("sign_in.js", include_str!("../../page/sign_in.js")),
    script("stream.js", include_str!("../../page/stream.js")),
    script("submit.js", include_str!("../../page/submit.js")),
    script("timeline.js", include_str!("../../page/timeline.js")),
    script("unknown_view.js", include_str!("../../page/unknown_view.js")),
    script("usage.js", include_str!("../../page/usage.js")),
    script("usage_months.js", include_str!("../../page/usage_months.js")),
    script("utilisation.js", include_str!("../../page/utilisation.js")),
    script("views.js", include_str!("../../page/views.js")),
    script("virtual_list.js", include_str!("../../page/virtual_list.js")),
    Asset { name: "page.css", content_type: STYLE, text: include_str!("../../page/page.css") },
    Asset { name: "icon.svg", content_type: IMAGE, text: include_str!("../../page/icon.svg") },
];

const fn script(name: &'static str, text: &'static str) -> Asset {
    Asset { name, content_type: SCRIPT, text }
}

/// Files of other projects, as `scripts/page` has copied them.
static VENDORED: &[Asset] = &[
    script("addon-fit.js", include_str!("../../page/vendor/addon-fit.js")),
    script("xterm.js", include_str!("../../page/vendor/xterm.js")),
    Asset {
        name: "xterm.css",
        content_type: STYLE,
        text: include_str!("../../page/vendor/xterm.css"),
    },
];

/// The page of a shell, with a place for a nonce.
static SHELL: Asset =
    Asset { name: "shell.html", content_type: HTML, text: include_str!("../../page/shell.html") };
const NONCE_PLACE: &str = "STYLE_NONCE";

/// Stands in the pages for the version of the files, which is part of their addresses.
const VERSION_PLACE: &str = "PAGE_VERSION";

/// Changes with the files. A browser keeps those of a version, and asks for none of them again until an upgrade.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = all().flat_map(|asset| asset.text.bytes()).collect();
    fingerprint(&all).chars().take(16).collect()
});

const ALWAYS_ASKED_FOR: &str = "no-cache";
const KEPT_FOR_A_YEAR: &str = "max-age=31536000, immutable";

/// The files as browsers take them, compressed when the first one asks.
static COMPRESSED: LazyLock<HashMap<&'static str, Bytes>> = LazyLock::new(|| {
    all().filter_map(|asset| Some((asset.name, compressed(&text(asset))?))).collect()
});

fn all() -> impl Iterator<Item = &'static Asset> {
    ASSETS.iter().chain(VENDORED).chain([&INDEX, &SHELL])
}

/// What a browser is sent: pages name the files of this version.
fn text(asset: &Asset) -> Cow<'static, str> {
    if asset.content_type == HTML {
        Cow::Owned(asset.text.replace(VERSION_PLACE, &VERSION))
    } else {
        Cow::Borrowed(asset.text)
    }
}

/// The address of a file.
pub fn address(name: &str) -> String {
    format!("/web/{}/{name}", *VERSION)
}

fn compressed(text: &str) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// `GET /`
pub async fn index(headers: HeaderMap) -> Response {
    serve(&INDEX, &headers, ALWAYS_ASKED_FOR)
}

/// `GET /shell`: its terminal makes style elements. Their nonce is another with each answer, and no other page has one.
pub async fn shell() -> Response {
    let nonce: String = clock::random::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = policy_with_styles(&nonce);
    let headers =
        [(header::CONTENT_TYPE, HTML.to_owned()), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, text(&SHELL).replace(NONCE_PLACE, &nonce)).into_response()
}

/// `GET /web/{version}/{file}`. A page that is open since before an upgrade gets the file that there is now, and keeps it for no
/// other visit.
pub async fn file(Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let keep = if version == *VERSION { KEPT_FOR_A_YEAR } else { ALWAYS_ASKED_FOR };
    match ASSETS.iter().chain(VENDORED).find(|asset| asset.name == name) {
        Some(asset) => serve(asset, &headers, keep),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn serve(asset: &Asset, headers: &HeaderMap, keep: &'static str) -> Response {
    let shrunk = COMPRESSED.get(asset.name).filter(|_| takes_gzip(headers));
    let tag = match shrunk {
        Some(_) => format!("\"{}-gzip\"", *VERSION),
        None => format!("\"{}\"", *VERSION),
    };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let kept = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, keep.to_owned()),
        (header::VARY, "accept-encoding".to_owned()),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let kind = (header::CONTENT_TYPE, asset.content_type);
    match shrunk {
        Some(bytes) => {
            (kept, [kind, (header::CONTENT_ENCODING, "gzip")], bytes.clone()).into_response()
        }
        None => (kept, [kind], text(asset)).into_response(),
    }
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    words.any(|word| {
        let mut parts = word.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| part == "q=0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All files of the page, compressed.
    const BYTES_MAX: usize = 300_000;

    fn own() -> impl Iterator<Item = &'static Asset> {
        ASSETS.iter().chain([&INDEX, &SHELL])
    }

    #[test]
    fn page_is_small_compressed_with_what_it_has_of_others() {
        assert_eq!(COMPRESSED.len(), all().count());
        let bytes: usize = COMPRESSED.values().map(Bytes::len).sum();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn files_are_compressed_for_those_who_take_it() {
        let asked = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, line.parse().expect("a value"));
            takes_gzip(&headers)
        };
        assert!(asked("gzip") && asked("br;q=1, gzip;q=0.5"));
        assert!(!asked("br") && !asked("gzip;q=0") && !asked(""));
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn page_of_a_shell_alone_has_a_place_for_a_nonce() {
        let with_place: Vec<&str> =
            own().filter(|asset| asset.text.contains(NONCE_PLACE)).map(|one| one.name).collect();
        assert_eq!(with_place, ["shell.html"]);
        assert!(policy_with_styles("abc").contains("style-src 'self' 'nonce-abc';"));
    }

    #[test]
    fn page_needs_nothing_from_elsewhere_and_reads_no_markup() {
        for asset in own() {
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

    /// The modules that a file needs before it runs: those that it names outside of `import(…)`.
    fn needed(name: &str, found: &mut BTreeSet<&'static str>) {
        let asset = ASSETS.iter().find(|asset| asset.name == name).expect("a file of the page");
        if !found.insert(asset.name) {
            return;
        }
        for (at, _) in asset.text.match_indices("\"./") {
            let (before, rest) = asset.text.split_at(at);
            if before.ends_with("from ") || before.ends_with("import ") {
                let name = rest[3..].split('"').next().expect("a name");
                needed(name, found);
            }
        }
    }

    /// A browser that found the modules one by one would wait for each; the first view waits for no module of another.
    #[test]
    fn modules_of_the_first_view_are_fetched_at_once() {
        let mut first = BTreeSet::new();
        needed("app.js", &mut first);
        assert!(first.contains("overview.js") && !first.contains("queue.js"), "{first:?}");
        assert!(!first.contains("below_map.js"), "what is below the map waits for it: {first:?}");
        // They have elements of their own.
        let begun = ["app.js", "first_requests.js"];
        let preloaded: BTreeSet<&str> = INDEX
            .text
            .split(&format!("<link rel=\"modulepreload\" href=\"/web/{VERSION_PLACE}/"))
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .chain(begun)
            .collect();
        assert_eq!(preloaded, first);
    }

    #[test]
    fn every_file_that_is_named_is_there() {
        let names: Vec<&str> = all().map(|asset| asset.name).collect();
        for asset in own() {
            let in_pages = format!("\"/web/{VERSION_PLACE}/");
            let quoted =
                asset.text.split(&in_pages).skip(1).chain(asset.text.split("\"./").skip(1));
            assert!(!asset.text.replace(&in_pages, "").contains("\"/web/"), "{}", asset.name);
            for name in quoted.filter_map(|rest| rest.split('"').next()) {
                assert!(names.contains(&name), "{} names {name}", asset.name);
            }
        }
    }
}
