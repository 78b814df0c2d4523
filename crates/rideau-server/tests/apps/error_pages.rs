//! Pages of the config for the front's own answers.

use std::fs;

use serde_json::Value as Json;

use crate::harness::{Harness, folder};

#[test]
fn the_answers_of_the_front_have_pages_and_those_of_the_app_do_not() {
    let folder = folder();
    fs::write(folder.join("4.html"), "<p>front {status} {id}").unwrap();
    fs::write(folder.join("413.html"), "<p>shop {status}").unwrap();
    fs::write(folder.join("fails"), "").unwrap();
    let apps = "[app.shop]\nexec = APP\nhosts = [\"shop\"]\nmin = 1\nbody_max = \"10B\"\n\
                error_page = { 413 = \"FOLDER/413.html\" }\n\
                [app.blog]\nexec = APP\nhosts = [\"blog\"]\nmin = 1\nbody_max = \"10B\"\n\
                env = { FAIL_IF = \"FOLDER/fails\" }\n";
    let front = "error_page = { \"4xx\" = \"FOLDER/4.html\", \"5xx\" = \"FOLDER/4.html\" }\n";
    let harness = Harness::with_front(&folder, front, apps);
    let post = |host: &str| harness.ask("POST", host, "/", &[b'x'; 11]).unwrap();
    let own = post("shop");
    assert_eq!((own.status, &*own.body), (413, "<p>shop 413"));
    assert_eq!(own.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(own.field("x-rideau-error"), Some("body_too_large"));
    let usual = post("blog");
    let id = usual.field("x-request-id").unwrap();
    assert_eq!(usual.body, format!("<p>front 413 {id}"));
    let nowhere = harness.ask("GET", "nowhere", "/", b"").unwrap();
    assert!(nowhere.body.starts_with("<p>front 404 "), "{nowhere:?}");
    let failed = harness.ask("GET", "blog", "/", b"").unwrap();
    assert_eq!(
        (failed.status, &*failed.body),
        (500, "broken"),
        "the app's own"
    );

    let asked = "Host: nowhere\r\nAccept: application/json, */*\r\n";
    let json = harness.ask_saying("/", asked);
    assert_eq!(json.field("content-type"), Some("application/json"));
    let said: Json = serde_json::from_str(&json.body).unwrap();
    assert_eq!(
        (&said["status"], &said["error"]),
        (&404.into(), &"no_such_app".into())
    );
    assert_eq!(said["id"], json.field("x-request-id").unwrap());

    // A page that changed counts after a reload, though the config is the same.
    fs::write(folder.join("413.html"), "<p>another").unwrap();
    assert_eq!(post("shop").body, "<p>shop 413");
    harness.cli(&["reload"]);
    assert_eq!(post("shop").body, "<p>another");
    harness.end();
}

#[test]
fn a_page_that_cannot_be_used_is_a_fault_of_the_config() {
    let folder = folder();
    let app = |page: &str| {
        format!("[app.shop]\nexec = APP\nmin = 1\nerror_page = {{ 503 = \"FOLDER/{page}\" }}\n")
    };
    fs::write(folder.join("good.html"), "<p>good").unwrap();
    fs::write(folder.join("long.html"), vec![b'x'; (64 << 10) + 1]).unwrap();
    fs::write(folder.join("odd.html"), b"\xff\xfe").unwrap();
    Harness::write(&folder, "", &app("good.html"));
    let harness = Harness::start(&folder);
    for (page, why) in [
        ("none.html", "No such file"),
        ("long.html", "it is longer than 64KiB"),
        ("odd.html", "it is not text in UTF-8"),
        ("", "it is not a file"),
    ] {
        Harness::write(&folder, "", &app(page));
        let refused = harness.operator().ask(&["CONFIG", "RELOAD"]);
        let said = format!("{refused:?}");
        assert!(
            said.contains("cannot be used") && said.contains(why),
            "{page}: {said}"
        );
    }
    assert_eq!(harness.get("/").status, 200);
    harness.end();
}
