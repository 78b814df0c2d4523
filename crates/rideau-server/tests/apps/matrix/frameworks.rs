//! The frameworks, and how their applications are run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rideau_testing::command;

/// A framework with a server for it.
pub(super) struct Framework {
    pub(super) name: &'static str,
    /// The file of the application, and all of its text: `HEAD` stands where code begins to
    /// run, `@VERSION` for what it answers and `@MODE` for how it is broken.
    file: &'static str,
    text: &'static str,
    /// How it is run.
    pub(super) keys: &'static str,
    /// A statement that fails as the code is loaded; empty if the mode `raises` does that.
    pub(super) raise: &'static str,
    /// Code that cannot be loaded fails in its requests, and not when it starts.
    pub(super) loads_late: bool,
    pub(super) has_websocket: bool,
    /// The programs and files that it needs.
    needs: &'static [&'static str],
    /// The package of Node that it needs.
    package: Option<&'static str>,
}

/// One version of the code.
#[derive(Clone, Copy)]
pub(super) struct Code<'a> {
    pub(super) version: &'a str,
    pub(super) head: &'a str,
    pub(super) mode: &'a str,
}

const NONE: Framework = Framework {
    name: "",
    file: "",
    text: "",
    keys: "",
    raise: "",
    loads_late: false,
    has_websocket: false,
    needs: &[],
    package: None,
};

pub(super) const FLASK: Framework = Framework {
    name: "Flask in gunicorn",
    file: "wsgi.py",
    text: include_str!("programs/flask.py"),
    keys: "listen = \"socket\"\nexec = [\"gunicorn\", \"--bind\", \"unix:{socket}\", \
           \"--workers\", \"2\", \"--threads\", \"8\", \"wsgi:app\"]",
    raise: "raise RuntimeError('broken on purpose')",
    needs: &["gunicorn", "/usr/lib/python3/dist-packages/flask"],
    ..NONE
};

pub(super) const FLASK_PRELOAD: Framework = Framework {
    name: "Flask in gunicorn that loads first",
    keys: "listen = \"socket\"\nexec = [\"gunicorn\", \"--preload\", \"--bind\", \
           \"unix:{socket}\", \"--workers\", \"2\", \"--threads\", \"8\", \"wsgi:app\"]",
    ..FLASK
};

pub(super) const DJANGO: Framework = Framework {
    name: "Django in gunicorn",
    text: include_str!("programs/django.py"),
    keys: "listen = \"socket\"\nexec = [\"gunicorn\", \"--bind\", \"unix:{socket}\", \
           \"--threads\", \"16\", \"wsgi:app\"]",
    needs: &["gunicorn", "/usr/lib/python3/dist-packages/django"],
    ..FLASK
};

pub(super) const FASTAPI: Framework = Framework {
    name: "FastAPI in uvicorn",
    file: "asgi.py",
    text: include_str!("programs/fastapi.py"),
    keys: "listen = \"socket\"\nexec = [\"uvicorn\", \"--uds\", \"{socket}\", \
           \"--no-access-log\", \"asgi:app\"]",
    raise: "raise RuntimeError('broken on purpose')",
    has_websocket: true,
    needs: &[
        "uvicorn",
        "/usr/lib/python3/dist-packages/fastapi",
        "/usr/lib/python3/dist-packages/websockets",
    ],
    ..NONE
};

pub(super) const EXPRESS: Framework = Framework {
    name: "Express",
    file: "app.js",
    text: include_str!("programs/express.js"),
    keys: "exec = [\"node\", \"app.js\"]",
    raise: "throw new Error('broken on purpose');",
    needs: &["node", "npm"],
    package: Some("express@5.1.0"),
    ..NONE
};

pub(super) const FASTIFY: Framework = Framework {
    name: "Fastify",
    text: include_str!("programs/fastify.js"),
    package: Some("fastify@5.4.0"),
    ..EXPRESS
};

pub(super) const SINATRA: Framework = Framework {
    name: "Sinatra in puma",
    file: "config.ru",
    text: include_str!("programs/sinatra.ru"),
    keys: "listen = \"socket\"\nexec = [\"puma\", \"-b\", \"unix://{socket}\", \
           \"-t\", \"16:16\", \"-e\", \"production\", \"config.ru\"]",
    raise: "raise 'broken on purpose'",
    needs: &["puma", "/usr/share/doc/ruby-sinatra"],
    ..NONE
};

