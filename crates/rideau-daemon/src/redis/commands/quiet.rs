//! Commands whose answers are not wanted.

use rideau_process::panics;
use rideau_resp::Request;

use crate::redis::client::{Client, Next, OnReady, PendingCommand, Replies};

/// Execute a request without an answer, unless it says itself that answers are
/// wanted again.
#[cold]
pub(super) fn execute(client: &mut Client, request: Request<'_>) -> Next {
    let before = client.out.len();
    if client.replies == Replies::Skip {
        client.replies = Replies::Skipping;
    }
    let step = super::answer(client, request);
    match client.replies {
        Replies::On => return step,
        Replies::Skipping => client.replies = Replies::On,
        Replies::Off | Replies::Skip => (),
    }
    client.out.truncate(before);
    match step {
        Next::Wait(wait) => Next::Wait(silent(wait)),
        Next::Exec(mut transaction) => {
            transaction.is_silent = true;
            Next::Exec(transaction)
        }
        step => step,
    }
}

fn silent(wait: PendingCommand) -> PendingCommand {
    let inner = wait.answer;
    let answer = Box::pin(async move {
        // A panic is not answered either.
        let finish = panics::contain_async(inner).await;
        let silent: OnReady = Box::new(move |client| {
            let before = client.out.len();
            if let Ok(finish) = finish {
                let _ = panics::contain(|| finish(client));
            }
            client.out.truncate(before);
        });
        silent
    });
    PendingCommand {
        answer,
        is_silent: true,
        ..wait
    }
}
