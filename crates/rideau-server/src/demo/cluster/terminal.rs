//! Keys of a person at a terminal, one by one and unseen. Without a terminal there are none.

use std::io::{self, IsTerminal, Read};
use std::thread;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The keys that are pressed. The terminal is as before when this is dropped.
pub(super) struct Keys {
    pressed: mpsc::UnboundedReceiver<u8>,
    before: Option<Termios>,
}

impl Keys {
    pub(super) fn listen() -> Self {
        let (sender, pressed) = mpsc::unbounded_channel();
        let input = io::stdin();
        let is_seen = input.is_terminal() && io::stdout().is_terminal();
        let before = is_seen.then(|| tcgetattr(&input).ok()).flatten();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            // Without it keys count when the line ends.
            let _ = tcsetattr(&input, OptionalActions::Now, &raw);
            thread::spawn(move || {
                for key in io::stdin().lock().bytes().map_while(Result::ok) {
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            });
        }
        Self { pressed, before }
    }

    /// The next key, whenever that is.
    pub(super) async fn next(&mut self) -> u8 {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
