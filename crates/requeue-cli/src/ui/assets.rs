//! The files of the local page, which the binary holds.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The path of each file, its type and its text.
macro_rules! files {
    ($($path:literal: $kind:ident $name:literal),+ $(,)?) => {
        [$(($path, $kind, include_str!(concat!("assets/", $name)))),+]
    };
}

const FILES: [(&str, &str, &str); 16] = files! {
    "/": HTML "index.html",
    "/style.css": CSS "style.css",
    "/icon.svg": SVG "icon.svg",
    "/app.js": JAVASCRIPT "app.js",
    "/api.js": JAVASCRIPT "api.js",
    "/dom.js": JAVASCRIPT "dom.js",
    "/job.js": JAVASCRIPT "job.js",
    "/result.js": JAVASCRIPT "result.js",
    "/selection.js": JAVASCRIPT "selection.js",
    "/dead_letter.js": JAVASCRIPT "dead_letter.js",
    "/dead_letters.js": JAVASCRIPT "dead_letters.js",
    "/live.css": CSS "live.css",
    "/live.js": JAVASCRIPT "live.js",
    "/live_chart.js": JAVASCRIPT "live_chart.js",
    "/live_messages.js": JAVASCRIPT "live_messages.js",
    "/policy.js": JAVASCRIPT "policy.js",
};

pub(super) fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(CONTENT_TYPE, kind)], text).into_response()))
    })
}

#[cfg(test)]
mod tests {
    use super::FILES;

    /// Bytes of the whole page. The bound keeps it light.
    const MAX_BYTES: usize = 300 * 1024;

    #[test]
    fn the_whole_page_is_small_and_loads_nothing_from_elsewhere() {
        let bytes: usize = FILES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
        for (path, _, text) in FILES {
            let text = text.replace("http://www.w3.org/", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{path}");
        }
    }

    #[test]
    fn no_script_writes_markup() {
        for (path, _, text) in FILES {
            for sink in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "srcdoc",
            ] {
                assert!(!text.contains(sink), "{path}: {sink}");
            }
        }
    }
}
