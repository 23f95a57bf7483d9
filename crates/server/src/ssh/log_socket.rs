//! The log of a run as dstack's client reads it while it is attached: a WebSocket behind a forwarded port.
//!
//! The port is one that dstack keeps for its own: nothing in the job listens there.

use super::access::Access;
use super::channel_end::ChannelEnd;
use super::session::{ClientInput, FromClient};
use crate::logs::collector;
use crate::logs::log_key::log_key;
use crate::shared::Shared;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use russh::ChannelWriteHalf;
use russh::server::Msg;
use std::sync::Arc;
use store::LogKey;
use tokio::task::block_in_place;
use wire::stream::StreamKind;

/// Where dstack's client expects the log.
const PORT: u16 = 10_999;
const PATH: &str = "/logs_ws";
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// What a server adds to the client's key, as RFC 6455 has it.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bytes that one read of a kept log takes.
const PAGE_BYTES: usize = 64 << 10;

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PONG: u8 = 0x8a;
const OPCODE: u8 = 0x0f;
const OPCODE_CLOSE: u8 = 0x08;
const OPCODE_PING: u8 = 0x09;
const MASKED: u8 = 0x80;
/// The largest payload of a frame of control; a client sends nothing longer.
const CONTROL_BYTES_MAX: usize = 125;
/// A close frame's status: the end of the log.
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// Whether a forwarded connection is for the log.
pub fn is_meant(host: &str, port: u16) -> bool {
    port == PORT && HOSTS.contains(&host)
}

pub async fn serve(
    shared: Arc<Shared>,
    access: Access,
    input: ClientInput,
    output: ChannelWriteHalf<Msg>,
    mut end: ChannelEnd,
) {
    tokio::select! {
        () = answer(shared, access, input, output) => {}
        () = end.wait() => {}
    }
}

async fn answer(
    shared: Arc<Shared>,
    access: Access,
    mut input: ClientInput,
    output: ChannelWriteHalf<Msg>,
) {
    let answered = match read_head(&mut input).await.as_deref().map(accept_key) {
        Some(Ok(key)) => {
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {key}\r\n\r\n"
            );
            output.data_bytes(head.into_bytes()).await.is_ok()
        }
        Some(Err(status)) => {
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = output.data_bytes(head.into_bytes()).await;
            false
        }
        None => false,
    };
    if answered {
        tokio::select! {
            () = send_log(&shared, &access, &output) => {
                let _ = output.data_bytes(frame(CLOSE, &NORMAL)).await;
            }
            () = answer_frames(&mut input, &output) => {}
        }
    }
    let _ = output.eof().await;
    let _ = output.close().await;
}

/// The request's head; `None` if the client goes, or sends too much.
async fn read_head(input: &mut ClientInput) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() <= HEAD_BYTES_MAX {
        match input.recv().await? {
            (FromClient::Bytes(bytes), _) => head.extend_from_slice(&bytes),
            (FromClient::End, _) => return None,
            _ => {}
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Some(head);
        }
    }
    None
}

/// The answer to the client's key, or the status that refuses the request.
fn accept_key(head: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(head).map_err(|_| "400 Bad Request")?;
    let mut lines = text.split("\r\n");
    let target =
        lines.next().and_then(|line| line.strip_prefix("GET ")).ok_or("400 Bad Request")?;
    let path = target.split([' ', '?']).next().unwrap_or_default();
    if path != PATH {
        return Err("404 Not Found");
    }
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let key = headers.find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
    let (_, key) = key.ok_or("400 Bad Request")?;
    let text = format!("{}{ACCEPT_SUFFIX}", key.trim());
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    Ok(BASE64.encode(digest))
}

