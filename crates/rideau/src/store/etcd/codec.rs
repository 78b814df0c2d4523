//! Turns messages into bytes for tonic, and back.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::messages::EtcdCall;

/// Writes the requests of one call and reads its replies.
pub(super) struct CallCodec<C>(PhantomData<C>);

impl<C> CallCodec<C> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<C: EtcdCall> Codec for CallCodec<C> {
    type Encode = C;
    type Decode = C::Reply;
    type Encoder = RequestEncoder<C>;
    type Decoder = ReplyDecoder<C::Reply>;

    fn encoder(&mut self) -> Self::Encoder {
        RequestEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ReplyDecoder(PhantomData)
    }
}

pub(super) struct RequestEncoder<M>(PhantomData<M>);

impl<M: Message> Encoder for RequestEncoder<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, message: M, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = message.encode(buffer);
        encoded.map_err(|error| Status::internal(error.to_string()))
    }
}

pub(super) struct ReplyDecoder<M>(PhantomData<M>);

impl<M: Message + Default> Decoder for ReplyDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let decoded = M::decode(buffer);
        decoded
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
