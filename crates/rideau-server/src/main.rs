//! The rideau program.

mod cli;
mod demo;

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(env::args().skip(1))
}
