//! Server-sent events through the proxy: each arrives when it is sent, and not with the next.

use crate::harness::{Cluster, TIMEOUT};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Asks the web server of these tests for two events, of which it sends the second once the first has arrived.
pub fn assert_arrives_in_parts(cluster: &Cluster, address: &str, request: &str, body: &str) {
    let arrived = cluster.path("work").join("arrived");
    // One of an earlier stream.
    let _ = std::fs::remove_file(&arrived);
    let mut stream = TcpStream::connect(address).expect("the server");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let length = body.len();
    let head = format!("{request}\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "data: first\n\n");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("text/event-stream"), "{text}");
    assert!(!text.contains("data: second"), "{text}");
    cluster.write("arrived", "");
    read_until(&mut stream, &mut text, "data: second\n\n");
}

fn read_until(stream: &mut TcpStream, text: &mut String, wanted: &str) {
    let mut part = [0; 4096];
    while !text.contains(wanted) {
        let count = stream.read(&mut part).unwrap_or_else(|e| panic!("{wanted:?}: {e} in {text}"));
        assert!(count > 0, "the stream ends without {wanted:?}: {text}");
        text.push_str(&String::from_utf8_lossy(&part[..count]));
    }
}
