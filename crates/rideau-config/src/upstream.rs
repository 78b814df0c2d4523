//! Servers of the file, which others start: where they are, and how requests get there.

use std::time::Duration;

use rideau_core::apps::{self, ServerRules};
use rideau_core::queue;

use super::app::{AppAccess, AppConfig, Checked, Health, Http, MANY, Sticky, Streams, check_name};
use super::core_kinds::AppQueue;
use super::hosts::{Hosts, PathPrefixes};
use super::keyed::Keyed;
use super::kinds::{Answer, AutoWord, List, Number, Or, Positive, Span};
use super::section::Section;
use super::servers::{ServerPlace, ServerTls, TLS_SAMPLE, TlsTable, UpstreamServers};
use super::table::section;

section! {
    /// Servers that others start, and the requests that they get.
    #[derive(Clone, PartialEq, Debug)]
    pub struct UpstreamConfig {
        plain {
            /// All that it has in common with an app, under its own name.
            app: AppConfig = usual_app();
            /// Where the servers are.
            servers: UpstreamServers = UpstreamServers::default();
        }
        flatten {
            /// How requests are treated.
            http: Http = Http::default();
            /// Which requests are let in, and what is written and said of them.
            access: AppAccess = AppAccess::default();
        }
        /// The servers: `"10.0.0.7:8080"`, `"api.internal:8080"` or `"unix:/run/api.sock"`. A name
        /// is looked up; each of its addresses is a server.
        servers => (servers.places): Vec<ServerPlace>, List, Live, usual = "required",
            sample = r#"["10.0.0.7:8080", "api.internal:8080"]"#;
        /// How often names are looked up again.
        lookup_every => (servers.lookup_every): Duration, Positive, Live;
        /// Servers are spoken to within TLS: `"system"`, with the authorities of this machine, or
        /// a table.
        tls => (servers.tls): Option<ServerTls>, TlsTable, Live, usual = r#""none""#,
            sample = TLS_SAMPLE;
        /// A connection that a server has not taken after this long has failed.
        connect_timeout => (servers.connect_timeout): Duration, Positive, Live;
        /// A server is down after this many failures within `failures_window`, unless it has
        /// answered twenty times as often.
        failures_max => (servers.rules.failures_max): u32, Number, Live, bounds = (1, 1000);
        /// How close together they are to count together.
        failures_window => (servers.rules.failures_window): Duration, Positive, Live;
        /// Requests for these hosts go to these servers, as by the `hosts` of an app.
        hosts => (app.hosts): Vec<String>, Hosts, Requests, sample = r#"["api.shop.example"]"#,
            above = "Which requests they get.";
        /// Only requests below one of these paths.
        paths => (app.paths): Vec<String>, PathPrefixes, Requests;
        /// The servers do not see the path that matched.
        strip => (app.strips_path): bool, Answer, Requests;
        /// Requests at a time in one server; `"auto"`: for each server the number at which it
        /// serves best, which is learnt.
        concurrency => (app.options.concurrency): Option<usize>, Or<Number, AutoWord>, Live,
            bounds = (1, MANY), above = "Which requests wait.";
        /// Where requests wait: any of the queues, as for an app.
        queue => (app.options.queue): queue::Options, AppQueue, Live,
            usual = r#"{ kind = "paced", max = "auto" }"#,
            sample = r#"{ kind = "paced", max = "auto" }"#;
        /// Health checks of each server: one that fails them gets no requests until it answers
        /// one. Without it a server that is down gets requests again when it answers `GET /`,
        /// whatever the status.
        health => (app.health): Option<Health>, Checked, Live, usual = r#""none""#,
            sample = r#"{ path = "/up", every = "10s", timeout = "2s", fails = 3 }"#;
        /// The name of a cookie that leads back to the same server, or a table, as for an app.
        sticky => (app): AppConfig, Sticky, Requests, usual = r#""none""#,
            sample = r#"{ cookie = "api_route", wait = "1s" }"#;
        /// Answers and connections that go on for as long as a client likes, such as events
        /// and WebSockets.
        streams => (app): AppConfig, Streams, Live;
        /// How long the requests of a server that is taken away are counted. They go on after it.
        drain_timeout => (app.options.drain_timeout): Duration, Span, Live;
    }
}

/// The most servers that are named.
const PLACES_MAX: usize = 256;

impl UpstreamConfig {
    /// None if it has no servers; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        check_name("upstreams", name, section);
        let mut upstream = Self::default();
        upstream.read_keys(section);
        upstream.check(name, section);
        upstream.app.name = name.into();
        let (http, own) = (upstream.http.clone(), upstream.app.http.clone());
        // These are parts of tables that an app has as well.
        upstream.app.http = Http {
            sticky: own.sticky,
            stream_grace: own.stream_grace,
            stream_idle: own.stream_idle,
            ..http
        };
        upstream.app.access = upstream.access.clone();
        upstream.app.options.servers = Some(upstream.servers.rules);
        upstream.app.servers = Some(upstream.servers.clone());
        let is_there = !upstream.servers.places.is_empty();
        is_there.then_some(upstream)
    }

    fn check(&self, name: &str, section: &Section<'_>) {
        let notes = section.notes;
        let places = &self.servers.places;
        let is_empty = section.list("servers").is_some_and(|list| list.is_empty());
        if !section.has("servers") || is_empty {
            let message = format!("upstream `{name}` has no servers");
            let hint = "write servers = [\"10.0.0.7:8080\", \"10.0.0.8:8080\"]";
            notes.error(section.at.clone(), message, hint);
        }
        if places.len() > PLACES_MAX {
            let message = format!("upstream `{name}` has {} servers", places.len());
            let hint = format!("write {PLACES_MAX} at most, or one name for many addresses");
            notes.error(section.at("servers"), message, hint);
        }
        for (at, place) in places.iter().enumerate() {
            if places[..at].contains(place) {
                let message = format!("the server {place} is there twice");
                notes.error(section.at("servers"), message, "keep one");
            }
        }
        let local = places.iter().find(|place| place.host().is_none());
        if let (Some(_), Some(place)) = (&self.servers.tls, local) {
            let message = format!("no TLS is spoken with {place}");
            let hint = "what goes there does not leave this machine: put it in an upstream without";
            notes.error(section.at("tls"), message, hint);
        }
    }
}

fn usual_app() -> AppConfig {
    let mut app = AppConfig {
        restart_dir: None,
        options: apps::Options {
            servers: Some(ServerRules::default()),
            ..apps::Options::default()
        },
        ..AppConfig::default()
    };
    app.servers = Some(UpstreamServers::default());
    app
}
