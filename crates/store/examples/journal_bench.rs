//! Measures durable commits a second: our log file beside SQLite in WAL mode with full
//! synchronisation, on the disk under the folder given (default: the system's temporary folder).
//!
//! `cargo run --release -p store --example journal_bench [FOLDER]`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::blob::BlobOptions;
use store::{Blobs, Journal, LogFile, LogOptions, Position, RealDisk};

const EVENT_BYTES: usize = 600;
/// The stores take turns, and each shows its best round: the one that other work on the machine
/// has disturbed least.
const ROUNDS: usize = 8;
const ROUND: Duration = Duration::from_millis(400);
const BATCHES: [usize; 3] = [1, 32, 256];

const STORES: [&str; 3] = ["log file", "SQLite WAL FULL", "packs (distinct blobs)"];

type Answer<T> = Result<T, Box<dyn Error>>;

fn main() -> Answer<()> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(base)?;
    let event = vec![b'e'; EVENT_BYTES];
    println!("events of {EVENT_BYTES} bytes, best of {ROUNDS} rounds");
    println!(
        "{:<24} {:>7} {:>11} {:>11} {:>9} {:>9}",
        "store", "batch", "commits/s", "events/s", "p50 ms", "p99 ms"
    );
    for batch in BATCHES {
        let mut best: [Option<Round>; 3] = [None, None, None];
        for round in 0..ROUNDS {
            let path = |name: &str| folder.path().join(format!("{name}-{batch}-{round}"));
            let events: Vec<&[u8]> = vec![&event; batch];
            keep_best(&mut best[0], log_file(&path("log"), &events)?);
            keep_best(&mut best[1], sqlite(&path("sqlite"), &events)?);
            keep_best(&mut best[2], packs(&path("packs"), batch)?);
        }
        for (name, round) in STORES.iter().zip(best.into_iter().flatten()) {
            let Round { rate, p50_ms, p99_ms } = round;
            let events = rate * batch as f64;
            println!(
                "{name:<24} {batch:>7} {rate:>11.0} {events:>11.0} {p50_ms:>9.3} {p99_ms:>9.3}"
            );
        }
    }
    Ok(())
}

struct Round {
    /// Commits a second.
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

fn keep_best(best: &mut Option<Round>, mut took: Vec<Duration>) {
    took.sort_unstable();
    let total: Duration = took.iter().sum();
    let rate = took.len() as f64 / total.as_secs_f64();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    if best.as_ref().is_none_or(|best| best.rate < rate) {
        *best = Some(Round { rate, p50_ms: at(50), p99_ms: at(99) });
    }
}

/// Repeats a commit until the time is over; returns how long each took.
fn repeat(mut commit: impl FnMut() -> Answer<()>) -> Answer<Vec<Duration>> {
    let begin = Instant::now();
    let mut took = Vec::new();
    while begin.elapsed() < ROUND {
        let start = Instant::now();
        commit()?;
        took.push(start.elapsed());
    }
    Ok(took)
}

fn log_file(path: &Path, events: &[&[u8]]) -> Answer<Vec<Duration>> {
    let disk = Arc::new(RealDisk::open(path)?);
    let (mut log, _) = LogFile::open(disk, LogOptions::default(), Position::START, |_| Ok(()))?;
    repeat(|| {
        log.append(1, log.last_seq(), events)?;
        Ok(log.maintain()?)
    })
}

fn sqlite(path: &Path, events: &[&[u8]]) -> Answer<Vec<Duration>> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE journal (seq INTEGER PRIMARY KEY, event BLOB NOT NULL);",
    )?;
    repeat(|| {
        let transaction = connection.transaction()?;
        for event in events {
            transaction
                .prepare_cached("INSERT INTO journal (event) VALUES (?1)")?
                .execute([event])?;
        }
        Ok(transaction.commit()?)
    })
}

fn packs(path: &Path, batch: usize) -> Answer<Vec<Duration>> {
    let (mut blobs, _) = Blobs::open(Arc::new(RealDisk::open(path)?), BlobOptions::default())?;
    let mut content = vec![b's'; EVENT_BYTES];
    let mut number = 0_u64;
    repeat(|| {
        for _ in 0..batch {
            number += 1;
            content[..8].copy_from_slice(&number.to_le_bytes());
            blobs.stage(&content, 0)?;
        }
        Ok(blobs.commit_staged()?)
    })
}
