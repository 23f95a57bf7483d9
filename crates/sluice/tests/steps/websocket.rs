//! A WebSocket through the server's proxy, as a client opens it. The servers of these tests echo what comes by one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Asks for a WebSocket at a path, with these headers; the status of the answer, and the connection.
pub fn open(address: &str, path: &str, headers: &[&str]) -> std::io::Result<(u16, TcpStream)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    );
    for header in headers {
        head += &format!("{header}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, stream))
}

/// Sends texts, each of which must come back.
pub fn assert_echoes(stream: &mut TcpStream) {
    for text in ["ping", "pong, and more"] {
        stream.write_all(text.as_bytes()).expect("sent");
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).expect("echoed");
        assert_eq!(back, text.as_bytes());
    }
}

/// Opens a WebSocket that must be there, and echo.
pub fn assert_open(address: &str, path: &str, headers: &[&str]) {
    let (status, mut stream) = open(address, path, headers).expect("an answer");
    assert_eq!(status, 101, "{path}");
    assert_echoes(&mut stream);
}
