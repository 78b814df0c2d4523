//! Apps that scripts can drive: apps have capital letters, askers small ones,
//! processes numbers.
//!
//! `ask A x` waits for a place in A or gets one; `started 1`, `failed 1`,
//! `lost 1`, `killed 1` and `gone 1` are what becomes of processes; `answer x`, `broken x`,
//! `timeout x`, `left x` and `unused x` are how a session ends.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use rideau_core::apps::{
    AppId, Apps, Ask, Came, Effect, Ended, EvictFor, Leaving, Limits, Note, Options, ProcessId,
    Restart, ServerRules, Session, SessionId, State,
};
use rideau_core::queue::{AskOptions, Order, Shedding};
use rideau_core::{Instant, Machine, Reason, Reply, Ticket};

use crate::script::{self, Stage, in_millis, instant, millis, options};

/// Run a story on apps: `limits` for all, and options for A, B, and so on.
pub(crate) fn check(limits: &str, apps: &[&str], story: &str) {
    script::check(&mut Harness::new(limits, apps), story);
}

/// Apps, the asks that wait for them, and the asks that have a session.
pub(crate) struct Harness {
    pub(crate) apps: Apps<Name>,
    limits: Limits,
    options: Vec<Options>,
    /// What adding the apps brought about, until the script asks for it.
    first: Option<Vec<Effect<Name>>>,
    tickets: HashMap<String, (Ticket, AppId)>,
    sessions: HashMap<String, SessionId>,
    cold: HashSet<String>,
    last: HashMap<String, SessionId>,
    dead: Rc<RefCell<HashSet<String>>>,
    now: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) String, Rc<RefCell<HashSet<String>>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Harness {
    pub(crate) fn new(limits: &str, apps: &[&str]) -> Self {
        let limits = change_limits(Limits::default(), limits);
        let mut effects = Vec::new();
        let mut all = Apps::new(limits, 7, Instant::START).unwrap();
        let options: Vec<_> = apps.iter().map(|words| change(quiet(), words)).collect();
        for options in &options {
            let added = all.add(options.clone(), Instant::START, &mut effects);
            added.unwrap();
        }
        Self {
            apps: all,
            limits,
            options,
            first: Some(effects),
            tickets: HashMap::new(),
            sessions: HashMap::new(),
            cold: HashSet::new(),
            last: HashMap::new(),
            dead: Rc::default(),
            now: Instant::START,
        }
    }

    pub(crate) fn ask(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let (app, name, named) = (app(words[0]), words[1], options(words));
        let process = |word: &&str| ProcessId(word.parse().unwrap());
        let ask = Ask {
            terms: AskOptions {
                wait: !named.contains_key("now"),
                deadline: named.get("deadline").map(|word| millis(word)),
                promised: named.contains_key("deadline"),
                ..AskOptions::new(now)
            },
            sticky: named.get("sticky").map(process),
            avoid: named.get("avoid").map(process),
        };
        let reply = Name(name.into(), Rc::clone(&self.dead));
        let mut effects = Vec::new();
        let told = self.apps.would_refuse(app, now).map(|it| it.reason);
        let came = self.apps.ask(app, &ask, || reply, now, &mut effects);
        self.check_told(told, &ask, &came);
        let mut outcomes = match came {
            Came::Granted(session) => vec![self.gets(name, session)],
            Came::Refused(refusal) => vec![format!("{name} refused {}", refusal.reason.word())],
            Came::Waits(ticket) => {
                self.tickets.insert(name.into(), (ticket, app));
                Vec::new()
            }
        };
        outcomes.extend(self.say(effects));
        outcomes
    }

    /// What an ask is told before it is made is what it then gets.
    fn check_told(&self, told: Option<Reason>, ask: &Ask, came: &Came) {
        let refused = match came {
            Came::Refused(refusal) if ask.terms.wait => Some(refusal.reason),
            Came::Refused(_) => return,
            Came::Granted(_) | Came::Waits(_) => None,
        };
        // The law of a queue may refuse what there is room for.
        let is_plain = matches!(
            refused,
            None | Some(Reason::Full | Reason::Starting | Reason::Down | Reason::Closed)
        );
        if is_plain {
            assert_eq!(told, refused);
        }
    }

    fn gets(&mut self, name: &str, session: Session) -> String {
        let before = self.sessions.insert(name.into(), session.id);
        assert!(before.is_none(), "each letter has one session at a time");
        self.last.insert(name.into(), session.id);
        if session.is_cold {
            self.cold.insert(name.into());
        }
        format!("{name} gets {}", session.id.process)
    }

    fn say(&mut self, effects: Vec<Effect<Name>>) -> Vec<String> {
        let said = effects.into_iter().filter_map(|it| self.say_one(it));
        said.collect()
    }

    fn say_one(&mut self, effect: Effect<Name>) -> Option<String> {
        let said = match effect {
            Effect::Grant { reply, session } => self.gets(&reply.0, session),
            Effect::Shed { reply, refusal } => {
                let waited = in_millis(refusal.waited.as_nanos().try_into().unwrap());
                format!("{} shed {} {waited}", reply.0, refusal.reason.word())
            }
            Effect::Forget(reply) => format!("{} gone", reply.0),
            Effect::Start {
                app,
                process,
                generation,
            } => format!("start {}{process} v{generation}", letter(app)),
            Effect::Drain { process, why } => format!("drain {process} {}", why.word()),
            Effect::Stop {
                process,
                why,
                at_once,
            } => {
                let how = if at_once { "kill" } else { "stop" };
                format!("{how} {process} {}", why.word())
            }
            Effect::Probe { old, new, .. } => format!("probe {old} and {new}"),
            Effect::Look { server, .. } => format!("look at {server}"),
            Effect::Note(note) => return say_note(note),
            Effect::Closed => "closed".into(),
        };
        Some(said)
    }

    fn tell(&mut self, words: &[&str], now: Instant, effects: &mut Vec<Effect<Name>>) -> bool {
        let (id, apps) = (ProcessId(words[1].parse().unwrap()), &mut self.apps);
        match words[0] {
            "started" => return apps.started(id, now, effects),
            "disable" => return apps.disable(id, now, effects),
            "enable" => return apps.enable(id, now, effects),
            "detach" => return apps.detach(id, now, effects),
            "kill" => return apps.kill(id, now, effects),
            "failed" => apps.start_failed(id, now, effects),
            "lost" => apps.lost(id, now, effects),
            "killed" => apps.killed(id, now, effects),
            "gone" => apps.gone(id, now, effects),
            "unwell" => apps.unwell(id, now, effects),
            "unreachable" => apps.unreachable(id, now, effects),
            "answers" => apps.looked(id, true, now, effects),
            "silent" => apps.looked(id, false, now, effects),
            "memory" => apps.memory(id, words[2].parse().unwrap(), now, effects),
            other => panic!("no such input: {other}"),
        }
        true
    }

    fn end(&mut self, words: &[&str], now: Instant, effects: &mut Vec<Effect<Name>>) {
        let session = self
            .sessions
            .remove(words[1])
            .expect("a session that ends is known");
        let ended = match words[0] {
            "answer" => Ended::Answered,
            "left" => Ended::Left,
            "broken" => Ended::Broken,
            "timeout" => Ended::TimedOut,
            _ => Ended::Unused,
        };
        self.apps.release(session, ended, now, effects);
    }

    fn cancel(&mut self, name: &str, now: Instant) -> Vec<String> {
        let (ticket, app) = self.tickets[name];
        let mut effects = Vec::new();
        let gone = self.apps.cancel(ticket, app, now, &mut effects);
        let mut outcomes = Vec::from_iter(gone.map(|(name, _)| format!("{} left", name.0)));
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn change(&mut self, words: &[&str], now: Instant, effects: &mut Vec<Effect<Name>>) {
        let app = app(words[0]);
        let at = app.0 as usize;
        self.options[at] = change(self.options[at].clone(), &words[1..].join(" "));
        let options = self.options[at].clone();
        self.apps.reconfigure(app, options, now, effects).unwrap();
    }
}

impl Stage for Harness {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        self.now = now;
        let mut effects = Vec::new();
        match words[0] {
            "new" => effects = self.first.take().expect("apps are added once"),
            "ask" => return self.ask(&words[1..], now),
            "answer" | "left" | "broken" | "timeout" | "unused" => {
                self.end(words, now, &mut effects);
            }
            "again" => {
                let session = self.last[words[1]];
                self.apps
                    .release(session, Ended::Answered, now, &mut effects);
            }
            "stream" => {
                let session = self.sessions[words[1]];
                self.apps.streamed(session, None, now, &mut effects);
            }
            "dies" => {
                self.dead.borrow_mut().insert(words[1].into());
            }
            "cancel" => return self.cancel(words[1], now),
            "wait" => {
                self.apps.advance(now, &mut effects);
                let next = self.apps.deadline();
                assert!(next.is_none_or(|next| next > now), "it would spin");
            }
            "restart" => {
                let how = match words[2] {
                    "rolling" => Restart::Rolling,
                    "blocking" => Restart::Blocking,
                    _ => Restart::Immediate,
                };
                self.apps.restart(app(words[1]), how, now, &mut effects);
            }
            "spawn" => {
                let begun = self.apps.start_one(app(words[1]), now, &mut effects);
                assert_eq!(begun, !effects.is_empty());
            }
            "server" => {
                let server = self.apps.add_server(app(words[1]), now, &mut effects);
                let server = server.map_or_else(|| "none".into(), |id| id.to_string());
                let mut outcomes = vec![format!("server {server}")];
                outcomes.extend(self.say(effects));
                return outcomes;
            }
            "await" => {
                let are_awaited = words[2] == "servers";
                self.apps
                    .await_servers(app(words[1]), are_awaited, now, &mut effects);
            }
            "remove" => self.apps.remove(app(words[1]), now, &mut effects),
            "change" => self.change(&words[1..], now, &mut effects),
            "limits" => {
                self.limits = change_limits(self.limits, &words[1..].join(" "));
                let changed = self.apps.set_limits(self.limits, now, &mut effects);
                changed.unwrap();
            }
            "close" => self.apps.close(now, &mut effects),
            "close_now" => self.apps.close_now(now, &mut effects),
            _ => {
                let wanted = self.tell(words, now, &mut effects);
                let mut outcomes = Vec::from_iter((!wanted).then(|| "no".into()));
                outcomes.extend(self.say(effects));
                return outcomes;
            }
        }
        self.say(effects)
    }

    /// `used` and `live` are of all; `A.ready`, `A.waiting`, `A.sessions`,
    /// `A.gen`, `A.deploy`, `A.failing` of one app; `1.state` of a process.
    fn look(&self, name: &str) -> String {
        let stats = self.apps.stats(self.now);
        match name {
            "used" => return stats.used.to_string(),
            "live" => return stats.live.to_string(),
            "starting" => return stats.starting.to_string(),
            "active" => return stats.active.to_string(),
            "starved" => return stats.starved.to_string(),
            "next" => return instant(self.apps.deadline()),
            _ => (),
        }
        let (of, what) = name.split_once('.').expect("an app, and what");
        if let Ok(id) = of.parse() {
            return self.look_at(ProcessId(id), what);
        }
        if what == "load" {
            return self.load(app(of));
        }
        let Some(stats) = self.apps.app_stats(app(of), self.now) else {
            return "none".into();
        };
        let ready = |state: State| {
            stats
                .processes
                .iter()
                .filter(|it| it.state == state)
                .count()
        };
        match what {
            "ready" => ready(State::Ready).to_string(),
            "waiting" => stats.waiting.to_string(),
            "sessions" => stats.sessions.to_string(),
            "finished" => stats.finished.to_string(),
            "gen" => stats.generation.to_string(),
            "cold" => stats.cold.to_string(),
            "starts" => stats.starts.to_string(),
            "concurrency" => stats.concurrency.to_string(),
            "moves" => stats.concurrency_moves.to_string(),
            "streams" => stats.streams.to_string(),
            "start_failures" => stats.start_failures.to_string(),
            "failing" => stats.failing.map_or(0, |(count, _)| count).to_string(),
            "deploy" => format!("{:?}", stats.deploy).to_lowercase(),
            "wants_room" => stats.wants_room.is_some().to_string(),
            "start_time" => in_millis(stats.start_time.as_nanos().try_into().unwrap()),
            why => {
                let is = |leaving: &&Leaving| leaving.word() == why;
                let leaving = Leaving::ALL.iter().find(is);
                stats.left[leaving.expect("something to look at").index()].to_string()
            }
        }
    }
}

