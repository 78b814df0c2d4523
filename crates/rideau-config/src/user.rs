//! Who may do what.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use toml_edit::Item;

use super::near::suggest_word;
use super::password::{Hash, HashFault, MEMORY_MAX, PASSES_MAX};
use super::pattern::fits;
use super::quota::Quota;
use super::section::{At, Section};

/// More than this is no quota.
const QUOTA_MAX: usize = 10_000_000;

/// A user, how to know them, and what they may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// What they have to say; none if they come by other ways.
    pub password: Option<Password>,
    /// A client that comes over a Unix socket with one of these ids is this user.
    pub uids: Vec<u32>,
    /// The commands, and groups of commands such as `@admin`.
    pub allow: Vec<String>,
    /// What the commands may be used on.
    pub on: Vec<Scope>,
    /// How much they may have of what all share, by [`Quota`]; none for the usual.
    pub quotas: [Option<usize>; Quota::ALL.len()],
}

/// Where the password is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Password {
    /// Its hash stands in the file.
    Hash(Hash),
    /// It stands in a secret file, or its hash does.
    File(PathBuf),
}

/// What commands may be used on: a kind of thing, and a pattern of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// `pool`, `broker`, `regulator`, `lock`, `range` or `app`; none for all of them.
    pub kind: Option<&'static str>,
    /// The names, with `*` for any letters. Groups of pools begin with `@`.
    pub names: String,
}

/// The name of the person who has the server's account, which is no user of a
/// config.
pub const OPERATOR: &str = "operator";

/// What can be allowed. `@all` is everything but `@admin`.
pub const ALLOWED: &[&str] = &[
    "@all",
    "@admin",
    "@read",
    "@pool",
    "@broker",
    "@lock",
    "@range",
    "@app",
    "take",
    "get",
    "release",
    "offer",
    "withdraw",
    "ask",
    "done",
    "cancel",
    "await",
    "renew",
    "lock",
    "unlock",
    "reserve",
    "update",
    "lookup",
    "session",
    "held",
    "show",
    "explain",
    "info",
    "subscribe",
    "monitor",
    "client",
    "pool",
    "range",
    "app",
    "config",
];

/// The kinds of things that have names.
pub const KINDS: &[&str] = &["pool", "broker", "regulator", "lock", "range", "app"];

/// Every user may do this with what is its own. What is not, the command checks itself.
pub const OWN: &str = "own";

/// What a client is called that did not log in.
pub const NOBODY: &str = "default";

/// Whether this right is control: it can start a program, change the config, or end what
/// others have. It is only for users, also where none is configured.
pub fn is_control(right: &str) -> bool {
    CONTROL.contains(&right)
}

/// The rights that are control.
pub const CONTROL: &[&str] = &["pool", "range", "app", "config", "client", "monitor"];

impl User {
    /// A user who may do everything, known by other ways than a password.
    pub fn everything(name: &str) -> Self {
        Self {
            name: name.into(),
            password: None,
            uids: Vec::new(),
            allow: vec!["@admin".into()],
            on: vec![Scope {
                kind: None,
                names: "*".into(),
            }],
            // No key of the config could raise them.
            quotas: [Some(usize::MAX); Quota::ALL.len()],
        }
    }

    /// Whether the user has this right, by itself or as one of a group.
    pub fn may(&self, right: &str) -> bool {
        if right == OWN {
            return true;
        }
        self.allow.iter().any(|allowed| match allowed.as_str() {
            "@admin" => true,
            "@all" => !is_control(right),
            "@read" => matches!(right, "show" | "explain" | "info" | "held"),
            "@pool" => matches!(right, "take" | "offer" | "withdraw"),
            "@broker" => matches!(right, "ask" | "offer" | "done" | "renew"),
            "@lock" => matches!(right, "lock" | "unlock"),
            "@app" => matches!(right, "get" | "app"),
            "@range" => matches!(
                right,
                "reserve" | "update" | "lookup" | "release" | "cancel"
            ),
            allowed => allowed == right,
        })
    }

    /// Whether a user has this right, or any client where there are no users.
    pub fn or_anybody_may(user: Option<&Self>, right: &str) -> bool {
        user.map_or(!is_control(right), |user| user.may(right))
    }

    /// The name of a user, for the record.
    pub fn name_of(user: Option<&Arc<Self>>) -> &str {
        user.map_or(NOBODY, |user| &user.name)
    }

    /// Whether the user may use commands on this thing. A group of pools is a
    /// pool whose name begins with `@`.
    pub fn may_use(&self, kind: &str, name: &str) -> bool {
        self.on
            .iter()
            .any(|scope| scope.kind.is_none_or(|other| other == kind) && fits(&scope.names, name))
    }

