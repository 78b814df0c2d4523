//! How a connection shows which user it is without a password.

use std::sync::Arc;

use rideau_config::{OPERATOR, User};
use rustix::process::geteuid;

use crate::state::daemon::Daemon;
use crate::state::logins::How;

/// How a connection shows which user it is without a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// It does not.
    None,
    /// By the id of the user at the other end of a Unix socket.
    Uid(u32),
    /// By the name in its certificate, which was verified.
    Certificate(String),
    /// By the control socket, which only the operator can use.
    Control,
    /// By the word of another node of the cluster: this user, or none where there are none.
    Node(Option<Box<str>>),
}

impl Proof {
    /// The same in a word.
    pub(crate) const fn how(&self) -> How {
        match self {
            Self::None => How::Password,
            Self::Uid(_) => How::Uid,
            Self::Certificate(_) => How::Certificate,
            Self::Control => How::Control,
            Self::Node(_) => How::Node,
        }
    }

    /// Which user that is.
    pub(crate) fn user(&self, daemon: &Daemon) -> Option<Arc<User>> {
        let config = daemon.config.load();
        let is_user = |user: &&User| match self {
            Self::None | Self::Control | Self::Node(None) => false,
            Self::Uid(uid) => user.uids.contains(uid),
            Self::Certificate(name) => user.name == *name,
            Self::Node(Some(name)) => user.name == **name,
        };
        let is_operator = match self {
            Self::Control => true,
            Self::Node(name) => name.as_deref() == Some(OPERATOR),
            // Where there are users, each connection says which user it is.
            Self::Uid(uid) => config.users.is_empty() && is_operator(*uid),
            Self::None | Self::Certificate(_) => false,
        };
        if is_operator {
            return Some(Arc::clone(daemon.operator.user()));
        }
        config.users.iter().find(is_user).cloned().map(Arc::new)
    }
}

/// Whether an account may do what the server may: it is the server's own, or root.
pub(crate) fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}
