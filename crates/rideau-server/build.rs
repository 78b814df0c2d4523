//! Names the commit of a released build, for `rideau --version`.
//!
//! Other builds do not: they would be compiled again after each commit.

use std::env;
use std::fs;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RIDEAU_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let commit = match env::var("PROFILE").as_deref() {
        Ok("release") => env::var("RIDEAU_COMMIT")
            .ok()
            .or_else(packaged)
            .or_else(checked_out),
        _ => None,
    };
    let version = match commit {
        Some(commit) => format!("{version} ({})", commit.get(..10).unwrap_or(&commit)),
        None => version,
    };
    println!("cargo::rustc-env=RIDEAU_VERSION={version}");
}

/// The commit that a published crate was made from.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(String::from)
}

/// The commit of the checkout that this is.
fn checked_out() -> Option<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    // Changes with every commit, whatever the branch.
    println!(
        "cargo::rerun-if-changed={}",
        git(&["rev-parse", "--git-path", "logs/HEAD"])?
    );
    Some(head)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
