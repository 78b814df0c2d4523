//! Which app a request is for, by its host and the path that it begins with.

use std::collections::HashMap;
use std::sync::Arc;

use rideau_config::AppConfig;

/// Hosts below this are named after the app itself.
const LOCAL: &[u8] = b".localhost";

/// Which app a request is for.
#[derive(Clone, Default, Debug)]
pub struct Router {
    /// By the whole name.
    exact: HashMap<Vec<u8>, Routes>,
    /// By what follows the first star, longest first.
    wild: Vec<(String, Routes)>,
    /// For hosts that no app has.
    any: Routes,
    /// By the name of the app.
    named: HashMap<Vec<u8>, Routes>,
}

/// Where paths of one host lead, longest first.
type Routes = Vec<Arc<Route>>;

/// Where a path leads.
#[derive(PartialEq, Eq, Debug)]
pub struct Route {
    /// The name of the app.
    pub app: String,
    /// How the path begins, without a slash at its end.
    pub prefix: String,
    /// The app does not see that.
    pub strips: bool,
    /// Which of the apps it is, in the order they were given.
    pub place: usize,
}

impl Router {
    /// The ways to these apps.
    pub fn new<'a>(apps: impl IntoIterator<Item = &'a AppConfig>) -> Self {
        let mut router = Self::default();
        for (place, app) in apps.into_iter().enumerate() {
            router.add(app, place);
        }
        router.wild.sort_by_key(|(end, _)| usize::MAX - end.len());
        let exact = router.exact.values_mut();
        let wild = router.wild.iter_mut().map(|(_, routes)| routes);
        let all = exact.chain(wild).chain(router.named.values_mut());
        for routes in all.chain([&mut router.any]) {
            // The route that came first keeps its place among equals.
            routes.sort_by_key(|route| usize::MAX - route.prefix.len());
        }
        router
    }

    /// The way for this host, which may have a port, and this path.
    pub fn find(&self, host: &[u8], path: &[u8]) -> Option<&Arc<Route>> {
        let host = host_name(host);
        let lower;
        let has_upper = |any, byte: &u8| any | byte.is_ascii_uppercase();
        let host = if host.iter().fold(false, has_upper) {
            lower = host.to_ascii_lowercase();
            &lower
        } else {
            host
        };
        let exact = self.exact.get(host);
        let wild = || {
            let wild = self.wild.iter().find(|(end, _)| {
                // A star stands for something.
                host.len() > end.len() && host.ends_with(end.as_bytes())
            });
            wild.map(|(_, routes)| routes)
        };
        let named = || self.named.get(host.strip_suffix(LOCAL)?);
        let routes = exact.or_else(wild).or_else(named);
        let mut routes = routes.unwrap_or(&self.any).iter();
        routes.find(|route| leads(route.prefix.as_bytes(), path))
    }

    fn add(&mut self, app: &AppConfig, place: usize) {
        let prefixes = app.paths.iter().map(|path| path.trim_end_matches('/'));
        let routes: Routes = prefixes
            .map(|prefix| {
                Arc::new(Route {
                    app: app.name.clone(),
                    prefix: prefix.to_owned(),
                    strips: app.strips_path,
                    place,
                })
            })
            .collect();
        let own = self.named.entry(app.name.to_ascii_lowercase().into_bytes());
        own.or_default().extend(routes.iter().cloned());
        if app.hosts.is_empty() {
            self.any.extend(routes.iter().cloned());
        }
        for host in &app.hosts {
            let host = host.to_ascii_lowercase();
            let known = match host.strip_prefix('*') {
                Some("") => &mut self.any,
                Some(end) => match self.wild.iter().position(|(known, _)| known == end) {
                    Some(at) => &mut self.wild[at].1,
                    None => {
                        self.wild.push((end.to_owned(), Vec::new()));
                        &mut self.wild.last_mut().expect("it was just pushed").1
                    }
                },
                None => self.exact.entry(host.into_bytes()).or_default(),
            };
            known.extend(routes.iter().cloned());
        }
    }
}

/// A prefix leads a path if the path goes on at a slash, or not at all.
fn leads(prefix: &[u8], path: &[u8]) -> bool {
    // Asked first, for it is the usual one: some processors take longer to compare
    // nothing with something than all else here takes.
    prefix.is_empty()
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The name of a host, without the port and without dots at its end.
pub(super) fn host_name(host: &[u8]) -> &[u8] {
    let mut host = without_port(host);
    while let Some(rest) = host.strip_suffix(b".") {
        host = rest;
    }
    host
}

fn without_port(host: &[u8]) -> &[u8] {
    // Colons within brackets are part of the address. What follows the last colon
    // of others is short.
    let end = host.iter().rposition(|byte| matches!(byte, b':' | b']'));
    match end {
        Some(end) if host[end] == b':' => &host[..end],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::Router;
    use rideau_config::AppConfig;

    fn app(name: &str, hosts: &[&str], paths: &[&str]) -> AppConfig {
        let mut app = AppConfig::new(name, vec!["true".into()]);
        app.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        app.paths = paths.iter().map(|path| (*path).to_owned()).collect();
        app
    }

    #[test]
    fn a_request_goes_where_its_host_and_the_longest_path_lead() {
        let apps = [
            app("shop", &["shop.example", "*.shop.example"], &["/"]),
            app("cart", &["shop.example"], &["/cart/"]),
            app("beta", &["*.beta.shop.example"], &["/"]),
            app("rest", &[], &["/"]),
            app("api", &[], &["/api"]),
            app("Upper", &["Only.Example"], &["/"]),
        ];
        let router = Router::new(&apps);
        let leads = |host: &str, path: &str| {
            let found = router.find(host.as_bytes(), path.as_bytes());
            found.map(|to| to.app.as_str())
        };
        assert_eq!(leads("shop.example", "/"), Some("shop"));
        assert_eq!(leads("SHOP.example.:8080", "/x"), Some("shop"));
        assert_eq!(leads("shop.example", "/cart"), Some("cart"));
        assert_eq!(leads("shop.example", "/cart/1"), Some("cart"));
        assert_eq!(leads("shop.example", "/carts"), Some("shop"));
        assert_eq!(leads("a.shop.example", "/cart"), Some("shop"));
        assert_eq!(leads("a.beta.shop.example", "/"), Some("beta"));
        assert_eq!(leads(".shop.example", "/"), Some("rest"));
        assert_eq!(leads("other.example", "/"), Some("rest"));
        assert_eq!(leads("other.example", "/api/1"), Some("api"));
        assert_eq!(leads("[::1]:3000", "/api"), Some("api"));
        assert_eq!(leads("cart.localhost:3000", "/cart"), Some("cart"));
        assert_eq!(leads("upper.localhost", "/"), Some("Upper"));
        assert_eq!(leads("nobody.localhost", "/"), Some("rest"));
        assert_eq!(Router::new(&apps[..3]).find(b"else", b"/"), None);
    }
}
