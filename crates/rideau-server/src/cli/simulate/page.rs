//! The report as a page that stands alone: no script, no other file, no request.

use std::fmt::Write;

use rideau_config::human::{Html, Span};

use super::cases::Cases;
use super::chart;
use super::report::{RunRow, percent, rate};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --grid: #e4e7ec;
  --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --grid: #2c3444; --paper: #12161f; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 66rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 0; overflow-x: auto; } figure svg { min-width: 46rem; width: 100%; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
p.soft { color: var(--soft); }
";

/// The page.
pub(super) fn html(cases: &Cases, rows: &[RunRow]) -> String {
    let headline = cases.headline();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n<title>Simulated by Rideau</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Simulated by Rideau</h1>\n\
         <p>{}</p>\n<figure>\n{}</figure>\n<h2>Numbers</h2>\n",
        Html(&headline),
        chart::svg(rows)
    );
    page += "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers\">\n<table>\n\
             <thead><tr>";
    for name in [
        "queue",
        "servers",
        "load",
        "requests",
        "granted",
        "got nothing",
        "goodput/s",
        "busy",
        "mean wait",
        "p50",
        "p90",
        "p99",
        "longest",
        "most waiting",
        "of which",
    ] {
        let _ = write!(page, "<th scope=\"col\">{name}</th>");
    }
    page += "</tr></thead>\n<tbody>\n";
    for row in rows {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}x</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td>",
            Html(&row.queue),
            row.servers,
            row.load,
            row.requests,
            row.granted,
            percent(row.lost),
            rate(row.goodput_per_s),
            percent(row.utilisation)
        );
        for us in row.wait_us {
            let _ = write!(page, "<td>{}</td>", Span::micros(us as u64));
        }
        let _ = writeln!(
            page,
            "<td>{}</td><td>{}</td></tr>",
            row.waiting_max,
            Html(&row.losses())
        );
    }
    page += "</tbody>\n</table>\n</div>\n<p class=\"soft\">Waits are those of the requests that \
             were served, from when they asked first. Busy is the part of the time of the servers \
             in which they served.</p>\n</main>\n</body>\n</html>\n";
    page
}
