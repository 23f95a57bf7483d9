//! dstack's dialect: its YAML configurations on the way in, its words and tables on the way out.
//!
//! It holds no policy: it translates what was written, and it renders what is.

pub mod environment;
pub mod name;
pub mod offer;
pub mod request;
pub mod script;
pub mod share;
pub mod standing;
pub mod status;
pub mod table;
pub mod yaml;
