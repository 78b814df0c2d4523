//! Where a request is led, by its host and the path that it begins with.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::StatusCode;
use rideau_config::{AppConfig, RouteConfig};

use super::host::host_name;
use super::location::Redirect;

/// Hosts below this are named after the app itself.
const LOCAL: &[u8] = b".localhost";

/// Where requests are led.
#[derive(Clone, Default, Debug)]
pub(super) struct Router {
    /// By the whole name.
    exact: HashMap<Vec<u8>, Routes>,
    /// By what follows the first star, longest first.
    wild: Vec<(String, Routes)>,
    /// For hosts that nothing else has.
    any: Routes,
    /// By the name of the app.
    named: HashMap<Vec<u8>, Routes>,
}

/// Where paths of one host lead, longest first.
type Routes = Vec<Arc<Route>>;

/// Where a path leads.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Route {
    /// How the path begins, without a slash at its end.
    pub(super) prefix: String,
    /// The app does not see that.
    pub(super) strips: bool,
    pub(super) target: RouteTarget,
    /// Fields that answers get, by their names.
    pub(super) fields: Vec<(String, String)>,
}

/// What a route leads to.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum RouteTarget {
    /// The app at this place, in the order in which they were given.
    App(usize),
    Elsewhere(Redirect),
}

impl Route {
    /// The status of a redirect.
    pub(super) fn redirects(&self) -> StatusCode {
        let status = match &self.target {
            RouteTarget::Elsewhere(redirect) => StatusCode::from_u16(redirect.status).ok(),
            RouteTarget::App(_) => None,
        };
        status.unwrap_or(StatusCode::PERMANENT_REDIRECT)
    }
}

impl Router {
    /// The ways to these apps, and those of these routes.
    pub(super) fn new(apps: &[&AppConfig], routes: &[RouteConfig]) -> Self {
        let mut router = Self::default();
        for (place, app) in apps.iter().enumerate() {
            let leads = app.paths.iter().map(|path| Route {
                prefix: path.trim_end_matches('/').to_owned(),
                strips: app.strips_path,
                target: RouteTarget::App(place),
                fields: Vec::new(),
            });
            let leads: Routes = leads.map(Arc::new).collect();
            let own = router.named.entry(app.name.to_ascii_lowercase().into());
            own.or_default().extend(leads.iter().cloned());
            router.add(&app.hosts, &leads);
        }
        for route in routes {
            router.add(&route.hosts, &leads_of(route, apps));
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
    pub(super) fn find(&self, host: &[u8], path: &[u8]) -> Option<&Arc<Route>> {
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

    /// Lead these hosts so; none stands for all that nothing else has.
    fn add(&mut self, hosts: &[String], leads: &Routes) {
        if hosts.is_empty() {
            self.any.extend(leads.iter().cloned());
        }
        for host in hosts {
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
            known.extend(leads.iter().cloned());
        }
    }
}

/// The ways of a route, one for each path. There are none if its app is not there.
fn leads_of(route: &RouteConfig, apps: &[&AppConfig]) -> Routes {
    let target = || match (&route.redirect, &route.to) {
        (Some(target), _) => Some(RouteTarget::Elsewhere(Redirect {
            target: target.clone(),
            status: route.status,
        })),
        (None, Some(to)) => {
            let place = apps.iter().position(|app| app.name == *to)?;
            Some(RouteTarget::App(place))
        }
        (None, None) => None,
    };
    let lead = |path: &String| {
        Some(Arc::new(Route {
            prefix: path.trim_end_matches('/').to_owned(),
            strips: false,
            target: target()?,
            fields: route.headers.clone(),
        }))
    };
    route.paths.iter().filter_map(lead).collect()
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

#[cfg(test)]
mod tests {
    use super::{RouteTarget, Router};
    use rideau_config::{AppConfig, Config};

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
        let apps: Vec<_> = apps.iter().collect();
        let router = Router::new(&apps, &[]);
        let leads = |host: &str, path: &str| {
            let found = router.find(host.as_bytes(), path.as_bytes())?;
            match found.target {
                RouteTarget::App(place) => Some(apps[place].name.as_str()),
                RouteTarget::Elsewhere(_) => None,
            }
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
        assert_eq!(leads("unknown.localhost", "/"), Some("rest"));
        assert_eq!(Router::new(&apps[..3], &[]).find(b"else", b"/"), None);
    }

    #[test]
    fn a_route_leads_before_an_app_with_a_shorter_path() {
        let text = "[front]\n\
            [route.old]\nhosts = [\"shop.example\"]\npaths = [\"/old\"]\nredirect = \"/new\"\n\
            [route.www]\nhosts = [\"www.shop.example\"]\nredirect = \"https://shop.example\"\n\
            [route.api]\npaths = [\"/api\"]\nto = \"shop\"\nheaders = { X-Api = \"1\" }\n\
            [app.shop]\nexec = \"true\"\nhosts = [\"*.shop.example\", \"shop.example\"]\n";
        let config = Config::parse(text, "a.toml", &|_| None).expect("it is right");
        let apps: Vec<_> = config.apps.iter().collect();
        let router = Router::new(&apps, &config.front.routes);
        let find = |host: &str, path: &str| router.find(host.as_bytes(), path.as_bytes());
        let is_app = |host: &str, path: &str| {
            let found = find(host, path).expect("it leads somewhere");
            found.target == RouteTarget::App(0)
        };
        assert!(is_app("shop.example", "/") && is_app("a.shop.example", "/old"));
        assert!(!is_app("shop.example", "/old/a") && is_app("shop.example", "/older"));
        assert!(!is_app("www.shop.example", "/api"));
        assert!(is_app("else.example", "/api") && find("else.example", "/").is_none());
        let api = find("else.example", "/api").expect("it is there");
        assert_eq!(api.fields, [("X-Api".to_owned(), "1".to_owned())]);
        // Its app is gone.
        let without = Router::new(&[], &config.front.routes);
        assert!(without.find(b"else.example", b"/api").is_none());
    }
}
