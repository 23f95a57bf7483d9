//! `pam_sluice.so`: a user who logs in to a node joins one of their jobs there, or is denied.
//!
//! The module knows nothing of jobs and touches no control group: it asks the machine's agent, which moves the asking
//! process. It is loaded into `sshd` as root, so it is small, has one thread, has a timeout, and denies when in doubt.
//! `module` has the functions that PAM calls, `options` the words of the PAM file, `verdict` the rules, `agent_socket`
//! the request to the agent, `namespaces` the entry into private folders.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod agent_socket;
mod namespaces;
mod options;
mod verdict;

// Needs PAM's symbols from the program that loads the module, which a test program does not have.
#[cfg(not(test))]
mod module;
