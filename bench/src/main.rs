//! Side-by-side measurements of Rideau and its peers.

fn main() {}
