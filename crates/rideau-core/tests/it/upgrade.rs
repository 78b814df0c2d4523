//! Both sides of an upgrade as scripts; times are in milliseconds.

use rideau_core::upgrade::{
    NewSide, NewSideEffect, NewSideLimits, OldSide, OldSideEffect, OldSideLimits, UPGRADE_PROTOCOL,
    UpgradeFault, Warmth,
};
use rideau_core::{Instant, Machine};

use crate::script::{self, Stage, in_millis};

struct Old(OldSide);
struct New(NewSide);

fn deadline(machine: &impl Machine) -> String {
    let nanos = |until: Instant| in_millis(until.nanos_since(Instant::START).into());
    machine.deadline().map_or("never".into(), nanos)
}

impl Stage for Old {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let side = &mut self.0;
        let mut said = Vec::new();
        match words {
            ["ask"] => {
                if side.ask(now, &mut effects).is_err() {
                    said.push("running".to_owned());
                }
            }
            ["checked"] => side.checked(true, now, &mut effects),
            ["faulty"] => side.checked(false, now, &mut effects),
            ["not-started"] => side.not_started(now, &mut effects),
            ["hello"] => side.hello(UPGRADE_PROTOCOL, now, &mut effects),
            ["hello", protocol] => side.hello(protocol.parse().unwrap(), now, &mut effects),
            ["ready"] => side.ready(now, &mut effects),
            ["closed"] => side.closed(now, &mut effects),
            ["serving"] => side.serving(now, &mut effects),
            ["abort"] => side.abort(UpgradeFault::AppFails, now, &mut effects),
            ["gone"] => side.gone(now, &mut effects),
            ["stop"] => side.stop(now, &mut effects),
            ["wait"] => side.advance(now, &mut effects),
            _ => panic!("not an input: {words:?}"),
        }
        let effects = effects.into_iter().map(|effect| match effect {
            OldSideEffect::Fail(fault) => format!("fail {}", fault.word()),
            other => format!("{other:?}").to_lowercase(),
        });
        said.extend(effects);
        said
    }

    fn look(&self, name: &str) -> String {
        match name {
            "step" => self.0.step().map_or("none", |step| step.word()).into(),
            "next" => deadline(&self.0),
            _ => panic!("nothing is called {name}"),
        }
    }
}

impl Stage for New {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let side = &mut self.0;
        match words {
            ["offered"] => side.offered(now, &mut effects),
            ["cold"] => side.warmed(Warmth::Cold, now, &mut effects),
            ["warm"] => side.warmed(Warmth::Ready, now, &mut effects),
            ["fails"] => side.warmed(Warmth::Fails, now, &mut effects),
            ["yours"] => side.yours(now, &mut effects),
            ["older-gone"] => side.older_gone(now, &mut effects),
            ["opened", secs] => {
                let finishes = std::time::Duration::from_secs(secs.parse().unwrap());
                side.opened(finishes, now, &mut effects);
            }
            ["not-opened"] => side.not_opened(&mut effects),
            ["wait"] => side.advance(now, &mut effects),
            _ => panic!("not an input: {words:?}"),
        }
        let effects = effects.into_iter().map(|effect| match effect {
            NewSideEffect::Quit(fault) => format!("quit {}", fault.word()),
            other => format!("{other:?}").to_lowercase(),
        });
        effects.collect()
    }

    fn look(&self, name: &str) -> String {
        match name {
            "alone" => self.0.is_alone().to_string(),
            "next" => deadline(&self.0),
            _ => panic!("nothing is called {name}"),
        }
    }
}

fn old(script: &str) {
    script::check(&mut Old(OldSide::new(OldSideLimits::default())), script);
}

fn new(script: &str) {
    let side = NewSide::new(NewSideLimits::default(), Instant::START);
    script::check(&mut New(side), script);
}