/// A frame of the server's: whole, and not masked.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=0xffff => {
            frame.push(126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// Answers the client's pings until it closes. What else it says means nothing here.
async fn answer_frames(input: &mut ClientInput, output: &ChannelWriteHalf<Msg>) {
    let mut bytes = Vec::new();
    while let Some((item, _)) = input.recv().await {
        match item {
            FromClient::Bytes(more) => bytes.extend_from_slice(&more),
            FromClient::End => return,
            _ => continue,
        }
        while let Some(read) = client_frame(&bytes) {
            let Ok(ClientFrame { opcode, payload, length }) = read else { return };
            bytes.drain(..length);
            match opcode {
                OPCODE_CLOSE => return,
                OPCODE_PING if output.data_bytes(frame(PONG, &payload)).await.is_err() => return,
                _ => {}
            }
        }
    }
}

/// A frame of the client's, without its mask.
#[derive(Debug, PartialEq, Eq)]
struct ClientFrame {
    opcode: u8,
    payload: Vec<u8>,
    /// The bytes of the whole frame, header included.
    length: usize,
}

/// A frame that no client of a log sends.
#[derive(Debug, PartialEq, Eq)]
struct UnexpectedFrame;

/// The frame at the front; `None` until it is whole.
fn client_frame(bytes: &[u8]) -> Option<Result<ClientFrame, UnexpectedFrame>> {
    let [first, second, rest @ ..] = bytes else { return None };
    let length = usize::from(second & !MASKED);
    if second & MASKED == 0 || length > CONTROL_BYTES_MAX {
        return Some(Err(UnexpectedFrame));
    }
    let (mask, rest) = rest.split_first_chunk::<4>()?;
    let payload = rest.get(..length)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    let (opcode, length) = (first & OPCODE, 2 + mask.len() + length);
    Some(Ok(ClientFrame { opcode, payload: payload.collect(), length }))
}

/// The log of the job on the connection's node: from the node while it runs, or as the server keeps it.
async fn send_log(shared: &Arc<Shared>, access: &Access, output: &ChannelWriteHalf<Msg>) {
    let Ok(key) = log_key(shared, access.job, None, access.rank as usize) else { return };
    if collector::is_running(shared, &key) {
        let kind = StreamKind::Log { offset: 0, follow: true, last: None };
        let opened = shared.agents.open_stream(&key.node, key.attempt, kind, access.by.uid);
        if let Some((mut log, _)) = opened {
            while let Some(Ok(bytes)) = log.next().await {
                if output.data_bytes(Bytes::from(frame(BINARY, &bytes))).await.is_err() {
                    return;
                }
            }
        }
        return;
    }
    shared.logs.pull(key.clone()).await;
    send_kept(shared, &key, output).await;
}

async fn send_kept(shared: &Arc<Shared>, key: &LogKey, output: &ChannelWriteHalf<Msg>) {
    let mut place = 0;
    loop {
        let Ok(page) = block_in_place(|| shared.logs.store.read(key, place, PAGE_BYTES)) else {
            return;
        };
        if page.chunks.is_empty() {
            return;
        }
        for chunk in page.chunks {
            if output.data_bytes(Bytes::from(frame(BINARY, &chunk.bytes))).await.is_err() {
                return;
            }
        }
        place = page.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_answered_as_the_standard_has_it_and_other_requests_are_refused() {
        let ask = |line: &str| {
            format!("{line}\r\nHost: x\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        };
        for path in ["/logs_ws", "/logs_ws?start_time=2026-01-01T00:00:00Z"] {
            let head = ask(&format!("GET {path} HTTP/1.1"));
            assert_eq!(accept_key(head.as_bytes()).as_deref(), Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        }
        assert_eq!(accept_key(ask("GET /api HTTP/1.1").as_bytes()), Err("404 Not Found"));
        assert_eq!(accept_key(ask("POST /logs_ws HTTP/1.1").as_bytes()), Err("400 Bad Request"));
        assert_eq!(accept_key(b"GET /logs_ws HTTP/1.1\r\n\r\n"), Err("400 Bad Request"));
        assert_eq!(accept_key(b"\xff\r\n\r\n"), Err("400 Bad Request"));
    }

    #[test]
    fn frames_of_clients_are_unmasked_and_long_or_bare_ones_refused() {
        let ping = [0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2, 0x88];
        let whole = ClientFrame { opcode: 9, payload: b"hi".to_vec(), length: 8 };
        assert_eq!(client_frame(&ping), Some(Ok(whole)));
        for length in 0..8 {
            assert_eq!(client_frame(&ping[..length]), None, "{length}");
        }
        assert_eq!(client_frame(&[0x89, 0x02, b'h', b'i']), Some(Err(UnexpectedFrame)));
        assert_eq!(client_frame(&[0x82, 0xfe, 0, 0]), Some(Err(UnexpectedFrame)));
    }

    #[test]
    fn lengths_of_frames_have_their_three_forms() {
        for (length, head) in [(5, 2), (200, 4), (70_000, 10)] {
            let made = frame(BINARY, &vec![7; length]);
            assert_eq!((made.len(), made[0]), (head + length, BINARY));
        }
    }
}
