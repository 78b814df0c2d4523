//! Options that all acquiring commands share.

use std::time::Duration;

use rideau::{Flow, queue};
use rideau_config::label::Label;
use rideau_resp::Arguments;

use crate::redis::client::{AskArgs, Client, CommandError};

impl AskArgs {
    /// Remember what the queue makes of the wait, for one that is told at once
    /// that it waits.
    pub(super) fn cap_by(&mut self, queue: impl FnOnce() -> queue::Options) {
        let Some(wait) = self.wait.filter(|_| self.is_async) else {
            return;
        };
        if let queue::Shedding::Paced { wait_cap } = queue().shedding {
            self.cap = wait_cap.filter(|cap| *cap < wait);
        }
    }

    /// Take an option that begins with `word`, if it is one of the tail's.
    pub(super) fn option(
        &mut self,
        word: &[u8],
        arguments: &mut Arguments<'_>,
        client: &Client,
    ) -> Result<bool, CommandError> {
        match word {
            b"WAIT" => {
                let most = client.config.server.wait_max;
                let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
                let wait = arguments.number("WAIT", "milliseconds", 0..=most)?;
                self.wait = Some(Duration::from_millis(wait));
            }
            b"ASYNC" => self.is_async = true,
            b"ID" => {
                let nonce = arguments.word("ID", "a name that you choose for the ask")?;
                client.check_label(Label::AskId, nonce)?;
                self.nonce = Some(nonce.into());
            }
            b"NOTE" => {
                let note = arguments.text("NOTE", "a short text")?;
                client.check_label(Label::Note, note.as_bytes())?;
                self.note = Some(note.into());
            }
            b"TRACE" => drop(arguments.word("TRACE", "a traceparent")?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The flow of an ask, behind `FLOW`.
pub(super) fn flow(arguments: &mut Arguments<'_>, client: &Client) -> Result<Flow, CommandError> {
    let name = arguments.word("FLOW", "a flow's name")?;
    client.check_label(Label::Flow, name)?;
    Ok(Flow::of(name))
}

/// What the pool shows of the holder; only what the client says itself costs
/// anything.
pub(super) fn note(client: &Client, tail: &AskArgs) -> Option<String> {
    let note = tail.note.as_ref()?;
    let name = client.holder_card().name.lock().clone();
    Some(format!("{name} {note:?}"))
}