impl Harness {
    /// Free places of all, how many wait, and in how many milliseconds the first is ready.
    fn load(&self, app: AppId) -> String {
        match self.apps.load(app, self.now) {
            None => "none".into(),
            Some(load) => {
                let start = load.start.map(|start| format!("+{}", start.as_millis()));
                let (free, places, waiting) = (load.free, load.places, load.waiting);
                format!("{free}/{places}/{waiting}{}", start.unwrap_or_default())
            }
        }
    }

    fn look_at(&self, id: ProcessId, what: &str) -> String {
        let all = self
            .apps
            .ids()
            .filter_map(|app| self.apps.app_stats(app, self.now));
        let mut processes = all.flat_map(|stats| stats.processes);
        let Some(process) = processes.find(|it| it.process == id) else {
            return "gone".into();
        };
        match what {
            "state" => process.state.word().into(),
            "sessions" => process.sessions.to_string(),
            "streams" => process.streams.to_string(),
            "concurrency" => process.concurrency.to_string(),
            "finished" => process.finished.to_string(),
            other => panic!("nothing to look at: {other}"),
        }
    }
}

fn say_note(note: Note) -> Option<String> {
    let said = match note {
        Note::Started { .. } => return None,
        Note::Failing { app, failures, .. } => format!("failing {} {failures}", letter(app)),
        Note::Deployed { app, generation } => format!("deployed {} v{generation}", letter(app)),
        Note::DeployFailed { app, generation } => {
            format!("deploy failed {} v{generation}", letter(app))
        }
        Note::Starved { app, from } => format!("{} starved for {from}", letter(app)),
        Note::Removed { app } => format!("removed {}", letter(app)),
        Note::Learnt {
            app,
            generation,
            concurrency: (before, after),
        } => format!("learnt {} v{generation} {before}-{after}", letter(app)),
        Note::ServerDown { server, why, .. } => format!("{server} down {}", why.word()),
        Note::ServerUp { server, .. } => format!("{server} up"),
        Note::ServerLearnt {
            server,
            concurrency: (before, after),
            ..
        } => format!("learnt {server} {before}-{after}"),
        other => panic!("a new note: {other:?}"),
    };
    Some(said)
}

