//! dstack's dialect: its YAML configurations on the way in, its words and tables on the way out.
//!
//! It holds no policy: it translates what was written, and renders what is.
//!
//! - `yaml/`: a bounded tree with positions, the tables of properties (`property`), and the types read from them. Another
//!   type of configuration is a file beside `task`.
//! - `request`: from a task to a submission; `script`, `environment` and `name` make its parts.
//! - `run_summary`: a job of the cluster in dstack's words (`status`); `node_offer` and `offer`: a share of a node as an
//!   offer; `table`: what `ps` and `apply` print.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod environment;
pub mod name;
pub mod node_offer;
pub mod offer;
pub mod request;
pub mod run_summary;
pub mod script;
pub mod status;
pub mod table;
pub mod yaml;
