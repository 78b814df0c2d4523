//! Python, Node and Go with what the libraries need, and the code of pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rideau_testing::command;

const PYTHON: [&str; 3] = ["redis==8.1.0", "pytest==9.2.0", "mypy==2.4.1"];
const NODE: [&str; 3] = ["redis@6.3.1", "typescript@7", "@types/node@20"];

/// Run something that has to succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{wrong}");
    said
}

/// The folder of the libraries.
pub(crate) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// A folder of this name, which stays for the next time.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A Python with the packages that the library needs.
pub(crate) fn python_home() -> &'static Path {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    HOME.get_or_init(|| {
        let home = scratch("python");
        let done = home.join(PYTHON.join(" "));
        if !done.exists() {
            run(command("python3").args(["-m", "venv"]).arg(&home));
            let mut pip = command(home.join("bin/python"));
            run(pip.args(["-m", "pip", "install", "-q"]).args(PYTHON));
            fs::write(done, "").unwrap();
        }
        home
    })
}

/// A Python that finds the library, in its folder.
pub(crate) fn python() -> Command {
    let mut python = command(python_home().join("bin/python"));
    python.current_dir(clients().join("python"));
    python
        .env("PYTHONPATH", ".")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("PYTEST_ADDOPTS", "-p no:cacheprovider");
    with_program(python)
}

/// A copy of the library for Node, beside the packages that it needs.
pub(crate) fn node_home() -> &'static Path {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    HOME.get_or_init(|| {
        let folder = scratch("node");
        let done = folder.join(NODE.join(" ").replace('/', "-"));
        if !done.exists() {
            let mut npm = command("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--prefix"]);
            run(npm.arg(&folder).args(NODE));
            fs::write(done, "").unwrap();
        }
        let home = folder.join("rideau");
        let _ = fs::remove_dir_all(&home);
        run(command("cp")
            .arg("-r")
            .arg(clients().join("node"))
            .arg(&home));
        home
    })
}

/// A Node that finds the library, in that folder.
pub(crate) fn node() -> Command {
    let mut node = command("node");
    node.current_dir(node_home());
    with_program(node)
}

/// Go in the folder of the library.
pub(crate) fn go() -> Command {
    let mut go = command("go");
    go.current_dir(clients().join("go"));
    go.env("GOCACHE", scratch("go-cache"))
        .env("GOFLAGS", "-mod=mod");
    with_program(go)
}

/// Go in the folder of a program of this text, which imports the library.
pub(crate) fn go_program(name: &str, text: &str) -> Command {
    let folder = scratch(name);
    fs::write(folder.join("main.go"), text).unwrap();
    let library = clients().join("go");
    let module = format!(
        "module page\n\ngo 1.19\n\nrequire rideau v0.1.0\n\nreplace rideau => {}\n",
        library.display()
    );
    fs::write(folder.join("go.mod"), module).unwrap();
    let mut go = go();
    go.current_dir(folder);
    go
}

fn with_program(mut command: Command) -> Command {
    command.env("RIDEAU_PROGRAM", env!("CARGO_BIN_EXE_rideau"));
    command
}

/// The blocks of code of a language.
pub(crate) fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let fence = format!("```{language}\n");
    let found: Vec<_> = page.split(&*fence).skip(1).collect();
    assert!(!found.is_empty(), "there is no code in {language}");
    let texts = found.into_iter().map(|text| text.split_once("```"));
    texts.map(|found| found.unwrap().0)
}
