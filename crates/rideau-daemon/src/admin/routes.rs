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
    Admin, actions, apps, asks, auth, config, explain, grants, health, live, openapi, respond,
    shown, status, values,
};

/// Routes of the tests, which panic.
#[rustfmt::skip]
#[cfg(test)]
static PLANTED: &[Route] = &[
    about(Get, "/test/panic", Nothing, "Panic", "", "200:text",
        |_| Box::pin(async { panic!("planted") })),
    about(Get, "/test/away", Nothing, "Panic on another thread", "", "200:text",
        |visit| Box::pin(health::panic_away(visit))),
];
#[cfg(not(test))]
static PLANTED: &[Route] = &[];

/// Every route.
#[rustfmt::skip]
pub(super) static ALL: &[Route] = &[
    about(Get, "/", Right("show"), "A page for people; with the operator's token, all of it",
        "?token", "200:html", |visit| Box::pin(status::page(visit))),
    about(Get, "/assets/status.css", Nothing, "How that page looks",
        "", "200:css", |visit| Box::pin(status::style(visit))),
    about(Get, "/healthz", Nothing, "Does it live?",
        "", "200:text", |visit| Box::pin(health::alive(visit))),
    about(Get, "/readyz", Nothing, "Whether clients may be sent here. The word says why not",
        "", "200:text 503:text", |visit| Box::pin(health::ready(visit))),
    about(Get, "/metrics", Right("info"), "All numbers, for Prometheus",
        "", "200:metrics", |visit| Box::pin(health::metrics(visit))),
    about(Get, "/api/openapi.json", User, "This document",
        "", "200:Any", |visit| Box::pin(openapi::show(visit))),

    about(Get, "/api/v1/state", Right("show"), "The whole server in a few numbers",
        "", "200:State", |visit| Box::pin(shown::state(visit))),
    about(Get, "/api/v1/pools", Right("show"), "Every pool and every group",
        "", "200:Pools", |visit| Box::pin(shown::pools(visit))),
    about(Get, "/api/v1/pools/{name}", Right("show"), "One pool, its holders and why takes wait",
        "", "200:PoolMore 404:Error", |visit| Box::pin(shown::one_pool(visit))),
    about(Get, "/api/v1/brokers", Right("show"), "Every broker",
        "", "200:Brokers", |visit| Box::pin(shown::brokers(visit))),
    about(Get, "/api/v1/brokers/{name}", Right("show"), "One broker, and why one waits",
        "", "200:BrokerMore 404:Error", |visit| Box::pin(shown::one_broker(visit))),
    about(Get, "/api/v1/regulators", Right("show"), "Every regulator",
        "", "200:Regulators", |visit| Box::pin(shown::regulators(visit))),
    about(Get, "/api/v1/locks", Right("show"), "Keys of which units are held, by page",
        "?prefix ?cursor ?count", "200:Locks", |visit| Box::pin(shown::locks(visit))),
    about(Get, "/api/v1/ranges", Right("show"), "Every range and how full it is",
        "", "200:Ranges", |visit| Box::pin(values::ranges(visit))),
    about(Get, "/api/v1/ranges/{name}", Right("show"), "One range, and what would help",
        "", "200:RangeMore 404:Error", |visit| Box::pin(values::one_range(visit))),
    about(Get, "/api/v1/views", Right("show"), "Every view of ranges and what it counts",
        "", "200:Views", |visit| Box::pin(values::views(visit))),
    about(Get, "/api/v1/apps", Right("show"), "Every application, and what they share",
        "", "200:Apps", |visit| Box::pin(apps::apps(visit))),
    about(Get, "/api/v1/apps/{name}", Right("show"),
        "One application, its processes, what they serve and why one waits",
        "", "200:AppMore 404:Error", |visit| Box::pin(apps::one_app(visit))),
    about(Get, "/api/v1/apps/{name}/logs", Right("app"), "What its processes wrote last",
        "?lines", "200:AppLog 404:Error", |visit| Box::pin(apps::logs(visit))),
    about(Get, "/api/v1/clients", Right("show"), "The connections of the Redis protocol, by page",
        "?count ?cursor", "200:Clients", |visit| Box::pin(shown::clients(visit))),
    about(Get, "/api/v1/sessions", Right("show"), "The sessions, by page",
        "?count ?cursor", "200:Sessions", |visit| Box::pin(shown::sessions(visit))),
    about(Get, "/api/v1/holders", Right("show"),
        "Holders, longest first; of is pool:pg-1, lock:key, conn:12 or user:anna",
        "?of ?count ?cursor", "200:Holders", |visit| Box::pin(shown::holders(visit))),
    about(Get, "/api/v1/drops", Right("show"), "The last asks that got a no, by page",
        "?count ?cursor", "200:Drops", |visit| Box::pin(shown::drops(visit))),
    about(Get, "/api/v1/limits", Right("show"), "Every limit, and how often it was met",
        "", "200:Limits", |visit| Box::pin(shown::limits(visit))),
    about(Get, "/api/v1/explain/{*id}", Right("explain"),
        "EndReason: a refusal (d-…), a ticket, a session, a connection's number, a name or a key",
        "", "200:Explained 404:Error", |visit| Box::pin(explain::explain(visit))),
    about(Get, "/api/v1/stream", Right("show"), "All rates and gauges, once a second",
        "", "200:sse 503:Error", |visit| Box::pin(live::stream(visit))),
    about(Get, "/api/v1/events", Right("subscribe"),
        "Every event; last is how many of those before",
        "?last", "200:sse 503:Error", |visit| Box::pin(live::events(visit))),
    about(Get, "/api/v1/history", Right("show"),
        "The last values of some series, with commas between; their names if none is asked for",
        "?series ?span", "200:History 404:Error", |visit| Box::pin(live::history(visit))),

    about(Post, "/api/v1/pools/{name}/resize", Action("pool"), "Let a pool have more or fewer",
        "Resize", "200:Plan 404:Error 422:Verdict", |visit| Box::pin(actions::resize(visit))),
    about(Post, "/api/v1/pools/{name}/pause", Action("pool"), "Hand nothing out for a while",
        "", "200:Ok 404:Error", |visit| Box::pin(actions::pause(visit))),
    about(Post, "/api/v1/pools/{name}/resume", Action("pool"), "Hand members out again",
        "", "200:Ok 404:Error", |visit| Box::pin(actions::resume(visit))),
    about(Post, "/api/v1/pools/{name}/recycle", Action("pool"), "Replace all members over a time",
        "Recycle", "200:Ok 404:Error", |visit| Box::pin(actions::recycle(visit))),
    about(Post, "/api/v1/apps/{name}/restart", Action("app"),
        "Replace its processes by new ones; how is rolling, blocking or now",
        "RestartApp", "200:Ok 404:Error", |visit| Box::pin(apps::restart(visit))),
    about(Post, "/api/v1/apps/{name}/spawn", Action("app"), "Start one process more",
        "", "200:Ok 404:Error 409:Error", |visit| Box::pin(apps::spawn(visit))),
    about(Post, "/api/v1/processes/{pid}/disable", Action("app"),
        "Send a process no more requests, and keep it",
        "", "200:Ok 404:Error 409:Error", |visit| Box::pin(apps::disable(visit))),
    about(Post, "/api/v1/processes/{pid}/enable", Action("app"), "Send it requests again",
        "", "200:Ok 404:Error 409:Error", |visit| Box::pin(apps::enable(visit))),
    about(Post, "/api/v1/processes/{pid}/detach", Action("app"),
        "Have a process finish what it serves, and go",
        "", "200:Ok 404:Error 409:Error", |visit| Box::pin(apps::detach(visit))),
    about(Post, "/api/v1/processes/{pid}/kill", Action("app"),
        "Stop a process, whatever it serves",
        "", "200:Ok 404:Error 409:Error", |visit| Box::pin(apps::kill(visit))),
    about(Post, "/api/v1/clients/{id}/kill", Action("client"), "End a connection",
        "", "200:Ok 404:Error", |visit| Box::pin(actions::kill(visit))),
    about(Post, "/api/v1/grants/{ticket}/revoke", Action("client"), "Take something back",
        "", "200:Revoked 404:Error 410:Error", |visit| Box::pin(actions::revoke(visit))),

    about(Get, "/api/v1/config", Right("config"), "Every key that counts; no secrets",
        "", "200:Config", |visit| Box::pin(config::show(visit))),
    about(Post, "/api/v1/config/check", Action("config"), "What is wrong with a config",
        "toml", "200:Verdict 422:Verdict", |visit| Box::pin(config::check(visit))),
    about(Post, "/api/v1/config/plan", Action("config"), "What a config would change",
        "toml", "200:Plan 422:Verdict", |visit| Box::pin(config::plan(visit))),
    about(Post, "/api/v1/config/apply", Action("config"), "Make a config count",
        "toml", "200:Plan 422:Verdict", |visit| Box::pin(config::apply(visit))),
    about(Post, "/api/v1/config/rollback", Action("config"), "Go back to an earlier config",
        "Rollback", "200:Plan 422:Error", |visit| Box::pin(config::rollback(visit))),
    about(Get, "/api/v1/config/history", Right("config"), "The configs that counted, newest first",
        "", "200:Versions", |visit| Box::pin(config::history(visit))),

    about(Post, "/v1/sessions", Right("session"), "Open a session; every ask belongs to one",
        "OpenSession", "200:Session 429:Error 503:Error", |visit| Box::pin(grants::open(visit))),
    about(Post, "/v1/sessions/{id}/renew", Right("session"), "Give a session its time again",
        "", "200:Session 404:Error", |visit| Box::pin(grants::renew(visit))),
    about(Delete, "/v1/sessions/{id}", User,
        "End a session and give back all that it holds; fail as if it had crashed",
        "?fail", "200:Released 404:Error", |visit| Box::pin(grants::close(visit))),
    about(Post, "/v1/take/{pool}", Session, "Take a member of a pool or of an @group",
        "Take", "200:Taken 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::take(visit))),
    about(Post, "/v1/lock/{*key}", Session, "Take units of a key; waits only with wait_ms",
        "Lock", "200:Locked 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::lock(visit))),
    about(Post, "/v1/ask/{broker}", Session, "Ask for a worker that offers itself",
        "Come", "200:Met 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::ask_broker(visit))),
    about(Post, "/v1/offer/{broker}", Session, "Offer yourself to clients that ask",
        "Come", "200:Met 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::offer_broker(visit))),
    about(Post, "/v1/lease/{regulator}", Session, "Ask a regulator for a lease",
        "Wait", "200:Leased 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::lease(visit))),
    about(Post, "/v1/place/{app}", Session,
        "Have a place in a process of an application, for other fronts",
        "Wait", "200:Placed 202:Waits 404:Error 408:Refused 409:Refused 429:Error 503:Refused",
        |visit| Box::pin(asks::place(visit))),
    about(Post, "/v1/reserve/{*place}", User,
        "Have a value for a time; a place is a range, a network, a-b or a value",
        "Reserve",
        "200:Given 202:Waits 404:Error 408:Error 409:NotGiven 410:Error 429:Error 503:Error",
        |visit| Box::pin(values::reserve(visit))),
    about(Post, "/v1/claim/{value}", User, "Have a certain value",
        "Change", "200:Given 404:Error 409:NotGiven 429:Error 503:Error",
        |visit| Box::pin(values::claim(visit))),
    about(Get, "/v1/values/{value}", User, "The holder of a value; a ticket does as well",
        "", "200:Seen 404:Error 503:Error", |visit| Box::pin(values::lookup(visit))),
    about(Get, "/v1/keys/{*key}", User, "What has a key, by page",
        "?cursor", "200:SeenAll 503:Error", |visit| Box::pin(values::lookup_key(visit))),
    about(Post, "/v1/values/{value}/update", User,
        "Change what stands beside a value, and hold it from now on",
        "Change", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |visit| Box::pin(values::update(visit))),
    about(Post, "/v1/values/{value}/write", User,
        "Replace what stands beside a value, and hold it from now on",
        "Change", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |visit| Box::pin(values::write(visit))),
    about(Post, "/v1/values/{value}/refresh", User, "Hold a value for longer",
        "Refresh", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |visit| Box::pin(values::refresh(visit))),
    about(Post, "/v1/values/{value}/cancel", User, "Forget the holder of a value",
        "Refresh", "200:Changed 404:Error 409:Error 410:Error 503:Error",
        |visit| Box::pin(values::cancel(visit))),
    about(Delete, "/v1/values/{value}", User, "Give a value back",
        "?fence", "200:Ok 404:Error 409:Error 410:Error 503:Error",
        |visit| Box::pin(values::release(visit))),
    about(Delete, "/v1/grants/{ticket}", User,
        "Give back what a ticket stands for; fail says why it is of no more use",
        "?fail", "200:Ok 404:Error 409:Error 410:Error", |visit| Box::pin(grants::release(visit))),
    about(Post, "/v1/grants/{ticket}/done", User,
        "End a match; the other party gets the payload",
        "Done", "200:Ok 404:Error 409:Error 410:Error", |visit| Box::pin(grants::done(visit))),
    about(Post, "/v1/grants/{ticket}/continue", Session,
        "Ask to keep a lease of a regulator; 409 says to stop, and that it is over",
        "", "200:Leased 404:Error 409:Refused 410:Error", |visit| Box::pin(asks::keep(visit))),
    about(Post, "/v1/grants/{ticket}/await", Session,
        "The answer of an ask in the background; of a match that was answered at once, its end",
        "Await", "200:Awaited 404:Error 408:Refused 409:Error 410:Error 429:Error",
        |visit| Box::pin(asks::wait(visit))),
    about(Post, "/v1/grants/{ticket}/cancel", Session,
        "Give up an ask in the background; once answered, it is not granted any more",
        "", "200:Cancelled 404:Error", |visit| Box::pin(asks::cancel(visit))),
    about(Post, "/v1/grants/{ticket}/end", Session, "Wait for the other party's end of a match",
        "Await", "200:Ended 404:Error 408:Refused 409:Error 410:Error 429:Error",
        |visit| Box::pin(asks::wait_end(visit))),
];

/// What answers every request.
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
    let hint = "GET /api/openapi.json lists what there is.";
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
