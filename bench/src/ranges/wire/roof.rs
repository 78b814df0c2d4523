//! A server that knows no address and only keeps what it is told: one write to
//! the disk for all clients that have said something. No server that keeps its
//! word gets further beside the same clients.

use super::{Contestant, ROOF, ours};
use crate::talk::{Dialog, Disk, Folder, Form, Server, Step, frame};

/// As long as those that our server gives out.
const TICKET: &str = "v:10.240.17.42:0123456789abcdef0123";

pub(super) fn start(disk: &Disk) -> Contestant {
    Contestant {
        name: ROOF,
        server: Server::roof(Folder::within(&disk.folder), true),
        dialogs: Box::new(|crowd| {
            crowd.dialogs(|at| Dialog {
                form: Form::Resp {
                    yes: Vec::new(),
                    back: 0,
                },
                greeting: None,
                first: Step::Same(crowd.batch(at, ours::reserve), crowd.depth),
                second: Step::Same(
                    crowd.batch(at, |_| frame(&["RELEASE", TICKET])),
                    crowd.depth,
                ),
            })
        }),
    }
}