    /// No name is kept from the user.
    pub fn may_use_all(&self) -> bool {
        let mut scopes = self.on.iter();
        scopes.any(|scope| scope.kind.is_none() && scope.names == "*")
    }

    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        if section.has("password") && section.has("password_file") {
            let message = format!("user `{name}` has two passwords");
            let at = section.at("password_file");
            section
                .notes
                .error(at, message, "keep `password` or `password_file`");
        }
        if !section.has("allow") {
            let message = format!("user `{name}` may do nothing");
            let hint = "write allow = [\"@all\"], or the commands one by one";
            section.notes.error(section.at.clone(), message, hint);
        }
        let file = section.text("password_file").map(|path| {
            let path = PathBuf::from(path);
            section
                .notes
                .secret_file(path.clone(), section.at("password_file"));
            Password::File(path)
        });
        let allow = section.list("allow").unwrap_or_default();
        let on = section.list("on");
        let on = on.unwrap_or_else(|| vec![("*".into(), section.at.clone())]);
        Self {
            name: name.into(),
            password: hash(section).map(Password::Hash).or(file),
            uids: uids(section),
            allow: allow
                .into_iter()
                .filter_map(|(word, at)| allowed(section, word, at))
                .collect(),
            on: on
                .into_iter()
                .filter_map(|(words, at)| scope(section, &words, at))
                .collect(),
            quotas: Quota::ALL.map(|quota| section.number(quota.key(), 0..=QUOTA_MAX)),
        }
    }
}

fn hash(section: &Section<'_>) -> Option<Hash> {
    let entry = section.entry("password")?;
    let at = entry.at();
    let Some(text) = entry.item.as_str() else {
        let hint = "make one with `rideau hash`";
        section.notes.error(at, "`password` is no hash", hint);
        return None;
    };
    let text = section.notes.expand(text, &at)?;
    let (message, hint) = match Hash::parse(&text) {
        Ok(hash) => return Some(hash),
        Err(HashFault::NotAHash) => (
            "`password` is not a hash".into(),
            "make one with `rideau hash`, or use `password_file`".into(),
        ),
        Err(HashFault::NotArgon2id) => (
            "`password` is a hash of another kind".into(),
            "it has to begin with $argon2id$; make one with `rideau hash`".into(),
        ),
        Err(HashFault::TooDear) => (
            "`password` costs too much to check".into(),
            format!("use m of up to {MEMORY_MAX} and t of up to {PASSES_MAX}"),
        ),
        Err(HashFault::Malformed | HashFault::NoChance) => (
            String::from("`password` is a hash that cannot be read"),
            "make one with `rideau hash`".into(),
        ),
    };
    section.notes.error(at, message, hint);
    None
}

fn uids(section: &Section<'_>) -> Vec<u32> {
    let Some(entry) = section.entry("uids") else {
        return Vec::new();
    };
    let uid = |value: &toml_edit::Value| value.as_integer().and_then(|uid| uid.try_into().ok());
    let array = entry.item.as_array();
    let uids: Option<Vec<u32>> = array.and_then(|array| array.iter().map(uid).collect());
    uids.unwrap_or_else(|| {
        let hint = "write a list of user ids, such as [1000]";
        let is_list = matches!(entry.item, Item::Value(toml_edit::Value::Array(_)));
        let message = if is_list {
            "one of `uids` is no user id"
        } else {
            "`uids` is no list"
        };
        section.notes.error(entry.at(), message, hint);
        Vec::new()
    })
}

fn allowed(section: &Section<'_>, word: String, at: At) -> Option<String> {
    if ALLOWED.contains(&word.as_str()) {
        return Some(word);
    }
    let message = format!("unknown command {word:?} in `allow`");
    section
        .notes
        .error(at, message, suggest_word(&word, ALLOWED));
    None
}

fn scope(section: &Section<'_>, words: &str, at: At) -> Option<Scope> {
    if words == "*" {
        return Some(Scope {
            kind: None,
            names: words.into(),
        });
    }
    let Some((kind, names)) = words.split_once(':') else {
        let message = format!("{words:?} does not say what it is a name of");
        let hint = format!("write \"pool:{words}\", \"broker:{words}\" or \"lock:{words}\"");
        section.notes.error(at, message, hint);
        return None;
    };
    let Some(kind) = KINDS.iter().find(|known| **known == kind) else {
        let message = format!("nothing of kind {kind:?} has names");
        section.notes.error(at, message, suggest_word(kind, KINDS));
        return None;
    };
    Some(Scope {
        kind: Some(*kind),
        names: names.into(),
    })
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind}:{}", self.names),
            None => f.write_str(&self.names),
        }
    }
}
