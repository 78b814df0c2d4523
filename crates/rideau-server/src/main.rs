//! The rideau program.

mod cli;
mod demo;

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("serve") {
        return serve(env::args().skip(2).find(|word| word != "--config"));
    }
    cli::run(env::args().skip(1))
}

/// Serve what a file says, or the default.
fn serve(file: Option<String>) -> ExitCode {
    let config = match file {
        None => rideau_server::config::Config::default(),
        Some(file) => {
            let text = match std::fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) => {
                    eprintln!("rideau: {file}: {error}");
                    return ExitCode::FAILURE;
                }
            };
            let env = |name: &str| env::var(name).ok();
            match rideau_server::config::Config::parse(&text, &file, &env) {
                Ok(config) => config,
                Err(faults) => {
                    eprint!("{}", faults.render(false));
                    return ExitCode::FAILURE;
                }
            }
        }
    };
    let mut runtime = match config.server.threads {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        Some(threads) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
        None => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime
        .enable_all()
        .build()
        .expect("the system has threads");
    let served = runtime.block_on(rideau_server::serve::run(config, |addresses| {
        println!("rideau serves at {}", addresses.join(", "));
    }));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rideau: {error}");
            ExitCode::FAILURE
        }
    }
}
