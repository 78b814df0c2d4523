//! Answers are compressed for clients that take that.
//!
//! A short answer is compressed as a whole. A longer one is compressed while it is sent: what its
//! app has said so far is never held back, so events reach their client as they come.

mod verdict;

use rideau_config::Compression;

use self::verdict::{AnswerFacts, rewrite};
use super::accept_encoding::{Accepted, Coding};
use super::body::{Answer, Compressed};
use super::budget::Reserved;
use super::encoder::{self, Encoder};
use super::media_type;
use super::reply::HttpReply;
use super::upstream_conn::is_bare;

/// What is compressed, and how.
pub(super) struct CompressRules {
    /// The first of equals is taken.
    codings: Vec<Coding>,
    min: u64,
}

/// What a client says that compression depends on.
pub(super) struct CompressClient {
    pub(super) accepted: Accepted,
    pub(super) wants_head: bool,
    /// It wants a part of what it asks for.
    pub(super) wants_part: bool,
}

impl CompressRules {
    /// None if nothing is compressed.
    pub(super) fn new(ways: &[Compression], min: u64) -> Option<Self> {
        let coding = |way: &Compression| match way {
            Compression::Zstd => Coding::Zstd,
            Compression::Gzip => Coding::Gzip,
        };
        let codings: Vec<_> = ways.iter().map(coding).collect();
        (!codings.is_empty()).then_some(Self { codings, min })
    }

    /// Whether some clients get content of this type and length compressed.
    pub(super) fn concerns(&self, media_type: &str, len: u64) -> bool {
        len >= self.min.max(1) && media_type::is_compressible(media_type.as_bytes())
    }

    /// Compress an answer, if that makes sense. What is compressed while it is sent needs what
    /// `reserve` gives.
    pub(super) fn apply(
        &self,
        reply: &mut HttpReply,
        client: &CompressClient,
        reserve: impl FnOnce() -> Option<Reserved>,
    ) {
        let facts = AnswerFacts::read(&reply.fields);
        let len = match &reply.body {
            Answer::Whole(bytes) if !client.wants_head => Some(bytes.len() as u64),
            _ => reply.length,
        };
        let is_long = len.is_none_or(|len| len >= self.min.max(1));
        let is_whole = !is_bare(reply.status) && reply.status.as_u16() != 206;
        if !is_long || !is_whole || client.wants_part || !facts.may_be_compressed() {
            return;
        }
        let coding = client.accepted.best(self.codings.iter().copied());
        let used = coding.filter(|coding| match client.wants_head {
            true => {
                reply.length = None;
                true
            }
            false => compress(reply, *coding, reserve),
        });
        rewrite(&mut reply.fields, &facts, used);
    }
}

/// Compress the body of an answer; says whether it is.
fn compress(
    reply: &mut HttpReply,
    coding: Coding,
    reserve: impl FnOnce() -> Option<Reserved>,
) -> bool {
    if let Answer::Whole(bytes) = &reply.body {
        let Some(shorter) = encoder::whole(coding, bytes) else {
            return false;
        };
        reply.length = Some(shorter.len() as u64);
        reply.body = Answer::Whole(shorter.into());
        return true;
    }
    let Some(reserved) = reserve() else {
        return false;
    };
    let Ok(encoder) = Encoder::new(coding) else {
        return false;
    };
    let plain = std::mem::replace(&mut reply.body, Answer::Whole(Default::default()));
    let compressed = Compressed::new(plain, encoder, reserved);
    reply.body = Answer::Compressed(Box::new(compressed));
    reply.length = None;
    true
}
