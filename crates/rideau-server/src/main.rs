//! The rideau program.

mod cli;
mod demo;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
