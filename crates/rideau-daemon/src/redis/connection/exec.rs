//! The commands of one `EXEC`, one behind the other, and all their answers in one.

use std::mem;

use rideau_resp::Reply;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Over};
use crate::redis::client::Next;
use crate::redis::commands;
use crate::redis::transaction::Transaction;

/// Others on the same thread have their turn after this many commands.
const TURN: u64 = 64;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Execute what was queued. Says how many commands that were.
    pub(super) async fn exec(&mut self, mut transaction: Box<Transaction>) -> Result<u64, Over> {
        // What is pushed meanwhile goes before the answer, and not into it.
        let mut answers = mem::take(&mut self.client.out);
        let before = answers.len();
        Reply::new(&mut answers, self.client.protocol).array(transaction.count());
        self.client.is_in_exec = true;
        let mut count = 0_u64;
        while let Some(request) = transaction.next_request() {
            let is_full = answers.len() - before > self.output_max;
            let step = match is_full {
                true => self.leave_out(),
                false => commands::execute(&mut self.client, request),
            };
            if let Next::Wait(wait) = step {
                let (waits, begun) = self.begin_wait();
                let answer = self.wait(wait, begun).await?;
                self.count_wait(waits, begun, answer);
            }
            answers.append(&mut self.client.out);
            count += 1;
            if count.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            if self.client.card.outbox.is_killed() {
                return Err(Over::Closed);
            }
        }
        self.client.is_in_exec = false;
        if transaction.is_silent {
            answers.truncate(before);
        }
        self.client.out = answers;
        Ok(count)
    }

    /// The answers before it are as long as answers may be.
    #[cold]
    fn leave_out(&mut self) -> Next {
        let max = self.output_max;
        self.client.reply().error(format_args!(
            "BUSY limits.output_max ({max} bytes) reached by the answers before this command, so \
             it was not executed: send it again, with fewer behind one MULTI."
        ));
        Next::Done
    }
}
