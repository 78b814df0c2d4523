//! One request of each kind before it is measured: what a front answers must be
//! what is meant, to the last byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::app::{field, head_len};
use super::question::{Question, Wire};
use super::site::Site;
use super::{Contestant, h2load};

/// A request that is not answered by then never is.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// What an answer must have.
pub(super) struct Meant {
    /// A field and its value.
    pub(super) field: (&'static str, &'static str),
    /// The content, after all codings.
    pub(super) content: fn() -> Vec<u8>,
}

/// Asks once, and returns what is worth a line: the bytes of a compressed answer,
/// or what was agreed on for TLS.
///
/// # Panics
///
/// If the answer is another one.
pub(super) fn look(contestant: &Contestant, question: &Question, meant: &Meant) -> Option<String> {
    let name = contestant.name;
    if question.wire == Wire::Http2 {
        let url = contestant.url(question);
        return Some(h2load::look(&url, (meant.content)().len()));
    }
    let (bytes, said) = last_answer(contestant, question)
        .unwrap_or_else(|error| panic!("{name} does not answer: {error}"));
    let answer = Looked::read(&bytes);
    let is_meant = answer.as_ref().is_some_and(|answer| answer.is(meant));
    let head = head_len(&bytes).map_or(&bytes[..], |end| &bytes[..end]);
    let (len, head) = (bytes.len(), String::from_utf8_lossy(head));
    assert!(is_meant, "{name} answers {len} bytes, after {head}");
    match question.coding {
        Some(coding) => Some(format!("{len} bytes in {coding}")),
        None => said,
    }
}

/// Asks over a connection that ends with the answer, and returns all that came.
fn last_answer(
    contestant: &Contestant,
    question: &Question,
) -> io::Result<(Vec<u8>, Option<String>)> {
    let request = request(question);
    match (question.wire, &contestant.site) {
        (Wire::Tls, Some(site)) => {
            let stream = connect(site.within_tls)?;
            let tls = ClientConnection::new(Arc::new(trusting(site)), server_name());
            let mut stream = StreamOwned::new(tls.map_err(io::Error::other)?, stream);
            let answer = ask(&mut stream, &request)?;
            let suite = stream.conn.negotiated_cipher_suite();
            Ok((answer, suite.map(|suite| format!("{:?}", suite.suite()))))
        }
        _ => {
            let mut stream = connect(contestant.address)?;
            Ok((ask(&mut stream, &request)?, None))
        }
    }
}

fn request(question: &Question) -> Vec<u8> {
    let path = question.path;
    let mut head = match question.body {
        0 => format!("GET {path} HTTP/1.1\r\n"),
        len => format!("POST {path} HTTP/1.1\r\nContent-Length: {len}\r\n"),
    };
    if let Some(coding) = question.coding {
        head += &format!("Accept-Encoding: {coding}\r\n");
    }
    head += "Host: bench.example\r\nConnection: close\r\n\r\n";
    [head.into_bytes(), vec![b'a'; question.body]].concat()
}

fn connect(address: std::net::SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LOOK_MAX))?;
    Ok(stream)
}

fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // Not every server says within TLS that it closes; the content tells.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(answer),
        read => read.map(|_| answer),
    }
}

/// Trusts the certificate of a site alone.
fn trusting(site: &Site) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let added = roots.add(CertificateDer::from(site.cert().to_vec()));
    added.expect("the certificate was made for this");
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has what both versions need")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("it is a name")
}

/// An answer as it came.
#[derive(Debug, PartialEq)]
struct Looked<'a> {
    head: &'a [u8],
    content: Vec<u8>,
}

impl<'a> Looked<'a> {
    /// None if it makes no sense, or is not whole.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, body) = bytes.split_at(head_len(bytes)?);
        let body = match (
            field(head, "transfer-encoding"),
            field(head, "content-length"),
        ) {
            (Some("chunked"), None) => without_chunks(body)?,
            (None, Some(len)) if len.parse() == Ok(body.len()) => body.to_vec(),
            _ => return None,
        };
        let content = match field(head, "content-encoding") {
            None => body,
            Some("gzip") => {
                let mut content = Vec::new();
                GzDecoder::new(&body[..]).read_to_end(&mut content).ok()?;
                content
            }
            Some(_) => return None,
        };
        Some(Self { head, content })
    }

    fn is(&self, meant: &Meant) -> bool {
        let (name, value) = meant.field;
        self.head.starts_with(b"HTTP/1.1 200 ")
            && field(self.head, name) == Some(value)
            && self.content == (meant.content)()
    }
}

/// What was sent in chunks; none if their end did not come.
fn without_chunks(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let len = str::from_utf8(&bytes[..end]).ok()?;
        let len = usize::from_str_radix(len, 16).ok()?;
        bytes = &bytes[end + 2..];
        if len == 0 {
            return (bytes == b"\r\n").then_some(content);
        }
        content.extend_from_slice(bytes.get(..len)?);
        bytes = bytes.get(len..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: Meant = Meant {
        field: ("content-length", "3"),
        content: || b"ok\n".to_vec(),
    };

    fn is_word(answer: &str) -> bool {
        Looked::read(answer.as_bytes()).is_some_and(|answer| answer.is(&WORD))
    }

    #[test]
    fn an_answer_is_what_is_meant_to_its_last_byte() {
        assert!(is_word("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"));
        for other in [
            "HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nok\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Le",
        ] {
            assert!(!is_word(other), "{other}");
        }
    }

    #[test]
    fn chunks_are_put_together_if_their_end_came() {
        let chunks = b"2\r\nab\r\nA\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(
            without_chunks(chunks).as_deref(),
            Some(&b"ab0123456789"[..])
        );
        for len in 0..chunks.len() {
            assert_eq!(without_chunks(&chunks[..len]), None);
        }
    }
}
