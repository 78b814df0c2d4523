//! The signals a child is stopped with, and the ways in which it ends.

use std::fmt;

use rustix::process as system;

/// The signal that asks a child to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Signal {
    /// Hang up.
    Hup,
    /// Interrupt, as Ctrl-C does.
    Int,
    /// Quit: some servers finish their work first.
    Quit,
    /// Terminate.
    #[default]
    Term,
    /// The first that means what the program says.
    Usr1,
    /// The second that means what the program says.
    Usr2,
    /// End at once. It cannot be ignored.
    Kill,
}

impl Signal {
    /// Every signal there is a word for.
    pub const ALL: [Self; 7] = [
        Self::Hup,
        Self::Int,
        Self::Quit,
        Self::Term,
        Self::Usr1,
        Self::Usr2,
        Self::Kill,
    ];

    /// The word as it is written: `TERM`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hup => "HUP",
            Self::Int => "INT",
            Self::Quit => "QUIT",
            Self::Term => "TERM",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Kill => "KILL",
        }
    }

    /// The signal that is written like this, with or without `SIG`.
    pub fn of(word: &str) -> Option<Self> {
        let word = word.strip_prefix("SIG").unwrap_or(word);
        Self::ALL.into_iter().find(|signal| signal.word() == word)
    }

    pub(super) const fn number(self) -> system::Signal {
        match self {
            Self::Hup => system::Signal::HUP,
            Self::Int => system::Signal::INT,
            Self::Quit => system::Signal::QUIT,
            Self::Term => system::Signal::TERM,
            Self::Usr1 => system::Signal::USR1,
            Self::Usr2 => system::Signal::USR2,
            Self::Kill => system::Signal::KILL,
        }
    }
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By the signal of this number.
    Signal(i32),
    /// It is not known: its runtime has ended, or another part of this program has
    /// waited for it.
    Unknown,
}

impl Exit {
    /// Did it end by itself and without a complaint?
    pub const fn is_clean(self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// Was it ended by a signal that is sent to a program from outside, and not for what the
    /// program did?
    pub fn is_kill(self) -> bool {
        let sent = [
            Signal::Kill,
            Signal::Term,
            Signal::Int,
            Signal::Hup,
            Signal::Quit,
        ];
        let is_it = |number: i32| sent.iter().any(|one| one.number().as_raw() == number);
        matches!(self, Self::Signal(number) if is_it(number))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(number) => match name(number) {
                Some(name) => write!(f, "was ended by SIG{name}"),
                None => write!(f, "was ended by signal {number}"),
            },
            Self::Unknown => write!(f, "ended"),
        }
    }
}

/// Names of the signals that programs die of.
fn name(number: i32) -> Option<&'static str> {
    const MORE: [(system::Signal, &str); 11] = [
        (system::Signal::ILL, "ILL"),
        (system::Signal::TRAP, "TRAP"),
        (system::Signal::ABORT, "ABRT"),
        (system::Signal::BUS, "BUS"),
        (system::Signal::FPE, "FPE"),
        (system::Signal::SEGV, "SEGV"),
        (system::Signal::PIPE, "PIPE"),
        (system::Signal::ALARM, "ALRM"),
        (system::Signal::XCPU, "XCPU"),
        (system::Signal::XFSZ, "XFSZ"),
        (system::Signal::SYS, "SYS"),
    ];
    let ours = Signal::ALL.map(|signal| (signal.number(), signal.word()));
    let mut names = ours.into_iter().chain(MORE);
    let named = names.find(|(signal, _)| signal.as_raw() == number);
    named.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::{Exit, Signal};

    #[test]
    fn a_signal_is_found_by_its_word() {
        for signal in Signal::ALL {
            assert_eq!(Signal::of(signal.word()), Some(signal));
        }
        assert_eq!(Signal::of("SIGINT"), Some(Signal::Int));
        assert_eq!(Signal::of("STOP"), None);
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(Exit::Code(3).to_string(), "exited with code 3");
        assert_eq!(Exit::Signal(15).to_string(), "was ended by SIGTERM");
        assert_eq!(Exit::Signal(11).to_string(), "was ended by SIGSEGV");
        assert_eq!(Exit::Signal(40).to_string(), "was ended by signal 40");
    }
}
