//! Answers for clients that get none from an app.
//!
//! Each no has a status, a word for programs, and a sentence for people. What
//! is known of a start that failed is told only where pages are for developers.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::body::Bytes;
use rideau_config::ErrorPages;
use rideau_config::human::{Html, stop};
use rideau_core::{Reason, Refusal};
use rideau_process::StartReport;
use rideau_process::panics::Panicked;

use super::body::Answer;
use super::error_page::{ErrorPageSet, PageFill, Reads};
use super::headers::{ERROR, HSTS, REQUEST_ID};
use super::ids::Id;
use super::reply::HttpReply;
use super::router::Route;
use super::upload::Unread;
use crate::apps::Refused;
use crate::http1::date;
use crate::http1::head::Trouble;

/// Bodies that were kept have gone to their apps by then, some of them.
const FULL_FOR: Duration = Duration::from_secs(5);
/// One of a client's requests may have ended by then.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// Why a request gets no answer from an app.
#[derive(Debug)]
pub(super) enum RequestRefusal {
    /// It makes no sense.
    Bad(&'static str),
    /// Its head is too large.
    HeaderTooLarge,
    /// Its head was not complete in time.
    HeaderTimeout,
    /// Its body is too large.
    BodyTooLarge,
    /// Its body comes too slowly.
    BodyTimeout,
    /// There is no room to keep its body until it is whole.
    BuffersFull,
    /// It wants a tunnel, or its own words back.
    Method,
    /// It would go on with a protocol that is not spoken.
    UnknownProtocol,
    /// Its host has another certificate than its connection.
    Misdirected,
    /// Its client may not come.
    Denied,
    /// It should have come within TLS: there it finds the same.
    WithoutTls { location: String },
    /// An authority asks whether its host is ours, and is shown this.
    AcmeText(Arc<str>),
    /// A route sends it elsewhere.
    Elsewhere { location: String, route: Arc<Route> },
    /// Its client asks too often.
    RateLimited { retry_after: Duration },
    /// Its client has too many requests already.
    ClientBusy,
    /// No client may see what its path means, or there is nothing.
    NotFound,
    /// There is a file for it that cannot be read.
    FileUnreadable,
    /// No app serves that host and path.
    UnknownApp,
    /// There is no place in a process.
    Refused(Refused),
    /// The process takes no connection.
    Unreachable,
    /// The process closed the connection before it answered.
    Closed,
    /// The app sent a malformed answer.
    BadAnswer,
    /// It did not answer in time.
    RequestTimeout,
    /// The front panicked.
    Panicked(Panicked),
}

/// The client that a page is for.
pub(super) struct Reader<'a> {
    pub(super) pages: ErrorPages,
    /// The id of the request.
    pub(super) id: &'a Id,
    /// What it reads.
    pub(super) reads: Reads,
    /// Pages of the config.
    pub(super) files: Option<&'a ErrorPageSet>,
    /// Tells it to stay within TLS.
    pub(super) hsts: Option<&'a str>,
}

impl From<Trouble> for RequestRefusal {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Bad(why) => Self::Bad(why),
            Trouble::Large => Self::HeaderTooLarge,
            Trouble::Slow => Self::HeaderTimeout,
        }
    }
}

impl From<Unread> for RequestRefusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::BodyTooLarge,
            Unread::TooSlow => Self::BodyTimeout,
            Unread::NoRoom => Self::BuffersFull,
            Unread::Broken => Self::Bad("its body is malformed or incomplete"),
        }
    }
}

