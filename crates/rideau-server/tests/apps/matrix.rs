//! Applications written elsewhere, in several languages and with their usual servers: what
//! becomes of the requests while processes are killed, code is deployed that is good or broken
//! in every way, clients are slow, and the server itself is replaced by a newer one.
//!
//! Some of it is tried always, and all of it in a soak.

#[path = "matrix/frameworks.rs"]
mod frameworks;
#[path = "matrix/load.rs"]
mod load;
#[path = "matrix/rows.rs"]
mod rows;
#[path = "matrix/stage.rs"]
mod stage;
#[path = "matrix/talk.rs"]
mod talk;

use rideau_testing::skipped;

use self::frameworks::Framework;
use self::rows::{CHEAP, LAST, SOAK};
use self::stage::Stage;
use crate::harness::is_soak;

/// Everything that is tried with an application of this framework.
fn endures(framework: &Framework) {
    let missing = framework.missing();
    if let Some(what) = missing {
        assert!(!is_soak(), "{what} is missing: ./test installs it");
        return skipped(&format!("there is no {what}"));
    }
    let besides = if is_soak() { SOAK } else { &[] };
    let stage = Stage::new(framework);
    for row in CHEAP.iter().chain(besides).chain([&LAST]) {
        eprintln!("{}: {}", framework.name, row.name);
        (row.run)(&stage);
    }
    stage.end();
}

/// The same where only a soak has the time.
fn endures_in_a_soak(framework: &Framework) {
    if is_soak() {
        endures(framework);
    }
}

#[test]
fn flask_in_gunicorn() {
    endures(&frameworks::FLASK);
}

#[test]
fn flask_in_gunicorn_that_loads_first() {
    endures_in_a_soak(&frameworks::FLASK_PRELOAD);
}

#[test]
fn django_in_gunicorn() {
    endures_in_a_soak(&frameworks::DJANGO);
}

#[test]
fn fastapi_in_uvicorn() {
    endures(&frameworks::FASTAPI);
}

#[test]
fn express() {
    endures(&frameworks::EXPRESS);
}

#[test]
fn fastify() {
    endures_in_a_soak(&frameworks::FASTIFY);
}

#[test]
fn sinatra_in_puma() {
    endures(&frameworks::SINATRA);
}

#[test]
fn sinatra_in_puma_with_workers() {
    endures_in_a_soak(&frameworks::SINATRA_WORKERS);
}

#[test]
fn php_in_its_own_server() {
    endures_in_a_soak(&frameworks::PHP);
}

#[test]
fn a_program_in_go() {
    endures_in_a_soak(&frameworks::GO);
}

#[test]
fn a_program_in_java() {
    endures_in_a_soak(&frameworks::JAVA);
}
