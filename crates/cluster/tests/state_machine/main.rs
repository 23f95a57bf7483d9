//! The state machine, told in sentences and in random histories. Every event of every test goes
//! through `World`, which checks what must hold after each.

mod accounts;
mod arrays;
mod authorisation;
mod dependencies;
mod dynamic_nodes;
mod endings;
mod fleets;
mod groups;
mod het;
mod invariants;
mod job_builder;
mod machines;
mod membership;
mod nodes;
mod policy;
mod power;
mod preempt;
mod properties;
mod random_history;
mod random_moves;
mod requeue;
mod reservations;
mod restore;
mod room;
mod secrets;
mod steps;
mod submit;
mod testbed;
mod tick;
mod tokens;
mod update;
mod update_like_submit;
mod volumes;
