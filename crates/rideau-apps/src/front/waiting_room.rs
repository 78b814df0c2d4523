//! The waiting room: what browsers are told that have to come again.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use rideau_config::human::Html;
use rideau_core::RoomPlace;

use super::body::Answer;
use super::forward::Visit;
use super::headers::{ERROR, HSTS, REQUEST_ID};
use super::ids::Id;
use super::refusals::RequestRefusal;
use super::reply::HttpReply;
use super::request::ProxyRequest;
use super::room_visit::{RoomVisit, cookie_name};
use crate::http1::date;

/// For so long a browser keeps its cookie; each page has a new one.
const COOKIE_SECONDS: u64 = 600;
/// The word for programs.
const WORD: &str = "waiting_room";

impl ProxyRequest {
    /// The page of the waiting room, if the request has to wait outside.
    pub(super) fn wait_outside(&self, visit: &Visit<'_>) -> Option<HttpReply> {
        let room = self.by_rules.room.as_deref()?;
        // One that is refused whatever it waits is told why.
        let (load, now) = visit.front.apps.load(&self.app)?;
        match room.room.come(room.cookie.as_deref(), &load, now) {
            Ok(turn) => {
                *room.turn.lock() = Some(turn);
                None
            }
            Err(place) => Some(self.room_page(visit, room, &place)),
        }
    }

    /// The same for one that found no place inside after all.
    pub(super) fn wait_again(&self, visit: &Visit<'_>, no: &RequestRefusal) -> Option<HttpReply> {
        let room = self.by_rules.room.as_deref()?;
        let turn = room.turn.lock().take()?;
        let load = match no.word() {
            "queue_full" | "queue_timeout" => visit.front.apps.load(&self.app),
            _ => None,
        };
        let Some((load, now)) = load else {
            turn.forget();
            return None;
        };
        let place = turn.keep(&load, now);
        Some(self.room_page(visit, room, &place))
    }

    fn room_page(&self, visit: &Visit<'_>, room: &RoomVisit, place: &RoomPlace) -> HttpReply {
        const STATUS: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        self.app.counts.refused(WORD);
        if let Some(entry) = visit.log {
            entry.refused(STATUS.as_u16(), Some(WORD));
        }
        let fill = RoomFill {
            place: place.place,
            expected: place.expected,
            back_in: seconds(place.back_in),
            id: visit.id,
        };
        let own = room.room.page();
        let (body, comes_again) = match own.as_deref() {
            Some(page) => (fill.fill_in(page), page.contains("{refresh}")),
            None => (fill.page(), true),
        };
        let mut reply = HttpReply {
            status: STATUS,
            fields: Vec::new(),
            at: Instant::now(),
            date: Some(date::now()),
            length: Some(body.len() as u64),
            body: Answer::Whole(body.into()),
            closes: false,
        };
        reply.put("Content-Type", "text/html; charset=utf-8");
        reply.put("Cache-Control", "no-store");
        reply.put("Vary", "Cookie");
        reply.put("X-Robots-Tag", "noindex");
        reply.put("Retry-After", fill.back_in.to_string());
        if !comes_again {
            reply.put("Refresh", fill.back_in.to_string());
        }
        reply.put(ERROR, WORD);
        reply.put(REQUEST_ID, visit.id);
        if let Some(hsts) = &visit.conn.hsts {
            reply.put(HSTS, &**hsts);
        }
        let name = cookie_name(room.is_secure);
        let secure = if room.is_secure { "; Secure" } else { "" };
        let value = room.room.cookie(place.serial);
        let cookie = format!(
            "{name}={value}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}"
        );
        reply.put("Set-Cookie", cookie);
        reply
    }
}

/// What is filled into a page.
struct RoomFill<'a> {
    place: u64,
    expected: Duration,
    /// In whole seconds.
    back_in: u64,
    id: &'a Id,
}

