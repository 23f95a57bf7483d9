//! The attacks that were tried on the program, each as a test that it holds.

#[path = "../harness/mod.rs"]
mod harness;

mod forged_lines;
mod planted_links;
