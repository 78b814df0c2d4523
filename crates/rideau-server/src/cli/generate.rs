//! The sample config, the schema, completions, and password hashes.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;
use rideau_config::password::Hash;
use serde_json::json;

use super::{Done, Failure, Manner, known, show};

/// Print completions for a shell
///
/// For bash: rideau completions bash > ~/.local/share/bash-completion/completions/rideau
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write a page for each command here, instead of the first one to standard output
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn completions(words: &Completions) -> Done {
    let mut text = Vec::new();
    clap_complete::generate(words.shell, &mut known(), "rideau", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(words: &Man) -> Done {
    let program = known();
    match &words.folder {
        None => clap_mangen::Man::new(program).render(&mut io::stdout())?,
        Some(folder) => {
            fs::create_dir_all(folder)?;
            clap_mangen::generate_to(program, folder)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn hash(manner: &Manner) -> Done {
    let mut password = Vec::new();
    io::stdin().read_to_end(&mut password)?;
    // The line end of `echo` and of the return key is no part of it.
    while password
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        password.pop();
    }
    if password.is_empty() {
        return Err(Failure::Broken(
            "there is no password; write it to standard input: rideau hash < FILE".into(),
        ));
    }
    let hash = Hash::of(&password)
        .map_err(|fault| Failure::Broken(format!("the password cannot be hashed: {fault:?}")))?;
    if manner.json {
        show::print_json(&json!({ "hash": hash.as_str() }))?;
    } else {
        show::print_text(hash.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
