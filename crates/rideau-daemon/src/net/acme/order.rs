//! One order: the authority is shown that a host is ours, and gives a certificate for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier,
    KeyAuthorization, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rideau_apps::{ACME_TLS, AcmeAnswer, AcmeAnswers};
use rideau_config::challenge_word;
use rideau_core::acme::{AcmeChallenge, OrderFailure};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::authority::{Authority, Trouble, is_unknown_account, on_disk, said};
use super::dns::DnsRecord;
use crate::net::acme_store::Store;
use crate::net::tls;

/// How often the authority is asked whether it is done, and for how long.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));
/// What the authority has to see, and its certificate, take no longer.
const WITHIN: Duration = Duration::from_secs(600);

/// What is ordered, and how.
pub(super) struct OrderRequest {
    pub(super) host: String,
    pub(super) challenge: AcmeChallenge,
    /// How the authority knows the certificate that this one replaces.
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
    pub(super) dns_command: Vec<String>,
}

/// What is shown to the authority until the order ends: it asks from several places.
enum ShownProof {
    Here { _answer: AcmeAnswer },
    InDns(DnsRecord),
}

impl OrderRequest {
    /// Order a certificate, and keep it.
    pub(super) async fn run(
        self,
        authority: &Authority,
        store: &Arc<Store>,
        answers: &AcmeAnswers,
    ) -> Result<(), Trouble> {
        let (cert, key) = self.order(authority, store, answers).await?;
        tls::check_pair(&cert, &key)
            .map_err(|error| Trouble::refused(format!("the authority's certificate: {error}")))?;
        on_disk(store, move |store| store.keep_pair(&self.host, &cert, &key)).await
    }

    /// The certificate and its key, PEM.
    async fn order(
        &self,
        authority: &Authority,
        store: &Arc<Store>,
        answers: &AcmeAnswers,
    ) -> Result<(String, String), Trouble> {
        let account = authority.account(store).await?;
        let mut order = match self.begin(&account).await {
            Ok(order) => order,
            Err(error) if is_unknown_account(&error) => {
                authority.forget_account(store).await?;
                let account = authority.account(store).await?;
                let order = self.begin(&account).await;
                order.map_err(|error| authority.trouble(error))?
            }
            Err(error) => return Err(authority.trouble(error)),
        };
        let mut shown = Vec::new();
        let work = async {
            self.prove(&mut order, authority, answers, &mut shown)
                .await?;
            self.finish(&mut order, authority).await
        };
        let late = || Err(Trouble::refused("the order was not finished within 10 min"));
        let finished = tokio::time::timeout(WITHIN, work).await;
        let finished = finished.unwrap_or_else(|_| late());
        for proof in shown {
            if let ShownProof::InDns(record) = proof
                && let Err(trouble) = record.clear(&self.dns_command).await
            {
                tracing::warn!("a record of DNS is left: {}", trouble.text);
            }
        }
        // It was ordered, so it counts, whatever failed.
        finished.map_err(|trouble| Trouble {
            failure: OrderFailure::Refused,
            ..trouble
        })
    }

    async fn begin(&self, account: &Account) -> Result<Order, instant_acme::Error> {
        let names = [Identifier::Dns(self.host.clone())];
        let plain = NewOrder::new(&names);
        let Some(replaces) = self.replaces.clone() else {
            return account.new_order(&plain).await;
        };
        let replacing = NewOrder::new(&names).replaces(replaces);
        match account.new_order(&replacing).await {
            // It has replaced that one already, or does not know it.
            Err(error) if !is_unknown_account(&error) => {
                tracing::debug!("an order that replaces a certificate: {error}");
                account.new_order(&plain).await
            }
            begun => begun,
        }
    }

