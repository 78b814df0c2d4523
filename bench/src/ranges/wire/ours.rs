//! Our server: one range, in one of its classes.
//!
//! It does more than the others: the ticket that gives an address back cannot
//! be guessed, and the fence of a lease is above that of every lease before,
//! whatever its address. It runs one thread for connections, as Redis does, and
//! one that writes.

use std::path::Path;

use super::{Contestant, DATA, HELD, TTL_MS, other_device};
use crate::talk::{Dialog, Disk, Folder, Form, Server, Step, bulk, frame, opening};

const THREADS: usize = 1;
/// Leases that are asked for at once while the range is filled.
const CHUNK: u32 = 512;

pub(super) fn start(name: &'static str, class: &str, program: &Path, disk: &Disk) -> Contestant {
    let folder = Folder::within(&disk.folder);
    let store = folder.path().join("store");
    let config = format!(
        "[store]\npath = {store:?}\n[range.pool]\nvalues = [\"10.0.0.0/12\"]\n\
         class = \"{class}\"\nstart = \"free\"\n"
    );
    let server = Server::ours(program, THREADS, &config, folder);
    fill(&server);
    Contestant {
        name,
        server,
        dialogs: Box::new(|crowd| {
            crowd.dialogs(|at| Dialog {
                form: form(),
                greeting: None,
                first: Step::Same(crowd.batch(at, reserve), crowd.depth),
                second: Step::Back {
                    head: opening(2, &["RELEASE"]),
                    tails: vec![Vec::new()],
                },
            })
        }),
    }
}

/// The ticket stands behind the value.
fn form() -> Form {
    let (yes, back) = (bulk("go"), 2);
    Form::Resp { yes, back }
}

/// The key is one that only one lease has at a time, as the others have it.
pub(super) fn reserve(device: &str) -> Vec<u8> {
    frame(&[
        "RESERVE", "pool", "TTL", TTL_MS, "UNIQUE", device, "DATA", DATA,
    ])
}

fn fill(server: &Server) {
    for chunk in 0..HELD / CHUNK {
        let devices = (chunk * CHUNK..(chunk + 1) * CHUNK).map(other_device);
        let frames: Vec<u8> = devices.flat_map(|device| reserve(&device)).collect();
        server.exchange(&frames, CHUNK as usize, &form());
    }
}