impl RequestRefusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::HeaderTimeout | Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnknownProtocol => StatusCode::NOT_IMPLEMENTED,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::WithoutTls { .. } => StatusCode::PERMANENT_REDIRECT,
            Self::AcmeText(_) => StatusCode::OK,
            Self::Elsewhere { route, .. } => route.redirects(),
            Self::RateLimited { .. } | Self::ClientBusy => StatusCode::TOO_MANY_REQUESTS,
            Self::NotFound | Self::UnknownApp => StatusCode::NOT_FOUND,
            Self::Refused(_) | Self::BuffersFull => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::Closed | Self::BadAnswer => StatusCode::BAD_GATEWAY,
            Self::RequestTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::FileUnreadable | Self::Panicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// For programs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad_request",
            Self::HeaderTooLarge => "header_too_large",
            Self::HeaderTimeout => "header_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::BuffersFull => "buffers_full",
            Self::Method => "method_not_allowed",
            Self::UnknownProtocol => "unknown_protocol",
            Self::Misdirected => "misdirected",
            Self::Denied => "denied",
            Self::WithoutTls { .. } => "without_tls",
            Self::AcmeText(_) => "acme",
            Self::Elsewhere { .. } => "redirected",
            Self::RateLimited { .. } => "rate_limited",
            Self::ClientBusy => "client_connections_max",
            Self::NotFound => "not_found",
            Self::FileUnreadable => "file_unreadable",
            Self::UnknownApp => "no_such_app",
            Self::Refused(refused) => word_of(&refused.refusal),
            Self::Unreachable => "app_unreachable",
            Self::Closed => "app_closed",
            Self::BadAnswer => "bad_answer",
            Self::RequestTimeout => "request_timeout",
            Self::Panicked(_) => "internal_error",
        }
    }

    /// For people.
    fn sentence(&self) -> &'static str {
        match self {
            Self::Bad(_) => "The request is malformed.",
            Self::HeaderTooLarge => "The request has a head that is too large.",
            Self::HeaderTimeout => "The request took too long to come.",
            Self::BodyTooLarge => "The request has a body that is too large.",
            Self::BodyTimeout => "The body of the request comes too slowly.",
            Self::BuffersFull => "Too much is being sent already. Please try again soon.",
            Self::Method => "CONNECT and TRACE are not served here.",
            Self::UnknownProtocol => "CONNECT leads to WebSockets only.",
            Self::Misdirected => "This host needs a connection of its own.",
            Self::Denied => "Your address may not come here.",
            Self::WithoutTls { .. } => "This is served within TLS.",
            Self::AcmeText(_) => "This is for an authority.",
            Self::Elsewhere { .. } => "This is served elsewhere.",
            Self::RateLimited { .. } => "You ask too often. Please try again soon.",
            Self::ClientBusy => "You ask for too much at a time. Please try again soon.",
            Self::NotFound => "There is nothing here.",
            Self::FileUnreadable => "The file cannot be read.",
            Self::UnknownApp => "There is no application here.",
            Self::Refused(refused) => match word_of(&refused.refusal) {
                "queue_full" => "Too many requests are waiting. Please try again soon.",
                "queue_timeout" => "The application was too busy. Please try again soon.",
                "shutting_down" => "The server is stopping. Please try again soon.",
                "app_down" => "The application does not answer. Please try again soon.",
                _ => "The application could not be started.",
            },
            Self::Unreachable => "The application cannot be reached.",
            Self::Closed => "The application ended before it answered.",
            Self::BadAnswer => "The application sent a malformed answer.",
            Self::RequestTimeout => "The application took too long to answer.",
            Self::Panicked(_) => "The server failed. Its log says more.",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refused) => Some(refused.refusal.retry_after),
            Self::BuffersFull => Some(FULL_FOR),
            Self::RateLimited { retry_after } => Some(*retry_after),
            Self::ClientBusy => Some(BUSY_FOR),
            _ => None,
        }
    }

    /// A rule of the front says so, and its app has not seen it.
    pub(super) const fn is_by_rule(&self) -> bool {
        matches!(
            self,
            Self::Denied | Self::RateLimited { .. } | Self::ClientBusy | Self::NotFound
        )
    }

    /// The word, if it is an error.
    pub(super) fn error(&self) -> Option<&'static str> {
        match self {
            Self::WithoutTls { .. } | Self::Elsewhere { .. } | Self::AcmeText(_) => None,
            _ => Some(self.word()),
        }
    }

    fn report(&self) -> Option<&Arc<StartReport>> {
        match self {
            Self::Refused(refused) => refused.report.as_ref(),
            _ => None,
        }
    }

    /// The answer that says so.
    pub(super) fn reply(&self, reader: &Reader<'_>) -> HttpReply {
        // A whole number of seconds, and never at once.
        let retry_after = self.retry_after();
        let retry_after = retry_after.map(|after| after.as_secs_f64().ceil().max(1.0) as u64);
        let (body, kind) = self.body(reader, retry_after);
        let mut reply = HttpReply {
            status: self.status(),
            fields: Vec::new(),
            at: Instant::now(),
            date: Some(date::now()),
            length: Some(body.len() as u64),
            body: Answer::Whole(Bytes::from(body)),
            closes: self.ends_connection(),
        };
        reply.put("Content-Type", kind);
        reply.put("Cache-Control", "no-store");
        if let Self::WithoutTls { location } | Self::Elsewhere { location, .. } = self {
            reply.put("Location", location);
        }
        if let Self::Elsewhere { route, .. } = self {
            reply.replace(&route.fields);
        }
        if let Some(error) = self.error() {
            reply.put(ERROR, error);
        }
        reply.put(REQUEST_ID, reader.id);
        if let Some(hsts) = reader.hsts {
            reply.put(HSTS, hsts);
        }
        if let Some(seconds) = retry_after {
            reply.put("Retry-After", seconds.to_string());
        }
        reply
    }

    /// What the client reads, and what kind of content that is.
    fn body(&self, reader: &Reader<'_>, retry_after: Option<u64>) -> (String, &'static str) {
        const HTML: &str = "text/html; charset=utf-8";
        if let Self::AcmeText(text) = self {
            return (text.to_string(), "text/plain");
        }
        if reader.reads == Reads::Json {
            return (self.json(reader, retry_after), "application/json");
        }
        let fill = PageFill {
            status: self.status().as_u16(),
            id: reader.id,
            retry_after,
        };
        if let Some(page) = reader.files.and_then(|files| files.page(&fill)) {
            return (page, HTML);
        }
        match reader.reads {
            Reads::Html => (self.html(reader), HTML),
            _ => (self.text(reader), "text/plain; charset=utf-8"),
        }
    }

    /// Where the next request begins is not known, or not of interest.
    fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Bad(_)
                // A client that wanted a tunnel may have begun to talk through it.
                | Self::Method
                | Self::HeaderTooLarge
                | Self::HeaderTimeout
                | Self::BodyTooLarge
                | Self::BodyTimeout
                | Self::BuffersFull
                | Self::Panicked(_)
        )
    }

    fn json(&self, reader: &Reader<'_>, retry_after: Option<u64>) -> String {
        let mut said = serde_json::json!({
            "status": self.status().as_u16(),
            "error": self.word(),
            "message": self.sentence(),
            "id": reader.id.to_string(),
        });
        if let Some(seconds) = retry_after {
            said["retry_after"] = seconds.into();
        }
        if let Some(details) = self.details(reader.pages) {
            said["details"] = details.into();
        }
        format!("{said}\n")
    }

    fn text(&self, reader: &Reader<'_>) -> String {
        let mut text = format!("{}\n", self.sentence());
        if let Some(details) = self.details(reader.pages) {
            let _ = write!(text, "\n{}\n", details.trim_end());
        }
        let (code, word, id) = (self.status().as_u16(), self.word(), reader.id);
        let _ = writeln!(text, "\n{code} {word} ({id})");
        text
    }

    fn html(&self, reader: &Reader<'_>) -> String {
        let (status, word) = (self.status(), self.word());
        let id = reader.id.to_string();
        let id = Html(&id);
        let mut page = format!(
            "<!doctype html>\n<html lang=en><meta charset=utf-8>\n\
             <meta name=viewport content=\"width=device-width\">\n<title>{status}</title>\n\
             <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:4rem auto;\
             padding:0 1rem}}pre{{background:#f4f4f4;color:#222;padding:1rem;overflow:auto}}\
             small{{color:#767676}}</style>\n<h1>{}</h1>\n",
            self.sentence()
        );
        if let Some(details) = self.details(reader.pages) {
            let _ = writeln!(page, "<pre>{}</pre>", Html(details.trim_end()));
        }
        let code = status.as_u16();
        let _ = writeln!(page, "<p><small>{code} {word} &middot; {id}</small>");
        page
    }

    /// Details that only developers should see.
    fn details(&self, pages: ErrorPages) -> Option<String> {
        match self {
            Self::Bad(why) => return Some((*why).to_owned()),
            // By which id the log has it.
            Self::Panicked(panicked) => return Some(panicked.to_string()),
            _ => (),
        }
        if pages == ErrorPages::Short {
            return None;
        }
        if let Some(report) = self.report() {
            return Some(plain(&told(report)));
        }
        match self {
            Self::Refused(refused) => Some(refused.refusal.to_string()),
            _ => None,
        }
    }
}

