//! Users and certificates.

use std::fs;
use std::time::Duration;

use rideau::store::etcd::{
    EtcdClient, EtcdLogin, EtcdOptions, EtcdRefusal, EtcdTls, KeptAlive, KeyRange, Txn, TxnOp,
    Watched,
};
use rideau_testing::certificates::{papers, signer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, until};
use crate::{put, read, soon};

fn login(server: &Server, user: &str, password: &str) -> EtcdOptions {
    let mut options = server.options();
    options.login = Some(EtcdLogin {
        user: user.to_owned(),
        password: password.to_owned(),
    });
    options
}

/// Asks etcd over HTTP for what the client has no call for.
async fn post(server: &Server, path: &str, body: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let length = body.len();
    let request = format!(
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
}

#[tokio::test]
async fn a_user_and_its_password_are_asked_for() {
    let mut server = Server::start().await;
    // Without users a login is not needed, and does no harm.
    let early = EtcdClient::connect(login(&server, "root", "secret")).await;
    put(&early.unwrap(), "early", "").await;
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"secret"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        post(&server, path, body).await;
    }
    let nobody = server.client().await;
    let write = Txn::new().then(TxnOp::put("early", "changed"));
    let error = nobody.txn(write).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Auth), "{error}");
    let mut watch = nobody.watch(KeyRange::key("early"), 1);
    let error = soon(watch.next()).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Auth), "{error}");
    let error = EtcdClient::connect(login(&server, "root", "wrong")).await;
    let error = error.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Auth), "{error}");

    let client = EtcdClient::connect(login(&server, "root", "secret")).await;
    let client = client.unwrap();
    let revision = put(&client, "secret/a", "1").await.revision;
    assert!(read(&client, "secret/a").await.is_some());
    let mut watch = client.watch(KeyRange::prefix("secret/"), revision);
    assert!(matches!(
        soon(watch.next()).await,
        Ok(Watched::Changed { .. })
    ));
    let lease = client.grant_lease(Duration::from_secs(5)).await.unwrap();
    let mut keeper = client.keep_lease(lease.id, Duration::from_secs(5));
    assert_eq!(
        keeper.keep_alive().await.unwrap(),
        KeptAlive::Kept(lease.ttl)
    );

    // etcd forgets the token, and the client logs in again.
    server.kill();
    server.start_again().await;
    let second = put(&client, "secret/a", "2").await.revision;
    until("the watch goes on", async || {
        match soon(watch.next()).await {
            Ok(Watched::Changed { revision, .. }) => revision == second,
            Ok(_) | Err(_) => false,
        }
    })
    .await;
}

#[tokio::test]
async fn certificates_prove_both_sides() {
    let authority = signer("authority");
    let (member, client) = (papers("member", &authority), papers("client", &authority));
    let server = Server::start_secret(|folder| {
        let path = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let options = [
            ("--trusted-ca-file", path("authority.pem", authority.pem())),
            ("--cert-file", path("member.pem", member.certificate())),
            ("--key-file", path("member.key", member.key())),
        ];
        let options = options
            .into_iter()
            .flat_map(|(name, file)| [name.to_owned(), file]);
        options.chain(["--client-cert-auth".to_owned()]).collect()
    });
    let mut options = server.options();
    let tls = EtcdTls {
        authority: authority.pem().into_bytes(),
        identity: Some((client.certificate().into_bytes(), client.key().into_bytes())),
        server_name: None,
    };
    options.tls = Some(tls.clone());
    until("etcd serves", async || {
        match EtcdClient::connect(options.clone()).await {
            Ok(client) => {
                put(&client, "secret", "").await;
                true
            }
            Err(error) => {
                assert_eq!(error.refusal(), Some(EtcdRefusal::Unreachable), "{error}");
                false
            }
        }
    })
    .await;

    let (mut other, mut unnamed) = (tls.clone(), tls);
    other.authority = signer("other").pem().into_bytes();
    unnamed.identity = None;
    for wrong in [other, unnamed] {
        options.tls = Some(wrong);
        let error = EtcdClient::connect(options.clone()).await.unwrap_err();
        assert_eq!(error.refusal(), Some(EtcdRefusal::Unreachable), "{error}");
    }
}
