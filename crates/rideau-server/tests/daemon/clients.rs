//! Clients that people have already: redis-py, node-redis, ioredis and the Rust crate.
//!
//! What the scripts need is installed once, in the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Connection, PushInfo, PushKind, RedisResult, cmd};
use rideau_testing::command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::server::{PATIENCE, Server};

const REDIS_PY: &str = "redis==8.1.0";
const VALKEY_PY: &str = "valkey==6.2.0";
pub(crate) const NODE_REDIS: &str = "redis@6.3.1";
pub(crate) const IOREDIS: &str = "ioredis@6.0.0";

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

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/daemon")
        .join(name)
}

/// A Python with redis-py, made by the first test that needs it.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(make_python)
}

fn make_python() -> PathBuf {
    let home = folder().join("python");
    let python = home.join("bin/python");
    if !has_module(&python, "redis") {
        run(command("python3").args(["-m", "venv"]).arg(&home));
        run(command(&python).args(["-m", "pip", "install", "-q", REDIS_PY]));
    }
    python
}

/// The same with valkey-py as well.
pub(crate) fn python_of_valkey() -> &'static Path {
    static PYTHON: OnceLock<&'static Path> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let python = python();
        if !has_module(python, "valkey") {
            run(command(python).args(["-m", "pip", "install", "-q", VALKEY_PY]));
        }
        python
    })
}

fn has_module(python: &Path, module: &str) -> bool {
    let mut command = command(python);
    command.arg("-c").arg(format!("import {module}"));
    command.output().is_ok_and(|output| output.status.success())
}

/// A folder with this package of Node.
pub(crate) fn node(package: &str) -> PathBuf {
    // One test installs a package, and the others wait for it.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, _) = package.split_once('@').unwrap();
    let home = folder().join(format!("node-{name}"));
    if !home.join("node_modules").join(name).exists() {
        std::fs::create_dir_all(&home).unwrap();
        let mut npm = command("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]);
        run(npm.arg(&home).arg(package));
    }
    home
}

#[test]
fn redis_py_works_on_both_protocols_alone_and_pooled() {
    let server = Server::start();
    let mut command = command(python());
    let said = run(command.arg(script("client.py")).arg(server.port()));
    assert_eq!(said, "all is well\n");
    server.until_alone();
}

#[test]
fn node_redis_works_on_both_protocols() {
    run_node("client.mjs", NODE_REDIS);
}

#[test]
fn ioredis_works_on_both_protocols() {
    run_node("ioredis.mjs", IOREDIS);
}

#[track_caller]
fn run_node(name: &str, package: &str) {
    let server = Server::start();
    let mut command = command("node");
    let command = command.arg(script(name)).arg(node(package));
    assert_eq!(run(command.arg(server.port())), "all is well\n");
    server.until_alone();
}

/// The examples of the page about the server, as a reader would type them.
#[test]
fn the_first_session_can_be_typed_in_every_client() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/daemon.md");
    let page = std::fs::read_to_string(page).unwrap();
    let server = Server::start();
    let examples = |language: &str| -> Vec<String> {
        let fence = format!("```{language}\n");
        let parts = page.split(fence.as_str()).skip(1);
        let text = parts.map(|part| part.split("```").next().unwrap());
        text.map(|text| text.replace("7433", &server.port()))
            .collect()
    };
    let (python_ones, node_ones) = (examples("python"), examples("js"));
    assert_eq!((python_ones.len(), node_ones.len()), (1, 2));
    for text in python_ones {
        assert_eq!(run(command(python()).args(["-c", &text])), "go 1 3\nOK\n");
    }
    for text in node_ones {
        let package = match text.contains("from 'redis'") {
            true => NODE_REDIS,
            false => IOREDIS,
        };
        let mut command = command("node");
        command.args(["--input-type=module", "-e", &text]);
        assert_eq!(run(command.current_dir(node(package))), "go 1 3\nOK\n");
    }
    server.until_alone();
}

fn client(server: &Server, protocol: u8) -> Client {
    let address = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port());
    Client::open(address).unwrap()
}

fn ask<T: redis::FromRedisValue>(connection: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query(connection)
}

