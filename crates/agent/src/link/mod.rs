//! The agent's link to the server: the TLS connection, the credentials for it, and what waits to be sent over it.

pub(crate) mod connection;
pub(crate) mod credentials;
pub(crate) mod log_reader;
pub(crate) mod new_key;
pub(crate) mod output_file;
mod private_file;
pub(crate) mod reports;
pub(crate) mod stream;
pub(crate) mod stream_output;
