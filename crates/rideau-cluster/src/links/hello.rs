//! The first frames of a connection: both sides say what they are and prove that they
//! know the secret, before anything else is read.
//!
//! The dialer says hello. The acceptor answers with its own hello and its proof. The dialer
//! checks it and sends its proof. The acceptor ends the older link, if there is one, and
//! says that it is ready. A side that refuses says why and closes. These frames are the
//! same in all versions of the protocol.

use std::fmt;
use std::io;

use rideau_core::cluster::Incarnation;
use rideau_resp::{Quoted, ReplyLimits, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls;

use super::fields::{BadFrame, FrameFields, begin, signed};
use super::frame::{FrameReader, FrameWriter};
use super::proof::{LinkSecret, LinkSide, PROOF_LEN, Transcript, nonce};
use super::refusal::{LinkRefusal, RefusalReason};

/// Bytes that are read of a node that has not proved itself.
pub(super) const HANDSHAKE_MAX: usize = 4 << 10;

const HANDSHAKE_LIMITS: ReplyLimits = ReplyLimits {
    frame_max: HANDSHAKE_MAX,
    bulk_max: 1 << 10,
    elements_max: 10,
    depth_max: 1,
};

/// The hello of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// The lowest and the highest version of the protocol that it speaks.
    pub(super) versions: (u32, u32),
    pub(super) cluster: String,
    pub(super) from: Incarnation,
    /// The incarnation that it means to speak with.
    pub(super) to: Incarnation,
    pub(super) nonce: [u8; PROOF_LEN],
    /// The dialer's number of this link. The acceptor repeats it.
    pub(super) number: u64,
}

/// The frames of a handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HandshakeFrame {
    Hello(Hello),
    Proof(Vec<u8>),
    Ready,
    GoAway(LinkRefusal),
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(super) enum HandshakeEnd {
    /// This side refuses, and has yet to say so.
    Refused(LinkRefusal),
    /// The other side refuses.
    Told(LinkRefusal),
    /// The connection ended.
    Closed(io::Error),
}

/// The inputs of a handshake.
pub(super) struct Handshake<'a> {
    pub(super) me: &'a Incarnation,
    pub(super) cluster: &'a str,
    pub(super) versions: (u32, u32),
    pub(super) secret: &'a LinkSecret,
    /// The TLS channel binding; empty without TLS.
    pub(super) channel: &'a [u8],
}

impl Handshake<'_> {
    /// The dialer's side. Returns the version that both speak.
    pub(super) async fn dial<R, W>(
        &self,
        to: &Incarnation,
        number: u64,
        reader: &mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
    ) -> Result<u32, HandshakeEnd>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let dialer = self.hello(to, number);
        send(HandshakeFrame::Hello(dialer.clone()), writer).await?;
        let acceptor = next_hello(reader).await?;
        let version = self.check(&acceptor)?;
        if acceptor.from != *to || acceptor.number != number {
            let (from, number) = (&acceptor.from, acceptor.number);
            let detail = format_args!("link {number} reached {from} instead of {to}");
            return Err(RefusalReason::Incarnation.with(detail).into());
        }
        let transcript = Transcript {
            dialer: dialer.bytes(),
            acceptor: acceptor.bytes(),
            channel: self.channel,
        };
        let proof = next_proof(reader).await?;
        if !(self.secret).is_proof(&proof, LinkSide::Acceptor, &transcript) {
            return Err(wrong_secret(&acceptor.from));
        }
        let proof = self.secret.prove(LinkSide::Dialer, &transcript);
        send(HandshakeFrame::Proof(proof.to_vec()), writer).await?;
        match next(reader).await? {
            HandshakeFrame::Ready => Ok(version),
            _ => Err(malformed("the acceptor did not say that it is ready")),
        }
    }

    /// The acceptor's side, up to the point at which the dialer has proved itself. `check`
    /// looks at the dialer's hello before this node says anything.
    pub(super) async fn accept<R, W>(
        &self,
        reader: &mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
        check: impl FnOnce(&Hello) -> Result<(), LinkRefusal>,
    ) -> Result<(Hello, u32), HandshakeEnd>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let dialer = next_hello(reader).await?;
        let version = self.check(&dialer)?;
        if dialer.from.name >= self.me.name {
            let detail = format_args!("{} must not connect to {}", dialer.from, self.me);
            return Err(RefusalReason::Direction.with(detail).into());
        }
        check(&dialer)?;
        let acceptor = self.hello(&dialer.from, dialer.number);
        let transcript = Transcript {
            dialer: dialer.bytes(),
            acceptor: acceptor.bytes(),
            channel: self.channel,
        };
        HandshakeFrame::Hello(acceptor.clone()).write(writer.buffer());
        let proof = self.secret.prove(LinkSide::Acceptor, &transcript);
        send(HandshakeFrame::Proof(proof.to_vec()), writer).await?;
        let proof = next_proof(reader).await?;
        if !(self.secret).is_proof(&proof, LinkSide::Dialer, &transcript) {
            return Err(wrong_secret(&dialer.from));
        }
        Ok((dialer, version))
    }

    fn hello(&self, to: &Incarnation, number: u64) -> Hello {
        Hello {
            versions: self.versions,
            cluster: self.cluster.to_owned(),
            from: self.me.clone(),
            to: to.clone(),
            nonce: nonce(),
            number,
        }
    }

    /// The highest version that both speak, if the other side is of this cluster and
    /// means this node.
    fn check(&self, hello: &Hello) -> Result<u32, LinkRefusal> {
        let ((low, high), (their_low, their_high)) = (self.versions, hello.versions);
        let version = high.min(their_high);
        if version < low.max(their_low) {
            let detail = format_args!(
                "{} speaks versions {their_low} to {their_high}, {} speaks {low} to {high}",
                hello.from, self.me
            );
            return Err(RefusalReason::Version.with(detail));
        }
        if hello.cluster != self.cluster {
            let (theirs, ours) = (Quoted(hello.cluster.as_bytes()), self.cluster);
            let detail = format_args!("{} is of cluster {theirs}, not {ours:?}", hello.from);
            return Err(RefusalReason::Cluster.with(detail));
        }
        if hello.to != *self.me {
            let detail = format_args!("{} looked for {}, not {}", hello.from, hello.to, self.me);
            return Err(RefusalReason::Incarnation.with(detail));
        }
        Ok(version)
    }
}

