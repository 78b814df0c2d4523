//! What holds for requests beside where they lead: which clients may come and how often, what
//! is logged, which pages the front's own answers have, which files it serves by itself, and
//! what is compressed.
//!
//! Where a config asks for nothing of this, there are no rules, and a request finds that out
//! by one look.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::Method;
use rideau_config::{AppConfig, FrontConfig, HttpsRedirect, Network, RateLimit};

use super::access_log::{LogWriter, RequestLog};
use super::client::{ClientCount, ClientCounts, client_of};
use super::compress::CompressRules;
use super::conn::ClientConn;
use super::error_page::ErrorPageSet;
use super::https::SecurePlace;
use super::rate_limit::RequestLimiter;
use super::refusals::RequestRefusal;
use super::static_files::{FileRequest, StaticFolders};
use crate::apps::AppRoom;
use crate::http1::fields::{Fields, is};

/// The rules of a front.
pub(super) struct FrontRules {
    trust: Arc<[Network]>,
    networks: AdmittedNetworks,
    /// Where requests without TLS are sent, if they are.
    redirect: Option<SecurePlace>,
    /// For requests of no app.
    of_none: Arc<RequestRules>,
    /// In the order in which the router counts the apps.
    of_apps: Vec<Arc<RequestRules>>,
}

/// The rules for requests of one app, or of none.
pub(super) struct RequestRules {
    app: String,
    trust: Arc<[Network]>,
    networks: AdmittedNetworks,
    /// Requests at a time of one client.
    in_flight_max: Option<usize>,
    in_flight: Arc<ClientCounts>,
    /// That of the front, and its own.
    limiters: [Option<Arc<RequestLimiter>>; 2],
    pub(super) log: Option<RequestLog>,
    pub(super) pages: ErrorPageSet,
    files: StaticFolders,
    pub(super) compress: Option<Arc<CompressRules>>,
    /// Where browsers wait that would wait too long.
    pub(super) room: Option<Arc<AppRoom>>,
}

/// The networks whose clients are served.
#[derive(Clone, PartialEq, Eq)]
struct AdmittedNetworks {
    /// Empty: all.
    allow: Vec<Network>,
    /// But for these.
    deny: Vec<Network>,
}

impl FrontRules {
    /// The rules of a config; none if it asks for nothing. What was counted by the old ones is
    /// still counted, where the limit is the same.
    pub(super) fn new<'a>(
        config: &FrontConfig,
        apps: impl Iterator<Item = (&'a AppConfig, Option<Arc<AppRoom>>)>,
        secure: Option<&SecurePlace>,
        writer: &Arc<LogWriter>,
        old: Option<&Self>,
    ) -> Option<Self> {
        let trust: Arc<[Network]> = config.trust.as_slice().into();
        let old_limiter = old.and_then(|old| old.of_none.limiters[0].as_ref());
        let limiter = limiter(config.rate_limit.as_ref(), old_limiter);
        let hidden = &config.access_hide;
        let of_none = RequestRules {
            app: String::new(),
            trust: Arc::clone(&trust),
            networks: AdmittedNetworks::ALL,
            in_flight_max: None,
            in_flight: Arc::default(),
            limiters: [limiter.clone(), None],
            log: RequestLog::new(
                writer,
                &config.access_log,
                config.access_format,
                hidden.iter().cloned(),
            ),
            pages: ErrorPageSet::read(&config.error_page, &ErrorPageSet::default()),
            files: StaticFolders::default(),
            compress: None,
            room: None,
        };
        let of_app = |(app, room): (&AppConfig, Option<Arc<AppRoom>>)| {
            let old = old.and_then(|old| old.of_apps.iter().find(|old| old.app == app.name));
            let access = &app.access;
            let own = old.and_then(|old| old.limiters[1].as_ref());
            let own = self::limiter(access.rate_limit.as_ref(), own);
            let hidden = hidden.iter().chain(&access.access_hide);
            Arc::new(RequestRules {
                app: app.name.clone(),
                trust: Arc::clone(&trust),
                networks: AdmittedNetworks::new(&access.allow, &access.deny),
                in_flight_max: access.client_connections_max,
                in_flight: old.map_or_else(Arc::default, |old| Arc::clone(&old.in_flight)),
                limiters: [limiter.clone(), own],
                log: RequestLog::new(
                    writer,
                    access.access_log.as_ref().unwrap_or(&config.access_log),
                    access.access_format.unwrap_or(config.access_format),
                    hidden.cloned(),
                ),
                pages: ErrorPageSet::read(&access.error_page, &of_none.pages),
                files: StaticFolders::new(
                    access.static_files.as_ref().unwrap_or(&config.static_files),
                ),
                compress: CompressRules::new(
                    access.compress.as_ref().unwrap_or(&config.compress),
                    access.compress_min.unwrap_or(config.compress_min),
                )
                .map(Arc::new),
                room,
            })
        };
        let of_apps = apps.map(of_app).collect();
        let redirects = config.redirect_https == HttpsRedirect::Auto;
        let rules = Self {
            networks: AdmittedNetworks::new(&config.allow, &config.deny),
            redirect: secure.filter(|_| redirects).cloned(),
            of_apps,
            of_none: Arc::new(of_none),
            trust,
        };
        (!rules.is_empty()).then_some(rules)
    }

