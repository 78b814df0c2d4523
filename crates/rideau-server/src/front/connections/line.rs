//! One connection to a process, driven by whoever uses it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::Stream;
use crate::front::body::Upload;

/// Bytes of the head of an answer.
const HEAD_MAX: usize = 256 * 1024;

/// A connection to a process.
pub(in crate::front) struct Line {
    sender: SendRequest<Upload>,
    /// Hyper does not name what drives a connection that may become another.
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    /// It came to its end, and must not be driven any more.
    is_over: bool,
}

/// What became of a request that got no answer.
pub(in crate::front) struct Lost {
    /// The request, if nothing of it was sent.
    pub(in crate::front) request: Option<Request<Upload>>,
    /// The process said something that is no answer, rather than nothing.
    pub(in crate::front) is_garbage: bool,
    pub(in crate::front) error: hyper::Error,
}

impl Line {
    pub(super) async fn open(stream: Stream) -> io::Result<Box<Self>> {
        let opened = http1::Builder::new()
            .max_header_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, driver) = opened.map_err(io::Error::other)?;
        Ok(Box::new(Self {
            sender,
            driver: Box::pin(driver.with_upgrades()),
            is_over: false,
        }))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Move bytes; ready when there are no more to move.
    pub(in crate::front) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        let driven = self.driver.as_mut().poll(context);
        self.is_over = driven.is_ready();
        driven.map(|_| ())
    }

    /// Send a request, and wait for the head of its answer.
    pub(in crate::front) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Lost> {
        // A new line says that it is ready when it is driven for the first time.
        if !self.is_ready() {
            let _ = self.poll(&mut Context::from_waker(Waker::noop()));
        }
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let (driver, is_over) = (&mut self.driver, &mut self.is_over);
        let answer = std::future::poll_fn(|context| {
            if !*is_over {
                *is_over = driver.as_mut().poll(context).is_ready();
            }
            // The answer comes from the driver, so nobody else need be woken.
            sent.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        answer.await.map_err(|mut lost| {
            let request = lost.take_message();
            let error = lost.into_error();
            let is_garbage = error.is_parse() || error.is_parse_too_large();
            Lost {
                request,
                is_garbage,
                error,
            }
        })
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
