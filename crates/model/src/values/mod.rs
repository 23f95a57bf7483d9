//! Values and their grammars: amounts, times, names, sets of CPUs and hosts. Every parse error is a
//! [`grammar::GrammarError`]. The other groups build on this one, which uses none of them.

pub mod amount;
pub mod cpuset;
pub mod cron;
pub mod filename;
pub mod grammar;
pub mod hostlist;
pub mod id;
pub mod ip_network;
pub mod listening_socket;
pub mod metadata_address;
pub mod month;
pub mod os_text;
pub mod price;
pub mod principal;
pub mod printable;
pub mod range;
pub mod search_path;
pub mod secret;
pub mod shell;
pub mod time;
pub mod time_spec;