    /// They let everything through, and nothing is written.
    fn is_empty(&self) -> bool {
        self.networks == AdmittedNetworks::ALL
            && self.redirect.is_none()
            && self.of_none.is_empty()
            && self.of_apps.iter().all(|rules| rules.is_empty())
    }

    /// The rules for requests of the app at this place, or of none.
    pub(super) fn of(&self, app: Option<usize>) -> &Arc<RequestRules> {
        let own = app.and_then(|place| self.of_apps.get(place));
        own.unwrap_or(&self.of_none)
    }

    /// Whether a client may come.
    ///
    /// # Errors
    ///
    /// If it may not.
    pub(super) fn admit(
        &self,
        conn: &ClientConn,
        fields: Fields<'_>,
    ) -> Result<(), RequestRefusal> {
        match self.networks == AdmittedNetworks::ALL {
            true => Ok(()),
            false => self.networks.admit(client_of(conn, fields, &self.trust)),
        }
    }

    /// Whether a request came as it should.
    ///
    /// # Errors
    ///
    /// If it should have come within TLS.
    pub(super) fn check_tls(
        &self,
        conn: &ClientConn,
        fields: Fields<'_>,
        host: &[u8],
        path: &[u8],
    ) -> Result<(), RequestRefusal> {
        let Some(secure) = self.redirect.as_ref().filter(|_| !conn.is_tls) else {
            return Ok(());
        };
        // The client came within TLS to the one that is believed, which would come again.
        let proto = fields.get("x-forwarded-proto");
        if conn.is_trusted && proto.is_some_and(|proto| is(proto, "https")) {
            return Ok(());
        }
        match secure.location(host, path) {
            Some(location) => Err(RequestRefusal::WithoutTls { location }),
            None => Ok(()),
        }
    }

    /// The client of a request.
    pub(super) fn client(&self, conn: &ClientConn, fields: Fields<'_>) -> IpAddr {
        client_of(conn, fields, &self.trust)
    }
}

impl RequestRules {
    fn is_empty(&self) -> bool {
        self.lets_all()
            && self.log.is_none()
            && self.pages.is_empty()
            && self.files.is_empty()
            && self.compress.is_none()
            && self.room.is_none()
    }

    fn lets_all(&self) -> bool {
        self.networks == AdmittedNetworks::ALL
            && self.in_flight_max.is_none()
            && self.limiters.iter().all(Option::is_none)
    }

    /// The file that a request may be for, if it may be for one. Its target has a path of this
    /// length.
    ///
    /// # Errors
    ///
    /// If no client may see what it is for.
    pub(super) fn file(
        &self,
        method: &Method,
        target: &[u8],
        path_len: usize,
    ) -> Result<Option<Arc<FileRequest>>, RequestRefusal> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let (path, query) = target.split_at(path_len);
        let found = self.files.find(method, path, query);
        found.map_err(|_| RequestRefusal::NotFound)
    }

    /// Let one more request in. It counts until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// If it may not come, or not now.
    pub(super) fn admit(
        &self,
        conn: &ClientConn,
        fields: Fields<'_>,
    ) -> Result<Option<Box<ClientCount>>, RequestRefusal> {
        if self.lets_all() {
            return Ok(None);
        }
        let client = client_of(conn, fields, &self.trust);
        self.networks.admit(client)?;
        let counted = match self.in_flight_max {
            None => None,
            Some(max) => {
                let counted = self.in_flight.enter(client, max);
                Some(Box::new(counted.ok_or(RequestRefusal::ClientBusy)?))
            }
        };
        for limiter in self.limiters.iter().flatten() {
            let passed = limiter.pass(client, fields);
            passed.map_err(|retry_after| RequestRefusal::RateLimited { retry_after })?;
        }
        Ok(counted)
    }
}

