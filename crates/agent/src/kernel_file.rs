//! Reads files of `/proc` and of control groups: most are a few lines, and their size is not known before.

use std::fs::File;
use std::io::{self, Read};

const FIRST_BYTES: usize = 4096;

/// Reads the whole file, up to `most` bytes. A short file takes one system call.
pub(crate) fn read(file: File, most: u64) -> io::Result<String> {
    let mut first = [0; FIRST_BYTES];
    let mut file = file.take(most);
    let length = file.read(&mut first)?;
    let mut bytes = first[..length].to_vec();
    // The kernel stops before a line that does not fit, and no line is longer than half the buffer: a shorter read is
    // the whole file.
    if length > FIRST_BYTES / 2 {
        file.read_to_end(&mut bytes)?;
    }
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_are_read_whole_up_to_the_bound() {
        for length in [0, 7, FIRST_BYTES / 2, FIRST_BYTES - 1, FIRST_BYTES, 3 * FIRST_BYTES + 5] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            let text = "0123456789".repeat(length / 10 + 1);
            file.write_all(&text.as_bytes()[..length]).expect("written");
            let open = || File::open(file.path()).expect("opened");
            assert_eq!(read(open(), u64::MAX).expect("read"), text[..length]);
            let most = length as u64 / 2;
            assert_eq!(read(open(), most).expect("read").len() as u64, most);
        }
    }

    #[test]
    fn proc_file_longer_than_one_page_is_read_whole() {
        let path = "/proc/kallsyms";
        let known = std::fs::read_to_string(path).expect("read");
        assert!(known.len() > 10 * FIRST_BYTES, "as long as the test needs it");
        assert_eq!(read(File::open(path).expect("opened"), u64::MAX).expect("read"), known);
    }
}