impl Hello {
    /// The frame it is sent as.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        self.write(&mut frame);
        frame
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        begin(out, "hello", 7)
            .integer(self.versions.0.into())
            .integer(self.versions.1.into())
            .bulk(&self.cluster)
            .bulk(self.from.to_string())
            .bulk(self.to.to_string())
            .bulk(self.nonce)
            .integer(signed(self.number));
    }

    fn read(fields: &mut FrameFields) -> Result<Self, BadFrame> {
        let incarnation = |text: String| text.parse().map_err(|_| BadFrame::Field);
        Ok(Self {
            versions: (fields.small()?, fields.small()?),
            cluster: fields.text()?,
            from: incarnation(fields.text()?)?,
            to: incarnation(fields.text()?)?,
            nonce: fields.bytes()?.try_into().map_err(|_| BadFrame::Field)?,
            number: fields.number()?,
        })
    }
}

impl HandshakeFrame {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.write(out),
            Self::Proof(proof) => drop(begin(out, "proof", 1).bulk(proof)),
            Self::Ready => drop(begin(out, "ready", 0)),
            Self::GoAway(LinkRefusal { reason, detail }) => {
                // The reader takes no more than a kilobyte.
                let detail: String = detail.chars().take(240).collect();
                let mut frame = begin(out, "goaway", 2);
                frame.bulk(reason.word()).bulk(detail);
            }
        }
    }

    pub(super) fn read(value: Value) -> Result<Self, BadFrame> {
        let (verb, mut fields) = FrameFields::of(value)?;
        let frame = match verb.as_slice() {
            b"hello" => Self::Hello(Hello::read(&mut fields)?),
            b"proof" => Self::Proof(fields.bytes()?),
            b"ready" => Self::Ready,
            b"goaway" => Self::GoAway(LinkRefusal {
                reason: RefusalReason::of_word(&fields.bytes()?).ok_or(BadFrame::Field)?,
                detail: fields.text()?,
            }),
            _ => return Err(BadFrame::Verb),
        };
        fields.end()?;
        Ok(frame)
    }
}

/// Send one frame of a handshake.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    frame: HandshakeFrame,
    writer: &mut FrameWriter<W>,
) -> Result<(), HandshakeEnd> {
    frame.write(writer.buffer());
    writer.flush().await.map_err(HandshakeEnd::from)
}

async fn next<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
) -> Result<HandshakeFrame, HandshakeEnd> {
    loop {
        if let Some(value) = reader.next(&HANDSHAKE_LIMITS).map_err(malformed)? {
            return match HandshakeFrame::read(value).map_err(malformed)? {
                HandshakeFrame::GoAway(refusal) => Err(HandshakeEnd::Told(refusal)),
                frame => Ok(frame),
            };
        }
        if reader.received() >= HANDSHAKE_MAX as u64 {
            return Err(malformed("the handshake is too long"));
        }
        reader.fill_up_to(HANDSHAKE_MAX).await?;
    }
}

async fn next_hello<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
) -> Result<Hello, HandshakeEnd> {
    match next(reader).await? {
        HandshakeFrame::Hello(hello) => Ok(hello),
        _ => Err(malformed("a handshake does not begin with a hello")),
    }
}

async fn next_proof<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
) -> Result<Vec<u8>, HandshakeEnd> {
    match next(reader).await? {
        HandshakeFrame::Proof(proof) => Ok(proof),
        _ => Err(malformed("a hello is not followed by a proof")),
    }
}

fn malformed(why: impl fmt::Display) -> HandshakeEnd {
    RefusalReason::Malformed.with(why).into()
}

fn wrong_secret(peer: &Incarnation) -> HandshakeEnd {
    let detail = format_args!("{peer} does not know this node's secret");
    RefusalReason::Secret.with(detail).into()
}

impl From<LinkRefusal> for HandshakeEnd {
    fn from(refusal: LinkRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for HandshakeEnd {
    fn from(error: io::Error) -> Self {
        // TLS 1.3 tells a client of a bad certificate only when it reads.
        let inner = error.get_ref();
        match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(fault @ rustls::Error::AlertReceived(_)) => {
                Self::Told(RefusalReason::Certificate.with(fault))
            }
            Some(fault) => Self::Refused(RefusalReason::Certificate.with(fault)),
            None => Self::Closed(error),
        }
    }
}
