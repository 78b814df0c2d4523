//! One machine, its model, and a world that carries the effects out at random.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::apps::{
    AnswerHead, AppId, Apps, Ask, Came, Effect, Ended, Limits, Options, ProcessId, Restart,
    SessionId,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine};

use super::inputs::Dice;
use super::model::{App, Doing, Model, Name, Process, Waiter, is_used};

pub(crate) struct Run {
    apps: Apps<Name>,
    model: Model,
    dice: Dice,
    now: Instant,
    names: u64,
    /// Sessions that were released, to be released again.
    released: Vec<SessionId>,
    is_told: bool,
}

/// About how many apps there are.
const APPS: usize = 5;

impl Run {
    pub(crate) fn new(seed: u64, is_told: bool) -> Self {
        let mut dice = Dice::new(seed);
        let limits = dice.limits();
        let mut run = Self {
            apps: Apps::new(limits, seed, Instant::START).unwrap(),
            model: Model::new(limits),
            dice,
            now: Instant::START,
            names: 0,
            released: Vec::new(),
            is_told,
        };
        (0..APPS).for_each(|_| run.add());
        run
    }

    pub(crate) fn step(&mut self) {
        self.model.is_lowered = false;
        match self.dice.below(1000) {
            0..260 => self.ask(),
            260..480 => self.release(),
            480..580 => self.process(Doing::Starting, "started"),
            580..600 => self.process(Doing::Starting, "failed"),
            600..700 => self.process(Doing::Stopping, "gone"),
            700..720 => self.any_process(),
            720..735 => self.cancel(),
            735..745 => self.die(),
            745..765 => self.stream(),
            765..790 => self.memory(),
            790..810 => self.restart(),
            810..835 => self.operate(),
            835..845 => self.set_limits(),
            845..860 => self.reconfigure(),
            860..865 => self.come_and_go(),
            865..870 => self.release_again(),
            870..880 => self.probe(),
            880..900 => self.server(),
            900..920 => self.look(),
            _ => self.pass_time(),
        }
    }

