//! Fills books with generated jobs that ended in the year before now, for the bench of `sacct` and `sreport`.
//!
//! `books_fill files BOOKS JOBS` writes into the books of a server that does not run, `books_fill database URL JOBS` what every server
//! of a database makes its books from; its history must have an event for each 512 jobs.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::amount::Bytes;
use model::id::{JobId, RunId, StepId};
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{ExitStatus, LaunchKind, Outcome, Usage};
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use store::Books;
use store::postgres::{Database, DatabaseUrl, EndedLog, EntrySummary, Lease, Taken};

const YEAR_MS: i64 = 365 * 86_400_000;
const FILES_BATCH: u32 = 4096;
/// As many as a server writes into one row.
const DATABASE_BATCH: u32 = 512;
const LEASE_LIFE: Duration = Duration::from_secs(3600);
const USERS: u32 = 200;
const ACCOUNTS: u32 = 20;
/// Ids of generated jobs begin here, behind those of a bench.
const FIRST_ID: u32 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [place, at, jobs] = &words[..] else {
        return Err("expected: files BOOKS JOBS, or: database URL JOBS".into());
    };
    let year = Year { jobs: jobs.parse()?, end_ms: now_ms()? };
    match place.as_str() {
        "files" => fill_files(Path::new(at), &year),
        "database" => fill_database(at, &year),
        other => Err(format!("'{other}': expected files or database").into()),
    }
}

fn now_ms() -> Result<i64, Box<dyn Error>> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn fill_files(path: &Path, year: &Year) -> Result<(), Box<dyn Error>> {
    let mut books = Books::open(path)?;
    let begun = books.applied_seq();
    for (seq, first) in (begun + 1..).zip((0..year.jobs).step_by(FILES_BATCH as usize)) {
        books.apply(seq, &year.records(first, FILES_BATCH))?;
    }
    // The history of the server goes on where it was.
    books.rewind(begun)?;
    Ok(())
}

fn fill_database(url: &str, year: &Year) -> Result<(), Box<dyn Error>> {
    let database = Database::new(DatabaseUrl::parse(url, None)?)?;
    let Taken::Leading(lease) = Lease::take(&database, "books_fill", LEASE_LIFE)? else {
        return Err("a server leads on this database".into());
    };
    let ended = EndedLog::new(database.clone(), lease.epoch());
    for (seq, first) in (1..).zip((0..year.jobs).step_by(DATABASE_BATCH as usize)) {
        let records = year.records(first, DATABASE_BATCH);
        let summary = EntrySummary::of(records.iter().map(|record| record.end), false);
        let entry = serde_json::json!({ "records": records, "deleted": [], "activities": [] });
        ended.add(seq, serde_json::to_vec(&entry)?, summary)?;
    }
    lease.release()?;
    Ok(())
}

/// Jobs that end one after the other in a year.
struct Year {
    jobs: u32,
    end_ms: i64,
}

impl Year {
    fn records(&self, first: u32, count: u32) -> Vec<JobRecord> {
        (first..self.jobs.min(first + count)).map(|number| self.record(number)).collect()
    }

    fn record(&self, number: u32) -> JobRecord {
        let left = i64::from(self.jobs - number) * YEAR_MS / i64::from(self.jobs);
        let end = Timestamp(self.end_ms - left);
        // From a minute to a day, most of them short.
        let ran_s = 60 + i64::from(number % 97).pow(3) * 95 / 1000;
        let start = Timestamp(end.0 - ran_s * 1000);
        let submit = Timestamp(start.0 - i64::from(number % 50) * 60_000);
        let cpus: u64 = 1 << (number % 6);
        let mut tres = Tres::default();
        for (kind, count) in [(TresKind::Cpu, cpus), (TresKind::Node, 1), (TresKind::Billing, cpus)]
        {
            tres.set(kind, count);
        }
        let user = number.wrapping_mul(2_654_435_761) % USERS;
        let (outcome, code) =
            if number.is_multiple_of(12) { (Outcome::Failed, 1) } else { (Outcome::Completed, 0) };
        let state = RecordState::Ended(outcome);
        let exit = ExitStatus { code, signal: 0 };
        let nodes = vec![format!("n{}", number % 500 + 1)];
        let usage = Usage { memory_peak_bytes: 1 << 30, ..Usage::default() };
        let step = StepRecord {
            id: StepId::Batch,
            name: "batch".into(),
            state,
            exit,
            start,
            end: Some(end),
            nodes: nodes.clone(),
            cpus: cpus as u32,
            tasks: 1,
            usage: usage.clone(),
            submit_line: String::new(),
            cpu_frequency: None,
            container: None,
        };
        JobRecord {
            job: JobId(FIRST_ID + number),
            attempt: 1,
            run: RunId::from_random(u128::from(number)),
            array_job: None,
            array_task: None,
            array_pending: None,
            het: None,
            name: format!("job{}", number % 1000),
            user: format!("user{user}"),
            uid: 10_000 + user,
            gid: 10_000,
            group: "users".into(),
            account: format!("account{}", user % ACCOUNTS),
            partition: "main".into(),
            qos: "normal".into(),
            state,
            exit,
            derived_exit: ExitStatus::default(),
            submit,
            eligible: Some(submit),
            start: Some(start),
            end: Some(end),
            suspended_s: 0,
            time_limit: TimeLimit::Minutes(1440),
            nodes,
            node_count: 1,
            cpus: cpus as u32,
            tasks: 1,
            req_cpus: cpus as u32,
            req_nodes: 1,
            req_mem: Bytes::from_gib(4),
            req_tres: tres.clone(),
            alloc_tres: tres,
            priority: 1000,
            restarts: 0,
            retry: None,
            work_dir: format!("/home/user{user}/work"),
            streams: None,
            submit_line: "sbatch job.sh".into(),
            comment: None,
            wckey: None,
            reservation: None,
            reservation_id: None,
            constraint: None,
            dependency: None,
            container: None,
            reason: Default::default(),
            kind: LaunchKind::Batch,
            script: None,
            environment: None,
            configuration: None,
            blob_bytes: Default::default(),
            memory_limit: None,
            failed_node: None,
            gpus: Vec::new(),
            usage,
            steps: vec![step],
        }
    }
}
