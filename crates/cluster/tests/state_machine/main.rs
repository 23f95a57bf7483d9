//! The state machine, told in sentences and in random histories. Every event of every test goes
//! through `World`, which checks what must hold after each.

mod accounts;
mod arrays;
mod ask;
mod dependencies;
mod endings;
mod history;
mod invariants;
mod moves;
mod nodes;
mod operations;
mod preempt;
mod requeue;
mod reservations;
mod rights;
mod steps;
mod submit;
mod time_alone;
mod update;
mod world;
