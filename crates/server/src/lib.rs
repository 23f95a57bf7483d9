//! The server: a single writer around `cluster`, and the listeners through which clients and agents reach it.
//!
//! A command goes to the writer, which decides, journals, applies and only then answers. Plans are made beside it on a
//! copy of the state and come back as commands. What an event asks of the nodes goes out to their agents as signed
//! orders.
//!
//! - `startup`: binds everything together, starts the threads, stops them; `connection_limits`: how many may connect;
//!   `server_places`: at which host clients find it.
//! - `allocator`: memory that is free goes back to the machine; `program_pages`: so does the code that only the start needed.
//! - `standby/`: a server that waits for the lead: it follows the history, answers what only looks and passes the rest on.
//! - `shared/`: the handles that threads and handlers share. It knows none of them; everything else imports it.
//! - `writer/`: the single writer, recovery from disk, the books' thread, the tick. Another journal comes in here.
//! - `plan/`: the planner's thread, and the thread that makes forecasts and explanations.
//! - `dispatch/`: from events to orders, with the controller's prolog and epilog; `dispatch/launch/`: what an order says.
//! - `mail/`: mails about jobs, by `MailProg`; `site_program`: a program of the site on the server's machine; `job_facts`: what it is
//!   told of a job.
//! - `agents/`: the agents' port and links; `agent_addresses`: where agents find the server.
//! - `fleet/`: hosts over SSH become nodes: the agent is installed on them, looked after and removed.
//! - `machines/`: machines on demand: sources, and the task that has machines made and deleted; `source_notice`: what keeps
//!   the machines of a source from serving.
//! - `explanation/`: the texts of why a job waits and why it ended, for the commands and the web page.
//! - `http/`: the clients' API. dstack's API and web pages are routers that join `http::routers`; `metrics/`: what
//!   Prometheus reads there.
//! - `show/`: what clients are shown, a file for each kind of answer; `step/`: creating steps.
//! - `task_groups`: whether a group of a task waits for nodes of another, which node of which group has a rank; `utilization`: runs whose GPUs do nothing are ended;
//!   `inactivity`: dev environments that nobody is connected to; `load_sampler`: how much of the cluster is in use, each minute.
//! - `triggers`: programs of `strigger`, run when something happens to a node or a job.
//! - `proxy/`: services and web pages of jobs; `gateway/`: services by a process of its own; `web/`: the server's own web page, and
//!   its API.
//! - `secret/`: the values of secrets, and references to them.
//! - `backup/`: a copy of the whole state in one file, made while the server runs, and the way back.
//! - `auth/`: principals, tokens, keys; `configure/`: from configuration files to the state machine's configuration;
//!   `configuration_check`: a start that would take nodes or partitions from jobs is refused; `store_check`: whether a stored state can
//!   be read back; `store_move`: from files to a database and back; `store_lease`: work on a database while no server leads.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod agent_addresses;
mod agents;
mod allocator;
mod auth;
pub mod backup;
pub mod clock;
mod configuration_check;
pub mod configure;
mod connection_limits;
mod dispatch;
mod error;
pub mod explanation;
mod fleet;
pub mod gateway;
mod http;
mod inactivity;
mod job_facts;
mod load_sampler;
mod logs;
mod machines;
mod mail;
mod metrics;
mod per_user;
mod plan;
mod power;
mod program_pages;
mod proxy;
mod rate_limit;
mod repeated_failure;
mod resume_files;
mod secret;
mod server_places;
mod shared;
mod show;
mod site_program;
mod source_notice;
mod ssh;
mod standby;
mod startup;
mod step;
pub mod store_check;
mod store_lease;
pub mod store_move;
mod task_groups;
#[cfg(test)]
mod testing;
mod triggers;
mod user_shares;
mod utilization;
mod vital_task;
mod volume_order;
mod web;
mod writer;

pub use auth::identity::fingerprint;
pub use auth::shared_keys::{SharedKeys, StoreKey};
pub use auth::token;
pub use configuration_check::check_configuration;
pub use connection_limits::ConnectionLimits;
pub use error::ServerError;
pub use http::dstack::paths as dstack_paths;
pub use http::dstack::refused_paths as dstack_refused_paths;
pub use startup::{Listeners, ServerOptions, run};
pub use store::postgres::DatabaseUrl;
pub use writer::submission::stored_form;
