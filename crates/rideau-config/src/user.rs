//! Who may do what.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, List, Maybe, Number, Path, Written};
use super::near::suggest_word;
use super::password::{Hash, HashFault, MEMORY_MAX, PASSES_MAX};
use super::pattern::fits;
use super::quota::Quota;
use super::section::{At, Made, Section};
use super::server::Limits;
use super::shown::Rows;
use super::table::section;

/// More than this is no quota.
const QUOTA_MAX: u64 = 10_000_000;

section! {
    /// A user, how to know them, and what they may do.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct User {
        plain {
            /// The name.
            name: String = String::new();
            /// The password; none if the user logs in in other ways.
            password: Option<Password> = None;
            /// How much they may have of what all share, by [`Quota`]; none for the usual.
            quotas: [Option<usize>; Quota::ALL.len()] = [None; Quota::ALL.len()];
        }
        /// The hash of the password, made by `rideau hash`.
        password => (password): Option<Password>, HashedPassword, Live, usual = "none";
        /// A file with the password or its hash.
        password_file => (password): Option<Password>, PasswordFile, Live, usual = "none",
            sample = r#""/run/secrets/orders""#;
        /// A client with one of these user ids, over a Unix socket, is this user.
        uids: Vec<u32> = Vec::new(), Uids, Live, sample = "[1000]";
        /// Commands, or `"@all"`, `"@admin"`, `"@read"`, `"@pool"`, `"@broker"`, `"@lock"`,
        /// `"@range"`, `"@app"`.
        allow: Vec<String> = Vec::new(), Rights, Live, usual = "required",
            sample = r#"["@pool", "ask", "lock", "unlock"]"#;
        /// The names on which the commands may be used.
        on: Vec<Scope> = vec![Scope::all()], List, Live,
            sample = r#"["pool:pg-*", "pool:@pg", "broker:checkout", "lock:tenant/*"]"#;
        /// Connections of the Redis protocol.
        connections_max => (quotas[0]): Option<usize>, Maybe<Number>, Live,
            bounds = (0, QUOTA_MAX), sample = "9_000", usual = "9/10 of `limits.connections_max`",
            above = "How much this user may have of what all share. What is over a quota is \
                refused, and the error names the quota.";
        /// Connections to the admin port that have logged in.
        http_connections_max => (quotas[1]): Option<usize>, Maybe<Number>, Live,
            bounds = (0, QUOTA_MAX), sample = "231", usual = "9/10 of all 256";
        /// Sessions.
        sessions_max => (quotas[2]): Option<usize>, Maybe<Number>, Live,
            bounds = (0, QUOTA_MAX), sample = "9_000", usual = "9/10 of `limits.sessions_max`";
        /// Subscriptions to events and to values, `MONITOR`, streams over HTTP.
        streams_max => (quotas[3]): Option<usize>, Maybe<Number>, Live, bounds = (0, QUOTA_MAX),
            sample = "1_000", usual = "1/10 of `limits.connections_max`, at least 16";
        /// Commands and requests that wait, `ASYNC` ones included.
        waiting_max => (quotas[4]): Option<usize>, Maybe<Number>, Live, bounds = (0, QUOTA_MAX),
            sample = "90_000", usual = "9/10 of `limits.waiters_max`";
    }
}

/// Where the password is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Password {
    /// Its hash stands in the file.
    Hash(Hash),
    /// It stands in a secret file, or its hash does.
    File(PathBuf),
}

/// A kind of thing, and a pattern of its names.
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

/// The words of `allow`. `@all` is everything but `@admin`.
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

/// The user name of clients that have not logged in.
pub const DEFAULT_USER: &str = "default";

/// Whether this right is control: it can start a program, change the config, or end what
/// others have. It is only for users, also where none is configured.
pub fn is_control(right: &str) -> bool {
    CONTROL.contains(&right)
}

/// The rights that are control.
pub const CONTROL: &[&str] = &["pool", "range", "app", "config", "client", "monitor"];

impl User {
    /// As much of this the user may have.
    pub fn most(&self, quota: Quota, limits: &Limits) -> usize {
        let said = self.quotas[quota as usize];
        said.unwrap_or_else(|| quota.default(limits))
    }