#[test]
fn the_rust_crate_works_on_both_protocols() {
    let server = Server::start();
    for protocol in [2, 3] {
        let client = client(&server, protocol);
        let mut one = client.get_connection().unwrap();
        let mut other = client.get_connection().unwrap();
        let taken: (String, String, String, i64) = ask(&mut one, "TAKE one").unwrap();
        assert_eq!((taken.0.as_str(), taken.2.as_str()), ("go", "m1"));
        let no: (String, i64, String, String, Option<i64>, String) =
            ask(&mut other, "TAKE one WAIT 0").unwrap();
        assert_eq!((no.0.as_str(), no.3.as_str()), ("timeout", "deadline"));
        assert!(no.5.starts_with("d-"), "{no:?}");
        let stat: std::collections::HashMap<String, i64> =
            ask(&mut other, "POOL.STAT one").unwrap();
        assert_eq!(stat["held"], 1);
        let wrong = ask::<()>(&mut other, "LOK key").unwrap_err();
        assert!(wrong.to_string().contains("did you mean LOCK?"), "{wrong}");
        // It dies, and the next has it.
        drop(one);
        let next: (String, String, String, i64) = ask(&mut other, "TAKE one WAIT 20000").unwrap();
        assert_eq!(next.0, "go");
        let list: String = ask(&mut other, "CLIENT LIST").unwrap();
        assert!(list.contains("lib-name=redis-rs"), "{list}");
        assert_eq!(ask::<String>(&mut other, "QUIT").unwrap(), "OK");
    }
    server.until_alone();
}

async fn multiplexed(server: &Server) -> (MultiplexedConnection, UnboundedReceiver<PushInfo>) {
    let (sender, receiver) = unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_push_sender(sender)
        // The crate's own half second is shorter than most waits.
        .set_response_timeout(Some(PATIENCE));
    let client = client(server, 3);
    let connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    (connection.unwrap(), receiver)
}

async fn query(connection: &mut MultiplexedConnection, line: &str) -> Vec<redis::Value> {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    let answer: redis::Value = command.query_async(connection).await.unwrap();
    redis::from_redis_value(answer).unwrap()
}

fn text(value: &redis::Value) -> String {
    redis::from_redis_value(value.clone()).unwrap()
}

#[tokio::test]
async fn the_rust_crate_sees_pushes() {
    let server = Server::start();
    let (mut holder, _) = multiplexed(&server).await;
    let (mut next, mut pushes) = multiplexed(&server).await;
    let held = text(&query(&mut holder, "TAKE one").await[1]);
    let later = query(&mut next, "TAKE one ASYNC WAIT 20000").await;
    assert_eq!(text(&later[0]), "await");
    let mut release = cmd("RELEASE");
    let _: String = release.arg(held).query_async(&mut holder).await.unwrap();
    let push = tokio::time::timeout(PATIENCE, pushes.recv()).await;
    let push = push.unwrap().unwrap();
    assert_eq!(push.kind, PushKind::Other("rideau:go".into()));
    assert_eq!(text(&push.data[0]), text(&later[1]));
    assert_eq!(text(&push.data[1]), "m1");
    // A wait holds the others of the same connection up, and all are answered.
    let mut waits = next.clone();
    let wait = tokio::spawn(async move { query(&mut waits, "TAKE one WAIT 1200").await });
    let push = tokio::time::timeout(PATIENCE, pushes.recv()).await;
    assert_eq!(
        push.unwrap().unwrap().kind,
        PushKind::Other("rideau:waiting".into())
    );
    let echo: String = cmd("ECHO")
        .arg("behind")
        .query_async(&mut next)
        .await
        .unwrap();
    assert_eq!(echo, "behind");
    assert_eq!(text(&wait.await.unwrap()[0]), "timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_crates_own_timeout_does_not_take_twice() {
    let server = Server::start();
    let mut holder = client(&server, 2).get_connection().unwrap();
    let held: (String, String, String, i64) = ask(&mut holder, "TAKE one").unwrap();
    let config = AsyncConnectionConfig::new();
    let config = config.set_response_timeout(Some(Duration::from_millis(100)));
    let hasty = client(&server, 3);
    let hasty = hasty
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    let mut hasty = hasty.unwrap();
    let mut take = cmd("TAKE");
    take.arg(&["one", "WAIT", "20000", "ID", "mine"]);
    let late: RedisResult<redis::Value> = take.query_async(&mut hasty).await;
    assert!(late.unwrap_err().is_timeout());
    drop(hasty);
    let _: String = ask(&mut holder, &format!("RELEASE {}", held.1)).unwrap();
    let again: (String, String, String, i64) = ask(&mut holder, "TAKE one WAIT 20000").unwrap();
    assert_eq!(again.0, "go");
}