/// A report in words, what matters most first.
fn told(report: &StartReport) -> String {
    let mut text = format!("{}\n", report.summary);
    for advice in &report.advice {
        let _ = writeln!(text, "Perhaps: {advice}{}", stop(advice));
    }
    let _ = writeln!(text, "\n$ {}", report.command.join(" "));
    if let Some(directory) = &report.directory {
        let _ = writeln!(text, "in {}", directory.display());
    }
    if let Some(user) = &report.user {
        let _ = writeln!(text, "as {user}");
    }
    if let Some(address) = &report.address {
        let _ = writeln!(text, "at {address}");
    }
    if let Some(exit) = &report.exit {
        let _ = writeln!(text, "it ended: {exit}");
    }
    if !report.lines.is_empty() {
        text.push_str("\nWhat it wrote last:\n");
        for line in &report.lines {
            let _ = writeln!(text, "  {}", line.text);
        }
    }
    text.push_str("\nWhat was done:\n");
    for done in &report.steps {
        let _ = writeln!(text, "  {:>8.1?}  {}", done.after, done.step.word());
    }
    let failed = report.step.word();
    let _ = writeln!(text, "  {:>8.1?}  {failed} failed", report.took);
    let _ = writeln!(text, "\nreport {} of {}", report.id, report.app);
    text
}

