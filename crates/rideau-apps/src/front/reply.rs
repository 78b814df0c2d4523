//! An answer on its way to a client, whichever HTTP that speaks.

use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::body::Answer;
use crate::http1::date;
use crate::http1::fields::{is, put};

/// An answer on its way to a client.
pub(super) struct HttpReply {
    pub(super) status: StatusCode,
    /// As they are written, each with the end of its line.
    pub(super) fields: Vec<u8>,
    /// When it was given.
    pub(super) at: Instant,
    /// The same since 1970, if the fields do not say it.
    pub(super) date: Option<Duration>,
    /// How long the body is, or would be if it were not left out.
    pub(super) length: Option<u64>,
    pub(super) body: Answer,
    /// The connection ends with it.
    pub(super) closes: bool,
}

impl HttpReply {
    /// Say this as well.
    pub(super) fn put(&mut self, name: &str, value: impl AsRef<[u8]>) {
        put(&mut self.fields, name, value);
    }

    /// Say these instead of what is said by the same names; an empty value says nothing.
    pub(super) fn replace(&mut self, fields: &[(String, String)]) {
        let mut kept = Vec::with_capacity(self.fields.len());
        for line in self.fields.split_inclusive(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if !fields.iter().any(|(known, _)| is(name, known)) {
                kept.extend_from_slice(line);
            }
        }
        self.fields = kept;
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            self.put(name, value);
        }
    }

    /// For a client that speaks another HTTP.
    pub(super) fn into_response(mut self) -> Response<Answer> {
        if let Some(date) = self.date {
            date::put(&mut self.fields, date);
        }
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = read(&self.fields);
        let fields = response.headers_mut();
        if let Some(len) = self.length {
            fields.insert(hyper::header::CONTENT_LENGTH, HeaderValue::from(len));
        }
        response
    }
}

/// Parses fields.
pub(super) fn read(written: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in written.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            fields.append(name, value);
        }
    }
    fields
}
