//! Files that the front serves by itself.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rideau_testing::command;

use crate::harness::{Harness, LONG, RawAnswer, VERSIONS, folder};

const PAGE: &str = "<p>a page of the shop";

/// A folder with files, and a server that serves those for `/assets` from it.
fn served(more: &str) -> (PathBuf, Harness) {
    let folder = folder();
    fs::create_dir_all(folder.join("public/pages")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("secret", "secret");
    write("public/a.css", "0123456789");
    write("public/pages/index.html", PAGE);
    let apps = format!(
        "[app.shop]\nexec = APP\nmin = 1\n\
         static = {{ path = \"/assets\", root = \"FOLDER/public\", max_age = \"1h\" }}\n{more}\n"
    );
    let harness = Harness::new(&folder, &apps);
    (folder, harness)
}

/// In both versions of HTTP.
fn each(harness: &Harness, words: &[&str], path: &str, check: impl Fn(&RawAnswer)) {
    for version in VERSIONS {
        let words: Vec<_> = words.iter().copied().chain([version]).collect();
        let answer = harness.curl(&words, path);
        check(&answer);
    }
}

/// Set when a file was changed, in seconds since now.
fn touch(path: &Path, since: i64) {
    let span = Duration::from_secs(since.unsigned_abs());
    let then = match since < 0 {
        true => SystemTime::now() - span,
        false => SystemTime::now() + span,
    };
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(then).unwrap();
}

#[test]
fn a_file_is_served_and_what_there_is_no_file_for_goes_to_the_app() {
    let (_, harness) = served("");
    each(&harness, &[], "/assets/a.css?v=3", |answer| {
        assert_eq!((answer.status, &*answer.body), (200, &b"0123456789"[..]));
        let field = |name| answer.field(name);
        assert_eq!(field("content-type").unwrap(), "text/css; charset=utf-8");
        assert_eq!(field("content-length").unwrap(), "10");
        assert_eq!(field("accept-ranges").unwrap(), "bytes");
        assert_eq!(field("cache-control").unwrap(), "max-age=3600");
        assert!(field("last-modified").unwrap().ends_with(" GMT"));
        assert!(field("x-request-id").is_some() && field("date").is_some());
        assert_eq!(field("vary"), None, "there is no other");
    });
    each(&harness, &[], "/assets/pages/", |answer| {
        assert_eq!(answer.body, PAGE.as_bytes());
        let media_type = answer.field("content-type").unwrap();
        assert_eq!(media_type, "text/html; charset=utf-8");
    });
    each(&harness, &[], "/assets/pages?a=b", |answer| {
        assert_eq!(answer.status, 308);
        assert_eq!(answer.field("location").unwrap(), "/assets/pages/?a=b");
    });
    for path in [
        "/assets/none.css",
        "/assets/",
        "/assets",
        "/assetsx",
        "/a.css",
        "/assets//a.css",
    ] {
        each(&harness, &[], path, |answer| {
            let said = String::from_utf8_lossy(&answer.body);
            assert!(said.starts_with(&format!("ok GET {path} ")), "{said}");
        });
    }
    let metrics = harness.admin("GET", "/metrics", "").body;
    let files = "rideau_app_files_total{app=\"shop\"} 6";
    assert!(metrics.contains(files), "{metrics}");
    harness.end();
}

#[test]
fn nothing_but_files_below_the_folder_is_read() {
    let (folder, harness) = served("");
    let public = folder.join("public");
    fs::write(public.join(".env"), "secret").unwrap();
    symlink("../secret", public.join("out.css")).unwrap();
    symlink("/etc/passwd", public.join("passwd")).unwrap();
    symlink("..", public.join("up")).unwrap();
    symlink("a.css", public.join("in.css")).unwrap();
    let made = command("mkfifo").arg(public.join("pipe")).status().unwrap();
    assert!(made.success());
    symlink("/dev/zero", public.join("zero")).unwrap();
    for path in [
        "/assets/../../etc/passwd",
        "/assets/../secret",
        "/assets/%2e%2e/secret",
        "/assets/..%2fsecret",
        "/assets/%2E%2e%2Fsecret",
        "/assets/..%5csecret",
        "/assets/pages/..",
        "/assets/./a.css",
        "/assets/.env",
        "/assets/%2eenv",
        "/assets/a.css%00.png",
        "/assets/out.css",
        "/assets/passwd",
        "/assets/up/secret",
        "/assets/pipe",
        "/assets/zero",
    ] {
        each(&harness, &[], path, |answer| {
            assert_eq!(answer.status, 404, "{path}");
            assert_eq!(answer.field("x-rideau-error").unwrap(), "not_found");
            let said = String::from_utf8_lossy(&answer.body);
            assert!(
                !said.contains("secret") && !said.contains("root:"),
                "{said}"
            );
        });
    }
    each(&harness, &[], "/assets/in.css", |answer| {
        assert_eq!(answer.body, b"0123456789", "a link within is followed");
    });
    // Not below its path, so it is a matter of the app.
    each(&harness, &[], "/x/../assets/a.css", |answer| {
        assert!(String::from_utf8_lossy(&answer.body).starts_with("ok GET /x/.."));
    });
    harness.end();
}

#[test]
fn a_client_that_has_a_file_or_wants_a_part_gets_no_more() {
    let (_, harness) = served("");
    let css = "/assets/a.css";
    let whole = harness.curl(&[], css);
    let tag = whole.field("etag").unwrap();
    let modified = whole.field("last-modified").unwrap();
    let asked = |fields: &[&str], check: &dyn Fn(&RawAnswer)| {
        let words: Vec<_> = fields.iter().flat_map(|field| ["-H", field]).collect();
        each(&harness, &words, css, check);
    };
    let known = format!("If-None-Match: \"x\", W/{tag}");
    let since = format!("If-Modified-Since: {modified}");
    for field in [&known, &since] {
        asked(&[field], &|answer| {
            assert_eq!((answer.status, answer.body.len()), (304, 0));
            assert_eq!(answer.field("etag").unwrap(), tag);
            assert_eq!(answer.field("content-length"), None);
            assert_eq!(answer.field("cache-control").unwrap(), "max-age=3600");
        });
    }
    asked(&["Range: bytes=-5"], &|answer| {
        assert_eq!((answer.status, &*answer.body), (206, &b"56789"[..]));
        assert_eq!(answer.field("content-range").unwrap(), "bytes 5-9/10");
        assert_eq!(answer.field("content-length").unwrap(), "5");
    });
    let same = format!("If-Range: {tag}");
    asked(&["Range: bytes=2-3", &same], &|answer| {
        assert_eq!((answer.status, &*answer.body), (206, &b"23"[..]));
    });
    asked(&["Range: bytes=2-3", "If-Range: \"x\""], &|answer| {
        assert_eq!((answer.status, answer.body.len()), (200, 10));
    });
    asked(&["Range: bytes=0-1,4-5"], &|answer| {
        assert_eq!((answer.status, answer.body.len()), (200, 10));
        assert_eq!(answer.field("content-range"), None);
    });
    asked(&["Range: bytes=10-"], &|answer| {
        assert_eq!((answer.status, answer.body.len()), (416, 0));
        assert_eq!(answer.field("content-range").unwrap(), "bytes */10");
    });
    asked(&["If-Match: \"x\""], &|answer| {
        assert_eq!((answer.status, answer.body.len()), (412, 0));
    });
    harness.end();
}

#[test]
fn a_file_that_is_replaced_while_it_is_sent_is_sent_with_its_old_bytes() {
    let (folder, harness) = served("");
    let len = 24 << 20;
    let public = folder.join("public");
    fs::write(public.join("long.bin"), vec![b'o'; len]).unwrap();
    let mut client = TcpStream::connect(harness.front).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let head = "GET /assets/long.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    let mut said = vec![0; 1000];
    client.read_exact(&mut said).unwrap();
    fs::write(public.join("new.bin"), vec![b'n'; len]).unwrap();
    fs::rename(public.join("new.bin"), public.join("long.bin")).unwrap();
    client.read_to_end(&mut said).unwrap();
    let body = said.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(said.len() - body, len);
    assert!(said[body..].iter().all(|byte| *byte == b'o'));
    each(&harness, &[], "/assets/long.bin", |answer| {
        assert_eq!(answer.body.len(), len);
        assert!(answer.body.iter().all(|byte| *byte == b'n'));
    });

    // One that gets shorter cannot be sent as was promised, and its client can tell.
    let mut client = TcpStream::connect(harness.front).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(head.as_bytes()).unwrap();
    let mut said = vec![0; 1000];
    client.read_exact(&mut said).unwrap();
    let file = File::options().write(true).open(public.join("long.bin"));
    file.unwrap().set_len(1000).unwrap();
    let _ = client.read_to_end(&mut said);
    assert!(said.len() < len, "{} bytes", said.len());
    harness.end();
}

#[test]
fn a_head_has_no_body_and_other_methods_go_to_the_app() {
    let (_, harness) = served("");
    each(&harness, &["--head"], "/assets/a.css", |answer| {
        assert_eq!((answer.status, answer.body.len()), (200, 0));
        assert_eq!(answer.field("content-length").unwrap(), "10");
        assert!(answer.field("etag").is_some());
    });
    // A range is for a GET alone.
    each(
        &harness,
        &["--head", "-H", "Range: bytes=0-1"],
        "/assets/a.css",
        |answer| {
            assert_eq!(answer.status, 200);
        },
    );
    for (method, path) in [("POST", "/assets/a.css"), ("DELETE", "/assets/.env")] {
        each(&harness, &["-X", method, "-d", "x"], path, |answer| {
            let said = String::from_utf8_lossy(&answer.body);
            assert!(said.starts_with(&format!("ok {method} {path} ")), "{said}");
        });
    }
    // A body that is not wanted is in no other request's way.
    let words = ["-X", "GET", "-d", "body", "--next", "--silent", "--include"];
    let both = harness.curl(&words, "/assets/a.css");
    assert_eq!((both.status, &*both.body), (200, &b"0123456789"[..]));
    harness.end();
}

#[test]
fn a_compressed_file_beside_a_file_is_sent_unless_it_is_older() {
    let (folder, harness) = served("");
    let public = folder.join("public");
    let css = public.join("a.css");
    let beside = |end: &str| public.join(format!("a.css{end}"));
    let get = |accepted: &str| {
        let accepted = format!("Accept-Encoding: {accepted}");
        let [one, two] =
            VERSIONS.map(|version| harness.curl(&[version, "-H", &accepted], "/assets/a.css"));
        let facts = |answer: &RawAnswer| (answer.field("content-encoding"), answer.body.clone());
        assert_eq!(facts(&one), facts(&two));
        one
    };
    fs::write(beside(".br"), "brotli").unwrap();
    touch(&beside(".br"), -100);
    let plain = get("br");
    assert_eq!(
        (plain.field("content-encoding"), &*plain.body),
        (None, &b"0123456789"[..])
    );
    assert_eq!(plain.field("vary"), None, "no client gets it");
    touch(&css, -200);
    let brotli = get("br, gzip;q=0.5");
    assert_eq!(
        (brotli.field("content-encoding").unwrap(), &*brotli.body),
        ("br".into(), &b"brotli"[..])
    );
    assert_eq!(
        brotli.field("content-type").unwrap(),
        "text/css; charset=utf-8"
    );
    assert_eq!(brotli.field("vary").unwrap(), "Accept-Encoding");
    let plain = get("gzip");
    assert_eq!(plain.body, b"0123456789");
    assert_eq!(plain.field("vary").unwrap(), "Accept-Encoding");
    assert_ne!(plain.field("etag"), brotli.field("etag"));
    fs::write(beside(".zst"), "zstandard").unwrap();
    fs::write(beside(".gz"), "gzipped").unwrap();
    assert_eq!(get("gzip, br, zstd").body, b"zstandard");
    assert_eq!(get("gzip, br, zstd;q=0").body, b"brotli");
    assert_eq!(get("gzip").body, b"gzipped");
    assert_eq!(get("identity").body, b"0123456789");
    let part = harness.curl(
        &["-H", "Accept-Encoding: gzip", "-r", "0-1"],
        "/assets/a.css",
    );
    assert_eq!((part.status, &*part.body), (206, &b"01"[..]));
    // Such a link leads out as any other does.
    fs::remove_file(beside(".gz")).unwrap();
    symlink("../secret", beside(".gz")).unwrap();
    assert_eq!(get("gzip").body, b"0123456789");
    harness.end();
}

#[test]
fn a_long_file_takes_little_memory() {
    let (folder, harness) = served("");
    let file = File::create(folder.join("public/long.bin")).unwrap();
    let len: u64 = 1 << 30;
    file.set_len(len).unwrap();
    file.write_all_at(b"end", len - 3).unwrap();
    harness.get("/assets/a.css");
    harness.forget_peak();
    let before = harness.memory();
    for version in VERSIONS {
        let url = format!("http://{}/assets/long.bin", harness.front);
        let done = command("sh")
            .args(["-c", "curl --silent --show-error \"$0\" \"$1\" | wc -c"])
            .args([version, &url])
            .output()
            .unwrap();
        let counted = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        assert_eq!(counted, len.to_string());
    }
    let more = harness.peak_memory().saturating_sub(before);
    assert!(more < 32 << 10, "{more} KiB more");
    harness.end();
}

#[test]
fn the_front_says_which_files_there_are_and_an_app_says_otherwise() {
    let folder = folder();
    for name in ["all", "media"] {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("a.txt"), name).unwrap();
    }
    fs::create_dir_all(folder.join("all/.well-known")).unwrap();
    fs::write(folder.join("all/.well-known/security.txt"), "well known").unwrap();
    let front = "static = { root = \"FOLDER/all\" }\n";
    let apps = "[app.shop]\nexec = APP\nhosts = [\"shop\"]\nmin = 1\n\
                [app.blog]\nexec = APP\nhosts = [\"blog\"]\nmin = 1\nstatic = \"none\"\n\
                [app.wiki]\nexec = APP\nhosts = [\"wiki\"]\npaths = [\"/wiki\"]\nstrip = true\n\
                min = 1\n\
                [[app.wiki.static]]\npath = \"/wiki\"\nroot = \"FOLDER/all\"\n\
                [[app.wiki.static]]\npath = \"/wiki/media\"\nroot = \"FOLDER/media\"\n";
    let harness = Harness::with_front(&folder, front, apps);
    let get = |host: &str, path: &str| harness.ask("GET", host, path, b"").unwrap();
    assert_eq!(get("shop", "/a.txt").body, "all");
    assert_eq!(get("shop", "/.well-known/security.txt").body, "well known");
    assert_eq!(get("shop", "/.env").status, 404);
    assert!(get("shop", "/").body.starts_with("ok GET / "));
    assert!(get("blog", "/a.txt").body.starts_with("ok GET /a.txt "));
    assert_eq!(get("wiki", "/wiki/a.txt").body, "all");
    assert_eq!(get("wiki", "/wiki/media/a.txt").body, "media");
    fs::write(folder.join("media/index.html"), "<p>media").unwrap();
    assert_eq!(get("wiki", "/wiki/media/").body, "<p>media");
    let moved = get("wiki", "/wiki/media");
    assert_eq!(
        (moved.status, moved.field("location")),
        (308, Some("/wiki/media/"))
    );
    assert!(get("wiki", "/wiki/none").body.starts_with("ok GET /none "));
    // What changes in the config counts from the next request on.
    Harness::write(
        &folder,
        front,
        &apps.replace("static = \"none\"", "static = { root = \"FOLDER/media\" }"),
    );
    harness.cli(&["reload"]);
    assert_eq!(get("blog", "/a.txt").body, "media");
    // A folder that is gone has no files, and the app answers.
    fs::remove_dir_all(folder.join("media")).unwrap();
    assert!(get("blog", "/a.txt").body.starts_with("ok GET /a.txt "));
    harness.end();
}