/// What comes of time alone is off unless asked for.
fn quiet() -> Options {
    let mut options = Options {
        concurrency: Some(1),
        idle_after: None,
        uptime_min: Duration::ZERO,
        ..Options::default()
    };
    options.queue.shedding = Shedding::Never;
    options
}

fn change_limits(mut limits: Limits, words: &str) -> Limits {
    let words: Vec<_> = words.split_whitespace().collect();
    for (name, value) in options(&words) {
        match name {
            "max" => limits.max = value.parse().unwrap(),
            "headroom" => limits.headroom = value.parse().unwrap(),
            "starts" => limits.starts_max = value.parse().unwrap(),
            "starve" => limits.starve_min = span(value),
            "evict" => limits.evict_for = EvictFor::Count,
            other => panic!("no such limit: {other}"),
        }
    }
    limits
}

fn change(mut options_of: Options, words: &str) -> Options {
    let words: Vec<_> = words.split_whitespace().collect();
    for (name, value) in options(&words) {
        let number = || value.parse().unwrap();
        let it = &mut options_of;
        match name {
            "min" => it.min = number(),
            "max" => it.max = (value != "none").then(number),
            "concurrency" => it.concurrency = (value != "auto").then(number),
            "queue" => {
                it.queue.max = Some(value.parse().unwrap());
                it.queue.max_fits = false;
            }
            "timeout" => {
                it.queue.shedding = Shedding::Timeout {
                    wait_max: span(value),
                };
            }
            "order" => it.queue.order = Order::Lifo,
            "idle" => it.idle_after = Some(span(value)),
            "requests" => it.requests_max = Some(value.parse().unwrap()),
            "life" => it.life_max = Some(span(value)),
            "soft" => it.memory_soft = Some(value.parse().unwrap()),
            "hard" => it.memory_hard = Some(value.parse().unwrap()),
            "drain" => it.drain_timeout = span(value),
            "uptime" => it.uptime_min = span(value),
            "target" => it.target_wait = Some(span(value)),
            "sticky" => it.sticky_wait = span(value),
            "tries" => it.deploy_tries = value.parse().unwrap(),
            "timeouts" => it.timeouts_max = value.parse().unwrap(),
            "streams" => {
                it.streams_count = value == "count";
                it.streams_max = value.parse().unwrap_or(1);
            }
            "one_each" => it.one_each = true,
            "alone" => it.alone = true,
            "servers" => it.servers = Some(ServerRules::default()),
            other => panic!("no such option: {other}"),
        }
    }
    options_of
}

fn span(millis_word: &str) -> Duration {
    millis(millis_word).since(Instant::START)
}

fn app(letter: &str) -> AppId {
    AppId(u32::from(letter.as_bytes()[0] - b'A'))
}

fn letter(app: AppId) -> char {
    char::from(b'A' + u8::try_from(app.0).unwrap())
}
