//! `pam_sluice.so`: whoever logs in to a node comes into one of their jobs there, or does not come in.
//!
//! The module decides nothing about jobs and touches no control group: it asks the agent of the machine, which moves
//! the asking process. It is loaded into `sshd` as root, so it is small, has one thread, waits with a bound, and when
//! in doubt refuses.

mod agent_socket;
mod namespaces;
mod options;
mod verdict;

// Its symbols are found in the program that loads the module; a test program has none of them.
#[cfg(not(test))]
mod module;
