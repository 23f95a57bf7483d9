//! An SSH connection inside another one. dstack's client jumps to a host by its first connection, and from there to the
//! port of the `sshd` that a container of dstack's has: the endpoint is both.

use super::channel_end::ChannelEnd;
use super::session::{ClientInput, FromClient};
use bytes::Bytes;
use russh::ChannelWriteHalf;
use russh::server::{Config, Handler, Msg, run_stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::timeout;

/// The port of the `sshd` in dstack's containers, which dstack keeps for its own.
const PORT: u16 = 10_022;
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Bytes between the two connections, each way.
const PIPE_BYTES: usize = 256 << 10;
const CHUNK_BYTES: usize = 32 << 10;
/// How long the client may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether a forwarded connection is for the endpoint itself.
pub fn is_meant(host: &str, port: u16) -> bool {
    port == PORT && HOSTS.contains(&host)
}

/// Serves the inner connection on a channel of the outer one, until either ends, or the inner one's key opens nothing more.
pub async fn serve<H: Handler + Send + 'static>(
    config: Arc<Config>,
    inner: H,
    mut input: ClientInput,
    output: ChannelWriteHalf<Msg>,
    mut end: ChannelEnd,
    shut_out: impl Future<Output = ()>,
) {
    let (near, far) = duplex(PIPE_BYTES);
    let session = async {
        if let Ok(Ok(session)) = timeout(GREETING_TIMEOUT, run_stream(config, far, inner)).await {
            // It ends with its client, or with the pipe.
            let _ = session.await;
        }
    };
    let (mut reader, mut writer) = tokio::io::split(near);
    let inward = async {
        while let Some((item, _queued)) = input.recv().await {
            let done = match item {
                FromClient::Bytes(bytes) => writer.write_all(&bytes).await,
                FromClient::End => return,
                FromClient::Resize { .. } | FromClient::Signal(_) => Ok(()),
            };
            if done.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            let bytes = Bytes::copy_from_slice(&buffer[..length]);
            if output.data_bytes(bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        // What the session wrote last is still in the pipe.
        ((), ()) = async { tokio::join!(session, outward) } => {}
        () = inward => {}
        () = end.wait() => {}
        () = shut_out => {}
    }
    let _ = output.eof().await;
    let _ = output.close().await;
}
