//! Users and groups of children, by name or by number.
//!
//! Names are those of `/etc/passwd` and `/etc/group`. A user or a group that is
//! known elsewhere only, as in a directory of a company, is given by number.

use std::ffi::OsString;
use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use super::start_error::StartError;
use super::start_step::StartStep;

/// The user and the group that a child runs as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Credentials {
    /// None for a number without a name.
    pub(super) name: Option<String>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// All groups that the user is in.
    pub(super) groups: Vec<u32>,
    pub(super) home: Option<OsString>,
}

impl Credentials {
    /// None if that is our own account.
    pub(super) fn find(
        user: Option<&str>,
        group: Option<&str>,
    ) -> Result<Option<Self>, StartError> {
        if user.is_none() && group.is_none() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let own = geteuid().as_raw();
        let user = user.map_or_else(|| own.to_string(), str::to_owned);
        let found = Self::among(&user, group, &users, &groups)?;
        // A process that is not root may do nothing here, not even what changes
        // nothing.
        let is_us = found.uid == own && found.gid == getegid().as_raw();
        Ok(Some(found).filter(|_| own == 0 || !is_us))
    }

    fn among(
        user: &str,
        group: Option<&str>,
        users: &str,
        groups: &str,
    ) -> Result<Self, StartError> {
        let number = user.parse::<u32>().ok();
        let row = rows(users).find(|row| match number {
            Some(number) => row.get(2).and_then(|uid| uid.parse().ok()) == Some(number),
            None => row[0] == user,
        });
        let column = |at: usize| row.as_ref()?.get(at).copied();
        let name = column(0).map(str::to_owned);
        let uid = number.or_else(|| column(2)?.parse().ok());
        let uid = uid.ok_or_else(|| unknown(StartStep::User, user))?;
        let own_group = column(3).and_then(|gid| gid.parse().ok());
        let gid = match group {
            Some(group) => gid_of(group, groups).ok_or_else(|| unknown(StartStep::Group, group))?,
            // A number without a name is in the group of the same number.
            None => own_group.unwrap_or(uid),
        };
        let mut all = vec![gid];
        all.extend(own_group);
        if let Some(name) = &name {
            let others = rows(groups).filter(|row| {
                let members = row.get(3).copied().unwrap_or_default();
                members.split(',').any(|member| member == name)
            });
            all.extend(others.filter_map(|row| row.get(2)?.parse::<u32>().ok()));
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self {
            name,
            uid,
            gid,
            groups: all,
            home: column(5).filter(|home| !home.is_empty()).map(Into::into),
        })
    }
}

fn gid_of(group: &str, groups: &str) -> Option<u32> {
    let named = || {
        let row = rows(groups).find(|row| row[0] == group)?;
        row.get(2)?.parse().ok()
    };
    group.parse().ok().or_else(named)
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().map(|row| row.split(':').collect())
}

fn unknown(step: StartStep, what: &str) -> StartError {
    StartError::Failed {
        step,
        what: what.to_owned(),
        error: io::Error::other("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::Credentials;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:34:web:/var/www:/bin/false\n";
    const GROUPS: &str = "root:x:0:\nwww:x:34:\nlogs:x:40:mail,www\nadmin:x:41:root\n";

    fn among(user: &str, group: Option<&str>) -> Result<(u32, u32, Vec<u32>), String> {
        let found = Credentials::among(user, group, USERS, GROUPS);
        found
            .map(|account| (account.uid, account.gid, account.groups))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_user_is_found_by_name_or_number_with_all_groups() {
        assert_eq!(among("www", None), Ok((33, 34, vec![34, 40])));
        assert_eq!(among("33", None), Ok((33, 34, vec![34, 40])));
        assert_eq!(among("www", Some("admin")), Ok((33, 41, vec![34, 40, 41])));
        assert_eq!(among("www", Some("7")), Ok((33, 7, vec![7, 34, 40])));
        assert_eq!(among("500", None), Ok((500, 500, vec![500])));
    }

    #[test]
    fn an_unknown_user_or_group_is_named() {
        let unknown = |text: &str| Err(text.to_owned());
        assert_eq!(among("ww", None), unknown("user ww: unknown"));
        assert_eq!(among("www", Some("x")), unknown("group x: unknown"));
        assert_eq!(among("-1", None), unknown("user -1: unknown"));
    }
}
