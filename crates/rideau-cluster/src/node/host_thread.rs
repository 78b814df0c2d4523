//! The thread that tells the host what the node has, one call after the other.
//!
//! Loading takes a while, and what a host does in a call is not known here. So the thread
//! that keeps the lease does not make these calls.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rideau::store::{PartitionHost, Piece};
use rideau_core::cluster::AskRoute;
use tokio::sync::{mpsc, oneshot};

use super::error::NodeError;
use super::input::Input;
use super::load::LoadedPieces;
use super::serving::ServingTable;

/// A call of the host.
#[derive(Debug)]
pub(super) enum HostCall {
    Load {
        partition: u32,
        epoch: u64,
        pieces: LoadedPieces,
    },
    Begin {
        partition: u32,
        epoch: u64,
    },
    Close {
        partition: u32,
        epoch: u64,
    },
    End {
        partition: u32,
    },
    Snapshot {
        partition: u32,
        epoch: u64,
    },
    /// An ask is served here, once the host has been told all of the above.
    Route {
        reply: oneshot::Sender<AskRoute>,
        to: AskRoute,
    },
}

/// Starts the thread. It ends when the sender is dropped.
pub(super) fn start(
    host: Arc<dyn PartitionHost>,
    serving: Arc<ServingTable>,
    inbox: mpsc::UnboundedSender<Input>,
) -> io::Result<Sender<HostCall>> {
    let (calls, receiver) = channel();
    let thread = thread::Builder::new().name("rideau-parts".to_owned());
    thread.spawn(move || {
        let inbox = EndNotice(inbox);
        run(&*host, &serving, &inbox.0, &receiver);
    })?;
    Ok(calls)
}

/// Tells the node that the thread has ended: by a panic of the host, if the node runs.
struct EndNotice(mpsc::UnboundedSender<Input>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        let _ = self.0.send(Input::Resign(NodeError::HostFailed));
    }
}

fn run(
    host: &dyn PartitionHost,
    serving: &ServingTable,
    inbox: &mpsc::UnboundedSender<Input>,
    calls: &Receiver<HostCall>,
) {
    while let Ok(call) = calls.recv() {
        match call {
            HostCall::Load {
                partition,
                epoch,
                pieces,
            } => {
                let done = load(host, partition, epoch, &pieces);
                let input = Input::Loaded {
                    partition,
                    epoch,
                    done,
                };
                // If the node has ended, the next call does not come.
                let _ = inbox.send(input);
            }
            HostCall::Begin { partition, epoch } => {
                host.begin(partition, epoch);
                serving.begun(partition, epoch);
            }
            HostCall::Close { partition, epoch } => host.close(partition, epoch),
            HostCall::End { partition } => host.end(partition),
            HostCall::Snapshot { partition, epoch } => host.snapshot(partition, epoch),
            HostCall::Route { reply, to } => _ = reply.send(to),
        }
    }
}

fn load(
    host: &dyn PartitionHost,
    partition: u32,
    epoch: u64,
    loaded: &LoadedPieces,
) -> Result<(), String> {
    let chunks = loaded.chunks.iter().map(|bytes| Piece::Snapshot(bytes));
    let sections = loaded.sections.iter().map(|bytes| Piece::Batch(bytes));
    let pieces: Vec<_> = chunks.chain(sections).collect();
    host.load(partition, epoch, &pieces)
}
