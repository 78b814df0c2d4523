//! The rideau program.

mod cli;
mod demo;
mod exit;
mod span;
mod wire;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The system's own keeps most of what a crowd of connections has used, for ever.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = rideau_process::stage() {
        return code;
    }
    cli::run(std::env::args_os())
}
