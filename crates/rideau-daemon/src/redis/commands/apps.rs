//! Places in the processes of applications, and what operators do to these.

use std::sync::Arc;
use std::time::Instant;

use rideau_apps::{App, Refused, Session, Wanted};
use rideau_core::apps::{ProcessId, Restart};
use rideau_resp::{Mistake, Request, Upper};

use super::page;
use super::tickets::{self, Answer};
use super::{About, Subject, about};
use crate::redis::client::{
    AskArgs, Awaits, Client, CommandError, Next, PendingCommand, closed, refused,
};
use crate::state::answer::{AnswerField, micros};
use crate::state::daemon::Daemon;
use crate::state::grant::Grant;
use crate::state::ticket::TicketKind;
use crate::view::tables::{self, TableKind};

/// The commands about applications.
pub(super) const TABLE: &[About] = &[
    about(
        "APP.GET",
        2,
        "get",
        Subject::Name,
        "app [WAIT ms] [ASYNC] [ID nonce] [NOTE text]",
        "Take a place in a process of an app, for another front",
        get,
    ),
    about(
        "APP.LS",
        1,
        "show",
        Subject::Nothing,
        "[COUNT n] [FROM cursor]",
        "The apps",
        list,
    ),
    about(
        "APP.STAT",
        2,
        "show",
        Subject::Name,
        "app [COUNT n] [FROM cursor]",
        "The processes of an app",
        stat,
    ),
    about(
        "APP.LOG",
        2,
        "app",
        Subject::Name,
        "app [LINES n]",
        "What its processes wrote last: number, process, output, line",
        log,
    ),
    about(
        "APP.RESTART",
        2,
        "app",
        Subject::Name,
        "app [ROLLING | BLOCKING | NOW]",
        "Replace its processes by new ones",
        restart,
    ),
    about(
        "APP.TRIAL",
        3,
        "app",
        Subject::Name,
        "app ACCEPT | REJECT",
        "Give the verdict on its new code that is on trial",
        trial,
    ),
    about(
        "APP.SET",
        2,
        "app",
        Subject::Name,
        "app [MIN n] [MAX n]",
        "Change how many processes it has",
        set,
    ),
    about(
        "APP.SPAWN",
        2,
        "app",
        Subject::Name,
        "app",
        "Start one more process",
        spawn,
    ),
    about(
        "APP.DISABLE",
        2,
        "app",
        Subject::Nothing,
        "pid",
        "Send a process no more requests, and keep it",
        disable,
    ),
    about(
        "APP.ENABLE",
        2,
        "app",
        Subject::Nothing,
        "pid",
        "Send a process requests again",
        enable,
    ),
    about(
        "APP.DETACH",
        2,
        "app",
        Subject::Nothing,
        "pid",
        "Have a process finish what it serves, and end",
        detach,
    ),
    about(
        "APP.KILL",
        2,
        "app",
        Subject::Nothing,
        "pid",
        "End a process at once",
        kill,
    ),
];

/// This many lines are told to a client that does not say how many.
const LINES: u64 = 100;

pub(super) fn get(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("APP.GET", "an app")?;
    let mut tail = AskArgs::default();
    while let Some(option) = arguments.next() {
        let upper = Upper::of(option);
        if !tail.option(upper.as_bytes(), &mut arguments, client)? {
            return Err(Mistake::unknown("APP.GET", option).into());
        }
    }
    let app = find(client, name)?;
    if let Some(step) = tickets::repeated(client, &tail) {
        return Ok(step);
    }
    client.may_wait()?;
    let wait = client.wait_max(&tail);
    let wanted = Wanted {
        wait_max: Some(wait),
        promised: tail.wait.is_some(),
        at_once: wait.is_zero(),
        ..Wanted::default()
    };
    let sees_output = super::look::viewer(client).sees_output("app", name);
    let (daemon, name) = (Arc::clone(&client.daemon), name.to_owned());
    let answer = async move {
        let since = Instant::now();
        // Apps close only when the front has finished; others need not wait for that.
        let granted = tokio::select! {
            biased;
            () = daemon.stopping() => Err(Refused {
                refusal: closed(since.elapsed()),
                report: None,
            }),
            granted = daemon.apps.ask(&app, wanted) => granted,
        };
        answer(&daemon, &app, granted, sees_output)
    };
    if tail.is_async {
        return tickets::later(client, TicketKind::App, &name, &tail, answer);
    }
    Ok(Next::Wait(tickets::blocked(
        TicketKind::App,
        name,
        tail,
        answer,
    )))
}

