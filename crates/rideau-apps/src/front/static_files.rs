//! Files that the front serves by itself.
//!
//! A request that may be for a file is looked at before its app is: what there is no file for goes
//! to the app. Files are opened and read on threads that serve no client, for a disk may take its
//! time.

mod conditions;
mod open;
mod path;

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use rideau_config::StaticFiles;

pub(super) use self::conditions::Conditions;
use self::conditions::{Outcome, Validators, date};
use self::open::{Entry, FileFacts, FileRoot, is_known_missing};
use self::path::{FilePath, file_path};
use super::accept_encoding::{Accepted, Coding};
use super::body::{Answer, FILE_PART, FileBody};
use super::media_type;
use super::reply::HttpReply;

/// The files of one app, those for the longest path first.
#[derive(Clone, Default)]
pub(super) struct StaticFolders(Vec<Arc<StaticFiles>>);

/// A request that may be for a file.
pub(super) struct FileRequest {
    folder: Arc<StaticFiles>,
    /// Below the folder.
    path: Vec<u8>,
    is_folder: bool,
    /// Where its path leads with a slash behind it.
    with_slash: Vec<u8>,
}

/// What a client says besides the path.
pub(super) struct FileClient {
    pub(super) is_get: bool,
    pub(super) accepted: Accepted,
    pub(super) conditions: Conditions,
}

/// What there is for a request.
pub(super) enum FileFound {
    File(Box<FileAnswer>),
    /// It is a folder with an index, and its path has no slash behind it.
    Folder,
    /// No client may see it.
    Hidden,
    Nothing,
}

/// The answer to a request for a file.
pub(super) struct FileAnswer {
    outcome: Outcome,
    validators: Validators,
    /// Bytes of the whole file.
    pub(super) len: u64,
    pub(super) media_type: &'static str,
    coding: Option<Coding>,
    /// Other clients get the file in another coding.
    pub(super) varies: bool,
    max_age: Option<Duration>,
    content: Content,
}

/// What is sent of a file.
enum Content {
    Nothing,
    /// A short part, that was read already.
    Read(Vec<u8>),
    File(File),
}

/// A file that was opened.
struct Opened {
    file: File,
    facts: FileFacts,
    coding: Option<Coding>,
    varies: bool,
}

/// A file that changes while it is read is looked at again so often.
const TRIES: usize = 3;

/// The codings of files beside a file, and how their names end.
const BESIDE: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, b".zst"),
    (Coding::Brotli, b".br"),
    (Coding::Gzip, b".gz"),
];

impl StaticFolders {
    pub(super) fn new(config: &[StaticFiles]) -> Self {
        let mut folders: Vec<_> = config.iter().cloned().map(Arc::new).collect();
        folders.sort_by_key(|folder| Reverse(folder.path.len()));
        Self(folders)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The file that a request may be for, if it may be for one.
    ///
    /// # Errors
    ///
    /// If no client may see what it is for.
    pub(super) fn find(
        &self,
        method: &Method,
        path: &[u8],
        query: &[u8],
    ) -> Result<Option<Arc<FileRequest>>, Hidden> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Ok(None);
        }
        for folder in &self.0 {
            match file_path(&folder.path, path) {
                FilePath::Elsewhere => (),
                FilePath::Hidden => return Err(Hidden),
                FilePath::Below {
                    path: below,
                    is_folder,
                } => {
                    let request = FileRequest {
                        folder: Arc::clone(folder),
                        path: below,
                        is_folder,
                        with_slash: [path, b"/", query].concat(),
                    };
                    return Ok((!request.is_missing()).then(|| Arc::new(request)));
                }
            }
        }
        Ok(None)
    }
}

/// No client may see it.
#[derive(Debug)]
pub(super) struct Hidden;

