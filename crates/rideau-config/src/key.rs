//! A key of the config: its name, what its value may be, and what a change of it takes.

/// When a change of a key takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It counts at once, and no client loses a place or a lease.
    Live,
    /// It takes effect after the next start.
    Restart,
}

/// To what a change of a key applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// All there is, at once.
    Live,
    /// The server, after its next start.
    Restart,
    /// Connections that are made from then on.
    Connections,
    /// Requests that come from then on.
    Requests,
    /// Processes of applications, which are replaced for it.
    Replaced,
    /// Processes of applications that are started from then on.
    Started,
    /// Values of ranges that are given out from then on.
    Given,
    /// The same, and those that are renewed.
    Renewed,
}

/// The rows of something that is told nothing.
pub(crate) type Usual = fn() -> Vec<(String, String)>;

/// The form of a key's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Any text.
    Text,
    /// The path of a file or folder.
    Path,
    /// An address and a port.
    Address,
    /// One of these words.
    Words(&'static [&'static str]),
    /// True or false.
    Answer,
    /// A whole number within the bounds of its key.
    Number,
    /// A span of time.
    Span,
    /// A span of time that is not zero.
    Positive,
    /// A span of time that may be negative.
    Lead,
    /// A size in bytes within the bounds of its key.
    Size,
    /// A size in each second within the bounds of its key.
    Rate,
    /// A list of these, or one alone.
    List(&'static Self),
    /// A table of these keys, with what counts if it says nothing.
    Table(&'static [Key], Usual),
    /// A table whose names are the file's own, each with one of these.
    Names(&'static Self),
    /// A table of these keys that several sections have.
    Shared(&'static str, &'static [Key], Usual),
    /// Such a table within itself.
    Again(&'static str),
    /// Any of these.
    Any(&'static [Self]),
}

/// A key of the config and all that is said of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) effect: Effect,
    /// Its purpose: the lines of the comment above the row.
    pub(crate) help: &'static [&'static str],
    /// The least and the most of a number or a size.
    pub(crate) bounds: (u64, u64),
    /// The value in the sample file, if it is not the default.
    pub(crate) sample: &'static str,
    /// The default in words, if no value says it.
    pub(crate) usual: &'static str,
    /// The comment above it in the sample file.
    pub(crate) above: &'static str,
}

impl Effect {
    /// Whether it counts without a restart.
    pub(crate) const fn change(self) -> Change {
        match self {
            Self::Restart => Change::Restart,
            _ => Change::Live,
        }
    }

    /// In a sentence.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::Live => "At once.",
            Self::Restart => "Takes effect after the next start.",
            Self::Connections => "For new connections.",
            Self::Requests => "From the next request on.",
            Self::Replaced => "New processes are started one after the other; requests go on.",
            Self::Started => "For processes that are started from then on.",
            Self::Given => "For values that are given out from then on.",
            Self::Renewed => "For values that are given out or renewed from then on.",
        }
    }
}

impl Key {
    /// The defaults of a row.
    pub(crate) const BARE: Self = Self {
        name: "",
        form: Form::Text,
        effect: Effect::Live,
        help: &[],
        bounds: (0, u64::MAX),
        sample: "",
        usual: "",
        above: "",
    };

    /// The keys below it.
    pub(crate) const fn below(&self) -> &'static [Self] {
        self.form.keys()
    }

    /// Its purpose, in one line.
    pub(crate) fn sentence(&self) -> String {
        let lines = self.help.iter().map(|line| line.trim());
        lines.collect::<Vec<_>>().join(" ")
    }
}

impl Form {
    /// The keys of a table.
    pub(crate) const fn keys(&self) -> &'static [Key] {
        match self {
            Self::Table(keys, _) | Self::Shared(_, keys, _) => keys,
            Self::List(form) => form.keys(),
            Self::Any(forms) => {
                let mut at = 0;
                while at < forms.len() {
                    let keys = forms[at].keys();
                    if !keys.is_empty() {
                        return keys;
                    }
                    at += 1;
                }
                &[]
            }
            _ => &[],
        }
    }
}

/// The keys of several tables as those of one. `N` is how many they are.
pub(crate) const fn join<const N: usize>(tables: &[&[Key]]) -> [Key; N] {
    let mut all = [Key::BARE; N];
    let (mut table, mut len) = (0, 0);
    while table < tables.len() {
        let mut at = 0;
        while at < tables[table].len() {
            all[len] = tables[table][at];
            len += 1;
            at += 1;
        }
        table += 1;
    }
    assert!(len == N, "no key is missing");
    all
}

/// The keys of several tables as those of one.
macro_rules! joined {
    ($($table:expr),+ $(,)?) => {
        const {
            const N: usize = 0 $(+ ($table as &[$crate::key::Key]).len())+;
            const ALL: [$crate::key::Key; N] = $crate::key::join(&[$($table),+]);
            &ALL as &'static [$crate::key::Key]
        }
    };
}

pub(crate) use joined;
