//! The collection of blobs: scripts and environments that no job in memory and no setting of retention needs any more.
//!
//! A thread of its own does it in turns. While a turn asks what lives, the state is locked for reading: the writer is not
//! between a submit and its commit then, and whatever was purged is purged on disk. Turns that move what lives hold the
//! blobs alone, for one write and one sync.

use crate::clock;
use crate::error::ServerError;
use crate::shared::Shared;
use model::time::Timestamp;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use store::blob::CollectedBlobs;
use store::books::Retention;
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

fn blobs(shared: &Shared) -> MutexGuard<'_, Blobs> {
    shared.blobs.lock().expect("no panic with the blobs held")
}
