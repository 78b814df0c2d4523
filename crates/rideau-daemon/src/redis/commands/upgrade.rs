//! `UPGRADE`: a newer program takes over from this one.

use std::path::PathBuf;

use rideau_resp::{Arguments, Mistake, Request, Upper};

use super::{About, Subject, about};
use crate::redis::client::{Client, CommandError, Next};
use crate::redis::peer::Proof;
use crate::state::upgrades::{NoUpgrade, UpgradeState};

/// The commands about upgrades.
pub(super) const TABLE: &[About] = &[about(
    "UPGRADE",
    1,
    "config",
    Subject::Nothing,
    "[PROGRAM path] | STATUS",
    "Have a newer program take over; STATUS says how far that is",
    upgrade,
)];

impl From<NoUpgrade> for CommandError {
    fn from(why: NoUpgrade) -> Self {
        let code = match why {
            NoUpgrade::Running(_) => "BUSY",
            _ => "ERR",
        };
        Self(format!("{code} {why}."))
    }
}

fn upgrade(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    super::may_use_all(client, "the server as a whole")?;
    let program = match arguments.next() {
        None => None,
        Some(word) => match Upper::of(word).as_bytes() {
            b"STATUS" => return status(client, arguments),
            b"PROGRAM" => Some(program(client, &mut arguments)?),
            _ => return Err(Mistake::unknown("UPGRADE", word).into()),
        },
    };
    arguments.end("UPGRADE")?;
    let serial = client.daemon.ask_upgrade(program, client.user_name())?;
    client.reply().integer(serial as i64);
    Ok(Next::Done)
}

/// Which program runs on this machine is for its account to say.
fn program(client: &Client, arguments: &mut Arguments<'_>) -> Result<PathBuf, CommandError> {
    let path = PathBuf::from(arguments.text("UPGRADE PROGRAM", "the full path of a program")?);
    if !matches!(client.proof, Proof::Control) {
        return Err(CommandError(
            "NOPERM another program can be named over the control socket alone: use `rideau \
             upgrade --program PATH` on the server's account."
                .into(),
        ));
    }
    if !path.is_absolute() {
        return Err(CommandError(format!(
            "ERR {:?} is not a full path: write it from the root on.",
            path.display().to_string()
        )));
    }
    Ok(path)
}

fn status(client: &mut Client, arguments: Arguments<'_>) -> Result<Next, CommandError> {
    arguments.end("UPGRADE STATUS")?;
    let last = client.daemon.upgrades.last();
    let is_new = client.daemon.upgrades.is_program_new();
    let mut reply = client.reply();
    let Some(last) = last else {
        reply.map(2);
        reply.bulk("state").bulk("none");
        reply.bulk("is_new").integer(is_new.into());
        return Ok(Next::Done);
    };
    let (why, took) = match &last.state {
        UpgradeState::Runs(_) => (None, last.since.elapsed()),
        UpgradeState::Done(took) => (None, *took),
        UpgradeState::Failed(why) => (Some(why), last.since.elapsed()),
    };
    reply.map(6);
    reply.bulk("state").bulk(last.word());
    reply.bulk("upgrade").integer(last.serial as i64);
    reply.bulk("pid");
    match last.pid {
        Some(pid) => reply.integer(pid.into()),
        None => reply.null(),
    };
    reply.bulk("ms");
    reply.integer(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    reply.bulk("is_new").integer(is_new.into());
    reply.bulk("reason");
    match why {
        Some(why) => reply.bulk(why),
        None => reply.null(),
    };
    Ok(Next::Done)
}
