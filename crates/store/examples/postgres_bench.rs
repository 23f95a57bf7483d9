//! Durable commits a second of the journal in PostgreSQL, beside plain commits of the same database: what a commit costs beyond its
//! sync. `cargo run -p store --example postgres_bench URL`, with a database that may be written to and is the bench's own.

use std::error::Error;
use std::time::{Duration, Instant};

use store::postgres::{Database, DatabaseUrl, Lease, PostgresJournal, Taken, prepare};
use store::{Journal, Position};

static EVENT: [u8; 600] = [b'x'; 600];
const ROUND: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).ok_or("expected the address of a database")?;
    println!("plain commits of 600 bytes: {:.0}/s", plain_commits(&text)?);
    let database = Database::new(DatabaseUrl::parse(&text, None)?)?;
    prepare(&database, "bench")?;
    let Taken::Leading(lease) = Lease::take(&database, "bench", Duration::from_secs(600))? else {
        return Err("a server leads on this database".into());
    };
    let open = |_: store::Record<'_>| Ok(());
    let (mut journal, _) =
        PostgresJournal::open(database.clone(), lease.epoch(), Position::START, open)?;
    for events in [1, 32, 256] {
        let batch = vec![&EVENT[..]; events];
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

/// One connection, one row a transaction: the least that a durable commit of this database takes.
fn plain_commits(text: &str) -> Result<f64, Box<dyn Error>> {
    let mut client = postgres::Client::connect(text, postgres::NoTls)?;
    client.batch_execute("CREATE TABLE IF NOT EXISTS plain_commit (bytes bytea NOT NULL)")?;
    let insert = client.prepare("INSERT INTO plain_commit VALUES ($1)")?;
    let rate = rate(|| {
        client.execute(&insert, &[&&EVENT[..]])?;
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
