//! The two forms of the page: OpenMetrics, and the classic text of Prometheus.

/// How the page is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Prometheus' own text, which everything reads.
    Classic,
    /// OpenMetrics.
    Open,
}

impl Form {
    /// The form that a client would rather have, as its header `Accept` says. A client
    /// that names neither gets the classic one.
    pub(crate) fn accepted(accept: &str) -> Self {
        let weight = |kind: &str| {
            let ranges = accept.split(',').map(weighted);
            let its = ranges.filter(|(range, _)| range.eq_ignore_ascii_case(kind));
            its.map(|(_, weight)| weight).fold(0.0, f32::max)
        };
        let (open, classic) = (weight("application/openmetrics-text"), weight("text/plain"));
        if open > 0.0 && open >= classic {
            Self::Open
        } else {
            Self::Classic
        }
    }

    /// The content type of the answer.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// A page of OpenMetrics in this form.
    pub(super) fn written(self, page: String) -> String {
        match self {
            Self::Classic => classic(&page),
            Self::Open => page,
        }
    }
}

/// A kind of content, and how much it is wanted.
fn weighted(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q="));
    (
        kind,
        weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)),
    )
}

/// The classic text names a family as its samples are named, has no kind for what a
/// program is, no units and no end.
fn classic(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, what) = (words.next(), words.next());
        if mark != Some("#") {
            out.extend([line, "\n"]);
            continue;
        }
        let (name, said) = (words.next().unwrap_or_default(), words.next());
        match (what, said) {
            // Its name is known when its kind is.
            (Some("HELP"), said) => help = said,
            (Some("TYPE"), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                if let Some(help) = help.take() {
                    // Quotes are not escaped here.
                    let help = help.replace("\\\"", "\"");
                    out.extend(["# HELP ", name, suffix, " ", &help, "\n"]);
                }
                out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            _ => (),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_would_rather_have() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, form) in [
            ("", Form::Classic),
            ("*/*", Form::Classic),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Form::Classic),
            ("text/plain", Form::Classic),
            ("application/openmetrics-text", Form::Open),
            (prometheus, Form::Open),
            (
                "application/openmetrics-text;q=0.3, text/plain; q=0.5",
                Form::Classic,
            ),
            ("application/openmetrics-text;q=0", Form::Classic),
        ] {
            assert_eq!(Form::accepted(accept), form, "{accept}");
        }
    }

    #[test]
    fn families_are_named_as_their_samples_are() {
        let page = "# HELP asks Who \\\"asked\\\".\n# TYPE asks counter\nasks_total{a=\"# b\"} 1\n\
                    # HELP build What.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP up_seconds Time.\n# TYPE up_seconds gauge\n# UNIT up_seconds seconds\n\
                    up_seconds 2.5\n# EOF\n";
        let wanted = "# HELP asks_total Who \"asked\".\n# TYPE asks_total counter\n\
                      asks_total{a=\"# b\"} 1\n\
                      # HELP build_info What.\n# TYPE build_info gauge\n\
                      build_info{version=\"1\"} 1\n\
                      # HELP up_seconds Time.\n# TYPE up_seconds gauge\nup_seconds 2.5\n";
        assert_eq!(classic(page), wanted);
    }
}
