//! Looks whether the front is found by a name, as an authority would look: an order for a
//! host that leads elsewhere only uses up what the authority allows.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::{ACME_TLS, AcmeAnswers};
use rideau_core::acme::AcmeChallenge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
};

use super::order::proof_certificate;

const WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX: u64 = 16 << 10;

/// The ports that an authority asks at.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) tls: u16,
}

impl Ports {
    pub(super) const USUAL: Self = Self { http: 80, tls: 443 };
}

/// Whether what we show for a host is what is seen by its name; else why not, and what to do.
pub(super) async fn look(
    answers: &AcmeAnswers,
    host: &str,
    challenge: AcmeChallenge,
    ports: Ports,
) -> Result<(), String> {
    let port = match challenge {
        AcmeChallenge::TlsAlpn => ports.tls,
        AcmeChallenge::Http => ports.http,
        AcmeChallenge::Dns => return Ok(()),
    };
    let looked = async {
        match challenge {
            AcmeChallenge::TlsAlpn => look_in_tls(answers, host, port).await,
            _ => look_by_http(answers, host, port).await,
        }
    };
    let looked = tokio::time::timeout(WITHIN, looked).await;
    let late = || {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer within 10 s",
        ))
    };
    looked.unwrap_or_else(|_| late()).map_err(|error| {
        format!(
            "this server does not find itself at {host}, port {port}: {error}. DNS has to lead \
             {host} to this server, and port {port} to its front. If clients reach it and it \
             does not reach itself, write self_check = false"
        )
    })
}

fn random() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("the system has random bits");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn look_by_http(answers: &AcmeAnswers, host: &str, port: u16) -> io::Result<()> {
    let (token, text) = (random(), random());
    let _shown = answers.show_text(host, &token, &text);
    let mut stream = TcpStream::connect((host, port)).await?;
    let request = format!(
        "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {host}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    match body {
        Some(body) if body == text => Ok(()),
        _ => {
            let first = answer.lines().next().unwrap_or_default();
            let first = rideau_config::human::shown(first);
            let text = format!("another server answered there: {first:?}");
            Err(io::Error::other(text))
        }
    }
}

async fn look_in_tls(answers: &AcmeAnswers, host: &str, port: u16) -> io::Result<()> {
    let (config, expected) = proof_certificate(host, None)?;
    let _shown = answers.show_certificate(host, config);
    let provider = Arc::new(ring::default_provider());
    let seen = OnlyThis {
        expected,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(seen))
        .with_no_client_auth();
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, port)).await?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    Ok(())
}

/// Believes one certificate: the one that was made for this look.
#[derive(Debug)]
struct OnlyThis {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OnlyThis {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *end_entity == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Daemon;
    use rideau_apps::{FrontListener, Tls};
    use rideau_config::Config;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn a_front_finds_itself_and_no_other_server() {
        let config = Config::parse("[front]\ndeny = \"0.0.0.0/0\"", "a.toml", &|_| None);
        let config = config.unwrap_or_else(|faults| panic!("{faults}"));
        let daemon = Daemon::new(config, crate::COMMAND_NAMES).unwrap();
        let other = Daemon::new(Config::default(), crate::COMMAND_NAMES).unwrap();
        let mut listener = FrontListener::default();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let http = listener.listen(any, None).await.unwrap().port();
        let tls = Tls::new(Vec::new());
        let tls = listener.listen(any, Some(tls)).await.unwrap().port();
        tokio::spawn(listener.serve(Arc::clone(&daemon.front)));
        let ports = Ports { http, tls };
        for challenge in [AcmeChallenge::Http, AcmeChallenge::TlsAlpn] {
            let own = daemon.front.acme_answers();
            let found = look(own, "localhost", challenge, ports).await;
            assert_eq!(found, Ok(()), "{challenge:?}");
            // What another server shows is not seen here.
            let answers = other.front.acme_answers();
            let lost = look(answers, "localhost", challenge, ports)
                .await
                .unwrap_err();
            assert!(lost.contains("does not find itself at localhost"), "{lost}");
        }
        daemon.front.finish();
    }
}
