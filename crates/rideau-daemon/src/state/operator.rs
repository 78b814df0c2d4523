//! The operator: the user who has the account that the server runs on. It may do
//! everything, and is known by the control socket or by the token beside it.
//!
//! Where the config has no users, this is the only identity there is. Any client that
//! can connect may use locks, pools and the rest; what starts programs, changes the
//! config, ends what others hold, or shows logs is for the operator.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rideau_config::{OPERATOR, User};

/// Bytes of a token.
const TOKEN_LEN: usize = 32;

/// The operator, and how it is recognised.
pub(crate) struct Operator {
    user: Arc<User>,
    /// None if the system has no random numbers; then only the socket counts.
    token: Option<String>,
    /// The file that has the token, once there is one.
    file: OnceLock<PathBuf>,
}

impl Default for Operator {
    fn default() -> Self {
        Self::with(new_token())
    }
}

impl Operator {
    /// One that is recognised by this token, or by a new one.
    pub(crate) fn known_by(token: Option<String>) -> Self {
        Self::with(token.or_else(new_token))
    }

    fn with(token: Option<String>) -> Self {
        Self {
            user: Arc::new(User::everything(OPERATOR)),
            token,
            file: OnceLock::new(),
        }
    }

    /// The operator as a user.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// This user is the operator, and not one of the config.
    pub(crate) fn is(&self, user: &Arc<User>) -> bool {
        Arc::ptr_eq(&self.user, user)
    }

    /// The owner whose things a user may end by their tickets; none for all owners.
    /// Where there are no users, what any client has belongs to all, but for the
    /// operator's.
    pub(crate) fn scope_of<'a>(&self, user: Option<&'a Arc<User>>) -> Option<&'a str> {
        match user {
            Some(user) if self.is(user) => None,
            user => Some(User::name_of(user)),
        }
    }

    /// The token: a client that knows it can read the operator's files.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether this is the token. It takes as long whatever is given.
    pub(crate) fn is_token(&self, given: &[u8]) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        let differ = |all: u8, (one, other): (u8, &u8)| all | (one ^ other);
        token.len() == given.len() && token.bytes().zip(given).fold(0, differ) == 0
    }

    /// The token is in this file from now on.
    pub(crate) fn set_file(&self, file: &Path) {
        let _ = self.file.set(file.into());
    }

    /// Advice for a client that has not proved to be the operator.
    pub(crate) fn advice(&self) -> String {
        let token = match self.file.get() {
            Some(file) => format!("log in with the token in {}, ", file.display()),
            None => String::new(),
        };
        format!(
            "use the command line of Rideau on the server's account, {token}or add a user to the \
             config."
        )
    }
}

fn new_token() -> Option<String> {
    let mut bytes = [0; TOKEN_LEN];
    getrandom::fill(&mut bytes).ok()?;
    let mut token = String::with_capacity(2 * TOKEN_LEN);
    for byte in bytes {
        let _ = write!(token, "{byte:02x}");
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let (one, other) = (Operator::default(), Operator::default());
        let token = one.token().expect("the system has random numbers");
        assert_eq!(token.len(), 2 * TOKEN_LEN);
        assert!(one.is_token(token.as_bytes()));
        assert!(!other.is_token(token.as_bytes()));
        assert!(!one.is_token(b"") && !one.is_token(&token.as_bytes()[1..]));
        let longer = format!("{token}0");
        assert!(!one.is_token(longer.as_bytes()));
    }

    #[test]
    fn a_user_of_the_same_name_is_not_the_operator() {
        let operator = Operator::default();
        assert!(operator.is(operator.user()));
        assert!(!operator.is(&Arc::new(User::everything(OPERATOR))));
    }
}
