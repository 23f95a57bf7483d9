//! Files in the database, behind the same interface as a folder of the disk: so snapshots and blobs are the same code in both.
//!
//! A file is a length and extents, which do not overlap; what none covers is zero. Every write is durable when it returns, but for
//! one that is left to the journal's next append, which is one statement then for both. Writing behind the last extent, which is what
//! packs and snapshots do, is one statement too. Folders exist as parts of paths alone.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::connection::{Database, Extent};
use super::error::DatabaseError;
use super::session::Transaction;
use super::{from_bigint, to_bigint};
use crate::disk::{Disk, DiskFile, Entry, checked};

/// The most bytes in one extent.
const EXTENT_BYTES: usize = 1 << 20;
/// The most bytes that one question reads.
const READ_BYTES: usize = 4 << 20;

/// One extent behind all others. Changes nothing if the file has a later one or is gone, or another server leads. What a commit has noted
/// as free does not count any more, as with every change of the file's row (`sluice.forget_free`).
const WRITE_BEHIND: &str = "WITH leads AS (SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE),
    put AS (
        INSERT INTO sluice.extent (file, begins, bytes)
        SELECT $2::bigint, $3::bigint, $4::bytea FROM leads
        WHERE EXISTS (SELECT 1 FROM sluice.file WHERE id = $2) AND coalesce(
            (SELECT begins + octet_length(bytes) FROM sluice.extent
             WHERE file = $2 ORDER BY begins DESC LIMIT 1), 0) <= $3
        RETURNING 1),
    grown AS (
        UPDATE sluice.file SET len = $5::bigint
        WHERE id = $2 AND len < $5 AND EXISTS (SELECT 1 FROM put)),
    taken_back AS (
        UPDATE sluice.head SET free_file = 0
        WHERE free_file = $2 AND EXISTS (SELECT 1 FROM put))
    SELECT count(*) FROM put";
/// The length, and of the extents from the one that covers the start to the end what lies between the two; one row without bytes if
/// there are none. An extent has the scripts of many jobs: who reads one does not fetch the others.
const READ: &str = "SELECT f.len, greatest(e.begins, $2::bigint),
        substring(e.bytes FROM greatest(least($2::bigint - e.begins, 2147483646), 0)::int + 1
            FOR ($3::bigint - greatest(e.begins, $2::bigint))::int)
    FROM sluice.file f
    LEFT JOIN sluice.extent e ON e.file = f.id AND e.begins < $3
        AND e.begins >= coalesce(
            (SELECT max(begins) FROM sluice.extent WHERE file = $1 AND begins <= $2), 0)
    WHERE f.id = $1 ORDER BY e.begins";
/// Where the last extent ends.
const WRITTEN_END: &str = "SELECT begins + octet_length(bytes) FROM sluice.extent
    WHERE file = $1 ORDER BY begins DESC LIMIT 1";
const OVERLAPPING: &str = "SELECT begins, bytes FROM sluice.extent
    WHERE file = $1 AND begins < $3 AND begins + octet_length(bytes) > $2";
const INSERT_EXTENT: &str = "INSERT INTO sluice.extent (file, begins, bytes) VALUES ($1, $2, $3)";
const DELETE_EXTENT: &str = "DELETE FROM sluice.extent WHERE file = $1 AND begins = $2";

/// A folder of files in the database, written under a lease.
pub struct PostgresFolder {
    database: Arc<Database>,
    name: &'static str,
    epoch: i64,
}

impl PostgresFolder {
    pub fn new(database: Arc<Database>, name: &'static str, epoch: i64) -> Self {
        Self { database, name, epoch }
    }

    /// A file's path in the table.
    fn stored(&self, path: &str) -> io::Result<String> {
        Ok(format!("{}/{}", self.name, checked(path)?))
    }

    fn file(&self, id: i64, len: i64) -> Box<dyn DiskFile> {
        Box::new(PostgresFile {
            database: self.database.clone(),
            id,
            epoch: self.epoch,
            reserved: AtomicU64::new(from_bigint(len)),
        })
    }
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path} is not in the database"))
}

