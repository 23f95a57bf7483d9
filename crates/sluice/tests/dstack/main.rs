//! dstack's language through the built program: the published client, unmodified, and our own verbs.

#[path = "../harness/mod.rs"]
mod harness;

mod array_run;
mod attach;
mod brought_along;
mod client_options;
mod dstack_client;
mod fleets;
mod groups;
mod images;
mod in_place;
mod internode;
mod json_output;
mod mpi;
mod multi_node;
mod offers;
mod other_language;
mod priority;
mod published_client;
mod published_services;
mod retry;
mod secrets;
mod two_users;
mod volumes;
