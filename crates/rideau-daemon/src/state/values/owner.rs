//! Which user values belong to, as it is written down beside them.

use rideau_config::User;

/// The name that stands for every client where there are no users. It is written down
/// as nothing.
const DEFAULT: &str = "default";

/// The owner of what this user reserves, or of what any client does where there are no
/// users.
pub(crate) fn owner_of(user: Option<&User>) -> &[u8] {
    match user {
        Some(user) if user.name != DEFAULT => user.name.as_bytes(),
        _ => b"",
    }
}

/// The user may know the fence of a value that has this owner.
pub(crate) fn sees_fence(user: Option<&User>, owner: Option<&[u8]>) -> bool {
    let is_operator = |user: &User| user.may("range");
    owner == Some(owner_of(user)) || user.is_none_or(is_operator)
}
