//! How a client reads the front's own answers: as a page of the config, as JSON, or as
//! plain words.

use std::sync::Arc;

use rideau_config::human::Html;
use rideau_config::{ErrorPage, StatusPattern};

use super::ids::Id;
use crate::http1::fields::{is, tokens};

/// What a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Reads {
    /// Words.
    #[default]
    Text,
    Html,
    /// It would rather have JSON than a page.
    Json,
}

/// Pages, the first that fits first.
#[derive(Clone, Default)]
pub(super) struct ErrorPageSet(Vec<(StatusPattern, Arc<str>)>);

/// What is filled into a page.
pub(super) struct PageFill<'a> {
    pub(super) status: u16,
    pub(super) id: &'a Id,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
}

impl Reads {
    /// By its `Accept` field.
    pub(super) fn of(accept: Option<&[u8]>) -> Self {
        let (mut json, mut html) = (0, 0);
        for kind in accept.into_iter().flat_map(tokens) {
            let (name, weight) = weighed(kind);
            if is(name, "text/html") || is(name, "application/xhtml+xml") {
                html = html.max(weight);
            } else if is(name, "application/json") || name.ends_with(b"+json") {
                json = json.max(weight);
            }
        }
        match (json, html) {
            (1.., html) if json > html => Self::Json,
            (_, 1..) => Self::Html,
            _ => Self::Text,
        }
    }
}

/// A kind of content and how much it is wanted, in thousandths.
fn weighed(kind: &[u8]) -> (&[u8], u32) {
    let mut parts = kind.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| {
        let value = part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="))?;
        let weight: f32 = str::from_utf8(value).ok()?.parse().ok()?;
        Some((weight.clamp(0.0, 1.0) * 1000.0) as u32)
    });
    (name, weight.unwrap_or(1000))
}

impl ErrorPageSet {
    /// These pages, and behind them others. A file that cannot be read is left out, and the log
    /// says so.
    pub(super) fn read(own: &[ErrorPage], others: &Self) -> Self {
        let mut pages = Vec::new();
        for page in own {
            match page.read() {
                Ok(text) => pages.push((page.status, text.into())),
                Err(error) => {
                    let file = page.file.display();
                    tracing::warn!("the error page {file} cannot be used: {error}");
                }
            }
        }
        // A status comes before all statuses of its class.
        pages.sort_by_key(|(status, _)| *status);
        pages.extend(others.0.iter().cloned());
        Self(pages)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The page for an answer.
    pub(super) fn page(&self, fill: &PageFill<'_>) -> Option<String> {
        let found = self.0.iter().find(|(status, _)| status.has(fill.status));
        found.map(|(_, page)| fill.fill_in(page))
    }
}

impl PageFill<'_> {
    /// Put the values in.
    fn fill_in(&self, page: &str) -> String {
        let mut out = String::with_capacity(page.len() + 64);
        let mut rest = page;
        while let Some(at) = rest.find('{') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let known = ["{status}", "{id}", "{retry_after}"];
            let found = known.into_iter().find(|name| rest.starts_with(name));
            let value = match found {
                Some("{status}") => self.status.to_string(),
                Some("{id}") => Html(&self.id.to_string()).to_string(),
                Some(_) => self.retry_after.map_or_else(String::new, |s| s.to_string()),
                None => "{".into(),
            };
            out.push_str(&value);
            rest = &rest[found.map_or(1, str::len)..];
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_json_if_it_would_rather_have_that() {
        for (accept, reads) in [
            ("", Reads::Text),
            ("*/*", Reads::Text),
            ("application/json", Reads::Json),
            ("application/json, text/plain, */*", Reads::Json),
            ("Application/Problem+json;q=0.5", Reads::Json),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Reads::Html,
            ),
            ("text/html, application/json", Reads::Html),
            ("text/html;q=0.5, application/json", Reads::Json),
            ("application/json;q=0, text/html", Reads::Html),
            ("application/json; q=0", Reads::Text),
        ] {
            assert_eq!(Reads::of(Some(accept.as_bytes())), reads, "{accept}");
        }
        assert_eq!(Reads::of(None), Reads::Text);
    }

    #[test]
    fn values_are_put_in_and_cannot_be_markup() {
        let fill = PageFill {
            status: 503,
            id: &Id::Theirs(b"<b>&{status}".as_slice().into()),
            retry_after: Some(7),
        };
        let page = "<p>{status} {id} {retry_after} {other} { {{status}}";
        let expected = "<p>503 &lt;b&gt;&amp;{status} 7 {other} { {503}";
        assert_eq!(fill.fill_in(page), expected);
        let fill = PageFill {
            retry_after: None,
            ..fill
        };
        assert_eq!(fill.fill_in("a{retry_after}b"), "ab");
    }

    #[test]
    fn a_status_comes_before_its_class_and_an_app_before_the_front() {
        let of = |text: &str| Arc::from(text);
        let others = ErrorPageSet(vec![
            (StatusPattern::One(502), of("front 502")),
            (StatusPattern::Class(4), of("front 4xx")),
        ]);
        let mut own = vec![
            (StatusPattern::Class(5), of("app 5xx")),
            (StatusPattern::One(503), of("app 503")),
        ];
        own.sort_by_key(|(status, _)| *status);
        own.extend(others.0);
        let pages = ErrorPageSet(own);
        let page = |status| {
            pages.page(&PageFill {
                status,
                id: &Id::Theirs(b"id".as_slice().into()),
                retry_after: None,
            })
        };
        assert_eq!(page(503).as_deref(), Some("app 503"));
        assert_eq!(page(502).as_deref(), Some("app 5xx"));
        assert_eq!(page(404).as_deref(), Some("front 4xx"));
        assert_eq!(page(308), None);
    }
}
