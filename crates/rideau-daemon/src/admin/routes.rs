//! Every address there is, who may use it and what it answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::on;

use super::answer::HttpError;
use super::route::Method::{Delete, Get, Post};
use super::route::Needs::{Action, Nothing, Right, Session, User};
use super::route::{Route, about};
use super::{
    Admin, actions, apps, asks, assets, auth, config, dashboard, explain, grants, health, live,
    openapi, respond, shown, values, web_logins,
};

/// Routes of the tests, which panic.
#[rustfmt::skip]
#[cfg(test)]
static PLANTED: &[Route] = &[
    about(Get, "/test/panic", Nothing, "Panic", "", "200:text",
        |_| Box::pin(async { panic!("planted") })),
    about(Get, "/test/away", Nothing, "Panic on another thread", "", "200:text",
        |request| Box::pin(health::panic_away(request))),
];
#[cfg(not(test))]
static PLANTED: &[Route] = &[];

/// Every route.
#[rustfmt::skip]
pub(super) static ALL: &[Route] = &[
    about(Get, "/", Nothing, "The dashboard; it logs in with the token in its address",
        "?token", "200:html", |request| Box::pin(assets::index(request))),
    about(Get, "/assets/{*file}", Nothing, "A file of the dashboard",
        "", "200:file 404:Error", |request| Box::pin(assets::file(request))),
    about(Post, "/login", User,
        "Log a browser in: the answer has a cookie, and the Rideau-Csrf that goes with it",
        "", "200:WebLogin", |request| Box::pin(web_logins::begin(request))),
    about(Post, "/logout", User, "Log it out",
        "", "200:Ok", |request| Box::pin(web_logins::end(request))),
    about(Get, "/healthz", Nothing, "Whether the server is alive",
        "", "200:text", |request| Box::pin(health::alive(request))),
    about(Get, "/readyz", Nothing, "Whether the server takes new clients; the word says why not",
        "", "200:text 503:text", |request| Box::pin(health::ready(request))),
    about(Get, "/metrics", Right("info"), "All numbers, for Prometheus",
        "", "200:metrics", |request| Box::pin(health::metrics(request))),
    about(Get, "/api/openapi.json", User, "This document",
        "", "200:Any", |request| Box::pin(openapi::show(request))),

    about(Get, "/api/v1/page/{*page}", Right("show"), "A page of the dashboard, as blocks",
        "?find ?sort ?only ?from ?count ?span", "200:Page 404:Error",
        |request| Box::pin(dashboard::page(request))),
    about(Get, "/api/v1/watch/{*page}", Right("show"),
        "The same page again and again, once a second",
        "?find ?sort ?only ?from ?count", "200:sse 404:Error 503:Error",
        |request| Box::pin(dashboard::watch(request))),

    about(Get, "/api/v1/state", Right("show"), "The whole server in a few numbers",
        "", "200:State", |request| Box::pin(shown::state(request))),
    about(Get, "/api/v1/pools", Right("show"), "Every pool and every group",
        "", "200:Pools", |request| Box::pin(shown::pools(request))),
    about(Get, "/api/v1/pools/{name}", Right("show"), "One pool, its holders and why takes wait",
        "", "200:PoolMore 404:Error", |request| Box::pin(shown::one_pool(request))),
    about(Get, "/api/v1/brokers", Right("show"), "Every broker",
        "", "200:Brokers", |request| Box::pin(shown::brokers(request))),
    about(Get, "/api/v1/brokers/{name}", Right("show"), "One broker, and why parties wait",
        "", "200:BrokerMore 404:Error", |request| Box::pin(shown::one_broker(request))),
    about(Get, "/api/v1/regulators", Right("show"), "Every regulator",
        "", "200:Regulators", |request| Box::pin(shown::regulators(request))),
    about(Get, "/api/v1/locks", Right("show"), "Keys of which units are held, by page",
        "?prefix ?cursor ?count", "200:Locks", |request| Box::pin(shown::locks(request))),
    about(Get, "/api/v1/ranges", Right("show"), "Every range and how full it is",
        "", "200:Ranges", |request| Box::pin(values::ranges(request))),
    about(Get, "/api/v1/ranges/{name}", Right("show"), "One range, and what would help",
        "", "200:RangeMore 404:Error", |request| Box::pin(values::one_range(request))),
    about(Get, "/api/v1/views", Right("show"), "Every view of ranges and what it counts",
        "", "200:Views", |request| Box::pin(values::views(request))),
    about(Get, "/api/v1/apps", Right("show"), "Every application, and what they share",
        "", "200:Apps", |request| Box::pin(apps::apps(request))),
    about(Get, "/api/v1/apps/{name}", Right("show"),
        "One application, its processes, what they serve and why requests wait",
        "", "200:AppMore 404:Error", |request| Box::pin(apps::one_app(request))),
    about(Get, "/api/v1/apps/{name}/logs", Right("app"), "What its processes wrote last",
        "?lines", "200:AppLog 404:Error", |request| Box::pin(apps::logs(request))),
    about(Get, "/api/v1/clients", Right("show"), "The connections of the Redis protocol, by page",
        "?count ?cursor", "200:Clients", |request| Box::pin(shown::clients(request))),
    about(Get, "/api/v1/sessions", Right("show"), "The sessions, by page",
        "?count ?cursor", "200:Sessions", |request| Box::pin(shown::sessions(request))),
    about(Get, "/api/v1/holders", Right("show"),
        "Holders, longest first; of is pool:pg-1, lock:key, conn:12 or user:anna",
        "?of ?count ?cursor", "200:Holders", |request| Box::pin(shown::holders(request))),
    about(Get, "/api/v1/drops", Right("show"), "The last refusals, by page",
        "?count ?cursor", "200:Drops", |request| Box::pin(shown::drops(request))),
    about(Get, "/api/v1/limits", Right("show"), "Every limit, and how often it was met",
        "", "200:Limits", |request| Box::pin(shown::limits(request))),
    about(Get, "/api/v1/explain/{*id}", Right("explain"),
        "Explains a refusal (d-…), a ticket, a session, a connection's number, a name or a key",
        "", "200:Explained 404:Error", |request| Box::pin(explain::explain(request))),
    about(Get, "/api/v1/stream", Right("show"), "All rates and gauges, once a second",
        "", "200:sse 503:Error", |request| Box::pin(live::stream(request))),
    about(Get, "/api/v1/events", Right("subscribe"),
        "Every event; last is how many of those before",
        "?last", "200:sse 503:Error", |request| Box::pin(live::events(request))),
    about(Get, "/api/v1/history", Right("show"),
        "The last values of some series, with commas between; their names if none is asked for",
        "?series ?span", "200:History 404:Error", |request| Box::pin(live::history(request))),

    about(Post, "/api/v1/pools/{name}/resize", Action("pool"), "Change how many members a pool may \
        have",
        "Resize", "200:Plan 404:Error 422:Verdict", |request| Box::pin(actions::resize(request))),
    about(Post, "/api/v1/pools/{name}/pause", Action("pool"), "Pause a pool: it lends nothing \
        until it is resumed",
        "", "200:Ok 404:Error", |request| Box::pin(actions::pause(request))),
    about(Post, "/api/v1/pools/{name}/resume", Action("pool"), "Resume a pool",
        "", "200:Ok 404:Error", |request| Box::pin(actions::resume(request))),
    about(Post, "/api/v1/pools/{name}/recycle", Action("pool"), "Replace all members over a time",
        "Recycle", "200:Ok 404:Error", |request| Box::pin(actions::recycle(request))),
    about(Post, "/api/v1/apps/{name}/restart", Action("app"),
        "Replace its processes by new ones; how is rolling, blocking or now",
        "RestartApp", "200:Ok 404:Error", |request| Box::pin(apps::restart(request))),
    about(Post, "/api/v1/apps/{name}/trial", Action("app"),
        "Give the verdict on its new code that is on trial: accept or reject",
        "Trial", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::trial(request))),
    about(Post, "/api/v1/apps/{name}/spawn", Action("app"), "Start one more process",
        "", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::spawn(request))),
    about(Post, "/api/v1/processes/{pid}/disable", Action("app"),
        "Send a process no more requests, and keep it",
        "", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::disable(request))),
    about(Post, "/api/v1/processes/{pid}/enable", Action("app"), "Send it requests again",
        "", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::enable(request))),
    about(Post, "/api/v1/processes/{pid}/detach", Action("app"),
        "Have a process finish what it serves, and end",
        "", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::detach(request))),
    about(Post, "/api/v1/processes/{pid}/kill", Action("app"),
        "Stop a process, whatever it serves",
        "", "200:Ok 404:Error 409:Error", |request| Box::pin(apps::kill(request))),
    about(Post, "/api/v1/clients/{id}/kill", Action("client"), "End a connection",
        "", "200:Ok 404:Error", |request| Box::pin(actions::kill(request))),
    about(Post, "/api/v1/grants/{ticket}/revoke", Action("client"), "Revoke a lease",
        "", "200:Revoked 404:Error 410:Error", |request| Box::pin(actions::revoke(request))),

    about(Get, "/api/v1/config", Right("config"), "The running config, without secrets",
        "", "200:Config", |request| Box::pin(config::show(request))),
    about(Post, "/api/v1/config/check", Action("config"), "What is wrong with a config",
        "toml", "200:Verdict 422:Verdict", |request| Box::pin(config::check(request))),
    about(Post, "/api/v1/config/plan", Action("config"), "What a config would change",
        "toml", "200:Plan 422:Verdict", |request| Box::pin(config::plan(request))),
    about(Post, "/api/v1/config/apply", Action("config"), "Apply a config",
        "toml", "200:Plan 422:Verdict", |request| Box::pin(config::apply(request))),
    about(Post, "/api/v1/config/preview", Action("config"),
        "What a change of some keys would do; path = value in each line",
        "toml", "200:Plan 422:Any", |request| Box::pin(config::plan_keys(request))),
    about(Post, "/api/v1/config/set", Action("config"),
        "Change some keys; path = value in each line",
        "toml", "200:Plan 422:Any", |request| Box::pin(config::apply_keys(request))),
    about(Post, "/api/v1/config/rollback", Action("config"), "Go back to an earlier config",
        "Rollback", "200:Plan 422:Error", |request| Box::pin(config::rollback(request))),
    about(Get, "/api/v1/config/history", Right("config"), "The configs that were applied, newest \
        first",
        "", "200:Versions", |request| Box::pin(config::history(request))),

    about(Post, "/v1/sessions", Right("session"), "Open a session; every ask belongs to one",
        "OpenSession", "200:Session 429:Error 503:Error",
        |request| Box::pin(grants::open(request))),
    about(Post, "/v1/sessions/{id}/renew", Right("session"), "Renew a session",
        "", "200:Session 404:Error", |request| Box::pin(grants::renew(request))),
    about(Delete, "/v1/sessions/{id}", User,
        "End a session and release all that it holds; fail as if it had crashed",
        "?fail", "200:Released 404:Error", |request| Box::pin(grants::close(request))),
    about(Post, "/v1/take/{pool}", Session, "Take a member of a pool or of an @group",
        "Take", "200:Taken 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::take(request))),
    about(Post, "/v1/lock/{*key}", Session, "Take units of a key; waits only with wait_ms",
        "Lock", "200:Locked 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::lock(request))),
    about(Post, "/v1/ask/{broker}", Session, "Ask for a worker that offers itself",
        "Come", "200:Met 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::ask_broker(request))),
    about(Post, "/v1/offer/{broker}", Session, "Offer yourself to clients that ask",
        "Come", "200:Met 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::offer_broker(request))),
    about(Post, "/v1/lease/{regulator}", Session, "Ask a regulator for a lease",
        "Wait", "200:Leased 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::lease(request))),
    about(Post, "/v1/place/{app}", Session,
        "Take a place in a process of an application, for another front",
        "Wait", "200:Placed 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |request| Box::pin(asks::place(request))),
    about(Post, "/v1/reserve/{*place}", User,
        "Reserve a value for a time; a place is a range, a network, a-b or a value",
        "Reserve",
        "200:Given 202:Waits 404:Error 408:Error 409:NotGiven 410:Error 429:Error 503:Error",
        |request| Box::pin(values::reserve(request))),
    about(Post, "/v1/claim/{value}", User, "Reserve one given value",
        "Change", "200:Given 404:Error 409:NotGiven 429:Error 503:Error",
        |request| Box::pin(values::claim(request))),
    about(Get, "/v1/values/{value}", User, "The holder of a value, by value or ticket",
        "", "200:Seen 404:Error 503:Error", |request| Box::pin(values::lookup(request))),
    about(Get, "/v1/keys/{*key}", User, "The values with a key, by page",
        "?cursor", "200:SeenAll 503:Error", |request| Box::pin(values::lookup_key(request))),
    about(Post, "/v1/values/{value}/update", User,
        "Change the data and keys of a value, and renew it",
        "Change", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |request| Box::pin(values::update(request))),
    about(Post, "/v1/values/{value}/write", User,
        "Replace the data and keys of a value, and renew it",
        "Change", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |request| Box::pin(values::write(request))),
    about(Post, "/v1/values/{value}/refresh", User, "Renew a value",
        "Refresh", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |request| Box::pin(values::refresh(request))),
    about(Post, "/v1/values/{value}/cancel", User, "Forget the holder of a value",
        "Refresh", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |request| Box::pin(values::cancel(request))),
    about(Delete, "/v1/values/{value}", User, "Release a value",
        "?fence", "200:Ok 404:Error 409:Error 410:Error 503:Error",
        |request| Box::pin(values::release(request))),
    about(Delete, "/v1/grants/{ticket}", User,
        "Release what a ticket stands for; fail says why it is broken",
        "?fail", "200:Ok 404:Error 409:Error 410:Error",
        |request| Box::pin(grants::release(request))),
    about(Post, "/v1/grants/{ticket}/done", User,
        "End a match; the other party gets the payload",
        "Done", "200:Ok 404:Error 409:Error 410:Error", |request| Box::pin(grants::done(request))),
    about(Post, "/v1/grants/{ticket}/continue", Session,
        "Renew a lease of a regulator; 409 says that it has ended",
        "", "200:Leased 404:Error 409:Refused 410:Error", |request| Box::pin(asks::keep(request))),
    about(Post, "/v1/grants/{ticket}/await", Session,
        "The answer of an ask in the background; of a match that was answered at once, its end",
        "Await", "200:Awaited 404:Error 408:Refused 409:Error 410:Error 429:Error",
        |request| Box::pin(asks::wait(request))),
    about(Post, "/v1/grants/{ticket}/cancel", Session,
        "Cancel an ask in the background; after the answer it is not granted any more",
        "", "200:Cancelled 404:Error", |request| Box::pin(asks::cancel(request))),
    about(Post, "/v1/grants/{ticket}/end", Session, "Wait for the other party's end of a match",
        "Await", "200:Ended 404:Error 408:Refused 409:Error 410:Error 429:Error",
        |request| Box::pin(asks::wait_end(request))),
];

/// The router of all requests.
pub(super) fn router(admin: &Arc<Admin>) -> Router {
    let mut router = Router::new();
    for route in ALL.iter().chain(PLANTED) {
        let admin = Arc::clone(admin);
        let run = move |names: Result<RawPathParams, _>, request: Request| {
            let admin = Arc::clone(&admin);
            let names: Result<_, axum::extract::rejection::RawPathParamsRejection> = names;
            let (parts, body) = request.into_parts();
            respond::answer(admin, route, names.ok(), parts, body)
        };
        router = router.route(route.path, on(route.method.filter(), run));
    }
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(no_method)
        .layer(map_response(auth::secure))
}

async fn nowhere(request: Request) -> Response {
    let path = request.uri().path();
    let hint = "GET /api/openapi.json lists all addresses.";
    HttpError::no_such("address", path, hint).into_response()
}

async fn no_method(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    HttpError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "ERR",
        format!("{path} does not know {method}: GET /api/openapi.json says what it does."),
    )
    .into_response()
}