fn word_of(refusal: &Refusal) -> &'static str {
    match refusal.reason {
        Reason::Full | Reason::Busy | Reason::Protected => "queue_full",
        Reason::Closed | Reason::Cancelled => "shutting_down",
        Reason::Starting | Reason::Suspended | Reason::Nowhere => "app_failing",
        Reason::Down => "app_down",
        _ => "queue_timeout",
    }
}

/// Text without the colours and movements of terminals.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => match letters.next() {
                // A sequence goes on to its first letter.
                Some('[') => {
                    for letter in letters.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&letter) {
                            break;
                        }
                    }
                }
                // A title goes on to a bell, or to an escape and a backslash.
                Some(']') => {
                    while let Some(letter) = letters.next() {
                        if letter == '\u{7}' || letter == '\u{1b}' && letters.next().is_some() {
                            break;
                        }
                    }
                }
                _ => (),
            },
            '\n' | '\t' => plain.push(letter),
            _ if letter.is_control() => (),
            _ => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_no_colours_of_terminals() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\ttab\r\n\u{7}"), "red\ttab\n");
        assert_eq!(
            plain("\u{1b}]0;title\u{7}after\u{1b}]8;;x\u{1b}\\link"),
            "afterlink"
        );
        assert_eq!(plain("a\u{1b}"), "a");
    }

    #[test]
    fn every_no_has_a_status_a_word_and_the_id() {
        let reader = Reader {
            pages: ErrorPages::Short,
            id: &Id::Theirs(b"id-1".as_slice().into()),
            reads: Reads::Text,
            files: None,
            hsts: None,
        };
        let refused = |reason| {
            RequestRefusal::Refused(Refused {
                refusal: Refusal {
                    reason,
                    waited: Duration::from_secs(1),
                    len: 3,
                    retry_after: Duration::from_millis(1200),
                },
                report: None,
            })
        };
        let all = [
            (RequestRefusal::Bad("why"), 400, "bad_request"),
            (RequestRefusal::HeaderTooLarge, 431, "header_too_large"),
            (RequestRefusal::HeaderTimeout, 408, "header_timeout"),
            (RequestRefusal::BodyTooLarge, 413, "body_too_large"),
            (RequestRefusal::BodyTimeout, 408, "body_timeout"),
            (RequestRefusal::BuffersFull, 503, "buffers_full"),
            (RequestRefusal::Method, 405, "method_not_allowed"),
            (RequestRefusal::UnknownProtocol, 501, "unknown_protocol"),
            (RequestRefusal::Misdirected, 421, "misdirected"),
            (RequestRefusal::Denied, 403, "denied"),
            (RequestRefusal::ClientBusy, 429, "client_connections_max"),
            (RequestRefusal::NotFound, 404, "not_found"),
            (RequestRefusal::FileUnreadable, 500, "file_unreadable"),
            (RequestRefusal::UnknownApp, 404, "no_such_app"),
            (refused(Reason::Full), 503, "queue_full"),
            (refused(Reason::Timeout), 503, "queue_timeout"),
            (refused(Reason::Deadline), 503, "queue_timeout"),
            (refused(Reason::Closed), 503, "shutting_down"),
            (refused(Reason::Starting), 503, "app_failing"),
            (RequestRefusal::Unreachable, 502, "app_unreachable"),
            (RequestRefusal::Closed, 502, "app_closed"),
            (RequestRefusal::BadAnswer, 502, "bad_answer"),
            (RequestRefusal::RequestTimeout, 504, "request_timeout"),
        ];
        for (no, status, word) in all {
            let answer = no.reply(&reader).into_response();
            assert_eq!(answer.status(), status);
            assert_eq!(answer.headers()[ERROR], word);
            assert_eq!(answer.headers()[REQUEST_ID], "id-1");
            let after = answer.headers().get("retry-after");
            assert_eq!(after.is_some(), matches!(status, 429 | 503), "{word}");
            if let Some(after) = after {
                let expected = match word {
                    "buffers_full" => "5",
                    "client_connections_max" => "1",
                    _ => "2",
                };
                assert_eq!(after, expected);
            }
        }
    }

    #[test]
    fn a_client_that_reads_json_gets_the_word_the_id_and_when_to_ask_again() {
        let reader = Reader {
            pages: ErrorPages::Short,
            id: &Id::Theirs(b"id-\"1".as_slice().into()),
            reads: Reads::Json,
            files: None,
            hsts: Some("max-age=1"),
        };
        let no = RequestRefusal::RateLimited {
            retry_after: Duration::from_millis(50),
        };
        let reply = no.reply(&reader);
        let Answer::Whole(body) = &reply.body else {
            panic!("it is short");
        };
        let said: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
        assert_eq!(said["status"], 429);
        assert_eq!(said["error"], "rate_limited");
        assert_eq!(
            (&said["id"], &said["retry_after"]),
            (&"id-\"1".into(), &1.into())
        );
        let answer = reply.into_response();
        assert_eq!(answer.headers()["content-type"], "application/json");
        assert_eq!(answer.headers()[HSTS], "max-age=1");
    }

    #[test]
    fn a_request_without_tls_is_sent_on_and_is_no_error() {
        let reader = Reader {
            pages: ErrorPages::Short,
            id: &Id::Theirs(b"id-1".as_slice().into()),
            reads: Reads::Text,
            files: None,
            hsts: None,
        };
        let no = RequestRefusal::WithoutTls {
            location: "https://a.example/b".into(),
        };
        let answer = no.reply(&reader).into_response();
        assert_eq!(answer.status(), 308);
        assert_eq!(answer.headers()["location"], "https://a.example/b");
        assert_eq!(answer.headers().get(ERROR), None);
    }
}
