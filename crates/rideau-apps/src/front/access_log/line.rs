//! One line of the log: in the combined format of Apache and nginx, or as JSON.
//!
//! What clients say is escaped: control characters and quotes cannot end a field or a line.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, UNIX_EPOCH};

use rideau_config::{AccessFormat, HiddenPart, LoggedHeader};

use super::{LoggedAnswer, LoggedRequest};
use crate::http1::date;

/// Stands for what is left out.
const HIDDEN: &[u8] = b"-";
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A line without what the answer says.
pub(super) struct LineParts {
    before: String,
    behind: String,
}

impl LineParts {
    pub(super) fn new(
        request: &LoggedRequest<'_>,
        format: AccessFormat,
        hidden: &[HiddenPart],
    ) -> Self {
        let client = match hidden.contains(&HiddenPart::Client) {
            true => shortened(request.client),
            false => request.client.to_canonical(),
        };
        let target = without_secrets(request.target, hidden);
        let header = |value, header| match hidden.contains(&HiddenPart::Header(header)) {
            true => Cow::Borrowed(HIDDEN),
            false => without_secrets(value, hidden),
        };
        let referer = header(request.referer, LoggedHeader::Referer);
        let agent = match hidden.contains(&HiddenPart::Header(LoggedHeader::UserAgent)) {
            true => HIDDEN,
            false => request.agent,
        };
        let parts = (client, &*target, &*referer, agent);
        match format {
            AccessFormat::Combined => combined(request, parts),
            AccessFormat::Json => json(request, parts),
        }
    }
}

/// The client, the target, the referer and the agent, as far as they are shown.
type Shown<'a> = (IpAddr, &'a [u8], &'a [u8], &'a [u8]);

fn combined(request: &LoggedRequest<'_>, (client, target, referer, agent): Shown<'_>) -> LineParts {
    let mut before = String::with_capacity(96 + target.len());
    let _ = write!(before, "{client} - - [{}] \"", common_time(date::now()));
    if request.method.is_empty() {
        before.push('-');
    } else {
        put_quoted(&mut before, request.method.as_bytes());
        before.push(' ');
        put_quoted(&mut before, target);
        before.push(' ');
        before.push_str(request.version);
    }
    before.push('"');
    let mut behind = String::with_capacity(16 + referer.len() + agent.len());
    for value in [referer, agent] {
        behind.push_str(" \"");
        put_quoted(&mut behind, if value.is_empty() { HIDDEN } else { value });
        behind.push('"');
    }
    behind.push('\n');
    LineParts { before, behind }
}

fn json(request: &LoggedRequest<'_>, (client, target, referer, agent): Shown<'_>) -> LineParts {
    let mut before = String::with_capacity(256 + target.len() + referer.len() + agent.len());
    let _ = write!(before, "{{\"time\":\"{}\"", rfc3339(date::now()));
    let _ = write!(before, ",\"client\":\"{client}\"");
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &target[..0]),
    };
    for (name, value) in [
        ("method", request.method.as_bytes()),
        ("host", request.host),
        ("path", path),
        ("query", query),
        ("protocol", request.version.as_bytes()),
        ("referer", referer),
        ("agent", agent),
        ("id", request.id),
        ("app", request.app.unwrap_or_default().as_bytes()),
    ] {
        if !value.is_empty() {
            let _ = write!(before, ",\"{name}\":\"");
            put_json(&mut before, value);
            before.push('"');
        }
    }
    LineParts {
        before,
        behind: "}\n".into(),
    }
}

/// The whole line, with the end of its line.
pub(super) fn finish(
    parts: &LineParts,
    answer: &LoggedAnswer,
    took: Duration,
    format: AccessFormat,
) -> String {
    let mut line = String::with_capacity(parts.before.len() + parts.behind.len() + 128);
    line.push_str(&parts.before);
    let (status, bytes) = (answer.status, answer.bytes);
    let _ = match format {
        AccessFormat::Combined => write!(line, " {status} {bytes}"),
        AccessFormat::Json => write!(
            line,
            ",\"status\":{status},\"bytes\":{bytes},\"took_us\":{}",
            took.as_micros()
        ),
    };
    if format == AccessFormat::Json {
        if let Some(served) = &answer.served {
            let _ = write!(
                line,
                ",\"wait_us\":{},\"app_us\":{},\"process\":{}",
                served.waited.as_micros(),
                served.took.as_micros(),
                served.process
            );
            let _ = match (served.pid, &served.server) {
                (_, Some(server)) => write!(line, ",\"server\":{server:?}"),
                (Some(pid), None) => write!(line, ",\"pid\":{pid}"),
                (None, None) => Ok(()),
            };
            let _ = write!(line, ",\"generation\":{}", served.generation);
        }
        if let Some(error) = answer.error {
            let _ = write!(line, ",\"error\":\"{error}\"");
        }
    }
    line.push_str(&parts.behind);
    line
}

