//! Speaks with an authority: HTTP within TLS, and our account there.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{
    Account, AccountCredentials, BodyWrapper, BytesResponse, CertificateIdentifier, HttpClient,
    NewAccount,
};
use parking_lot::Mutex;
use rideau_config::AcmeConfig;
use rideau_core::acme::OrderFailure;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::net::acme_store::{Store, StoredAccount};
use crate::net::tls::{self, TlsIdentity};

/// An answer takes no longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// And is no longer: a chain of certificates is a few kilobytes.
const ANSWER_MAX: usize = 1 << 20;
const HTTPS: u16 = 443;
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// An authority and our account there.
pub(super) struct Authority {
    url: String,
    contact: Option<String>,
    http: AuthorityHttp,
    account: tokio::sync::Mutex<Option<Account>>,
}

/// Why something came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trouble {
    pub(super) failure: OrderFailure,
    /// The authority said to come again after that.
    pub(super) retry_after: Option<Duration>,
    pub(super) text: String,
}

/// The HTTP of an authority.
#[derive(Clone)]
struct AuthorityHttp {
    connector: TlsConnector,
    /// What it said last of when to come again.
    later: Arc<Mutex<Option<Duration>>>,
}

impl Trouble {
    /// Nothing was ordered.
    pub(super) fn unreached(text: impl fmt::Display) -> Self {
        Self {
            failure: OrderFailure::Unreached,
            retry_after: None,
            text: text.to_string(),
        }
    }

    /// The order failed.
    pub(super) fn refused(text: impl fmt::Display) -> Self {
        Self {
            failure: OrderFailure::Refused,
            ..Self::unreached(text)
        }
    }
}

impl Authority {
    /// None is asked yet.
    ///
    /// # Errors
    ///
    /// If its signers cannot be read.
    pub(super) fn new(acme: &AcmeConfig) -> io::Result<Self> {
        let connector = tls::connector(&TlsIdentity {
            ca: acme.ca.clone(),
            own: None,
        })?;
        Ok(Self {
            url: acme.directory.url().into(),
            contact: acme.contact.as_ref().map(|address| address.url()),
            http: AuthorityHttp {
                connector,
                later: Arc::default(),
            },
            account: tokio::sync::Mutex::new(None),
        })
    }

    /// Our account: as it is stored, or a new one.
    pub(super) async fn account(&self, store: &Arc<Store>) -> Result<Account, Trouble> {
        let mut known = self.account.lock().await;
        if let Some(account) = &*known {
            return Ok(account.clone());
        }
        let account = match read(store).await? {
            Some(stored) => self.stored(store, stored).await?,
            None => self.new_account(store).await?,
        };
        Ok(known.insert(account).clone())
    }

    /// The authority does not know our account: the next one is new.
    pub(super) async fn forget_account(&self, store: &Arc<Store>) -> Result<(), Trouble> {
        *self.account.lock().await = None;
        on_disk(store, Store::forget_account).await
    }

    async fn stored(&self, store: &Arc<Store>, stored: StoredAccount) -> Result<Account, Trouble> {
        let credentials: AccountCredentials = serde_json::from_value(stored.credentials.clone())
            .map_err(|error| Trouble::unreached(format!("the stored account: {error}")))?;
        let account = self.builder().from_credentials(credentials).await;
        let account = account.map_err(|error| self.trouble(error))?;
        if stored.contact != self.contact {
            let contact: Vec<_> = self.contact.as_deref().into_iter().collect();
            let changed = account.update_contacts(&contact).await;
            changed.map_err(|error| self.trouble(error))?;
            let contact = self.contact.clone();
            let stored = StoredAccount { contact, ..stored };
            on_disk(store, move |store| store.keep_account(&stored)).await?;
        }
        Ok(account)
    }

    async fn new_account(&self, store: &Arc<Store>) -> Result<Account, Trouble> {
        let contact: Vec<_> = self.contact.as_deref().into_iter().collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = self.builder().create(&wanted, self.url.clone(), None).await;
        let (account, credentials) = made.map_err(|error| self.trouble(error))?;
        let stored = StoredAccount {
            contact: self.contact.clone(),
            credentials: serde_json::to_value(&credentials).map_err(Trouble::unreached)?,
        };
        on_disk(store, move |store| store.keep_account(&stored)).await?;
        Ok(account)
    }