impl RoomFill<'_> {
    /// An operator's page with the values put in.
    fn fill_in(&self, page: &str) -> String {
        let id = self.id.to_string();
        let values = [
            ("{place}", self.place.to_string()),
            ("{wait}", self.wait().into_owned()),
            ("{refresh}", self.back_in.to_string()),
            ("{id}", Html(&id).to_string()),
        ];
        let mut out = String::with_capacity(page.len() + 64);
        let mut rest = page;
        while let Some(at) = rest.find('{') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let known = values.iter().find(|(name, _)| rest.starts_with(name));
            let len = match known {
                Some((name, value)) => {
                    out.push_str(value);
                    name.len()
                }
                None => {
                    out.push('{');
                    1
                }
            };
            rest = &rest[len..];
        }
        out.push_str(rest);
        out
    }

    /// How long it will take, as people say it.
    fn wait(&self) -> Cow<'static, str> {
        match seconds(self.expected) {
            0..=10 => "a few seconds".into(),
            seconds @ 11..=55 => format!("about {} seconds", seconds.div_ceil(10) * 10).into(),
            56..=90 => "about a minute".into(),
            seconds @ 91..=3_599 => format!("about {} minutes", seconds.div_ceil(60)).into(),
            _ => "an hour or more".into(),
        }
    }

    fn page(&self) -> String {
        let (place, wait, back_in) = (self.place, self.wait(), self.back_in);
        let id = self.id.to_string();
        let id = Html(&id);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"refresh\" content=\"{back_in}\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>You are in line</title>\n\
             <style>\n:root{{color-scheme:light dark}}\n\
             body{{font:1.125rem/1.6 system-ui,sans-serif;max-width:34rem;margin:12vh auto;\
             padding:0 1.25rem;color:#1b1b1f;background:#fff}}\n\
             h1{{font-size:1.6rem;line-height:1.25}}\nstrong{{font-size:1.35rem}}\n\
             .id{{font-size:.875rem;color:#4a4a52}}\n\
             @media (prefers-color-scheme:dark){{body{{color:#f2f2f5;background:#16161a}}\
             .id{{color:#b9b9c2}}}}\n</style>\n</head>\n<body>\n<main>\n\
             <h1>You are in line</h1>\n\
             <div role=\"status\" aria-live=\"polite\">\n\
             <p>Many people are here at the moment. Your place in the line is \
             <strong>{place}</strong>, which takes <strong>{wait}</strong>.</p>\n</div>\n\
             <p>This page comes again by itself and lets you in when it is your turn. Keep it \
             open: if you leave, your place is kept for a short time only.</p>\n\
             <p class=\"id\">503 {WORD} &middot; {id}</p>\n</main>\n</body>\n</html>\n"
        )
    }
}

/// A whole number of seconds, and one at least.
fn seconds(span: Duration) -> u64 {
    span.as_secs_f64().ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(expected: u64) -> RoomFill<'static> {
        RoomFill {
            place: 7,
            expected: Duration::from_secs(expected),
            back_in: 3,
            id: Box::leak(Box::new(Id::Theirs(b"<i>".as_slice().into()))),
        }
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        let wait = |expected| fill(expected).wait().into_owned();
        assert_eq!(wait(0), "a few seconds");
        assert_eq!(wait(11), "about 20 seconds");
        assert_eq!(wait(55), "about 60 seconds");
        assert_eq!(wait(60), "about a minute");
        assert_eq!(wait(91), "about 2 minutes");
        assert_eq!(wait(3_000), "about 50 minutes");
        assert_eq!(wait(3_600), "an hour or more");
    }

    #[test]
    fn an_operators_page_gets_the_values_and_no_markup() {
        let page = fill(60).fill_in("<p>{place} {wait} {refresh} {id} {other} { {{place}}");
        let expected = "<p>7 about a minute 3 &lt;i&gt; {other} { {7}";
        assert_eq!(page, expected);
    }

    /// The numbers of WCAG 2: how light each colour is, and how they differ.
    #[test]
    fn the_page_can_be_read_by_everyone() {
        let page = fill(60).page();
        for part in [
            "<html lang=\"en\">",
            "<title>You are in line</title>",
            "http-equiv=\"refresh\" content=\"3\"",
            "role=\"status\" aria-live=\"polite\"",
            "<strong>7</strong>",
            "prefers-color-scheme:dark",
            "&lt;i&gt;",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for part in [
            "<script",
            "animation",
            "transition",
            "<img",
            "http://",
            "https://",
        ] {
            assert!(!page.contains(part), "{part}");
        }
        let light = |hex: &str| {
            let part = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let linear = |byte: u8| {
                let share = f64::from(byte) / 255.0;
                match share <= 0.040_45 {
                    true => share / 12.92,
                    false => ((share + 0.055) / 1.055).powf(2.4),
                }
            };
            0.2126 * linear(part(0)) + 0.7152 * linear(part(2)) + 0.0722 * linear(part(4))
        };
        for (text, ground) in [
            ("1b1b1f", "ffffff"),
            ("4a4a52", "ffffff"),
            ("f2f2f5", "16161a"),
            ("b9b9c2", "16161a"),
        ] {
            let is_used = page.contains(&format!("#{text}"))
                && page.contains(&format!("#{}", ground.replace("ffffff", "fff")));
            assert!(is_used, "{text} on {ground}");
            let (one, other) = (light(text), light(ground));
            let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
            assert!(contrast >= 7.0, "{text} on {ground} has {contrast:.1}");
        }
    }
}
