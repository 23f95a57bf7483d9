//! The collection of blobs: scripts and environments that no job in memory and no setting of retention needs any more.
//!
//! A thread of its own does it in turns. While a turn asks what lives, the state is locked for reading: the writer is not
//! between a submit and its commit then, and whatever was purged is purged on disk. Turns that move what lives hold the
//! blobs alone, for one write and one sync.

use crate::clock;
use crate::error::ServerError;
use crate::shared::Shared;
use cluster::config::PurgeAge;
use model::time::Timestamp;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use store::blob::CollectedBlobs;
use store::books::{JobPurge, Retention};
use store::{Blobs, BookReader};

/// How long after one pass the next may begin.
const PERIOD: Duration = Duration::from_secs(30);

/// How often a pass is thorough: this long after its last need at most, a blob is off the disk.
const THOROUGH_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// Between two turns, for the writer.
const PAUSE: Duration = Duration::from_millis(10);

/// `kept` is a reader of its own: a long `sacct` must not hold up a turn.
pub fn run(shared: &Arc<Shared>, kept: &BookReader) {
    // The first pass is thorough: a server that is started anew each day makes one all the same.
    let mut thorough_at = Instant::now();
    // What was purged before the start is not known.
    shared.volatile.unneeded_blobs.store(true, Ordering::Release);
    loop {
        std::thread::sleep(PERIOD);
        shared.books.expire(retention(shared));
        if let Some(purge) = job_purge(shared, timezone::now()) {
            shared.books.purge(purge);
        }
        if shared.books.take_expired() {
            shared.volatile.unneeded_blobs.store(true, Ordering::Release);
        }
        let thorough = Instant::now() >= thorough_at;
        if !shared.volatile.unneeded_blobs.swap(false, Ordering::AcqRel) && !thorough {
            continue;
        }
        if thorough {
            thorough_at = Instant::now() + THOROUGH_PERIOD;
        }
        match pass(shared, kept, thorough, PAUSE) {
            Ok(collected) if collected.blobs > 0 => tracing::info!(
                "{} scripts and environments ({} bytes) that no job needs were removed",
                collected.blobs,
                collected.bytes
            ),
            Ok(_) => {}
            Err(error) => {
                shared.volatile.unneeded_blobs.store(true, Ordering::Release);
                tracing::warn!("blobs that no job needs stay for now: {error}");
            }
        }
    }
}

/// One pass over all blobs.
pub fn pass(
    shared: &Shared,
    kept: &BookReader,
    thorough: bool,
    pause: Duration,
) -> Result<CollectedBlobs, ServerError> {
    // A backup reads the files: nothing is moved or removed under it.
    let _turn = shared.volatile.blob_files.lock().expect("no panic with the blobs' files held");
    let mut pass = blobs(shared).begin_pass(thorough);
    while !pass.is_over() {
        if pass.asks() {
            let state = shared.read();
            let is_live = |id: &store::BlobId| {
                let blob = id.into();
                // What cannot be found out stays.
                state.held_bytes.holds(&blob) || kept.keeps(&blob).unwrap_or(true)
            };
            blobs(shared).turn(&mut pass, &is_live)?;
        } else {
            blobs(shared).turn(&mut pass, &|_| true)?;
        }
        std::thread::sleep(pause);
    }
    Ok(pass.collected)
}

fn retention(shared: &Shared) -> Retention {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    let state = shared.read();
    let parameters = &state.config.parameters;
    let before = clock::now().millis() - i64::from(parameters.kept_text_days) * DAY_MS;
    Retention { before: Timestamp(before), bytes_max: u64::from(parameters.kept_text_mib) << 20 }
}

/// The purge of job records that the site asks for, as of now.
fn job_purge(shared: &Shared, now: jiff::Zoned) -> Option<JobPurge> {
    let state = shared.read();
    let wanted = state.config.parameters.purge_jobs.clone()?;
    // It becomes a part of the names of files.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let cluster: String = state.config.name.chars().filter(is_plain).collect();
    drop(state);
    let before = purge_time(wanted.after, now).ok()?;
    Some(JobPurge { before, archive: wanted.archive.map(PathBuf::from), cluster })
}

/// Records that ended before this are too old: so many whole hours, days or months before the one that has begun.
fn purge_time(age: PurgeAge, now: jiff::Zoned) -> Result<Timestamp, jiff::Error> {
    let (begun, age) = match age {
        PurgeAge::Hours(hours) => {
            let hour = jiff::ZonedRound::new().smallest(jiff::Unit::Hour);
            let begun = now.round(hour.mode(jiff::RoundMode::Trunc))?;
            (begun, jiff::Span::new().try_hours(hours)?)
        }
        PurgeAge::Days(days) => (now.start_of_day()?, jiff::Span::new().try_days(days)?),
        PurgeAge::Months(months) => {
            (now.first_of_month()?.start_of_day()?, jiff::Span::new().try_months(months)?)
        }
    };
    Ok(Timestamp(begun.checked_sub(age)?.timestamp().as_millisecond()))
}

fn blobs(shared: &Shared) -> MutexGuard<'_, Blobs> {
    shared.blobs.lock().expect("no panic with the blobs held")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_keeps_whole_hours_days_and_months() {
        let now = jiff::civil::date(2026, 3, 15).at(14, 45, 30, 0);
        let now = now.to_zoned(jiff::tz::TimeZone::UTC).expect("a time");
        for (age, expected) in [
            (PurgeAge::Hours(2), "2026-03-15T12:00:00Z"),
            (PurgeAge::Days(1), "2026-03-14T00:00:00Z"),
            (PurgeAge::Months(2), "2026-01-01T00:00:00Z"),
        ] {
            let expected: jiff::Timestamp = expected.parse().expect("a time");
            let found = purge_time(age, now.clone()).expect("a time");
            assert_eq!(found, Timestamp(expected.as_millisecond()), "{age:?}");
        }
    }
}
