//! The commands of the program, each as a script would use it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "cli/demo.rs"]
mod demo;

#[path = "cli/words.rs"]
mod words;

#[path = "cli/hold.rs"]
mod hold;

#[path = "cli/lease.rs"]
mod lease;

#[path = "cli/look.rs"]
mod look;

#[path = "cli/served.rs"]
mod served;

#[path = "cli/simulate.rs"]
mod simulate;

#[path = "cli/serve.rs"]
mod serve;

#[path = "cli/activation.rs"]
mod activation;
