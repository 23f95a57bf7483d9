//! dstack's dialect: its YAML configurations on the way in, its words and tables on the way out.
//!
//! It holds no policy: it translates what was written, and renders what is.
//!
//! - `configuration/`: what a configuration may say, from YAML or from JSON: the tables of properties, and the types read
//!   from them.
//! - `api/`: the bodies of dstack's HTTP API, as its client sends and requires them; `effective`: a configuration as the server
//!   answers with it.
//! - `request`: from a task to a submission; `script`, `words`, `environment` and `name` make its parts.
//! - `occurrence`: what happened to runs, nodes and projects, in the words of `dstack event`.
//! - `server_settings`: what of the settings of dstack's own server acts here; `backends_file`: its backends as sources of machines,
//!   whose words are in `backend_words`.
//! - `node_groups`: the groups of a task as one run.
//! - `run_summary`: a job of the cluster in dstack's words (`status`); `node_offer` and `offer`: a share of a node as an
//!   offer (`offer_groups`: by kind of GPU; `offer_size`: why it is larger than asked for), `no_offer`: why there is none; `table`: what `ps` and `apply` print;
//!   `yaml_file`: any YAML file as values.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod api;
pub mod backend_words;
pub mod backends_file;
pub mod configuration;
pub mod effective;
pub mod environment;
pub mod instance_state;
pub mod load_table;
pub mod name;
pub mod no_offer;
pub mod node_groups;
pub mod node_offer;
pub mod occurrence;
pub mod offer;
pub mod offer_groups;
pub mod offer_size;
pub mod request;
pub mod run_summary;
pub mod script;
pub mod server_settings;
pub mod status;
pub mod table;
pub mod words;
pub mod yaml_file;
