//! The files of the dashboard: within the program, compressed once, and kept by browsers for
//! as long as they are the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use axum::http::{HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::answer::{Answer, HttpError};
use super::request::AdminRequest;

/// A file.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! assets {
    ($($name:literal: $kind:ident),* $(,)?) => {
        &[$(Asset {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!("../../assets/", $name)),
        }),*]
    };
}

/// The page itself is the first.
static ALL: &[Asset] = assets![
    "index.html": HTML,
    "page.css": CSS,
    "theme.js": SCRIPT,
    "app.js": SCRIPT,
    "blocks.js": SCRIPT,
    "charts.js": SCRIPT,
    "dialogs.js": SCRIPT,
    "icon.svg": PICTURE,
    "uplot/uPlot.iife.min.js": SCRIPT,
    "uplot/uPlot.min.css": CSS,
    "uplot/LICENSE": TEXT,
];

/// A file as it is sent.
struct Packed {
    gzip: Vec<u8>,
    tag: String,
}

/// All files, compressed when the first is asked for.
fn packed() -> &'static [Packed] {
    static PACKED: OnceLock<Vec<Packed>> = OnceLock::new();
    PACKED.get_or_init(|| ALL.iter().map(Packed::of).collect())
}

impl Packed {
    fn of(asset: &Asset) -> Self {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let written = gzip.write_all(asset.bytes).and_then(|()| gzip.finish());
        let mut hasher = DefaultHasher::new();
        asset.bytes.hash(&mut hasher);
        Self {
            gzip: written.expect("a vector takes all that is written"),
            // The same file with and without compression.
            tag: format!("W/\"{:016x}\"", hasher.finish()),
        }
    }
}

/// The page, which looks at everything by itself.
pub(super) async fn index(request: AdminRequest) -> Answer {
    Ok(send(&request, 0))
}

/// One of its files.
pub(super) async fn file(request: AdminRequest) -> Answer {
    let name = request.name("file");
    let at = ALL.iter().position(|asset| asset.name == name);
    match at {
        Some(at) => Ok(send(&request, at)),
        None => Err(HttpError::no_such("file", name, "/ is the dashboard.")),
    }
}

fn send(request: &AdminRequest, at: usize) -> axum::response::Response {
    let (asset, packed) = (&ALL[at], &packed()[at]);
    let said = |name: HeaderName| {
        let value = request.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let head = [
        (header::CONTENT_TYPE, asset.kind),
        // It is asked for each time, and sent only if it is another.
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &packed.tag),
        (header::VARY, "Accept-Encoding"),
    ];
    let known = said(header::IF_NONE_MATCH);
    if known.split(',').any(|tag| tag.trim() == packed.tag) {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    let codings = said(header::ACCEPT_ENCODING).split(',');
    let mut codings = codings.map(|coding| coding.split(';').next().unwrap_or_default().trim());
    if codings.any(|coding| coding.eq_ignore_ascii_case("gzip")) {
        let gzip = [(header::CONTENT_ENCODING, "gzip")];
        return (head, gzip, &*packed.gzip).into_response();
    }
    (head, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_light() {
        let all: usize = packed().iter().map(|packed| packed.gzip.len()).sum();
        assert!(all <= 80_000, "{all} bytes of gzip");
    }

    /// What a strict policy for contents would refuse, and what would need other servers.
    #[test]
    fn no_file_has_scripts_or_styles_within_or_needs_another_server() {
        for asset in ALL.iter().filter(|asset| !asset.name.starts_with("uplot/")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for unwanted in [
                "style=\"",
                "<style",
                "onclick=\"",
                "eval(",
                "innerHTML",
                "https://",
            ] {
                assert!(!text.contains(unwanted), "{}: {unwanted}", asset.name);
            }
            let of_files = ["<script src=", "<script type=\"module\" src="];
            let of_files: usize = of_files.iter().map(|tag| text.matches(*tag).count()).sum();
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, of_files, "{}", asset.name);
        }
    }
}