impl AdmittedNetworks {
    const ALL: Self = Self {
        allow: Vec::new(),
        deny: Vec::new(),
    };

    fn new(allow: &[Network], deny: &[Network]) -> Self {
        Self {
            allow: allow.to_vec(),
            deny: deny.to_vec(),
        }
    }

    fn admit(&self, client: IpAddr) -> Result<(), RequestRefusal> {
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.has(client));
        let is_allowed = self.allow.is_empty() || is_in(&self.allow);
        match is_allowed && !is_in(&self.deny) {
            true => Ok(()),
            false => Err(RequestRefusal::Denied),
        }
    }
}

/// The old limiter if it is the same, or a new one.
fn limiter(
    config: Option<&RateLimit>,
    old: Option<&Arc<RequestLimiter>>,
) -> Option<Arc<RequestLimiter>> {
    let config = config?;
    let old = old.filter(|old| old.is_of(config));
    Some(old.map_or_else(|| Arc::new(RequestLimiter::new(config)), Arc::clone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str, bits: u8) -> Network {
        Network {
            address: address.parse().expect("an address"),
            bits,
        }
    }

    fn rules(config: &FrontConfig, apps: &[AppConfig]) -> Option<FrontRules> {
        let apps = apps.iter().map(|app| (app, None));
        FrontRules::new(config, apps, None, &Arc::default(), None)
    }

    #[test]
    fn a_config_that_asks_for_nothing_has_no_rules() {
        let app = AppConfig::new("shop", vec!["true".into()]);
        let usual = FrontConfig::default();
        assert!(rules(&usual, std::slice::from_ref(&app)).is_none());
        let mut busy = app.clone();
        busy.access.client_connections_max = Some(3);
        let found = rules(&usual, &[app, busy]).expect("one app asks for something");
        assert!(found.of(Some(0)).is_empty() && !found.of(Some(1)).is_empty());
        assert!(found.of(None).is_empty() && found.of(Some(9)).is_empty());
    }

    #[test]
    fn what_is_denied_is_denied_whatever_is_allowed() {
        let networks = AdmittedNetworks::new(
            &[network("10.0.0.0", 8), network("2001:db8::", 32)],
            &[network("10.9.0.0", 16)],
        );
        let is_in = |client: &str| networks.admit(client.parse().expect("one")).is_ok();
        assert!(is_in("10.1.2.3") && is_in("2001:db8::7") && is_in("::ffff:10.1.2.3"));
        assert!(!is_in("10.9.0.1") && !is_in("::ffff:10.9.0.1"));
        assert!(!is_in("192.0.2.1") && !is_in("::1"));
        let only_denied = AdmittedNetworks::new(&[], &[network("10.9.0.0", 16)]);
        let is_in = |client: &str| only_denied.admit(client.parse().expect("one")).is_ok();
        assert!(is_in("192.0.2.1") && !is_in("10.9.3.4"));
    }

    #[test]
    fn the_same_limit_goes_on_counting_when_the_config_changes() {
        let limit = |count| {
            let mut limit = RateLimit::default();
            limit.rate.count = count;
            Some(limit)
        };
        let mut app = AppConfig::new("shop", vec!["true".into()]);
        let mut config = FrontConfig {
            rate_limit: limit(1),
            ..FrontConfig::default()
        };
        app.access.rate_limit = limit(2);
        let first = rules(&config, std::slice::from_ref(&app)).expect("there are some");
        let next = |config: &FrontConfig, app: &AppConfig| {
            let apps = [(app, None)].into_iter();
            FrontRules::new(config, apps, None, &Arc::default(), Some(&first)).expect("some")
        };
        let is_same = |one: &FrontRules, at: usize| {
            let limiter = |rules: &FrontRules| rules.of(Some(0)).limiters[at].clone();
            Arc::ptr_eq(&limiter(one).expect("one"), &limiter(&first).expect("one"))
        };
        config.trust = vec![network("10.0.0.0", 8)];
        let second = next(&config, &app);
        assert!(is_same(&second, 0) && is_same(&second, 1));
        app.access.rate_limit = limit(3);
        let third = next(&config, &app);
        assert!(is_same(&third, 0) && !is_same(&third, 1));
    }
}
