//! The log of a run by the WebSocket that dstack's client reads: a client that stops reading holds up nobody and costs no memory.

use crate::harness::ssh_client::{Held, Ssh};
use crate::harness::{Cluster, TWO_NODES};
use std::io::{Read, Write};
use std::process::Stdio;

/// More than a client, its pipe and a window of SSH take together.
const LOG_BYTES: usize = 48_000_000;

/// The memory that the server has of the machine.
fn server_memory(cluster: &Cluster) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid("server")));
    let status = status.expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kilobytes = line.split_whitespace().next().expect("a number");
    kilobytes.parse::<u64>().expect("a number") << 10
}

#[test]
fn up_a_websocket_client_that_stops_reading_costs_the_server_nothing() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let commands = format!("[\"yes 0123456789 | head -c {LOG_BYTES}\", touch written, sleep 600]");
    let head = "type: task\nname: talks\n";
    let rest = "resources: {cpu: 1, memory: 100MB}\n";
    cluster.write("task.dstack.yml", &format!("{head}commands: {commands}\n{rest}"));
    cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
    let job = cluster.sluice(&["squeue", "-h", "-n", "talks", "-o", "%i"]).ok();
    let mut command = ssh.ssh(job.trim(), &["-Wlocalhost:10999"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh");
    let mut client = Held(child);
    let ask =
        "GET /logs_ws HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut input = client.0.stdin.take().expect("a pipe");
    input.write_all(ask.as_bytes()).expect("sent");
    let mut output = client.0.stdout.take().expect("a pipe");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    // The run goes on, others are answered, and another reader gets the whole log meanwhile.
    let before = server_memory(&cluster);
    cluster.await_file("written", |_| true);
    assert_eq!(cluster.sluice(&["logs", "talks"]).ok().len(), LOG_BYTES);
    assert!(cluster.sluice(&["ps"]).ok().contains("running"));
    let more = server_memory(&cluster).saturating_sub(before);
    assert!(more < LOG_BYTES as u64 / 2, "the server holds {more} bytes more");
    // Whoever reads on gets all of it: each frame has its payload after two, four or ten bytes.
    let (mut bytes, mut payload) = (std::io::BufReader::new(output), 0);
    while payload < LOG_BYTES {
        let mut start = [0; 2];
        bytes.read_exact(&mut start).expect("a frame");
        let mut long = [0; 8];
        let length = match start[1] {
            126 => bytes.read_exact(&mut long[6..]).map(|()| u64::from_be_bytes(long)),
            127 => bytes.read_exact(&mut long).map(|()| u64::from_be_bytes(long)),
            length => Ok(u64::from(length)),
        };
        let length = length.expect("a length");
        let copied = std::io::copy(&mut (&mut bytes).take(length), &mut std::io::sink());
        assert_eq!(copied.expect("a payload"), length);
        payload += length as usize;
    }
    assert_eq!(payload, LOG_BYTES);
}