/// A text between quotes, as nginx has it.
fn put_quoted(out: &mut String, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
}

/// A text between quotes of JSON.
fn put_json(out: &mut String, text: &[u8]) {
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            _ if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
}

/// The network that an address is of.
fn shortened(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80)).into(),
    }
}

/// A path or an address without what its query is to hide.
fn without_secrets<'a>(target: &'a [u8], hidden: &[HiddenPart]) -> Cow<'a, [u8]> {
    let Some(at) = memchr::memchr(b'?', target) else {
        return Cow::Borrowed(target);
    };
    let (path, query) = (&target[..=at], &target[at + 1..]);
    if hidden.contains(&HiddenPart::Query) {
        return Cow::Owned([path, HIDDEN].concat());
    }
    let is_hidden = |name: &[u8]| {
        let name = decoded(name);
        let mut arguments = hidden.iter().filter_map(|part| match part {
            HiddenPart::Argument(argument) => Some(argument.as_bytes()),
            _ => None,
        });
        arguments.any(|argument| argument == &*name)
    };
    if !hidden
        .iter()
        .any(|part| matches!(part, HiddenPart::Argument(_)))
    {
        return Cow::Borrowed(target);
    }
    let mut out = path.to_vec();
    for pair in query.split_inclusive(|byte| matches!(byte, b'&' | b';')) {
        let len = match pair.last() {
            Some(b'&' | b';') => pair.len() - 1,
            _ => pair.len(),
        };
        let (pair, end) = pair.split_at(len);
        match memchr::memchr(b'=', pair) {
            Some(equals) if is_hidden(&pair[..equals]) => {
                out.extend_from_slice(&pair[..=equals]);
                out.extend_from_slice(HIDDEN);
            }
            _ => out.extend_from_slice(pair),
        }
        out.extend_from_slice(end);
    }
    Cow::Owned(out)
}