#[test]
fn the_older_one_serves_until_the_newer_one_does() {
    old("
            0 ask      -> check  | step checking next 30000
          100 checked  -> start  | step starting next 30100
          200 hello    -> offer  | step warming next 120200
         5000 ready    -> close  | step closing next 15000
         5300 closed   -> yours  | step opening next 65300
         5400 serving  -> leave  | step finishing next never
         6000 gone               | step finishing
    ");
}

#[test]
fn a_second_upgrade_is_refused_meanwhile() {
    old("
            0 ask      -> check
            1 ask      -> running
          100 checked  -> start
          101 ask      -> running
          200 gone     -> fail ended | step none
          300 ask      -> check
          400 faulty   -> fail check_failed
          500 ask      -> check
          600 checked  -> start
          700 hello    -> offer
          800 ready    -> close
          900 closed   -> yours
         1000 serving  -> leave
         1100 ask      -> running
    ");
}

#[test]
fn a_newer_one_that_is_no_good_changes_nothing() {
    old("
            0 ask          -> check
        30000 wait         -> fail check_late | step none
        40000 checked
        50000 ask          -> check
        50001 checked      -> start
        50002 not-started  -> fail not_started
        60000 ask          -> check
        60001 checked      -> start
        60002 hello 2      -> kill   | step ending
        60003 gone         -> fail other_protocol
        70000 ask          -> check
        70001 checked      -> start
       100001 wait         -> kill
       100002 gone         -> fail silent
       110000 ask          -> check
       110001 checked      -> start
       110002 hello        -> offer
       230002 wait         -> kill
       230003 ready
       230004 gone         -> fail not_ready
       240000 ask          -> check
       240001 checked      -> start
       240002 hello        -> offer
       240003 abort        -> kill
       240004 gone         -> fail app_fails | step none
    ");
}

#[test]
fn what_was_closed_is_opened_when_the_newer_one_is_gone() {
    old("
            0 ask      -> check
            1 checked  -> start
            2 hello    -> offer
            3 ready    -> close
            4 closed   -> yours
            5 gone     -> open, fail ended | step none
         1000 ask      -> check
         1001 checked  -> start
         1002 hello    -> offer
         1003 ready    -> close
         1004 closed   -> yours
        61004 wait     -> kill
        61005 gone     -> open, fail not_serving
        70000 ask      -> check
        70001 checked  -> start
        70002 hello    -> offer
        70003 ready    -> close
        80003 wait     -> kill
        80004 closed
        80005 gone     -> open, fail not_closed
    ");
}

#[test]
fn one_that_cannot_be_ended_is_not_waited_for() {
    old("
            0 ask      -> check
            1 checked  -> start
            2 hello    -> offer
            3 ready    -> close
            4 closed   -> yours
           10 abort    -> kill      | next 5010
         5010 wait     -> open, fail app_fails
    ");
}

#[test]
fn a_server_that_stops_takes_the_newer_one_along() {
    old("
            0 ask      -> check
            1 stop     -> fail stopped
            2 ask      -> check
            3 checked  -> start
            4 stop     -> kill, fail stopped
            5 gone
    ");
    old("
            0 ask      -> check
            1 checked  -> start
            2 hello    -> offer
            3 ready    -> close
            4 closed   -> yours
            5 serving  -> leave
            6 stop
    ");
}

#[test]
fn the_newer_one_serves_when_it_may() {
    new("
            0 wait                    | next 30000
          100 offered    -> warm      | next 150100
          200 cold
          900 warm       -> ready     | next 150900
          950 warm
         1000 yours      -> open      | next never
         1100 opened 30  -> serving   | next 41100
        20000 older-gone              | alone true next never
    ");
}

#[test]
fn an_older_one_that_hangs_is_ended() {
    new("
          100 offered    -> warm
          900 warm       -> ready
         1000 yours      -> open
         1100 opened 30  -> serving
        41100 wait       -> killolder | alone true
    ");
}

#[test]
fn the_newer_one_serves_when_the_older_one_is_gone() {
    new("
           50 older-gone -> open
           60 opened 30               | alone true
    ");
    new("
          100 offered    -> warm
          200 older-gone -> open
          210 warm
          300 opened 30               | alone true next never
    ");
    new("
          100 offered    -> warm
          200 warm       -> ready
          300 older-gone -> open
    ");
    new("
          100 offered    -> warm
          200 warm       -> ready
          300 yours      -> open
          310 older-gone
          400 opened 30               | alone true
    ");
}

#[test]
fn the_newer_one_gives_up() {
    new("
        30000 wait       -> quit silent
        30001 offered
    ");
    new("
            1 offered    -> warm
          100 fails      -> quit app_fails
          101 older-gone
    ");
    new("
            1 offered    -> warm
       150001 wait       -> quit not_ready
    ");
    new("
            1 offered    -> warm
          100 warm       -> ready
       150100 wait       -> quit silent
    ");
    new("
            1 offered    -> warm
          100 warm       -> ready
          200 yours      -> open
          300 not-opened -> quit not_opened
    ");
}