impl Disk for PostgresFolder {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let stored = self.stored(path)?;
        let sql = "SELECT id, len FROM sluice.file WHERE path = $1";
        let rows = self.database.ask(move |session| session.query(sql, &[&stored]))?;
        let row = rows.first().ok_or_else(|| not_found(path))?;
        Ok(self.file(row.get(0), row.get(1)))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let (stored, epoch) = (self.stored(path)?, self.epoch);
        let id: i64 = self.database.ask(move |session| {
            let mut transaction = session.leaders_transaction(epoch)?;
            transaction.execute("DELETE FROM sluice.file WHERE path = $1", &[&stored])?;
            let sql = "INSERT INTO sluice.file (path) VALUES ($1) RETURNING id";
            let id = transaction.query_one(sql, &[&stored])?.get(0);
            transaction.commit()?;
            Ok(id)
        })?;
        Ok(self.file(id, 0))
    }

    /// A folder is there as soon as a file is in it.
    fn make_dir(&self, path: &str) -> io::Result<()> {
        checked(path).map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (old, new, epoch) = (self.stored(from)?, self.stored(to)?, self.epoch);
        let renamed = self.database.ask(move |session| {
            let mut transaction = session.leaders_transaction(epoch)?;
            let sql = "DELETE FROM sluice.file WHERE path = $2
                       AND EXISTS (SELECT 1 FROM sluice.file WHERE path = $1)";
            transaction.execute(sql, &[&old, &new])?;
            let sql = "UPDATE sluice.file SET path = $2 WHERE path = $1";
            let renamed = transaction.execute(sql, &[&old, &new])?;
            transaction.commit()?;
            Ok(renamed)
        })?;
        if renamed == 1 { Ok(()) } else { Err(not_found(from)) }
    }

    /// Only a backup gives files a second name, and the database has its own.
    fn link(&self, _path: &str, _to: &str) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a file in the database has one name"))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (stored, epoch) = (self.stored(path)?, self.epoch);
        let removed = self.database.ask(move |session| {
            let mut transaction = session.leaders_transaction(epoch)?;
            let removed =
                transaction.execute("DELETE FROM sluice.file WHERE path = $1", &[&stored])?;
            transaction.commit()?;
            Ok(removed)
        })?;
        if removed == 1 { Ok(()) } else { Err(not_found(path)) }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let prefix = match checked(dir)? {
            "" => format!("{}/", self.name),
            dir => format!("{}/{dir}/", self.name),
        };
        // The paths of a folder lie together in the index: '0' is the character behind '/'.
        let sql = "SELECT path, len FROM sluice.file WHERE path >= $1 AND path < $2";
        let (first, end) = (prefix.clone(), format!("{}0", prefix.trim_end_matches('/')));
        let rows = self.database.ask(move |session| session.query(sql, &[&first, &end]))?;
        let mut entries = BTreeMap::new();
        for row in &rows {
            let path: &str = row.get(0);
            let Some(below) = path.strip_prefix(&prefix) else { continue };
            let (name, is_dir) = match below.split_once('/') {
                Some((folder, _)) => (folder, true),
                None => (below, false),
            };
            let len = if is_dir { 0 } else { from_bigint(row.get(1)) };
            entries.insert(name.to_owned(), Entry { name: name.to_owned(), len, is_dir });
        }
        Ok(entries.into_values().collect())
    }

    /// Every change was durable when it returned.
    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    /// The database says itself when it is full.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

struct PostgresFile {
    database: Arc<Database>,
    id: i64,
    epoch: i64,
    /// The file is known to be so long at least: what goes with a commit of the journal lies within it.
    reserved: AtomicU64,
}

impl PostgresFile {
    fn write_extent(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (id, epoch, begins) = (self.id, self.epoch, to_bigint(offset));
        let end = to_bigint(offset + bytes.len() as u64);
        let content = bytes.to_vec();
        let put = self.database.ask(move |session| {
            let rows = session.query(WRITE_BEHIND, &[&epoch, &id, &begins, &content, &end])?;
            Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) == 1))
        })?;
        if put { Ok(()) } else { self.overwrite(offset, bytes) }
    }

    /// Replaces what is there, by new extents for the parts that stay.
    fn overwrite(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (id, begins) = (self.id, to_bigint(offset));
        let content = bytes.to_vec();
        self.change(move |transaction| {
            let end = begins + content.len() as i64;
            let sql = "UPDATE sluice.file SET len = greatest(len, $2) WHERE id = $1";
            if transaction.execute(sql, &[&id, &end])? == 0 {
                return Err(DatabaseError::Unfit("the file was removed from the database".into()));
            }
            cut(transaction, id, begins, end)?;
            // What no extent covers is zero: an extent of zeros would be in the way of what goes with a commit there.
            if content.iter().any(|byte| *byte != 0) {
                transaction.execute(INSERT_EXTENT, &[&id, &begins, &content])?;
            }
            Ok(())
        })
    }

    fn change(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<(), DatabaseError> + Send,
    ) -> io::Result<()> {
        let epoch = self.epoch;
        self.database.ask(move |session| {
            let mut transaction = session.leaders_transaction(epoch)?;
            work(&mut transaction)?;
            transaction.commit()
        })?;
        Ok(())
    }

    /// Fills the buffer from the extents, and returns how many bytes the file has there.
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (id, start) = (self.id, to_bigint(offset));
        let end = to_bigint(offset + buffer.len() as u64);
        let rows = self.database.ask(move |session| session.query(READ, &[&id, &start, &end]))?;
        let first = rows.first().ok_or_else(|| not_found("the file"))?;
        let left = from_bigint(first.get(0)).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        buffer[..len].fill(0);
        for row in &rows {
            let (Some(begins), Some(bytes)) =
                (row.get::<_, Option<i64>>(1), row.get::<_, Option<&[u8]>>(2))
            else {
                continue;
            };
            copy_overlap(from_bigint(begins), bytes, offset, &mut buffer[..len]);
        }
        Ok(len)
    }
}