    /// From when to when a certificate should be renewed, and when to ask again; none if the
    /// authority says nothing of it.
    pub(super) async fn renewal(
        &self,
        store: &Arc<Store>,
        id: &CertificateIdentifier<'_>,
    ) -> Option<(SystemTime, SystemTime, Duration)> {
        let account = self.account(store).await.ok()?;
        match account.renewal_info(id).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                Some((window.start.into(), window.end.into(), again))
            }
            Err(error) => {
                tracing::debug!("the authority says nothing of a renewal: {error}");
                None
            }
        }
    }

    fn builder(&self) -> instant_acme::AccountBuilder {
        *self.http.later.lock() = None;
        Account::builder_with_http(Box::new(self.http.clone()))
    }

    /// What an error of the authority means.
    pub(super) fn trouble(&self, error: instant_acme::Error) -> Trouble {
        let retry_after = self.http.later.lock().take();
        let (failure, text) = match error {
            instant_acme::Error::Api(problem) => {
                // A number that it gave us and does not take says nothing of the host.
                let is_its_own = problem.status.is_some_and(|status| status >= 500)
                    || problem.r#type.as_deref() == Some(BAD_NONCE);
                let failure = match is_its_own {
                    true => OrderFailure::Unreached,
                    false => OrderFailure::Refused,
                };
                (failure, format!("the authority says: {}", said(&problem)))
            }
            instant_acme::Error::Timeout(_) => {
                let text = "the authority did not finish the order in time";
                (OrderFailure::Refused, text.into())
            }
            error => {
                let text = format!("the authority at {} was not reached: {error}", self.url);
                (OrderFailure::Unreached, text)
            }
        };
        Trouble {
            failure,
            retry_after,
            text,
        }
    }
}

/// The authority does not know our account.
pub(super) fn is_unknown_account(error: &instant_acme::Error) -> bool {
    let instant_acme::Error::Api(problem) = error else {
        return false;
    };
    problem.r#type.as_deref() == Some(NO_ACCOUNT)
}

/// A problem in the authority's words.
pub(super) fn said(problem: &instant_acme::Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.trim_start_matches("urn:ietf:params:acme:error:");
    let mut text = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        let detail = part.detail.as_deref().unwrap_or_default();
        text += &format!("; {detail}");
    }
    match kind {
        "" => text,
        kind => format!("{text} ({kind})"),
    }
}

async fn read(store: &Arc<Store>) -> Result<Option<StoredAccount>, Trouble> {
    on_disk(store, Store::account).await
}

/// Do something with the folder, where waiting for a disk holds nothing up.
pub(super) async fn on_disk<T: Send + 'static>(
    store: &Arc<Store>,
    work: impl FnOnce(&Store) -> io::Result<T> + Send + 'static,
) -> Result<T, Trouble> {
    let store = Arc::clone(store);
    let folder = store.folder().to_owned();
    let done = tokio::task::spawn_blocking(move || work(&store)).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| Trouble::unreached(format!("{}: {error}", folder.display())))
}

impl HttpClient for AuthorityHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move {
            let asked = tokio::time::timeout(ANSWER_WITHIN, http.ask(request)).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 s");
            let asked = asked.unwrap_or_else(|_| Err(late()));
            asked.map_err(|error| instant_acme::Error::Other(Box::new(error)))
        })
    }
}

impl AuthorityHttp {
    /// One request on a connection of its own: an order has a dozen of them.
    async fn ask(&self, mut request: Request<BodyWrapper<Bytes>>) -> io::Result<BytesResponse> {
        let url = request.uri().clone();
        let bad = || io::Error::other(format!("{url} is not an address within TLS"));
        let host = url.host().filter(|_| url.scheme_str() == Some("https"));
        let host = host.ok_or_else(bad)?;
        let bare = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare.clone()).map_err(io::Error::other)?;
        let stream = TcpStream::connect((bare, url.port_u16().unwrap_or(HTTPS))).await?;
        let stream = self.connector.connect(name, stream).await?;
        let authority = url.authority().ok_or_else(bad)?.as_str();
        let authority = HeaderValue::try_from(authority).map_err(io::Error::other)?;
        request.headers_mut().insert(HOST, authority);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse::<Uri>().map_err(io::Error::other)?;
        let (mut sender, conn) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let answer = async {
            let answer = sender.send_request(request).await;
            self.whole(answer.map_err(io::Error::other)?).await
        };
        tokio::select! {
            answer = answer => answer,
            // It ends after the answer, unless it breaks.
            Err(error) = conn => Err(io::Error::other(error)),
        }
    }

    async fn whole(&self, answer: Response<hyper::body::Incoming>) -> io::Result<BytesResponse> {
        let (parts, mut body) = answer.into_parts();
        if !parts.status.is_success()
            && let Some(after) = parts.headers.get(RETRY_AFTER)
        {
            *self.later.lock() = after.to_str().ok().and_then(retry_after);
        }
        let mut whole = Vec::new();
        while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
            let frame = frame.map_err(io::Error::other)?;
            whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if whole.len() > ANSWER_MAX {
                return Err(io::Error::other("its answer is too long"));
            }
        }
        Ok(BytesResponse {
            parts,
            body: Box::new(Bytes::from(whole)),
        })
    }
}

/// The value of `Retry-After`: seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(SystemTime::now()).ok()
        }
    }
}
