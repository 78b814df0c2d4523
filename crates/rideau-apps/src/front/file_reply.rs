//! Requests that the front answers with a file, and answers that it compresses.

use std::io;
use std::sync::Arc;

use hyper::Method;

use super::accept_encoding::Accepted;
use super::body::{FILE_PART, FileBody};
use super::compress::{CompressClient, CompressRules};
use super::forward::Visit;
use super::headers;
use super::refusals::RequestRefusal;
use super::reply::HttpReply;
use super::request::ProxyRequest;
use super::static_files::{Conditions, FileAnswer, FileClient, FileFound, FileRequest};
use crate::http1::date;

impl ProxyRequest {
    /// It goes to its app at once, and as a request.
    pub(super) const fn is_plain(&self) -> bool {
        self.upgrade.is_none() && self.by_rules.file.is_none()
    }

    /// The file that a request is for, if there is one.
    pub(super) async fn answer_with_file(
        &self,
        visit: &Visit<'_>,
        file: &Arc<FileRequest>,
    ) -> Result<Option<HttpReply>, RequestRefusal> {
        let client = FileClient {
            is_get: self.method == Method::GET,
            accepted: self.accepted(),
            conditions: self.conditions(),
        };
        let sought = Arc::clone(file);
        let looked = visit.front.disk.run(move || sought.look(&client));
        let mut reply = match looked.await {
            Ok(FileFound::File(found)) => self.file_reply(visit, *found)?,
            Ok(FileFound::Folder) => file.redirect(date::now()),
            Ok(FileFound::Hidden) => return Err(RequestRefusal::NotFound),
            Ok(FileFound::Nothing) => return Ok(None),
            Err(error) => {
                self.report_unreadable(&error);
                return match error.kind() {
                    // The folder of the config is not there.
                    io::ErrorKind::NotFound => Ok(None),
                    _ => Err(RequestRefusal::FileUnreadable),
                };
            }
        };
        if let Some(route) = &self.by_rules.route {
            reply.replace(&route.fields);
        }
        reply.put(headers::REQUEST_ID, visit.id);
        if let Some(hsts) = &visit.conn.hsts {
            reply.put(headers::HSTS, &**hsts);
        }
        self.compress(visit, &mut reply);
        self.app.counts.answered_by_file();
        if let Some(entry) = visit.log {
            entry.answered_by_file(reply.status.as_u16());
        }
        Ok(Some(reply))
    }

    fn file_reply(
        &self,
        visit: &Visit<'_>,
        mut found: FileAnswer,
    ) -> Result<HttpReply, RequestRefusal> {
        let concerns = |rules: &Arc<CompressRules>| rules.concerns(found.media_type, found.len);
        found.varies |= self.by_rules.compress.as_ref().is_some_and(concerns);
        let mut reserved = self.reserve(visit);
        if found.is_long() && !reserved.take_memory(FILE_PART) {
            return Err(RequestRefusal::BuffersFull);
        }
        let disk = visit.front.disk.clone();
        let body = |file, from, len| FileBody::new(file, (from, len), disk, reserved);
        Ok(found.reply(date::now(), body))
    }

    /// Say that a file cannot be read, if there is room for a line.
    #[cold]
    fn report_unreadable(&self, error: &io::Error) {
        if self.app.log_rate.admit(date::now()).is_some() {
            let (app, path) = (&*self.app.name, String::from_utf8_lossy(self.path()));
            tracing::warn!(app, "the file for {path} cannot be read: {error}");
        }
    }

    /// Compress an answer, if the config asks for it and the client takes it.
    pub(super) fn compress(&self, visit: &Visit<'_>, reply: &mut HttpReply) {
        let Some(rules) = &self.by_rules.compress else {
            return;
        };
        let client = CompressClient {
            accepted: self.accepted(),
            wants_head: self.method == Method::HEAD,
            wants_part: self.field("range").is_some(),
        };
        rules.apply(reply, &client, || {
            let front = visit.front;
            let client = self.client(&front.config.load().trust, visit.conn);
            let mut reserved = front.encoders.reserve(client);
            reserved.take_memory(1).then_some(reserved)
        });
    }

    fn accepted(&self) -> Accepted {
        Accepted::read(self.fields("accept-encoding"))
    }

    fn conditions(&self) -> Conditions {
        let one = |name| self.field(name).map(<[u8]>::to_vec);
        let list = |name| {
            let all: Vec<_> = self.fields(name).collect();
            (!all.is_empty()).then(|| all.join(&b", "[..]))
        };
        Conditions {
            if_match: list("if-match"),
            if_none_match: list("if-none-match"),
            if_modified_since: one("if-modified-since"),
            if_unmodified_since: one("if-unmodified-since"),
            if_range: one("if-range"),
            range: list("range"),
        }
    }
}
