//! Hands out scarce things fairly and fast, and takes them back when the
//! holder dies.