/// The name of an argument as apps read it.
fn decoded(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.contains(&b'%') {
        return Cow::Borrowed(name);
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut out = Vec::with_capacity(name.len());
    let mut at = 0;
    while let Some(byte) = name.get(at) {
        let digits = match (byte, name.get(at + 1), name.get(at + 2)) {
            (b'%', Some(high), Some(low)) => digit(high).zip(digit(low)),
            _ => None,
        };
        match digits {
            Some((high, low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

/// As `19/Nov/2026:04:27:32 +0000`.
fn common_time(date: Duration) -> String {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + date);
    // `Thu, 19 Nov 2026 04:27:32 GMT`
    let part = |from, to| text.get(from..to).unwrap_or_default();
    let (day, month, year, time) = (part(5, 7), part(8, 11), part(12, 16), part(17, 25));
    format!("{day}/{month}/{year}:{time} +0000")
}

/// As `2026-11-19T04:27:32.123Z`.
fn rfc3339(date: Duration) -> String {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + date);
    let part = |from, to| text.get(from..to).unwrap_or_default();
    let month = MONTHS.iter().position(|month| *month == part(8, 11));
    let month = month.unwrap_or_default() + 1;
    let (day, year, time) = (part(5, 7), part(12, 16), part(17, 25));
    let millis = date.subsec_millis();
    format!("{year}-{month:02}-{day}T{time}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: LoggedRequest<'_> = LoggedRequest {
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)),
        id: b"id-1",
        method: "GET",
        target: b"/a?token=secret&b=c",
        version: "HTTP/1.1",
        host: b"shop.example",
        referer: b"https://x/?token=s",
        agent: b"curl/8",
        app: Some("shop"),
    };

    fn logged(request: &LoggedRequest<'_>, format: AccessFormat, hidden: &[HiddenPart]) -> String {
        let parts = LineParts::new(request, format, hidden);
        let answer = LoggedAnswer {
            status: 503,
            bytes: 12,
            error: Some("queue_full"),
            served: None,
        };
        finish(&parts, &answer, Duration::from_micros(1500), format)
    }

    /// A line without the time when it was written.
    fn combined_line(request: &LoggedRequest<'_>, hidden: &[HiddenPart]) -> String {
        let line = logged(request, AccessFormat::Combined, hidden);
        let (client, rest) = line.split_once(" - - [").unwrap();
        let (time, rest) = rest.split_once("] ").unwrap();
        assert_eq!(time.len(), 26, "{time}");
        format!("{client} {rest}")
    }

    #[test]
    fn a_line_has_what_it_should() {
        let expected = "192.0.2.77 \"GET /a?token=secret&b=c HTTP/1.1\" 503 12 \
                        \"https://x/?token=s\" \"curl/8\"\n";
        assert_eq!(combined_line(&REQUEST, &[]), expected);
        let line = logged(&REQUEST, AccessFormat::Json, &[]);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["client"], "192.0.2.77");
        assert_eq!(json["path"], "/a");
        assert_eq!(json["query"], "token=secret&b=c");
        assert_eq!((&json["status"], &json["bytes"]), (&503.into(), &12.into()));
        assert_eq!(json["error"], "queue_full");
        assert_eq!(
            (&json["app"], &json["id"]),
            (&"shop".into(), &"id-1".into())
        );
        assert_eq!(json["took_us"], 1500);
    }

    #[test]
    fn what_is_to_be_hidden_is_not_written() {
        let hidden = [
            HiddenPart::Client,
            HiddenPart::Argument("token".into()),
            HiddenPart::Header(LoggedHeader::UserAgent),
        ];
        let expected = "192.0.2.0 \"GET /a?token=-&b=c HTTP/1.1\" 503 12 \
                        \"https://x/?token=-\" \"-\"\n";
        assert_eq!(combined_line(&REQUEST, &hidden), expected);
        let hidden = [HiddenPart::Query, HiddenPart::Header(LoggedHeader::Referer)];
        let expected = "192.0.2.77 \"GET /a?- HTTP/1.1\" 503 12 \"-\" \"curl/8\"\n";
        assert_eq!(combined_line(&REQUEST, &hidden), expected);
        let client = shortened("2001:db8:1:2::3".parse().unwrap());
        assert_eq!(client.to_string(), "2001:db8:1::");
    }

    #[test]
    fn an_argument_is_hidden_in_every_spelling() {
        let hidden = [HiddenPart::Argument("token".into())];
        let shown = |target: &str| {
            let shown = without_secrets(target.as_bytes(), &hidden);
            String::from_utf8(shown.into_owned()).unwrap()
        };
        assert_eq!(
            shown("/?t%6Fken=s;token=t&tokens=u"),
            "/?t%6Fken=-;token=-&tokens=u"
        );
        assert_eq!(shown("/?token=a=b&token"), "/?token=-&token");
        assert_eq!(shown("/?%zz=1&token="), "/?%zz=1&token=-");
        assert_eq!(shown("/token=a"), "/token=a");
    }

    #[test]
    fn no_client_can_write_a_line_of_its_own() {
        let wild = b"/a\r\n1.2.3.4 - - \"x\" \\ \x1b[31m \xc2\x9b \xff\x7f";
        let request = LoggedRequest {
            target: wild,
            agent: wild,
            ..REQUEST
        };
        for format in [AccessFormat::Combined, AccessFormat::Json] {
            let line = logged(&request, format, &[]);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            let is_wild = |c: char| c.is_control() && c != '\n';
            assert!(!line.contains(is_wild), "{line:?}");
        }
        let line = combined_line(&request, &[]);
        let escaped = r#"/a\x0D\x0A1.2.3.4 - - \"x\" \\ \x1B[31m \xC2\x9B \xFF\x7F"#;
        assert!(line.contains(escaped), "{line}");
        let line = logged(&request, AccessFormat::Json, &[]);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["path"], String::from_utf8_lossy(wild).into_owned());
    }

    #[test]
    fn what_is_no_request_has_a_line_too() {
        let request = LoggedRequest {
            method: "",
            target: b"",
            host: b"",
            referer: b"",
            agent: b"",
            app: None,
            ..REQUEST
        };
        let expected = "192.0.2.77 \"-\" 503 12 \"-\" \"-\"\n";
        assert_eq!(combined_line(&request, &[]), expected);
    }

    #[test]
    fn times_are_written_as_usual() {
        let date = Duration::from_millis(1_795_062_452_007);
        assert_eq!(common_time(date), "19/Nov/2026:04:27:32 +0000");
        assert_eq!(rfc3339(date), "2026-11-19T04:27:32.007Z");
    }
}
