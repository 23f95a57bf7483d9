//! A file that is read from its beginning on, a record at a time. It is read in parts that are larger than a record: in a database
//! each read is a question.

use crate::disk::DiskFile;
use std::io;
use std::sync::{Mutex, MutexGuard};

/// How much is read at once. A longer read goes to the file itself.
const WINDOW_BYTES: usize = 256 << 10;

/// The file, as it was when each part of it was read. What is written elsewhere meanwhile is seen by whoever opens it anew.
pub struct ReadAhead<'a> {
    file: &'a dyn DiskFile,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn covers(&self, offset: u64, len: usize) -> bool {
        let end = self.start + self.bytes.len() as u64;
        (self.start..=end).contains(&offset) && offset + len as u64 <= end
    }
}

impl<'a> ReadAhead<'a> {
    pub fn new(file: &'a dyn DiskFile) -> Self {
        Self { file, window: Mutex::default() }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().expect("no panic with the window held")
    }

    /// Drops what was read, because the file changes.
    fn forget(&self) {
        *self.window() = Window::default();
    }
}

impl DiskFile for ReadAhead<'_> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.forget();
        self.file.preallocate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.forget();
        self.file.truncate(len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.forget();
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() >= WINDOW_BYTES {
            return self.file.read_at(offset, buffer);
        }
        let mut window = self.window();
        if !window.covers(offset, buffer.len()) {
            let mut bytes = vec![0; WINDOW_BYTES];
            let read = self.file.read_at(offset, &mut bytes)?;
            bytes.truncate(read);
            *window = Window { start: offset, bytes };
        }
        let from = usize::try_from(offset - window.start).unwrap_or(usize::MAX);
        let there = window.bytes.get(from..).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, FaultyDisk};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file that counts how often it is read.
    struct Counted(Box<dyn DiskFile>, AtomicUsize);

    impl DiskFile for Counted {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn preallocate(&self, len: u64) -> io::Result<()> {
            self.0.preallocate(len)
        }
        fn truncate(&self, len: u64) -> io::Result<()> {
            self.0.truncate(len)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(offset, buffer)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
    }

    #[test]
    fn small_reads_in_order_are_few_reads_of_the_file_and_see_what_was_written() {
        let content: Vec<u8> = (0..600_000_u32).map(|n| (n / 251) as u8).collect();
        let file = FaultyDisk::default().create("log").expect("a file");
        file.write_at(0, &content).expect("written");
        let counted = Counted(file, AtomicUsize::new(0));
        let ahead = ReadAhead::new(&counted);
        let mut read = Vec::new();
        let mut piece = [0; 1000];
        loop {
            let len = ahead.read_at(read.len() as u64, &mut piece).expect("read");
            if len == 0 {
                break;
            }
            read.extend_from_slice(&piece[..len]);
        }
        assert!(read == content);
        assert!(counted.1.load(Ordering::Relaxed) <= 6, "{:?}", counted.1);
        ahead.write_at(5, b"new").expect("written");
        ahead.read_at(4, &mut piece).expect("read");
        assert_eq!(&piece[1..4], b"new");
        assert_eq!(ahead.read_at(1 << 30, &mut piece).expect("read"), 0, "behind the end");
    }
}