    /// Show that the host is ours, and wait until the authority has seen it.
    async fn prove(
        &self,
        order: &mut Order,
        authority: &Authority,
        answers: &AcmeAnswers,
        shown: &mut Vec<ShownProof>,
    ) -> Result<(), Trouble> {
        let trouble = |error| authority.trouble(error);
        let kind = match self.challenge {
            AcmeChallenge::TlsAlpn => ChallengeType::TlsAlpn01,
            AcmeChallenge::Http => ChallengeType::Http01,
            AcmeChallenge::Dns => ChallengeType::Dns01,
        };
        let mut all = order.authorizations();
        while let Some(one) = all.next().await {
            let mut one = one.map_err(trouble)?;
            if one.status == AuthorizationStatus::Valid {
                continue;
            }
            let Some(mut challenge) = one.challenge(kind.clone()) else {
                let (wanted, host) = (challenge_word(self.challenge), &self.host);
                let text = format!("the authority does not take {wanted} for {host}");
                return Err(Trouble::refused(text));
            };
            let proof = challenge.key_authorization();
            let token = challenge.token.clone();
            shown.push(self.show(answers, &token, &proof).await?);
            challenge.set_ready().await.map_err(trouble)?;
        }
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => Ok(()),
            polled => Err(match self.why_not(order).await {
                Some(text) => Trouble::refused(text),
                None => match polled {
                    Err(error) => authority.trouble(error),
                    Ok(_) => Trouble::refused("the authority says no, and not why"),
                },
            }),
        }
    }

    async fn show(
        &self,
        answers: &AcmeAnswers,
        token: &str,
        proof: &KeyAuthorization,
    ) -> Result<ShownProof, Trouble> {
        let host = &self.host;
        let answer = match self.challenge {
            AcmeChallenge::Http => answers.show_text(host, token, proof.as_str()),
            AcmeChallenge::TlsAlpn => {
                let made = proof_certificate(host, Some(proof.digest().as_ref()));
                let (config, _) = made.map_err(Trouble::unreached)?;
                answers.show_certificate(host, config)
            }
            AcmeChallenge::Dns => {
                let record = DnsRecord::set(&self.dns_command, host, proof.dns_value());
                return Ok(ShownProof::InDns(record.await?));
            }
        };
        Ok(ShownProof::Here { _answer: answer })
    }

    /// What the authority found wrong.
    async fn why_not(&self, order: &mut Order) -> Option<String> {
        let mut all = order.authorizations();
        while let Some(one) = all.next().await {
            let mut one = one.ok()?;
            let state = one.refresh().await.ok()?;
            let problem = state.challenges.iter().find_map(|one| one.error.as_ref());
            if let Some(problem) = problem {
                let (by, said) = (challenge_word(self.challenge), said(problem));
                return Some(format!("the authority looked by {by}, and says: {said}"));
            }
        }
        None
    }

    /// Have the certificate signed.
    async fn finish(
        &self,
        order: &mut Order,
        authority: &Authority,
    ) -> Result<(String, String), Trouble> {
        let trouble = |error| authority.trouble(error);
        let (request, key) = signing_request(&self.host).map_err(Trouble::unreached)?;
        order.finalize_csr(&request).await.map_err(trouble)?;
        let cert = order.poll_certificate(&PATIENCE).await.map_err(trouble)?;
        Ok((cert, key))
    }
}

/// A new key, PEM, and the request to sign it for a host.
fn signing_request(host: &str) -> Result<(Vec<u8>, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}

/// A certificate of our own for a host, and how it is shown. It proves to an authority that the
/// host is ours if it has the digest that is wanted.
pub(super) fn proof_certificate(
    host: &str,
    digest: Option<&[u8]>,
) -> io::Result<(Arc<ServerConfig>, CertificateDer<'static>)> {
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        let extension = digest.map(CustomExtension::new_acme_identifier);
        params.custom_extensions.extend(extension);
        let certificate = params.self_signed(&key)?;
        Ok::<_, rcgen::Error>((certificate.der().clone(), key.serialize_der()))
    };
    let (certificate, key) = make().map_err(io::Error::other)?;
    let provider = Arc::new(ring::default_provider());
    let key = key.try_into().map_err(io::Error::other)?;
    let key = provider.key_provider.load_private_key(key);
    let key = CertifiedKey::new(vec![certificate.clone()], key.map_err(io::Error::other)?);
    // Whether both belong together is not checked: the extension is critical, and known to
    // authorities alone.
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    Ok((Arc::new(config), certificate))
}
