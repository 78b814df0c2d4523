//! Types of content: by the name of a file, and whether compressing them is of use.

use crate::http1::fields::is;

/// The type of a file, by what stands behind the last dot of its name.
pub(super) fn of_file(name: &[u8]) -> &'static str {
    const UNKNOWN: &str = "application/octet-stream";
    let Some(dot) = memchr::memrchr(b'.', name) else {
        return UNKNOWN;
    };
    let extension = name[dot + 1..].to_ascii_lowercase();
    let found = BY_EXTENSION.binary_search_by(|(known, _)| known.as_bytes().cmp(&extension));
    found.map_or(UNKNOWN, |at| BY_EXTENSION[at].1)
}

/// Whether content of this type gets shorter: text, JSON, JavaScript, XML, SVG and WebAssembly.
pub(super) fn is_compressible(media_type: &[u8]) -> bool {
    let end = memchr::memchr(b';', media_type).unwrap_or(media_type.len());
    let whole = media_type[..end].trim_ascii();
    let begins = |known: &str| whole.get(..known.len()).is_some_and(|part| is(part, known));
    let ends = |known: &str| {
        let start = whole.len().checked_sub(known.len());
        start.is_some_and(|start| is(&whole[start..], known))
    };
    begins("text/")
        || ends("+json")
        || ends("+xml")
        || COMPRESSIBLE.iter().any(|known| is(whole, known))
}

const COMPRESSIBLE: [&str; 11] = [
    "application/ecmascript",
    "application/javascript",
    "application/json",
    "application/json-seq",
    "application/jsonl",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
];

/// In the order of their extensions.
const BY_EXTENSION: [(&str, &str); 82] = [
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("rar", "application/vnd.rar"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ts", "video/mp2t"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_file_follows_from_its_extension() {
        assert!(BY_EXTENSION.is_sorted_by(|one, next| one.0 < next.0));
        assert_eq!(of_file(b"a/b.tar.GZ"), "application/gzip");
        assert_eq!(of_file(b"index.html"), "text/html; charset=utf-8");
        assert_eq!(of_file(b"app.min.js"), "text/javascript; charset=utf-8");
        for unknown in ["README", "a.", "a.unknown", "b.html/x", ""] {
            assert_eq!(
                of_file(unknown.as_bytes()),
                "application/octet-stream",
                "{unknown}"
            );
        }
    }

    #[test]
    fn what_gets_shorter_is_compressible_and_what_is_compressed_is_not() {
        for yes in [
            "text/html",
            "TEXT/PLAIN; charset=utf-8",
            "text/event-stream;charset=utf-8",
            "application/json",
            "Application/Problem+JSON ; a=b",
            "image/svg+xml",
            "application/rss+xml",
            "application/wasm",
            "application/x-javascript",
        ] {
            assert!(is_compressible(yes.as_bytes()), "{yes}");
        }
        for no in [
            "image/png",
            "application/octet-stream",
            "application/grpc",
            "application/zip",
            "application/pdf",
            "font/woff2",
            "video/mp4",
            "text",
            "xml",
            "",
            "; charset=text/html",
        ] {
            assert!(!is_compressible(no.as_bytes()), "{no}");
        }
    }
}
