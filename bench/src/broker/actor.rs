//! A task that owns both queues and is reached by messages.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot};

use super::Matcher;

/// Messages on their way to the task at most, and taken by it at once.
const MAILBOX: usize = 1024;

#[derive(Clone)]
pub(super) struct Actor {
    mailbox: mpsc::Sender<Message>,
}

enum Message {
    Ask(Party),
    Offer(Party),
}

struct Party {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Actor {
    async fn send(&self, value: u64, message: fn(Party) -> Message) -> u64 {
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(message(Party { value, reply })).await;
        assert!(sent.is_ok(), "the task lives as long as its mailbox");
        answer.await.expect("every wait gets an answer")
    }
}

impl Matcher for Actor {
    const NAME: &'static str = "actor";

    fn start() -> Self {
        let (mailbox, messages) = mpsc::channel(MAILBOX);
        tokio::spawn(serve(messages));
        Self { mailbox }
    }

    async fn ask(&self, value: u64) -> u64 {
        self.send(value, Message::Ask).await
    }

    async fn offer(&self, value: u64) -> u64 {
        self.send(value, Message::Offer).await
    }
}

async fn serve(mut messages: mpsc::Receiver<Message>) {
    let mut asks = VecDeque::new();
    let mut offers = VecDeque::new();
    let mut batch = Vec::with_capacity(MAILBOX);
    while messages.recv_many(&mut batch, MAILBOX).await > 0 {
        for message in batch.drain(..) {
            match message {
                Message::Ask(client) => meet(client, &mut asks, &mut offers),
                Message::Offer(worker) => meet(worker, &mut offers, &mut asks),
            }
        }
    }
}

/// Introduces `party` to the first on the other side that still waits.
fn meet(party: Party, own: &mut VecDeque<Party>, others: &mut VecDeque<Party>) {
    if party.reply.is_closed() {
        return;
    }
    while let Some(other) = others.pop_front() {
        if other.reply.send(party.value).is_ok() {
            // A party that cancelled since is not missed.
            let _ = party.reply.send(other.value);
            return;
        }
    }
    own.push_back(party);
}