impl FileRequest {
    /// Look for the file. It may take its time.
    pub(super) fn look(&self, client: &FileClient) -> io::Result<FileFound> {
        let mut tries = 0;
        loop {
            match self.find(client) {
                // It got shorter meanwhile.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && tries < TRIES => {
                    tries += 1;
                }
                found => return found,
            }
        }
    }

    fn find(&self, client: &FileClient) -> io::Result<FileFound> {
        let root = match FileRoot::open(&self.folder.root) {
            Ok(root) => root,
            Err(error) => {
                let folder = self.folder.root.display();
                return Err(io::Error::new(error.kind(), format!("{folder}: {error}")));
            }
        };
        let index = self.folder.index.as_deref();
        match (root.find(&self.path)?, index) {
            (Entry::File(file, facts), _) if !self.is_folder => {
                let opened = self.beside(&root, &self.path, (file.into(), facts), client);
                self.answer(&self.path, opened, client)
            }
            (Entry::Folder, Some(index)) => {
                let path = self.index_path(index);
                match root.find(&path)? {
                    Entry::File(..) if !self.is_folder => Ok(FileFound::Folder),
                    Entry::File(file, facts) => {
                        let opened = self.beside(&root, &path, (file.into(), facts), client);
                        self.answer(&path, opened, client)
                    }
                    Entry::Hidden => Ok(FileFound::Hidden),
                    Entry::Folder | Entry::Nothing => Ok(FileFound::Nothing),
                }
            }
            (Entry::Hidden, _) => Ok(FileFound::Hidden),
            (Entry::File(..) | Entry::Folder | Entry::Nothing, _) => Ok(FileFound::Nothing),
        }
    }

    /// There is no file for it, and that is known already: most requests for an app with files
    /// are for none.
    fn is_missing(&self) -> bool {
        let root = &self.folder.root;
        match (self.is_folder, self.folder.index.as_deref()) {
            (false, _) => is_known_missing(root, &self.path),
            (true, Some(index)) => is_known_missing(root, &self.index_path(index)),
            (true, None) => false,
        }
    }

    fn index_path(&self, index: &str) -> Vec<u8> {
        match self.path.is_empty() {
            true => index.as_bytes().to_vec(),
            false => [&self.path, b"/".as_slice(), index.as_bytes()].concat(),
        }
    }

    /// What the client gets instead of a file: the same in a coding that it takes, if that is
    /// beside the file and not older.
    fn beside(
        &self,
        root: &FileRoot,
        path: &[u8],
        (file, facts): (File, FileFacts),
        client: &FileClient,
    ) -> Opened {
        let plain = Opened {
            file,
            facts,
            coding: None,
            varies: false,
        };
        if !self.folder.precompressed {
            return plain;
        }
        let is_current = |other: &FileFacts| other.modified >= facts.modified;
        let name = |end: &[u8]| [path, end].concat();
        let fresh = BESIDE.iter().filter(|(_, end)| {
            let other = root.facts(&name(end));
            other.as_ref().is_some_and(is_current)
        });
        let fresh: Vec<_> = fresh.collect();
        let varies = !fresh.is_empty();
        // A range of a compressed file would be of no use to a client that has a part of the file.
        let best = match client.conditions.range {
            Some(_) => None,
            None => client
                .accepted
                .best(fresh.iter().map(|(coding, _)| *coding)),
        };
        let chosen = fresh.iter().find(|(coding, _)| Some(*coding) == best);
        if let Some((coding, end)) = chosen
            && let Ok(Entry::File(file, other)) = root.find(&name(end))
            && is_current(&other)
        {
            return Opened {
                file: file.into(),
                facts: other,
                coding: Some(*coding),
                varies,
            };
        }
        Opened { varies, ..plain }
    }

    fn answer(&self, path: &[u8], opened: Opened, client: &FileClient) -> io::Result<FileFound> {
        let (facts, coding) = (opened.facts, opened.coding);
        let validators = validators(&facts, coding);
        let outcome = client
            .conditions
            .decide(client.is_get, &validators, facts.len);
        let sent = match outcome {
            Outcome::Whole if client.is_get => (0, facts.len),
            Outcome::Part { from, len } => (from, len),
            _ => (0, 0),
        };
        let content = match sent {
            (_, 0) => Content::Nothing,
            (from, len) if len <= FILE_PART => {
                let mut read = vec![0; usize::try_from(len).unwrap_or_default()];
                opened.file.read_exact_at(&mut read, from)?;
                Content::Read(read)
            }
            _ => Content::File(opened.file),
        };
        Ok(FileFound::File(Box::new(FileAnswer {
            outcome,
            validators,
            len: facts.len,
            media_type: media_type::of_file(path),
            coding,
            varies: opened.varies,
            max_age: self.folder.max_age,
            content,
        })))
    }

    /// The answer that leads to the folder, with a slash behind its name: links of its page are
    /// looked for there.
    pub(super) fn redirect(&self, now: Duration) -> HttpReply {
        let mut reply = empty(StatusCode::PERMANENT_REDIRECT, now);
        reply.length = Some(0);
        reply.put("Location", &self.with_slash);
        reply
    }
}

