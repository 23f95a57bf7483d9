//! Commits as they are stored, in pages: who has much to read asks seldom, and a page is in memory as a whole.

use super::connection::Database;
use super::error::DatabaseError;
use super::{from_bigint, to_bigint};

/// The most commits of a page.
pub(super) const PAGE: usize = 256;
/// A page ends with the commit that makes it as long as this. One commit may have 16 MiB.
const PAGE_BYTES: usize = 4 << 20;

const FRAMES: &str = "SELECT last_seq, frame FROM (
        SELECT last_seq, frame, sum(octet_length(frame))
            OVER (ORDER BY last_seq ROWS UNBOUNDED PRECEDING) - octet_length(frame) AS before
        FROM (SELECT last_seq, frame FROM sluice.journal
            WHERE last_seq > $1 AND last_seq <= $2 ORDER BY last_seq LIMIT $3) AS next) AS sized
    WHERE before < $4 ORDER BY last_seq";

/// One commit as it is stored.
pub struct FetchedFrame {
    pub(super) last_seq: u64,
    pub(super) bytes: Vec<u8>,
}

/// Commits that follow one another.
pub struct FramePage {
    pub frames: Vec<FetchedFrame>,
    /// Whether they were all that there were when they were asked for.
    pub is_last: bool,
}

impl FramePage {
    /// The commits behind `after`, up to `upto`.
    pub(super) fn fetch(database: &Database, after: u64, upto: u64) -> Result<Self, DatabaseError> {
        let (after, upto) = (to_bigint(after), to_bigint(upto));
        let (most, bytes_max) = (PAGE as i64, PAGE_BYTES as i64);
        let rows = database
            .ask(move |session| session.query(FRAMES, &[&after, &upto, &most, &bytes_max]))?;
        let frame = |row: &tokio_postgres::Row| FetchedFrame {
            last_seq: from_bigint(row.get(0)),
            bytes: row.get(1),
        };
        let frames: Vec<FetchedFrame> = rows.iter().map(frame).collect();
        let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        let is_last = frames.len() < PAGE && bytes < PAGE_BYTES;
        Ok(Self { frames, is_last })
    }
}
