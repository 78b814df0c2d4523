//! The rideau program.

fn main() {}
