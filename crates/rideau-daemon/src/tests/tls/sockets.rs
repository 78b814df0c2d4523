//! Sockets in the file system, where the system says which user comes.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use crate::Daemon;
use crate::serve::Listener;
use rideau_apps::IoThreads;
use rideau_config::Quota;
use rideau_config::{Config, Listen};
use tokio::net::UnixStream;

use crate::tests::tls::harness::{Folder, ask};

async fn start(folder: &Folder, uid: u32) -> Arc<Daemon> {
    let text = format!(
        "[user.ops]\nuids = [{uid}]\nallow = [\"@all\"]\n[lock.\"*\"]\n\
         [user.orders]\npassword_file = \"/nowhere\"\nallow = [\"@all\"]"
    );
    let config = Config::parse(&text, "test.toml", &|_| None);
    let daemon = Daemon::new(
        config.unwrap_or_else(|faults| panic!("{faults}")),
        crate::COMMAND_NAMES,
    )
    .unwrap();
    let listen = Listen::Unix(folder.0.join("s"));
    let listener = Listener::bind(&listen, 0o640).await.unwrap();
    let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
    tokio::spawn(listener.serve(Arc::clone(&daemon), io_threads));
    daemon
}

#[tokio::test]
async fn on_a_unix_socket_the_system_says_who_comes() {
    let folder = Folder::new();
    let about = std::fs::metadata(&folder.0).unwrap();
    let daemon = start(&folder, about.uid()).await;
    let mut stream = UnixStream::connect(folder.0.join("s")).await.unwrap();
    assert_eq!(ask(&mut stream, "LOCK a").await, "*5");
    assert_eq!(&*daemon.clients.all()[0].card.lock().user, "ops");
    let mode = std::fs::metadata(folder.0.join("s")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);
}

#[tokio::test]
async fn a_connection_that_begins_anew_is_still_one_of_its_user() {
    let folder = Folder::new();
    let about = std::fs::metadata(&folder.0).unwrap();
    let daemon = start(&folder, about.uid()).await;
    let mut stream = UnixStream::connect(folder.0.join("s")).await.unwrap();
    assert_eq!(ask(&mut stream, "PING").await, "+PONG");
    let count = || daemon.quotas.of("ops").now(Quota::Connections);
    assert_eq!(count(), 1);
    assert_eq!(ask(&mut stream, "RESET").await, "+RESET");
    assert_eq!(ask(&mut stream, "PING").await, "+PONG");
    assert_eq!(count(), 1);
}

#[tokio::test]
async fn a_user_whom_the_file_does_not_name_has_to_log_in() {
    let folder = Folder::new();
    let about = std::fs::metadata(&folder.0).unwrap();
    start(&folder, about.uid() + 1).await;
    let mut stream = UnixStream::connect(folder.0.join("s")).await.unwrap();
    let no = ask(&mut stream, "LOCK a").await;
    assert!(no.starts_with("-NOAUTH"), "{no}");
}

#[tokio::test]
async fn a_socket_that_a_killed_server_left_is_taken_over() {
    let folder = Folder::new();
    drop(std::os::unix::net::UnixListener::bind(folder.0.join("s")).unwrap());
    start(&folder, 0).await;
    let mut stream = UnixStream::connect(folder.0.join("s")).await.unwrap();
    assert_ne!(ask(&mut stream, "PING").await, "");
}
