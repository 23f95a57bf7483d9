//! Messages of one stream's task to the server.

use tokio::sync::mpsc;

#[derive(Debug)]
pub(crate) enum StreamOutput {
    Bytes(Vec<u8>),
    /// The number of bytes from the server that were passed on, and may be credited to it again.
    Credit(u32),
    /// The stream has ended, with the error that ended it.
    End(Option<String>),
}

/// Outputs of all streams of one link, each with its stream's number.
pub(crate) type StreamOutputs = mpsc::Sender<(u32, StreamOutput)>;