pub(super) const SINATRA_WORKERS: Framework = Framework {
    name: "Sinatra in puma with two workers",
    keys: "listen = \"socket\"\nexec = [\"puma\", \"-w\", \"2\", \"-b\", \"unix://{socket}\", \
           \"-t\", \"8:8\", \"-e\", \"production\", \"config.ru\"]",
    ..SINATRA
};

pub(super) const PHP: Framework = Framework {
    name: "PHP in its own server",
    file: "router.php",
    text: include_str!("programs/router.php"),
    keys: "listen = \"port\"\nenv = { PHP_CLI_SERVER_WORKERS = \"20\" }\n\
           exec = [\"php\", \"-d\", \"memory_limit=-1\", \"-d\", \"post_max_size=0\", \
           \"-d\", \"display_errors=0\", \"-S\", \"127.0.0.1:{port}\", \"router.php\"]",
    raise: "throw new Exception('broken on purpose');",
    loads_late: true,
    needs: &["php"],
    ..NONE
};

pub(super) const GO: Framework = Framework {
    name: "a program in Go",
    file: "main.go",
    text: include_str!("programs/main.go"),
    keys: "listen = \"port\"\nenv = { GOCACHE = \"GO_CACHE\" }\n\
           exec = [\"sh\", \"-c\", \"go build -o server-$PORT main.go && exec ./server-$PORT\"]",
    needs: &["go"],
    ..NONE
};

pub(super) const JAVA: Framework = Framework {
    name: "a program in Java",
    file: "Main.java",
    text: include_str!("programs/Main.java"),
    keys: "listen = \"port\"\nexec = [\"java\", \"-Xmx256m\", \"-XX:TieredStopAtLevel=1\", \
           \"Main.java\"]",
    needs: &["java", "javac"],
    ..NONE
};

impl<'a> Code<'a> {
    /// Code that does what it should.
    pub(super) const fn good(version: &'a str) -> Self {
        Self {
            version,
            head: "",
            mode: "good",
        }
    }
}

impl Framework {
    /// What it needs and is not there.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let path = std::env::var("PATH").unwrap_or_default();
        let is_there = |need: &str| match need.starts_with('/') {
            true => Path::new(need).exists(),
            false => path.split(':').any(|at| Path::new(at).join(need).exists()),
        };
        self.needs.iter().copied().find(|need| !is_there(need))
    }

    /// Write a version of the code.
    pub(super) fn write(&self, folder: &Path, code: Code<'_>) {
        let text = self.text.replace("HEAD", code.head);
        let text = text.replace("@VERSION", code.version);
        let text = text.replace("@MODE", code.mode);
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(self.file), text).unwrap();
    }

    /// How it is run here.
    pub(super) fn keys(&self) -> String {
        let home = self.package.map(node);
        let mut keys = self.keys.to_owned();
        if let Some(home) = home {
            let modules = home.join("node_modules");
            keys += &format!("\nenv = {{ NODE_PATH = \"{}\" }}", modules.display());
        }
        keys.replace("GO_CACHE", &tools().join("go").display().to_string())
    }

    /// Do once what would take a start long.
    pub(super) fn prepare(&self, folder: &Path) {
        if self.needs.contains(&"go") {
            let mut go = command("go");
            go.args(["build", "-o", "/dev/null", "main.go"]);
            run(go.env("GOCACHE", tools().join("go")).current_dir(folder));
        }
    }
}

/// Where packages are installed, and what is compiled is kept.
fn tools() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("frameworks");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder with this package of Node.
fn node(package: &str) -> PathBuf {
    // One test installs a package, and the others wait for it.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, _) = package.split_once('@').unwrap();
    let home = tools().join(format!("node-{name}"));
    if !home.join("node_modules").join(name).exists() {
        std::fs::create_dir_all(&home).unwrap();
        let mut npm = command("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]);
        run(npm.arg(&home).arg(package));
    }
    home
}

/// Run something that has to succeed.
fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
}
