//! New code on trial beside the old, on a virtual clock. How often it is rejected, and what that
//! costs, is a table of `tests/acceptance`.

use std::time::Duration;

use rideau_core::apps::{Ask, Came, Deploy, Effect, Ended, Note, TrialVerdict};
use rideau_core::queue::AskOptions;

use super::traffic::{NoReply, Traffic, code};

#[test]
fn what_new_code_has_failed_waits_for_the_old_code() {
    let codes = (code(0.0), code(0.0));
    let mut traffic = Traffic::with_places(1, 0.0, codes, 1);
    traffic.restart();
    let mut effects = Vec::new();
    let mut ask = |avoid, effects: &mut Vec<_>| {
        let ask = Ask {
            terms: AskOptions::new(traffic.now),
            sticky: None,
            avoid,
        };
        let (app, now) = (traffic.app, traffic.now);
        traffic.apps.ask(app, &ask, || NoReply, now, effects)
    };
    let sessions = [None; 2].map(|avoid| match ask(avoid, &mut effects) {
        Came::Granted(session) => session,
        _ => panic!("each code has a place"),
    });
    let of = |generation| {
        sessions
            .iter()
            .find(|it| it.generation == generation)
            .unwrap()
    };
    let (old, new) = (of(1), of(2));
    let now = traffic.now;
    traffic
        .apps
        .release(new.id, Ended::Broken, now, &mut effects);
    let again = Ask {
        terms: AskOptions::new(now),
        sticky: None,
        avoid: Some(new.id.process),
    };
    let came = traffic
        .apps
        .ask(traffic.app, &again, || NoReply, now, &mut effects);
    assert!(matches!(came, Came::Waits(_)), "the new code has a place");
    effects.clear();
    traffic
        .apps
        .release(old.id, Ended::Answered, now, &mut effects);
    let granted = effects.iter().find_map(|effect| match effect {
        Effect::Grant { session, .. } => Some(session.generation),
        _ => None,
    });
    assert_eq!(granted, Some(1));
}

#[test]
fn a_repair_is_never_rejected() {
    for per_s in [1.0, 10.0] {
        for seed in 0..50 {
            let (verdict, seen) = Traffic::new(per_s, code(1.0), code(0.0), seed).judged();
            assert_eq!(verdict, TrialVerdict::Good, "{seen:?}");
        }
    }
}

#[test]
fn what_fails_together_is_never_found_good_while_it_does() {
    for seed in 0..20 {
        let mut traffic = Traffic::new(10.0, code(0.0), code(1.0), seed);
        while traffic.open.len() < 1_000 {
            traffic.step();
        }
        // Both depend on something that is gone.
        traffic.old = code(1.0);
        traffic.restart();
        while traffic.verdict().is_none() {
            traffic.step();
        }
        let (verdict, _) = traffic.verdict().unwrap();
        assert!(!verdict.is_good(), "{verdict:?}");
    }
}

#[test]
fn without_traffic_both_are_asked_the_same() {
    let mut quiet = Traffic::new(0.0, code(0.0), code(0.0), 1);
    quiet.restart();
    while quiet.verdict().is_none() {
        quiet.step();
    }
    let (verdict, seen) = quiet.verdict().unwrap();
    assert_eq!(verdict, TrialVerdict::Good);
    assert_eq!(seen.lasts, Duration::from_secs(60));
    let seconds: Vec<_> = quiet.probes.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [10, 20, 30, 40, 50]);
    let mut broken = Traffic::new(0.0, code(0.0), code(1.0), 1);
    broken.restart();
    while broken.verdict().is_none() {
        broken.step();
    }
    assert!(!broken.verdict().unwrap().0.is_good());
    assert_eq!(broken.rejected, 1, "its process goes");
}

#[test]
fn newer_code_calls_a_trial_off() {
    let mut traffic = Traffic::new(10.0, code(0.0), code(0.0), 1);
    while traffic.open.len() < 100 {
        traffic.step();
    }
    traffic.restart();
    for _ in 0..20 {
        traffic.step();
    }
    traffic.restart();
    let began = |note: &&Note| matches!(note, Note::TrialBegan { .. });
    assert_eq!(traffic.notes.iter().filter(began).count(), 2);
    while traffic.verdict().is_none() {
        traffic.step();
    }
    for _ in 0..100 {
        traffic.step();
    }
    let stats = traffic.apps.app_stats(traffic.app, traffic.now).unwrap();
    assert_eq!((stats.generation, stats.deploy), (3, Deploy::Settled));
    assert!(stats.processes.iter().all(|it| it.generation == 3));
}

#[test]
fn where_the_old_code_is_lost_the_new_serves() {
    let mut traffic = Traffic::new(10.0, code(0.0), code(0.5), 1);
    while traffic.open.len() < 100 {
        traffic.step();
    }
    traffic.restart();
    let stats = traffic.apps.app_stats(traffic.app, traffic.now).unwrap();
    let old = stats
        .processes
        .iter()
        .find(|it| it.generation == 1)
        .unwrap();
    let mut effects = Vec::new();
    traffic.apps.lost(old.process, traffic.now, &mut effects);
    traffic.carry_out(effects);
    assert_eq!(traffic.verdict().unwrap().0, TrialVerdict::Alone);
}

#[test]
fn an_operator_gives_the_verdict() {
    for is_good in [true, false] {
        let mut traffic = Traffic::new(10.0, code(0.0), code(0.0), 1);
        traffic.restart();
        let (mut effects, now) = (Vec::new(), traffic.now);
        let app = traffic.app;
        assert!(traffic.apps.end_trial(app, is_good, now, &mut effects));
        traffic.carry_out(effects);
        assert!(!traffic.apps.end_trial(app, is_good, now, &mut Vec::new()));
        let stats = traffic.apps.app_stats(app, now).unwrap();
        let deploy = if is_good {
            Deploy::Settled
        } else {
            Deploy::Failed
        };
        assert_eq!(stats.deploy, deploy);
    }
}
