//! Durable commits a second of the journal in PostgreSQL, beside plain commits of the same database: what a commit costs beyond its
//! sync. `cargo run -p store --example postgres_bench URL [BYTES]`, with a database that may be written to and is the bench's own.
//! With BYTES, only plain commits of so many.

use std::error::Error;
use std::time::{Duration, Instant};

use store::postgres::{Database, DatabaseUrl, Lease, PostgresJournal, Taken, prepare};
use store::{Journal, Position};

const EVENT_BYTES: usize = 600;
const ROUND: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).ok_or("expected the address of a database")?;
    let bytes = std::env::args().nth(2).map(|bytes| bytes.parse::<usize>()).transpose()?;
    let plain_bytes = bytes.unwrap_or(EVENT_BYTES);
    println!("plain commits of {plain_bytes} bytes: {:.0}/s", plain_commits(&text, plain_bytes)?);
    if bytes.is_some() {
        return Ok(());
    }
    let database = Database::new(DatabaseUrl::parse(&text, None)?)?;
    prepare(&database, "bench")?;
    let Taken::Leading(lease) = Lease::take(&database, "bench", Duration::from_secs(600))? else {
        return Err("a server leads on this database".into());
    };
    let open = |_: store::Record<'_>| Ok(());
    let (mut journal, _) =
        PostgresJournal::open(database.clone(), lease.epoch(), Position::START, open)?;
    let event = noise(EVENT_BYTES);
    for events in [1, 32, 256] {
        let batch = vec![&event[..]; events];
        let rate = rate(|| {
            let end = journal.last_seq();
            journal.append(1, end, &batch)?;
            Ok(())
        })?;
        println!("commits of {events} events: {rate:.0}/s");
    }
    lease.release()?;
    Ok(())
}

/// One connection, one row a transaction, stored as the tables of the journal are: the least that a durable commit of so many bytes
/// takes in this database.
fn plain_commits(text: &str, bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut client = postgres::Client::connect(text, postgres::NoTls)?;
    client.batch_execute(
        "CREATE TABLE IF NOT EXISTS plain_commit (bytes bytea NOT NULL);
         ALTER TABLE plain_commit ALTER COLUMN bytes SET STORAGE EXTERNAL;
         ALTER TABLE plain_commit SET (toast_tuple_target = 8160)",
    )?;
    let insert = client.prepare("INSERT INTO plain_commit VALUES ($1)")?;
    let row = noise(bytes);
    let rate = rate(|| {
        client.execute(&insert, &[&row])?;
        Ok(())
    })?;
    client.batch_execute("DROP TABLE plain_commit")?;
    Ok(rate)
}

/// How often a second.
fn rate(mut once: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < ROUND {
        once()?;
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

/// Bytes that nothing compresses.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
