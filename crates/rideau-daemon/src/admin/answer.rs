//! The answer of a request: a response in JSON, or an error with a sentence.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rideau_process::panics::{self, Panicked};
use serde_json::{Value, json};

/// The answer of a request.
pub(super) type Answer = Result<Response, HttpError>;

/// A mistake, or something that cannot be.
#[derive(Debug)]
pub(super) struct HttpError {
    pub(super) status: StatusCode,
    /// As the Redis protocol calls it.
    pub(super) code: String,
    /// A sentence that a person can act on.
    pub(super) text: String,
    /// There is an event of it, if it is a denial.
    pub(super) is_recorded: bool,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, code: &str, text: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            text: text.into(),
            is_recorded: false,
        }
    }

    /// The answer of a command, which has recorded it if it is a denial.
    pub(super) fn of_executed(error: &str) -> Self {
        Self {
            is_recorded: true,
            ..Self::of_command(error)
        }
    }

    /// The request is malformed.
    pub(super) fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ERR", text)
    }

    /// There is no such thing.
    pub(super) fn no_such(kind: &str, name: &str, hint: &str) -> Self {
        let text = format!("There is no {kind} {name:?}: {hint}");
        Self::new(StatusCode::NOT_FOUND, "NOSUCH", text)
    }

    /// An error of the Redis protocol: its kind, and a sentence.
    pub(super) fn of_command(error: &str) -> Self {
        let (code, text) = error.split_once(' ').unwrap_or(("ERR", error));
        let status = match code {
            "NOSUCH" => StatusCode::NOT_FOUND,
            "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
            "NOPERM" => StatusCode::FORBIDDEN,
            "STALE" | "LOST" => StatusCode::GONE,
            "WRONGTYPE" | "NOTHELD" => StatusCode::CONFLICT,
            "BUSY" => StatusCode::TOO_MANY_REQUESTS,
            "READONLY" | "MISCONF" => StatusCode::SERVICE_UNAVAILABLE,
            _ if Panicked::is_told_in(text) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, code, text)
    }

    /// No new request is served.
    pub(super) fn draining() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "READONLY",
            "The server is stopping: use another one, or come back later.",
        )
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.text, "code": self.code });
        let mut response = with_status(self.status, &body);
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let basic = HeaderValue::from_static("Basic realm=\"rideau\", charset=\"UTF-8\"");
                headers.insert(header::WWW_AUTHENTICATE, basic);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => (),
        }
        response
    }
}

/// An answer in JSON.
pub(super) fn ok(body: &Value) -> Answer {
    Ok(with_status(StatusCode::OK, body))
}

/// An answer in JSON with another status. One line, so that a shell shows it
/// well.
pub(super) fn with_status(status: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{body}\n")).into_response()
}

impl From<Panicked> for HttpError {
    fn from(panicked: Panicked) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "ERR", format!("{panicked}."))
    }
}

/// Do something that takes a while away from the threads that serve others.
pub(super) async fn away<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpError> {
    Ok(panics::away(work).await?)
}
