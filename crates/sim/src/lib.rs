//! The simulator's room: the same `cluster`, `sched`, store logic and protocol in virtual time.
//!
//! Empty so far. Trace replay, what-if and the fault simulator move in here; they call
//! `sched::plan` and `cluster::State` as the server does, so that there is one scheduler and one
//! state machine.