    /// A user who may do everything, known by other ways than a password.
    pub fn everything(name: &str) -> Self {
        Self {
            name: name.into(),
            allow: vec!["@admin".into()],
            // No key of the config could raise them.
            quotas: [Some(usize::MAX); Quota::ALL.len()],
            ..Self::default()
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
        user.map_or(DEFAULT_USER, |user| &user.name)
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
        let mut user = Self::default();
        user.read_keys(section);
        user.name = name.into();
        user
    }
}

/// The hash of a password, which is not shown.
struct HashedPassword;
/// A file with a password.
struct PasswordFile;
/// Ids of users of the machine.
struct Uids;
/// Commands and groups of commands.
struct Rights;

impl Kind<Option<Password>> for HashedPassword {
    const FORM: Form = Form::Text;

    fn read(section: &Section<'_>, _: &Key) -> Option<Option<Password>> {
        hash(section).map(Password::Hash).map(Some)
    }

    fn show(_: &Option<Password>, _: &Key, _: &mut Rows) {}
}

impl Kind<Option<Password>> for PasswordFile {
    const FORM: Form = Form::Path;

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<Password>> {
        let path = Path::read(section, key)?;
        section
            .notes
            .secret_file(path.clone(), section.at(key.name));
        Some(Some(Password::File(path)))
    }

    fn show(value: &Option<Password>, key: &Key, rows: &mut Rows) {
        if let Some(Password::File(path)) = value {
            Path::show(path, key, rows);
        }
    }
}

impl Kind<Vec<u32>> for Uids {
    const FORM: Form = Form::List(&Form::Number);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<u32>> {
        let entry = section.entry(key.name)?;
        let uid = |value: &toml_edit::Value| value.as_integer().and_then(|uid| uid.try_into().ok());
        let array = entry.item.as_array();
        let uids: Option<Vec<u32>> = array.and_then(|array| array.iter().map(uid).collect());
        if uids.is_none() {
            let hint = "write a list of user ids, such as [1000]";
            let message = match array {
                Some(_) => "one of `uids` is not a user id",
                None => "`uids` is not a list",
            };
            section.notes.error(entry.at(), message, hint);
        }
        uids
    }

    fn show(value: &Vec<u32>, key: &Key, rows: &mut Rows) {
        let uids: Vec<_> = value.iter().map(ToString::to_string).collect();
        rows.push(key.name, format!("[{}]", uids.join(", ")));
    }
}

impl Kind<Vec<String>> for Rights {
    const FORM: Form = Form::List(&Form::Words(ALLOWED));

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<String>> {
        let list = section.list(key.name)?;
        let allowed = |(word, at): &(String, At)| {
            let made = match ALLOWED.contains(&word.as_str()) {
                true => Ok(word.clone()),
                false => Err((
                    format!("unknown command {word:?} in `allow`"),
                    suggest_word(word, ALLOWED),
                )),
            };
            section.note(at, made)
        };
        Some(list.iter().filter_map(allowed).collect())
    }

    fn show(value: &Vec<String>, key: &Key, rows: &mut Rows) {
        List::show(value, key, rows);
    }
}

fn hash(section: &Section<'_>) -> Option<Hash> {
    let entry = section.entry("password")?;
    let at = entry.at();
    let Some(text) = entry.item.as_str() else {
        let hint = "make one with `rideau hash`";
        section.notes.error(at, "`password` is not a hash", hint);
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
        Err(HashFault::TooCostly) => (
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

impl Scope {
    /// Everything.
    fn all() -> Self {
        Self {
            kind: None,
            names: "*".into(),
        }
    }
}

impl Written for Scope {
    fn make(words: &str, _: &Key) -> Made<Self> {
        if words == "*" {
            return Ok(Self::all());
        }
        let Some((kind, names)) = words.split_once(':') else {
            let message = format!("{words:?} does not say what it is a name of");
            let hint = format!("write \"pool:{words}\", \"broker:{words}\" or \"lock:{words}\"");
            return Err((message, hint));
        };
        let Some(kind) = KINDS.iter().find(|known| **known == kind) else {
            let message = format!("nothing of kind {kind:?} has names");
            return Err((message, suggest_word(kind, KINDS)));
        };
        Ok(Self {
            kind: Some(*kind),
            names: names.into(),
        })
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind}:{}", self.names),
            None => f.write_str(&self.names),
        }
    }
}