fn answer(
    daemon: &Daemon,
    app: &App,
    granted: Result<Session, Refused>,
    sees_output: bool,
) -> Answer {
    match granted {
        Ok(session) => {
            let process = session.process();
            let parts = vec![
                process.address.to_string().as_str().into(),
                (process.pid()).map_or(AnswerField::None, |pid| AnswerField::Number(pid.into())),
                micros(session.waited()),
            ];
            Ok((parts, Grant::App(session)))
        }
        Err(Refused { refusal, report }) => {
            let explain = || daemon.apps.explain(app).join("\n");
            let why = refusal.to_string();
            let no = refused(daemon, "app", &app.name, &refusal, why, explain);
            Err(match report.filter(|_| sees_output) {
                Some(report) => no.with_why(format!("{refusal}: {}", report.summary)),
                None => no,
            })
        }
    }
}

pub(super) fn restart(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let app = find(client, arguments.text("APP.RESTART", "an app")?)?;
    let how = match arguments.next() {
        None => Restart::Rolling,
        Some(word) => match Upper::of(word).as_bytes() {
            b"ROLLING" => Restart::Rolling,
            b"BLOCKING" => Restart::Blocking,
            b"NOW" => Restart::Immediate,
            _ => {
                let wanted = "ROLLING, BLOCKING or NOW";
                return Err(Mistake::wrong("APP.RESTART", wanted, word).into());
            }
        },
    };
    arguments.end("APP.RESTART")?;
    has_own_processes(&app)?;
    client.daemon.apps.restart(&app, how, client.user_name());
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn trial(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let app = find(client, arguments.text("APP.TRIAL", "an app")?)?;
    let wanted = "ACCEPT or REJECT";
    let word = arguments.text("APP.TRIAL", wanted)?.as_bytes();
    let is_good = match Upper::of(word).as_bytes() {
        b"ACCEPT" => true,
        b"REJECT" => false,
        _ => return Err(Mistake::wrong("APP.TRIAL", wanted, word).into()),
    };
    arguments.end("APP.TRIAL")?;
    if !client
        .daemon
        .apps
        .end_trial(&app, is_good, client.user_name())
    {
        return Err(CommandError(format!(
            "ERR app {} has no new code on trial: SHOW APPS says on_trial where there is some.",
            app.name
        )));
    }
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn set(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let app = find(client, arguments.text("APP.SET", "an app")?)?;
    has_own_processes(&app)?;
    let mut values = Vec::new();
    let name = toml_edit::Key::new(&*app.name).display_repr().into_owned();
    while let Some(word) = arguments.next() {
        let key = match Upper::of(word).as_bytes() {
            b"MIN" => "min",
            b"MAX" => "max",
            _ => return Err(Mistake::unknown("APP.SET", word).into()),
        };
        let count = arguments.number(key, "processes", 0..=100_000)?;
        values.push((format!("app.{name}.{key}"), count.to_string()));
    }
    let set = move |daemon: &Arc<Daemon>, by: &str| daemon.set(&values, by);
    super::settings::change(client, set, super::settings::done)
}

pub(super) fn spawn(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let app = find(client, arguments.text("APP.SPAWN", "an app")?)?;
    arguments.end("APP.SPAWN")?;
    has_own_processes(&app)?;
    if !client.daemon.apps.start_one(&app) {
        return Err(CommandError(format!(
            "BUSY app {} has no room for one more process: raise its max, or front.max.",
            app.name
        )));
    }
    let by = Some(client.user_name());
    let (events, text) = (&client.daemon.events, "one more process is started");
    events.add_app(&app.name, text, String::new(), by);
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn kill(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    to_process(client, request, "APP.KILL", |daemon, process| {
        daemon.apps.kill(process)
    })
}

pub(super) fn detach(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    to_process(client, request, "APP.DETACH", |daemon, process| {
        daemon.apps.detach(process)
    })
}

pub(super) fn disable(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    to_process(client, request, "APP.DISABLE", |daemon, process| {
        daemon.apps.disable(process)
    })
}

pub(super) fn enable(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    to_process(client, request, "APP.ENABLE", |daemon, process| {
        daemon.apps.enable(process)
    })
}

/// Do something to one process, by its number in the system or ours.
fn to_process(
    client: &mut Client,
    request: Request<'_>,
    command: &'static str,
    act: impl FnOnce(&Daemon, ProcessId) -> bool,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let number = arguments.number(command, "the pid of a process", 1..=u64::MAX)?;
    arguments.end(command)?;
    let found = client.daemon.apps.process(number);
    // A user that may not use an app does not learn which processes it has.
    let found = found.filter(|(_, app)| super::look::viewer(client).sees("app", &app.name));
    let Some((process, app)) = found else {
        let help = "SHOW PROCESSES lists them.";
        return Err(CommandError::no_such("process", number, help));
    };
    if !act(&client.daemon, process) {
        return Err(CommandError(format!(
            "ERR {command} is not possible in the state of process {number}: SHOW PROCESSES shows \
             it."
        )));
    }
    let text = format!("{command} of process {number}");
    let by = client.user_name().to_owned();
    let events = &client.daemon.events;
    events.add_app(&app.name, &text, String::new(), Some(&by));
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn list(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let page = page::options(client, "APP.LS", &mut request.arguments())?;
    let wanted = tables::TableQuery {
        name: None,
        page,
        viewer: super::look::viewer(client),
    };
    let table = tables::table(&client.daemon, TableKind::Apps, &wanted).paged_by("APP.LS");
    table.write(&mut client.reply());
    Ok(Next::Done)
}

/// The processes of one app.
pub(super) fn stat(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("APP.STAT", "an app")?;
    let page = page::options(client, "APP.STAT", &mut arguments)?;
    let app = find(client, name)?;
    let (daemon, name) = (Arc::clone(&client.daemon), name.to_owned());
    let finish = async move {
        daemon.apps.look_at_usage(&app).await;
        let finish: crate::redis::client::OnReady = Box::new(move |client: &mut Client| {
            let wanted = tables::TableQuery {
                name: Some(&app.name),
                page,
                viewer: super::look::viewer(client),
            };
            let table = tables::table(&daemon, TableKind::Processes, &wanted);
            let table = table.paged_by(&format!("APP.STAT {}", app.name));
            table.write(&mut client.reply());
        });
        finish
    };
    let awaits = Awaits::Thing("app");
    Ok(Next::Wait(PendingCommand::new(
        name,
        awaits,
        Box::pin(finish),
    )))
}

pub(super) fn log(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let app = find(client, arguments.text("APP.LOG", "an app")?)?;
    let mut count = LINES;
    while let Some(word) = arguments.next() {
        match Upper::of(word).as_bytes() {
            b"LINES" => count = arguments.number("LINES", "lines", 1..=100_000)?,
            _ => return Err(Mistake::unknown("APP.LOG", word).into()),
        }
    }
    let lines = app.output.last(count as usize);
    let mut reply = client.reply();
    reply.array(lines.len());
    for line in lines {
        reply
            .array(4)
            .integer(i64::try_from(line.serial).unwrap_or(i64::MAX))
            .integer(i64::try_from(line.process.0).unwrap_or(i64::MAX))
            .bulk(line.stream_word())
            .bulk(&*line.text);
    }
    Ok(Next::Done)
}

/// Nothing is started or stopped for an upstream.
fn has_own_processes(app: &App) -> Result<(), CommandError> {
    match app.has_servers() {
        false => Ok(()),
        true => Err(CommandError(format!("ERR {}", others_start(&app.name)))),
    }
}

/// Why nothing is started or stopped for an upstream.
fn others_start(name: &str) -> String {
    format!(
        "{name} is an upstream, whose servers others start and stop: APP.DISABLE takes one of \
         them out."
    )
}

/// The app of this name, if one may use it.
fn find(client: &Client, name: &str) -> Result<Arc<App>, CommandError> {
    super::may_use(client, "app", name)?;
    client.daemon.apps.find(name).ok_or_else(|| {
        let help = "APP.LS lists them; [app.NAME] in the config adds one.";
        CommandError::no_such("app", name, help)
    })
}
