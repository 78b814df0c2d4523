//! What the default shedding policy is worth, beside the best time-out; and whether what says
//! so is right.
//!
//! The suite is that of `rideau-simulate`: each of its cells is run under the default and under
//! time-outs with the same arrivals and the same holds. The soak tries more time-outs. Built
//! with optimisation: `./test core`. Beside it are tables of what the machine of the apps learns
//! and rejects.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod learning;
mod theory;
/// Shared with the tests of what a trial does.
#[path = "../it/apps/traffic.rs"]
#[allow(dead_code, reason = "the other tests look at more of it")]
mod traffic;
mod trial;

use rideau_core::Reason;
use rideau_simulate::suite::{
    Asker, Family, Judged, Pattern, Policy, SuiteCell, families, judge, places, run,
};
use rideau_simulate::{RunOutcome, Scenario, simulate};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// One cell under the policy and under the best time-out.
struct Compared {
    cell: SuiteCell,
    judged: Judged,
}

#[test]
fn steady_load_without_a_named_wait() {
    let known = check("steady");
    let few = known.iter().filter(|one| one.judged.ratio() < 0.97).count();
    let all = known.len();
    assert!(100 * few <= 3 * all, "{few} of {all} below 0.97");
    check("blind");
}

#[test]
fn named_waits_are_kept() {
    for one in check("named waits") {
        let outcome = &one.judged.outcome;
        assert_eq!(outcome.promises_broken, 0, "{}", one.cell);
        if matches!(one.cell.load, Pattern::Steady(load) if load < 1.0) {
            let refused = 1000 * outcome.shed_for(Reason::Hopeless);
            assert!(refused <= 5 * outcome.requests, "{}", one.cell);
        }
    }
}

#[test]
fn patterns_without_a_named_wait() {
    check("patterns");
}

#[test]
fn askers_that_leave_cost_nothing() {
    check("hang-ups");
}

#[test]
fn few_are_shed_that_could_have_been_served() {
    for load in [0.3, 0.7, 0.9] {
        for cell in places(|servers, hold| SuiteCell::steady(load, servers, hold)) {
            let until = 4 * cell.until;
            let cell = SuiteCell { until, ..cell };
            let paced = run(&cell, Policy::Default).unwrap();
            let never = run(&cell, Policy::Never).unwrap();
            check_protected(&cell, Policy::Default, &paced);
            assert!(100 * paced.useful >= 99 * never.useful, "{cell}");
            if load > 0.7 {
                continue;
            }
            let (shed, late) = (paced.shed_total(), never.granted - never.useful);
            match cell.servers {
                1 => assert!(2 * shed <= late + 4, "{cell}"),
                4 => assert!(1000 * shed <= 4 * paced.requests, "{cell}: {shed}"),
                _ => assert!(1000 * shed <= paced.requests, "{cell}: {shed}"),
            }
        }
    }
}

#[test]
fn lasting_overload_has_short_waits_and_is_soon_over() {
    let serves = |cell: &SuiteCell| {
        let scenario = Scenario {
            keeps_serves: true,
            ..cell.scenario(Policy::Default)
        };
        simulate(&scenario, &mut |_| ()).unwrap().serves
    };
    // With one server a serve within 75 ms comes by chance again and again, and
    // the tight bound is off for two seconds then.
    for (servers, most) in [(1, 400), (4, 155), (10, 155)] {
        let cell = SuiteCell {
            until: 20 * SECOND,
            ..SuiteCell::steady(2.0, servers, 10 * MS)
        };
        let mut waits: Vec<_> = serves(&cell).iter().map(|(_, waited)| *waited).collect();
        // Overload has to last before the bound is tight.
        waits.drain(..waits.len() / 2);
        waits.sort_unstable();
        let p99 = waits[waits.len() * 99 / 100];
        assert!(p99 <= most * MS, "{p99} with {servers} servers");

        let cell = SuiteCell {
            load: Pattern::Recovery,
            ..cell
        };
        let over = cell.until / 5;
        let serves = serves(&cell);
        let quick = |(at, waited): &&(u64, u64)| *at > over && *waited < 75 * MS;
        let (quick, _) = serves.iter().find(quick).unwrap();
        let took = quick - over;
        assert!(took <= most.max(300) * MS, "{took} with {servers}");
    }
}

#[test]
fn followers_of_retry_after_come_seldom() {
    let compared = check("retries");
    let mut asks = 0.0;
    for one in &compared {
        let outcome = &one.judged.outcome;
        let each = outcome.asks as f64 / outcome.requests as f64;
        assert!(each <= 2.5, "{}: {each} asks each", one.cell);
        asks += each;
    }
    let mean = asks / compared.len() as f64;
    assert!(mean <= 1.5, "{mean} asks each");
}

/// Judge the cells of a family, and check that they reach what they have to.
fn check(name: &str) -> Vec<Compared> {
    let mut families = families().into_iter();
    let family = families.find(|family| family.name == name).unwrap();
    let is_thorough = std::env::var_os("RIDEAU_SOAK").is_some();
    let compare = |cell: &SuiteCell| Compared {
        cell: *cell,
        judged: judge(cell, family.policy, is_thorough).unwrap(),
    };
    let compared: Vec<_> = family.cells.iter().map(compare).collect();
    for one in &compared {
        check_protected(&one.cell, family.policy, &one.judged.outcome);
    }
    check_ratios(&family, &compared);
    compared
}

/// The policy sheds no ask that it protects, and only for its own reason.
fn check_protected(cell: &SuiteCell, policy: Policy, outcome: &RunOutcome) {
    let protected = match policy {
        Policy::Default => 4.max(2 * cell.servers as usize),
        _ => 4,
    };
    let least = outcome.shed_at_least.unwrap_or(usize::MAX);
    assert!(least > protected, "{cell}: one of {least} was shed");
    let is_named = matches!(cell.asker, Asker::Named(_));
    for (reason, _) in outcome.reasons() {
        let may = match reason {
            Reason::Bound => !is_named,
            Reason::Hopeless | Reason::Deadline => is_named,
            _ => false,
        };
        assert!(may, "{cell}: shed for {reason:?}");
    }
}

fn check_ratios(family: &Family, compared: &[Compared]) {
    let what = family.name;
    let ratios = compared.iter().map(|one| (one.judged.ratio(), one));
    let worst = ratios.min_by(|one, other| one.0.total_cmp(&other.0));
    let (least, worst) = worst.unwrap();
    let sum: f64 = compared.iter().map(|one| one.judged.ratio()).sum();
    let mean = sum / compared.len() as f64;
    println!(
        "{what}: {} cells, least {least:.3}, mean {mean:.4}",
        compared.len()
    );
    for one in compared
        .iter()
        .filter(|one| one.judged.ratio() < family.mean)
    {
        let useful = one.judged.outcome.useful;
        println!("  {:.3} {} ({useful} useful)", one.judged.ratio(), one.cell);
    }
    assert!(
        least >= family.least,
        "{what}: {least:.3} in {}",
        worst.cell
    );
    assert!(mean >= family.mean, "{what}: {mean:.4}");
}
