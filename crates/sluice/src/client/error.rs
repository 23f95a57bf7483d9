//! Why the server could not be asked.

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no server answers at {place}: {why}")]
    Unreachable { place: String, why: String },
    #[error("{0}")]
    Protocol(String),
}