/// Copies the part of an extent that lies in the buffer, whose first byte is at `offset`.
fn copy_overlap(begins: u64, bytes: &[u8], offset: u64, buffer: &mut [u8]) {
    let skipped = usize::try_from(offset.saturating_sub(begins)).unwrap_or(usize::MAX);
    let target = usize::try_from(begins.saturating_sub(offset)).unwrap_or(usize::MAX);
    let (Some(bytes), Some(buffer)) = (bytes.get(skipped..), buffer.get_mut(target..)) else {
        return;
    };
    let len = bytes.len().min(buffer.len());
    buffer[..len].copy_from_slice(&bytes[..len]);
}

/// Takes a range out of the extents.
fn cut(
    transaction: &mut Transaction<'_>,
    id: i64,
    begins: i64,
    end: i64,
) -> Result<(), DatabaseError> {
    for row in transaction.query(OVERLAPPING, &[&id, &begins, &end])? {
        let (old, bytes): (i64, &[u8]) = (row.get(0), row.get(1));
        transaction.execute(DELETE_EXTENT, &[&id, &old])?;
        let old_end = old + bytes.len() as i64;
        if old < begins {
            let kept = &bytes[..(begins - old) as usize];
            transaction.execute(INSERT_EXTENT, &[&id, &old, &kept])?;
        }
        if old_end > end {
            let kept = &bytes[(end - old) as usize..];
            transaction.execute(INSERT_EXTENT, &[&id, &end, &kept])?;
        }
    }
    Ok(())
}

impl DiskFile for PostgresFile {
    fn len(&self) -> io::Result<u64> {
        let id = self.id;
        let sql = "SELECT len FROM sluice.file WHERE id = $1";
        let rows = self.database.ask(move |session| session.query(sql, &[&id]))?;
        let row = rows.first().ok_or_else(|| not_found("the file"))?;
        Ok(from_bigint(row.get(0)))
    }

    /// The length alone: what is not written takes no space.
    fn preallocate(&self, len: u64) -> io::Result<()> {
        let (id, wanted) = (self.id, to_bigint(len));
        self.change(move |transaction| {
            let sql = "UPDATE sluice.file SET len = greatest(len, $2) WHERE id = $1";
            transaction.execute(sql, &[&id, &wanted])?;
            Ok(())
        })?;
        self.reserved.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.reserved.fetch_min(len, Ordering::Relaxed);
        let (id, len) = (self.id, to_bigint(len));
        self.change(move |transaction| {
            cut(transaction, id, len, i64::MAX)?;
            transaction.execute("UPDATE sluice.file SET len = $2 WHERE id = $1", &[&id, &len])?;
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for part in bytes.chunks(EXTENT_BYTES) {
            self.write_extent(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        for part in buffer.chunks_mut(READ_BYTES) {
            let wanted = part.len();
            let read = self.read_part(offset + done as u64, part)?;
            done += read;
            if read < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Every write was durable when it returned.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn written_end(&self) -> io::Result<u64> {
        let id = self.id;
        let rows = self.database.ask(move |session| session.query(WRITTEN_END, &[&id]))?;
        Ok(rows.first().map_or(0, |row| from_bigint(row.get(0))))
    }

    /// What lies within the length that the file has needs no change of the file's own row: a commit that takes it along has one row
    /// less to write.
    fn write_with_journal(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let end = offset.saturating_add(bytes.len() as u64);
        if bytes.len() <= EXTENT_BYTES && end <= self.reserved.load(Ordering::Relaxed) {
            let begins = to_bigint(offset);
            let extent = Extent { file: self.id, begins, bytes: bytes.to_vec() };
            if self.database.leave_to_journal(extent) {
                return Ok(true);
            }
        }
        self.write_at(offset, bytes).map(|()| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_fills_the_part_of_the_buffer_that_it_covers() {
        let read = |begins, offset| {
            let mut buffer = [b'.'; 4];
            copy_overlap(begins, b"abc", offset, &mut buffer);
            String::from_utf8(buffer.to_vec()).unwrap()
        };
        assert_eq!(read(10, 10), "abc.");
        assert_eq!(read(10, 8), "..ab");
        assert_eq!(read(10, 12), "c...");
        assert_eq!(read(10, 20), "....");
        assert_eq!(read(10, 2), "....");
    }
}