    fn tell(&self, words: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:?} {}", self.now, words());
        }
    }

    /// Judge what an input brought about.
    fn after(&mut self, effects: &[Effect<Name>]) {
        if self.is_told {
            effects.iter().for_each(|effect| println!("    {effect:?}"));
        }
        self.model.now = self.now;
        self.model.judge(effects);
        self.model.compare(&self.apps);
    }

    fn add(&mut self) {
        let options = self.dice.options(None);
        let mut effects = Vec::new();
        let added = self.apps.add(options.clone(), self.now, &mut effects);
        let id = added.unwrap();
        self.tell(|| format!("add {id:?} {options:?}"));
        self.model.apps.push(App {
            id,
            options,
            generation: 1,
            finished: 0,
            waiters: Vec::new(),
            is_removed: false,
            awaits: false,
        });
        self.after(&effects);
        (0..self.dice.below(3)).for_each(|_| self.add_server(id));
    }

    /// An app has one more server, or its servers are looked for.
    fn server(&mut self) {
        let app = self.some_app();
        if self.dice.chance(30) {
            let mut effects = Vec::new();
            let are_awaited = self.dice.chance(50);
            self.tell(|| format!("await servers of {app:?}: {are_awaited}"));
            let of = self.model.app(app);
            if of.options.servers.is_some() && !of.is_removed {
                of.awaits = are_awaited;
            }
            (self.apps).await_servers(app, are_awaited, self.now, &mut effects);
            self.after(&effects);
        } else {
            self.add_server(app);
        }
    }

    fn add_server(&mut self, app: AppId) {
        let mut effects = Vec::new();
        self.model.now = self.now;
        let added = self.apps.add_server(app, self.now, &mut effects);
        self.tell(|| format!("server of {app:?}: {added:?}"));
        let of = self.model.app(app);
        let has_servers = of.options.servers.is_some() && !of.is_removed;
        assert_eq!(added.is_some(), has_servers);
        if let Some(id) = added {
            self.model.add_server(app, id);
        }
        self.after(&effects);
    }

    /// A server was looked at, or a caller says so.
    fn look(&mut self) {
        let all = self.model.ids(|it| it.is_looked_at);
        let any = self.model.ids(|_| true);
        let mut looked = self.dice.pick(&all);
        if self.dice.chance(10) {
            looked = self.dice.pick(&any);
        }
        if let Some(id) = looked {
            let answers = self.dice.chance(60);
            self.looked(id, answers);
        }
    }

    fn looked(&mut self, id: ProcessId, answers: bool) {
        self.tell(|| format!("looked at {id}: {answers}"));
        let mut effects = Vec::new();
        self.model.at(id).is_looked_at = false;
        self.apps.looked(id, answers, self.now, &mut effects);
        self.after(&effects);
    }

    fn some_app(&mut self) -> AppId {
        let ids: Vec<_> = self.model.apps.iter().map(|app| app.id).collect();
        self.dice.one_of(&ids)
    }

    fn ask(&mut self) {
        let app = self.some_app();
        let times = self.dice.one_of(&[1, 1, 1, 1, 2, 8]);
        (0..times).for_each(|_| self.ask_for(app));
    }

    fn ask_for(&mut self, app: AppId) {
        self.names += 1;
        let name = Name(self.names, Rc::new(Cell::new(self.dice.chance(1))));
        let all = self.model.ids(|_| true);
        let some = |dice: &mut Dice| dice.chance(15).then(|| dice.pick(&all)).flatten();
        let ask = Ask {
            terms: AskOptions {
                deadline: self.dice.deadline(self.now),
                wait: !self.dice.chance(5),
                promised: true,
                ..AskOptions::new(self.now)
            },
            sticky: some(&mut self.dice),
            avoid: some(&mut self.dice),
        };
        self.tell(|| format!("ask {app:?} {} {ask:?}", name.0));
        let mut effects = Vec::new();
        let reply = name.clone();
        let came = self.apps.ask(app, &ask, || reply, self.now, &mut effects);
        self.tell(|| format!("  {came:?}"));
        match came {
            Came::Granted(session) => {
                self.model.now = self.now;
                self.model.grant(app, session);
            }
            Came::Waits(ticket) => {
                let wait = self.model.app(app).options.sticky_wait;
                let failed = ask.avoid.and_then(|failed| self.old_code(app, failed));
                let sticky = ask.sticky.filter(|wanted| Some(*wanted) != ask.avoid);
                let sticky = failed.or(sticky).map(|process| (process, self.now + wait));
                self.model.app(app).waiters.push(Waiter {
                    name,
                    ticket,
                    sent: self.now,
                    sticky,
                });
            }
            Came::Refused(refusal) => self.model.judge_refusal(app, refusal.reason),
        }
        self.after(&effects);
    }

    /// The process with the old code that is asked what this one has failed, if this one
    /// runs code on trial.
    fn old_code(&mut self, app: AppId, failed: ProcessId) -> Option<ProcessId> {
        self.apps.app_stats(app, self.now)?.trial?;
        let generation = self.model.app(app).generation;
        let of_app = |it: &&Process| it.app == app;
        let mut own = self.model.processes.iter().filter(of_app);
        own.find(|it| it.id == failed && it.generation == generation)?;
        let own = self.model.processes.iter().filter(of_app);
        let mut old = own.filter(|it| it.generation < generation && it.doing == Doing::Ready);
        old.next_back().map(|it| it.id)
    }

    fn release(&mut self) {
        let sessions: Vec<_> = self.model.sessions.iter().map(|it| it.id).collect();
        let Some(session) = self.dice.pick(&sessions) else {
            return;
        };
        let ended = self.dice.one_of(&[
            Ended::Answered,
            Ended::Answered,
            Ended::Answered,
            Ended::Answered,
            Ended::Left,
            Ended::Broken,
            Ended::TimedOut,
            Ended::Unused,
        ]);
        self.release_one(session, ended);
    }

    fn release_one(&mut self, session: SessionId, ended: Ended) {
        self.tell(|| format!("release {session:?} {ended:?}"));
        let mut effects = Vec::new();
        self.model.now = self.now;
        self.model.release(session, ended != Ended::Unused);
        let head = self.dice.chance(80).then_some(AnswerHead {
            failed: self.dice.chance(30),
            after: Duration::from_millis(self.dice.below(400)),
        });
        self.apps
            .release_answered(session, ended, head, self.now, &mut effects);
        self.released.push(session);
        self.after(&effects);
    }

    fn release_again(&mut self) {
        if let Some(session) = self.dice.pick(&self.released) {
            self.tell(|| format!("release again {session:?}"));
            let mut effects = Vec::new();
            self.apps
                .release(session, Ended::Answered, self.now, &mut effects);
            self.apps.streamed(session, None, self.now, &mut effects);
            assert!(effects.is_empty());
            self.after(&effects);
        }
    }

    /// Something becomes of one that does this.
    fn process(&mut self, doing: Doing, what: &str) {
        let all = self.model.ids(|it| it.doing == doing);
        if let Some(id) = self.dice.pick(&all) {
            self.happen(id, what);
        }
    }

    fn any_process(&mut self) {
        let what = self
            .dice
            .one_of(&["lost", "killed", "unwell", "unreachable", "gone"]);
        let mut all = self.model.ids(|_| true);
        all.push(ProcessId(999_999));
        let id = self.dice.one_of(&all);
        self.happen(id, what);
    }

    fn happen(&mut self, id: ProcessId, what: &str) {
        self.tell(|| format!("{what} {id}"));
        let mut effects = Vec::new();
        let (apps, now) = (&mut self.apps, self.now);
        match what {
            "started" => {
                assert!(apps.started(id, now, &mut effects), "it is wanted");
                let process = self.model.at(id);
                process.doing = Doing::Ready;
                process.begin(now);
                let (app, generation) = (process.app, process.generation);
                assert_eq!(self.model.app(app).generation, generation, "F25");
            }
            "failed" => {
                apps.start_failed(id, now, &mut effects);
                self.model.processes.retain(|it| it.id != id);
            }
            "gone" => {
                apps.gone(id, now, &mut effects);
                self.model.processes.retain(|it| it.id != id);
            }
            "lost" | "killed" => {
                match what {
                    "lost" => apps.lost(id, now, &mut effects),
                    _ => apps.killed(id, now, &mut effects),
                }
                let mut all = self.model.processes.iter_mut();
                if let Some(process) = all.find(|it| it.id == id) {
                    process.doing = Doing::Stopping;
                }
            }
            "unwell" => apps.unwell(id, now, &mut effects),
            _ => apps.unreachable(id, now, &mut effects),
        }
        self.after(&effects);
    }

    /// Both codes were asked the same, or a caller says so.
    fn probe(&mut self) {
        let app = self.some_app();
        let (old, new) = (self.dice.chance(20), self.dice.chance(50));
        let mut effects = Vec::new();
        match self.dice.chance(90) {
            true => self.apps.probed(app, old, new, self.now, &mut effects),
            false => drop(self.apps.end_trial(app, old, self.now, &mut effects)),
        }
        self.tell(|| format!("probed {app:?}"));
        self.after(&effects);
    }

    fn cancel(&mut self) {
        let app = self.some_app();
        let waiters = self.model.app(app).waiters.clone();
        let Some(waiter) = self.dice.pick(&waiters) else {
            return;
        };
        self.tell(|| format!("cancel {}", waiter.name.0));
        let mut effects = Vec::new();
        let gone = self.apps.cancel(waiter.ticket, app, self.now, &mut effects);
        let (name, _) = gone.expect("a waiting ask can leave");
        assert_eq!(name.0, waiter.name.0);
        self.model.leave(name.0);
        self.after(&effects);
    }

    fn die(&mut self) {
        let app = self.some_app();
        let waiters = self.model.app(app).waiters.clone();
        if let Some(waiter) = self.dice.pick(&waiters) {
            self.tell(|| format!("{} is gone", waiter.name.0));
            waiter.name.1.set(true);
        }
    }

    fn stream(&mut self) {
        let sessions: Vec<_> = self.model.sessions.iter().map(|it| it.id).collect();
        if let Some(session) = self.dice.pick(&sessions) {
            self.tell(|| format!("stream {session:?}"));
            let mut effects = Vec::new();
            self.model.stream(session);
            self.apps.streamed(session, None, self.now, &mut effects);
            self.after(&effects);
        }
    }

    fn memory(&mut self) {
        let all = self.model.ids(|it| it.doing != Doing::Starting);
        if let Some(id) = self.dice.pick(&all) {
            let bytes = self.dice.one_of(&[50, 50, 150, 250]);
            self.tell(|| format!("memory {id} {bytes}"));
            let mut effects = Vec::new();
            self.apps.memory(id, bytes, self.now, &mut effects);
            self.after(&effects);
        }
    }

    fn restart(&mut self) {
        let app = self.some_app();
        let how = self.dice.one_of(&[
            Restart::Rolling,
            Restart::Rolling,
            Restart::Rolling,
            Restart::Blocking,
            Restart::Immediate,
        ]);
        self.tell(|| format!("restart {app:?} {how:?}"));
        let mut effects = Vec::new();
        let of = self.model.app(app);
        let is_ours = !of.is_removed && of.options.servers.is_none();
        of.generation += u64::from(is_ours);
        self.apps.restart(app, how, self.now, &mut effects);
        self.after(&effects);
    }

    /// An operator does something to a process.
    fn operate(&mut self) {
        let mut all = self.model.ids(|_| true);
        all.push(ProcessId(999_999));
        let (id, app) = (self.dice.one_of(&all), self.some_app());
        let what = self
            .dice
            .one_of(&["disable", "enable", "enable", "detach", "kill", "spawn"]);
        self.tell(|| format!("{what} {id} or {app:?}"));
        let mut effects = Vec::new();
        let (apps, now) = (&mut self.apps, self.now);
        let mut found = self.model.processes.iter_mut().find(|it| it.id == id);
        let doing = found.as_ref().map(|it| it.doing);
        match what {
            "disable" => {
                if apps.disable(id, now, &mut effects) {
                    assert!(matches!(doing, Some(Doing::Ready | Doing::Down)));
                    found.as_mut().unwrap().doing = Doing::Disabled;
                }
            }
            "enable" => {
                let enabled = apps.enable(id, now, &mut effects);
                assert_eq!(enabled, doing == Some(Doing::Disabled));
                if enabled {
                    found.as_mut().unwrap().doing = Doing::Ready;
                }
            }
            "detach" => {
                let detached = apps.detach(id, now, &mut effects);
                assert_eq!(detached, found.is_some_and(|it| is_used(it)));
            }
            "kill" => {
                let killed = apps.kill(id, now, &mut effects);
                assert_eq!(killed, found.is_some());
            }
            _ => {
                apps.start_one(app, now, &mut effects);
            }
        }
        self.after(&effects);
    }

    fn set_limits(&mut self) {
        let limits = self.dice.limits();
        self.tell(|| format!("{limits:?}"));
        self.change_limits(limits);
    }

    fn change_limits(&mut self, limits: Limits) {
        let mut effects = Vec::new();
        (self.model.limits, self.model.is_lowered) = (limits, true);
        let changed = self.apps.set_limits(limits, self.now, &mut effects);
        changed.unwrap();
        self.after(&effects);
    }

    fn reconfigure(&mut self) {
        let app = self.some_app();
        let has_servers = self.model.app(app).options.servers.is_some();
        let options = self.dice.options(Some(has_servers));
        self.change(app, options);
    }

    fn change(&mut self, app: AppId, options: Options) {
        self.tell(|| format!("change {app:?} {options:?}"));
        let mut effects = Vec::new();
        if !self.model.app(app).is_removed {
            self.model.app(app).options = options.clone();
        }
        self.model.is_lowered = true;
        let changed = self.apps.reconfigure(app, options, self.now, &mut effects);
        changed.unwrap();
        self.after(&effects);
    }

    fn come_and_go(&mut self) {
        let app = self.some_app();
        self.tell(|| format!("remove {app:?}"));
        let mut effects = Vec::new();
        self.model.app(app).is_removed = true;
        self.apps.remove(app, self.now, &mut effects);
        self.after(&effects);
        self.add();
    }

    /// Time passes, and the driver of the machine is late, or not.
    fn pass_time(&mut self) {
        let until = self.now + self.dice.step();
        let is_late = self.dice.chance(20);
        while !is_late
            && let Some(due) = self.apps.deadline()
            && due <= until
        {
            self.now = self.now.max(due);
            self.advance();
        }
        self.now = until;
        if is_late && self.dice.chance(50) {
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.tell(|| "advance".into());
        let mut effects = Vec::new();
        self.apps.advance(self.now, &mut effects);
        self.after(&effects);
        let next = self.apps.deadline();
        assert!(next.is_none_or(|next| next > self.now), "it would spin");
    }

    /// Everything that was begun goes well, and no new ask comes: every ask is
    /// answered.
    pub(crate) fn come_to_rest(&mut self) {
        self.tell(|| "come to rest".into());
        for app in self.model.apps.clone() {
            let options = Options {
                min: 0,
                max: None,
                ..app.options
            };
            self.change(app.id, options);
        }
        for app in self.model.apps.clone() {
            let mut effects = Vec::new();
            self.model.app(app.id).awaits = false;
            self.apps
                .await_servers(app.id, false, self.now, &mut effects);
            self.after(&effects);
        }
        for id in self.model.ids(|it| it.doing == Doing::Disabled) {
            let mut effects = Vec::new();
            self.apps.detach(id, self.now, &mut effects);
            self.after(&effects);
        }
        for _ in 0..2_000 {
            self.model.is_lowered = false;
            if self.model.waits() == 0 {
                return;
            }
            for session in self.model.sessions.clone() {
                self.release_one(session.id, Ended::Answered);
            }
            for id in self.model.ids(|it| it.doing == Doing::Stopping) {
                self.happen(id, "gone");
            }
            for id in self.model.ids(|it| it.is_looked_at) {
                self.looked(id, true);
            }
            if let Some(id) = self.model.ids(|it| it.doing == Doing::Starting).first() {
                self.happen(*id, "started");
            }
            let due = self.apps.deadline().unwrap_or(self.now);
            self.now = self.now.max(due.min(self.now + Duration::from_secs(1)));
            self.advance();
        }
        panic!("{} are never answered", self.model.waits());
    }

    /// All is closed: nothing is left.
    pub(crate) fn end(&mut self) {
        self.tell(|| "close".into());
        let mut effects = Vec::new();
        self.model.is_closing = true;
        self.apps.close(self.now, &mut effects);
        self.after(&effects);
        if self.dice.chance(20) {
            let mut effects = Vec::new();
            self.apps.close_now(self.now, &mut effects);
            self.after(&effects);
        }
        while let Some(session) = self.model.sessions.first() {
            self.release_one(session.id, Ended::Left);
        }
        while let Some(process) = self.model.processes.first() {
            assert_eq!(process.doing, Doing::Stopping, "all were told to stop");
            self.happen(process.id, "gone");
        }
        assert!(self.model.is_closed);
        assert_eq!(self.apps.deadline(), None);
        let stats = self.apps.stats(self.now);
        assert_eq!((stats.live, stats.active, stats.starved), (0, 0, 0));
    }
}
