//! The configurations: from YAML or JSON to a tree that knows its positions, by tables to dstack's own form, and to types.
//!
//! `load` is the entry point. `tree/` bounds what a configuration may grow to; `tables/` has every property with its form, its
//! default and what it does here (`property` says what a row is), `shape/` the forms with rules of their own; `reader` reads
//! a tree by a table into a `value`, `older_forms` has what dstack wrote otherwise before, `check` the rules between properties, and
//! `task`, `service`, `resources`, `policy`, `env` and `fleet` are what the rest of the program works with. `model::interpolation`
//! finds and fills in `${{ … }}`.

mod check;
pub mod env;
pub mod fault;
pub(crate) mod field;
pub mod fleet;
pub mod load;
mod older_forms;
pub mod policy;
pub mod property;
mod reader;
mod reading;
pub mod resources;
mod service;
mod shape;
pub mod tables;
pub mod task;
pub(crate) mod tree;
pub mod value;
pub mod volume;

pub use load::{Configuration, Loaded, default_profile, from_json, parse, parse_profiles};
pub use service::model_probe;
pub use shape::run::DEPENDENCIES;
