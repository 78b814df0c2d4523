//! Broken code is deployed on servers written elsewhere, while clients ask: no request
//! fails, the deploy is told to have failed and why, and the next one that is good is used.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Harness, folder, is_soak};
use crate::trial::asked;

/// An application in a language: code that answers, and that is broken in a way.
struct Language {
    file: &'static str,
    /// All of a file, with HEAD where it begins and BODY where it serves.
    text: &'static str,
    /// It answers with this status and these two letters.
    answer: fn(u16, &str) -> String,
    /// A statement that fails.
    raise: &'static str,
    /// Sleeps before it serves.
    sleep: &'static str,
    /// A coin is tossed: the first answer, or the second.
    toss: fn(&str, &str) -> String,
}

/// Clients see at most this many failures of new code, before it is rejected.
const SHOWN_MAX: u32 = 3;

const WSGI: Language = Language {
    file: "wsgi.py",
    text: "import random, time\nHEAD\ndef app(environ, start):\n    BODY\n",
    answer: |status, body| {
        format!("start('{status} X', [('Content-Length', '2')]); return [b'{body}']")
    },
    raise: "raise RuntimeError('broken on purpose')",
    sleep: "time.sleep(0.3); ",
    toss: |one, other| format!("if random.random() < 0.5:\n        {one}\n    {other}"),
};

const ASGI: Language = Language {
    file: "asgi.py",
    text: "import asyncio, random\nHEAD\nasync def app(scope, receive, send):\n    \
           if scope['type'] != 'http': return\n    BODY\n",
    answer: |status, body| {
        format!(
            "await send({{'type': 'http.response.start', 'status': {status}, \
             'headers': [(b'content-length', b'2')]}}); \
             await send({{'type': 'http.response.body', 'body': b'{body}'}}); return"
        )
    },
    raise: "raise RuntimeError('broken on purpose')",
    sleep: "await asyncio.sleep(0.3); ",
    toss: |one, other| format!("if random.random() < 0.5:\n        {one}\n    {other}"),
};

const NODE: Language = Language {
    file: "app.js",
    text: "HEAD\nrequire('http').createServer((request, response) => { BODY })\n\
           .listen(process.env.PORT, '127.0.0.1');\n",
    answer: |status, body| {
        format!("response.statusCode = {status}; return response.end('{body}');")
    },
    raise: "throw new Error('broken on purpose');",
    sleep: "return setTimeout(() => response.end('ok'), 300); ",
    toss: |one, other| format!("if (Math.random() < 0.5) {{ {one} }} {other}"),
};

const RACK: Language = Language {
    file: "config.ru",
    text: "HEAD\nrun proc { |env|\n  BODY\n}\n",
    answer: |status, body| format!("next [{status}, {{ 'content-length' => '2' }}, ['{body}']]"),
    raise: "raise 'broken on purpose'",
    sleep: "sleep 0.3; ",
    toss: |one, other| format!("if rand < 0.5 then {one} end\n  {other}"),
};

impl Language {
    fn write(&self, folder: &Path, head: &str, body: &str) {
        let text = self.text.replace("HEAD", head).replace("BODY", body);
        fs::write(folder.join(self.file), text).unwrap();
    }

    fn good(&self, body: &str) -> String {
        (self.answer)(200, body)
    }

    fn bad(&self) -> String {
        (self.answer)(500, "no")
    }
}

/// Deploy code that is broken in every way, and then code that is not.
fn survives(language: &Language, app: &str) {
    let folder = folder();
    language.write(&folder, "", &language.good("v1"));
    let text = format!(
        "[app.shop]\nroot = \"FOLDER\"\n{app}\nmin = 1\nmax = 1\n\
         trial = {{ answers = 20, time = \"1s\" }}\n"
    );
    let harness = Harness::new(&folder, &text);
    assert_eq!(harness.get("/").body, "v1");

    let good = language.good("v2");
    let slow = format!("{}{good}", language.sleep);
    let half = (language.toss)(&language.bad(), &good);
    let fails = "fails more often than the old one";
    let mut broken = vec![
        ("it does not parse", ")(", good.clone(), "is not used"),
        (
            "it fails as it is loaded",
            language.raise,
            good.clone(),
            "is not used",
        ),
        ("every request fails", "", language.bad(), fails),
        ("half of them fail", "", half, fails),
    ];
    if is_soak() {
        broken.push(("it is slow", "", slow, "is much slower than the old one"));
    }
    for (how, head, body, why) in broken {
        language.write(&folder, head, &body);
        let (all, bad) = asked(&harness, "GET", Duration::from_millis(5), || {
            let (code, said) = (harness.try_cli(&["restart", "shop", "--wait"])).unwrap_err();
            assert_eq!(code, Some(1), "{how}: {said}");
            assert!(said.contains(why), "{how}: {said}");
        });
        // The old code has no place left for some of what the new one failed.
        let most = if why.starts_with("fails") {
            SHOWN_MAX
        } else {
            0
        };
        assert!(bad <= most, "{how}, {bad} of {all}: {}", harness.log());
        assert_eq!(harness.get("/").body, "v1", "{how}");
    }
    language.write(&folder, "", &good);
    let (all, bad) = asked(&harness, "GET", Duration::from_millis(5), || {
        harness.cli(&["restart", "shop", "--wait"]);
    });
    assert_eq!(bad, 0, "of {all}: {}", harness.log());
    assert_eq!(harness.get("/").body, "v2");
    harness.end();
}

#[test]
fn gunicorn_survives_broken_code() {
    survives(
        &WSGI,
        "listen = \"socket\"\n\
         exec = [\"gunicorn\", \"--bind\", \"unix:{socket}\", \"--threads\", \"4\", \"wsgi:app\"]",
    );
}

#[test]
fn gunicorn_that_loads_first_survives_broken_code() {
    survives(
        &WSGI,
        "listen = \"socket\"\nexec = [\"gunicorn\", \"--preload\", \"--bind\", \
         \"unix:{socket}\", \"--threads\", \"4\", \"wsgi:app\"]",
    );
}

#[test]
fn uvicorn_survives_broken_code() {
    survives(
        &ASGI,
        "listen = \"socket\"\n\
         exec = [\"uvicorn\", \"--uds\", \"{socket}\", \"--no-access-log\", \"asgi:app\"]",
    );
}

#[test]
fn node_survives_broken_code() {
    survives(&NODE, "listen = \"port\"\nexec = [\"node\", \"app.js\"]");
}

#[test]
fn puma_survives_broken_code() {
    survives(
        &RACK,
        "listen = \"socket\"\nexec = [\"puma\", \"-b\", \"unix://{socket}\", \"-t\", \"4:4\", \
         \"-e\", \"production\", \"config.ru\"]",
    );
}
