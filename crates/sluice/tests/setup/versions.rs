//! `sluice version`, and a state folder that a newer program wrote.

use crate::harness::{Cluster, TWO_NODES};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn up_version_says_what_runs_where() {
    let cluster = Cluster::folder(TWO_NODES);
    let said = cluster.sluice(&["version"]).ok();
    assert!(said.starts_with("program: ") && said.contains("\nserver: unknown: "), "{said}");
    cluster.start();
    let said = cluster.sluice(&["version"]).ok();
    let mut lines = said.lines();
    let own = lines.next().unwrap().strip_prefix("program: ").unwrap();
    assert_eq!(lines.next(), Some(&*format!("server: {own}, journal format 2")));
    assert_eq!(lines.next(), Some(&*format!("agents: {own}: 2 nodes")));
    let json = cluster.sluice(&["version", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["program"]["version"], json["server"]["version"]);
    assert_eq!(json["server"]["journal"], 2);
    assert_eq!(json["agents"][0]["nodes"], serde_json::json!(["node1", "node2"]));
}

/// CRC-32 as the journal has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

/// Every file of a folder, with its content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn up_state_that_a_newer_program_wrote_is_refused_before_anything_is_written() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    cluster.await_end(job);
    cluster.sluice(&["down"]).ok();
    let server = cluster.state().join("server");
    let segment = server.join("journal/journal-000000000001.log");
    let written = std::fs::read(&segment).unwrap();
    let mut newer = written.clone();
    newer[8] = 3;
    let crc = crc32(&newer[..72]);
    newer[72..76].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&segment, &newer).unwrap();
    let before = files(&server);
    let said = cluster.try_start();
    assert_ne!(said.code, 0);
    let told = format!("{}{}", said.stderr, cluster.log("server"));
    assert!(
        told.contains("journal-000000000001.log has format 3, written by a newer program"),
        "{told}"
    );
    assert!(files(&server) == before, "nothing of the state was changed");
    // The newer program, put back, goes on.
    std::fs::write(&segment, &written).unwrap();
    cluster.start();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
}
