//! The rideau program.

mod cli;
mod demo;
mod exit;
mod span;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = rideau_process::stage() {
        return code;
    }
    cli::run(std::env::args_os())
}
