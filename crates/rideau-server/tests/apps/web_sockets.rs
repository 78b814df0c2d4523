//! WebSockets over HTTP/2, between a client and an application that were written elsewhere.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use rideau_testing::{Start, command};

use crate::harness::{Harness, folder, until};

/// Sends back what it gets, but at `/no`.
const ASGI: &str = "\
async def app(scope, receive, send):
    if scope['type'] == 'http':
        await send({'type': 'http.response.start', 'status': 200,
                    'headers': [(b'content-length', b'2')]})
        await send({'type': 'http.response.body', 'body': b'ok'})
    if scope['type'] != 'websocket':
        return
    await receive()
    if scope['path'] == '/no':
        return await send({'type': 'websocket.close'})
    await send({'type': 'websocket.accept', 'subprotocol': scope['subprotocols'][0]})
    while (said := await receive())['type'] == 'websocket.receive':
        text, data = said.get('text'), said.get('bytes')
        await send({'type': 'websocket.send', 'text': text, 'bytes': data})
";

#[test]
fn web_sockets_of_http2_reach_an_application_that_knows_none() {
    let folder = folder();
    fs::write(folder.join("asgi.py"), ASGI).unwrap();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nroot = \"FOLDER\"\nlisten = \"socket\"\nconcurrency = 2\n\
         stop_timeout = \"1s\"\n\
         exec = [\"uvicorn\", \"--ws\", \"wsproto\", \"--uds\", \"{socket}\", \"asgi:app\"]\n",
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/web_socket.mjs");
    let mut client = command("node")
        .arg(script)
        .arg(format!("http://{}", harness.front))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .start();
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "open");
    let counts = || {
        let rows = harness.cli(&["--json", "status", "apps"]);
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        let number = |name: &str| rows[0][name].as_u64().unwrap();
        (number("streams"), number("sessions"))
    };
    until("five of them take no place", || counts() == (5, 5));
    client.stdin.take().unwrap().write_all(b"close\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "closed");
    assert!(client.wait().unwrap().success());
    until("their places are free", || counts() == (0, 0));
    harness.end();
}
