//! Other kinds of requests than small plain ones, beside nginx: bodies, answers
//! in pieces, TLS, HTTP/2, files, compression. One server of each has all of it,
//! and an application of its own behind it.

use std::path::Path;

use super::app::{self, CHUNKED, JSON};
use super::clients::ask_once;
use super::look::{Meant, look};
use super::nginx::{self, Kept};
use super::ours::{self, Listen};
use super::question::{Question, Wire};
use super::site::{self, Site};
use super::{Case, Contestant, NGINX, contest, goals, h2load, is_wanted, subject_is_wanted};
use crate::measure::Plan;
use crate::report::{Format, OURS};

/// A case, and what is answered then.
struct Kind {
    case: Case,
    meant: Meant,
}

const CLIENTS: usize = 16;
const SMALL: Question = Question::small(CLIENTS);

static KINDS: [Kind; 8] = [
    Kind::new("post-64k", "POST of 64 KiB", posted(64 << 10)),
    Kind::new("post-1m", "POST of 1 MiB", posted(1 << 20)),
    Kind {
        meant: Meant {
            field: ("transfer-encoding", "chunked"),
            content: app::chunked,
        },
        ..Kind::new(
            "chunked",
            "answer of 256 KiB in chunks",
            Question::path(CLIENTS, CHUNKED),
        )
    },
    Kind::new("tls", "TLS", over(Wire::Tls)),
    Kind::new("h2", "HTTP/2 within TLS", over(Wire::Http2)),
    Kind {
        meant: Meant {
            field: ("content-length", "4096"),
            content: || site::file(4 << 10),
        },
        ..Kind::new(
            "file-4k",
            "file of 4 KiB",
            Question::path(CLIENTS, "/files/4k"),
        )
    },
    Kind {
        meant: Meant {
            field: ("content-length", "1048576"),
            content: || site::file(1 << 20),
        },
        ..Kind::new(
            "file-1m",
            "file of 1 MiB",
            Question::path(CLIENTS, "/files/1m"),
        )
    },
    Kind {
        meant: Meant {
            field: ("content-encoding", "gzip"),
            content: || app::rows().into_bytes(),
        },
        ..Kind::new(
            "gzip",
            "64 KiB of JSON, compressed",
            Question {
                coding: Some("gzip"),
                ..Question::path(CLIENTS, JSON)
            },
        )
    },
];

const fn posted(body: usize) -> Question {
    Question { body, ..SMALL }
}

const fn over(wire: Wire) -> Question {
    Question { wire, ..SMALL }
}

pub(super) fn run(program: &Path, has_front: bool, plan: &Plan, format: Format) {
    let mut wanted: Vec<_> = KINDS
        .iter()
        .filter(|kind| is_wanted(kind.case.name))
        .collect();
    let speaks_http2 = |kind: &&Kind| kind.case.question.wire == Wire::Http2;
    if wanted.iter().any(speaks_http2) && !h2load::is_there() {
        wanted.retain(|kind| !speaks_http2(kind));
    }
    if wanted.is_empty() {
        return;
    }
    let site = Site::new();
    let mut contestants = Vec::new();
    if has_front && subject_is_wanted(OURS) {
        contestants.push(start_ours(program, site.for_another()));
    }
    if subject_is_wanted(NGINX) {
        contestants.push(nginx::start(NGINX, "port", Kept::Yes, Some(site)));
    }
    if contestants.is_empty() {
        return;
    }
    for kind in wanted {
        for contestant in &contestants {
            if let Some(said) = look(contestant, &kind.case.question, &kind.meant) {
                eprintln!("{} {}: {said}", kind.case.name, contestant.name);
            }
        }
        contest(&kind.case, &contestants, plan, format);
    }
}

fn start_ours(program: &Path, site: Site) -> Contestant {
    let ours = ours::start_with(program, &ours::steady(Listen::Port), Some(&site));
    let ours = ours.unwrap_or_else(|why| panic!("{OURS}: {why}"));
    ask_once(ours.address).expect("the application can be started");
    Contestant {
        site: Some(site),
        ..Contestant::new(OURS, ours.address, vec![ours.server])
    }
}

impl Kind {
    /// One that is answered the word of the application.
    const fn new(name: &'static str, title: &'static str, question: Question) -> Self {
        Self {
            case: Case {
                name,
                title,
                question,
                judge: goals::kind_beside_nginx,
            },
            meant: Meant {
                field: ("content-length", "3"),
                content: || app::BODY.to_vec(),
            },
        }
    }
}
