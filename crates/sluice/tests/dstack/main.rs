//! dstack's language through the built program: the published client, unmodified, and our own verbs.

#[path = "../harness/mod.rs"]
mod harness;

mod brought_along;
mod dstack_client;
mod groups;
mod published_client;
mod secrets;
