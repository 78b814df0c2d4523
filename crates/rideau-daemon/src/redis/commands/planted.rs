//! A command of the tests that panics wherever a command can.

use rideau_resp::Request;

use super::{ALL, About, Subject, about, tickets};
use crate::redis::client::{AskArgs, Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::ticket::TicketKind;

pub(super) const PANIC: About = about(
    "TEST.PANIC",
    2,
    "",
    Subject::Nothing,
    "NOW | LATER | AFTER | ASYNC",
    "Panic at once, while it waits, when it is answered, or after an answer",
    panic,
);

/// Every command that the program has.
pub(crate) fn all_but_planted() -> impl Iterator<Item = &'static About> {
    ALL.iter().filter(|about| about.name != PANIC.name)
}

fn panic(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let wait = |answer| PendingCommand::new("a test", Awaits::Anything, answer);
    match request.word(1) {
        Some(b"LATER") => Ok(Next::Wait(wait(Box::pin(async {
            tokio::task::yield_now().await;
            panic!("planted")
        })))),
        Some(b"AFTER") => Ok(Next::Wait(wait(Box::pin(async {
            let finish: OnReady = Box::new(|client| {
                client.reply().array(2);
                panic!("planted")
            });
            finish
        })))),
        Some(b"ASYNC") => {
            let answer = async { panic!("planted") };
            tickets::later(
                client,
                TicketKind::Lock,
                "a test",
                &AskArgs::default(),
                answer,
            )
        }
        _ => {
            // What was begun of an answer is not to be seen.
            client.reply().array(2);
            panic!("planted")
        }
    }
}
