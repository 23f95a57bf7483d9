//! Words of a server that say no more than that it is alive. An agent that knows other servers leaves one that says nothing: the kernel
//! of a frozen process goes on to acknowledge what is sent to it.

use crate::shared::Shared;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use wire::frame;
use wire::link::CHANNEL_ALIVE;

/// How often a server that is one of several says so, to each agent to which nothing else went meanwhile.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often agents hear from this server: not at all where no other could be there for them.
pub fn interval(shared: &Shared) -> Option<Duration> {
    (!shared.volatile.servers.is_empty()).then_some(INTERVAL)
}

/// Returns when this server has to say that it is alive, if nothing is sent before.
pub async fn next_alive(interval: Option<Duration>) {
    match interval {
        Some(interval) => tokio::time::sleep(interval).await,
        None => std::future::pending().await,
    }
}

pub fn encode_alive(bytes: &mut Vec<u8>) {
    frame::encode(CHANNEL_ALIVE, &[], bytes).expect("an empty frame is within its bound");
}

/// Says it again and again, while nothing else may be sent. A connection that fails meanwhile is found out by whoever uses it next. A
/// frame of five bytes is taken by the session of TLS whole or not at all: this may be dropped at any time.
pub async fn show_alive(
    writer: &mut (impl AsyncWriteExt + Unpin),
    interval: Option<Duration>,
) -> Infallible {
    let mut bytes = Vec::new();
    encode_alive(&mut bytes);
    loop {
        next_alive(interval).await;
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    #[tokio::test]
    async fn server_says_that_it_is_alive_again_and_again() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        let mut said = [0; 10];
        tokio::select! {
            never = show_alive(&mut ours, Some(Duration::from_millis(1))) => match never {},
            read = theirs.read_exact(&mut said) => { read.expect("two frames"); }
        }
        assert_eq!(said, [0, 0, 0, 0, CHANNEL_ALIVE, 0, 0, 0, 0, CHANNEL_ALIVE]);
        let alone = show_alive(&mut ours, None);
        assert!(timeout(Duration::from_millis(5), alone).await.is_err(), "it says nothing");
    }

    #[tokio::test]
    async fn agent_that_is_gone_ends_nothing_by_itself() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        let said = show_alive(&mut ours, Some(Duration::from_millis(1)));
        assert!(timeout(Duration::from_millis(5), said).await.is_err());
    }
}
