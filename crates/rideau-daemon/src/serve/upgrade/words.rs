//! What the two servers of an upgrade say to each other. Fields that the other does not know
//! are skipped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rideau_apps::{AppHandover, ListenOption, PassedListener};
use rideau_process::{PASSED_FILES_MAX, PassSender, PassedMessage};
use serde::{Deserialize, Serialize};

use crate::net::tickets::TicketKey;

/// Sockets of one message; its last files are the outputs of the older server.
const SOCKETS_MAX: usize = PASSED_FILES_MAX - 2;

/// A message of one server to the other.
#[derive(Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum UpgradeWord {
    /// The newer one is there.
    Hello { version: String, protocol: u32 },
    /// More sockets, which come before the offer.
    Sockets { sockets: Vec<SocketNote> },
    /// What the newer one has to know; the sockets, standard output and standard error are
    /// with it.
    Offer(Box<Offer>),
    /// The newer one's applications are ready.
    Ready,
    /// The newer one gives up.
    Abort { why: String },
    /// The newer one may serve.
    Yours,
    /// It does.
    Serving,
    /// How many processes the older one has left.
    Left {
        processes: usize,
        /// None is at an address of the config.
        #[serde(default)]
        is_free: bool,
    },
    /// A later version says this.
    #[serde(other)]
    Unknown,
}

/// What the newer server has to know of the older one.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Offer {
    /// The number of the upgrade.
    pub(crate) serial: u64,
    pub(crate) sockets: Vec<SocketNote>,
    pub(crate) apps: Vec<AppHandover>,
    /// How many processes of apps the older one has.
    pub(crate) processes: usize,
    /// How long it needs to finish at most.
    pub(crate) finishes_ms: u64,
    /// The limit of open files that programs know.
    pub(crate) files_usual: Option<u64>,
    pub(crate) sticky: Option<[u8; 32]>,
    pub(crate) tickets: Vec<TicketKey>,
    /// The token of the operator.
    pub(crate) token: Option<String>,
}

/// What is known of a socket that is passed.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SocketNote {
    #[serde(default)]
    name: String,
    #[serde(default)]
    asked: Option<ListenOption>,
    #[serde(default)]
    is_supervised: bool,
}

impl SocketNote {
    fn of(listener: &PassedListener) -> Self {
        Self {
            name: listener.name.clone(),
            asked: listener.asked,
            is_supervised: listener.is_supervised,
        }
    }
}

/// The sockets of a message.
pub(super) fn listeners(
    notes: Vec<SocketNote>,
    files: &mut impl Iterator<Item = OwnedFd>,
) -> Vec<PassedListener> {
    let all = notes.into_iter().zip(files);
    let all = all.map(|(note, socket)| PassedListener {
        name: note.name,
        asked: note.asked,
        is_supervised: note.is_supervised,
        socket,
    });
    all.collect()
}

/// Say something.
pub(super) async fn say(sender: &PassSender, word: &UpgradeWord) -> io::Result<()> {
    sender.send(&serde_json::to_vec(word)?, &[]).await
}

/// Understand a message.
pub(super) fn understood(message: &PassedMessage) -> io::Result<UpgradeWord> {
    Ok(serde_json::from_slice(&message.bytes)?)
}

/// Send the offer, with all sockets.
pub(super) async fn send_offer(
    sender: &PassSender,
    mut offer: Offer,
    sockets: &[PassedListener],
) -> io::Result<()> {
    let mut parts = sockets.chunks(SOCKETS_MAX).rev();
    let last = parts.next().unwrap_or_default();
    for part in parts {
        let sockets = part.iter().map(SocketNote::of).collect();
        let word = serde_json::to_vec(&UpgradeWord::Sockets { sockets })?;
        let files: Vec<_> = part.iter().map(|one| one.socket.as_fd()).collect();
        sender.send(&word, &files).await?;
    }
    offer.sockets = last.iter().map(SocketNote::of).collect();
    let mut files: Vec<BorrowedFd<'_>> = last.iter().map(|one| one.socket.as_fd()).collect();
    files.extend([rustix::stdio::stdout(), rustix::stdio::stderr()]);
    let word = serde_json::to_vec(&UpgradeWord::Offer(Box::new(offer)))?;
    sender.send(&word, &files).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_says_is_skipped() {
        let read = |text: &str| serde_json::from_str::<UpgradeWord>(text);
        assert!(matches!(
            read(r#"{"say":"sing","song":1}"#),
            Ok(UpgradeWord::Unknown)
        ));
        let offer =
            read(r#"{"say":"offer","serial":3,"later":{"a":1},"apps":[{"name":"x","q":1}]}"#);
        let Ok(UpgradeWord::Offer(offer)) = offer else {
            panic!("an offer is one");
        };
        assert_eq!((offer.serial, &*offer.apps[0].name), (3, "x"));
        let left = read(r#"{"say":"left","processes":2}"#);
        assert!(matches!(
            left,
            Ok(UpgradeWord::Left {
                processes: 2,
                is_free: false
            })
        ));
    }
}