fn empty(status: StatusCode, now: Duration) -> HttpReply {
    HttpReply {
        status,
        fields: Vec::with_capacity(256),
        at: Instant::now(),
        date: Some(now),
        length: None,
        body: Answer::Whole(Bytes::new()),
        closes: false,
    }
}

/// What tells versions of a file apart: when it was changed, how long it is, and its coding.
fn validators(facts: &FileFacts, coding: Option<Coding>) -> Validators {
    let (seconds, nanos) = facts.modified;
    let coding = coding.map_or(String::new(), |coding| format!("-{}", coding.word()));
    Validators {
        etag: format!("\"{seconds:x}.{nanos:x}-{:x}{coding}\"", facts.len),
        modified: seconds,
    }
}

impl FileAnswer {
    /// It is long, and read while it is sent.
    pub(super) const fn is_long(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    /// The answer, at this time since 1970. `body` makes that of a long file.
    pub(super) fn reply(
        self,
        now: Duration,
        body: impl FnOnce(File, u64, u64) -> FileBody,
    ) -> HttpReply {
        let (status, sent) = match self.outcome {
            Outcome::Whole => (StatusCode::OK, Some((0, self.len))),
            Outcome::Part { from, len } => (StatusCode::PARTIAL_CONTENT, Some((from, len))),
            Outcome::NotModified => (StatusCode::NOT_MODIFIED, None),
            Outcome::Failed => (StatusCode::PRECONDITION_FAILED, Some((0, 0))),
            Outcome::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, Some((0, 0))),
        };
        let mut reply = empty(status, now);
        reply.length = sent.map(|(_, len)| len);
        if status.is_success() {
            reply.put("Content-Type", self.media_type);
            reply.put("Accept-Ranges", "bytes");
            if let Some(coding) = self.coding {
                reply.put("Content-Encoding", coding.word());
            }
        }
        match self.outcome {
            Outcome::Part { from, len } => {
                let last = from + len - 1;
                reply.put("Content-Range", format!("bytes {from}-{last}/{}", self.len));
            }
            Outcome::Unsatisfiable => {
                reply.put("Content-Range", format!("bytes */{}", self.len));
            }
            _ => (),
        }
        if !status.is_client_error() {
            reply.put("ETag", &self.validators.etag);
            // A file of tomorrow would never be asked for again.
            let modified = self.validators.modified.min(now.as_secs());
            reply.put("Last-Modified", date(modified));
            if let Some(age) = self.max_age {
                reply.put("Cache-Control", format!("max-age={}", age.as_secs()));
            }
        }
        if self.varies {
            reply.put("Vary", "Accept-Encoding");
        }
        reply.body = match (self.content, sent) {
            (Content::Read(bytes), _) => Answer::Whole(bytes.into()),
            (Content::File(file), Some((from, len))) => {
                Answer::File(Box::new(body(file, from, len)))
            }
            _ => Answer::Whole(Bytes::new()),
        };
        reply
    }
}
