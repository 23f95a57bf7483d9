//! The cache of the C library's loader (`/etc/ld.so.cache`): where the libraries are that programs of this machine load.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const CACHE: &str = "etc/ld.so.cache";
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The table begins with this. Older C libraries write a table of another form before it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The number of entries, and the size of what comes before them.
const COUNT_AT: usize = 20;
const HEADER_BYTES: usize = 48;
/// An entry has its kind, and where its name and its path begin in the table.
const ENTRY_BYTES: usize = 24;
const NAME_AT: usize = 4;
const PATH_AT: usize = 8;
/// The kind of the libraries that 64-bit programs of this machine load; others may be of the same name.
const OWN_KIND: u32 = if cfg!(target_arch = "x86_64") {
    0x0303
} else if cfg!(target_arch = "aarch64") {
    0x0a03
} else {
    0x0003
};

/// The paths of a library, as the cache of the machine below `root` has them; none if there is no cache that can be read.
pub(super) fn paths_of(root: &Path, library: &str) -> Vec<PathBuf> {
    let Ok(file) = File::open(root.join(CACHE)) else { return Vec::new() };
    let mut bytes = Vec::new();
    match file.take(FILE_BYTES_MAX).read_to_end(&mut bytes) {
        Ok(_) => paths_in(&bytes, library),
        Err(_) => Vec::new(),
    }
}

fn paths_in(bytes: &[u8], library: &str) -> Vec<PathBuf> {
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let table = &bytes[start..];
    let count = number(table, COUNT_AT).unwrap_or(0) as usize;
    let entries = table.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let path = |entry: &[u8]| {
        let is_own = number(entry, 0) == Some(OWN_KIND);
        let name = text(table, number(entry, NAME_AT)?)?;
        (is_own && name == library).then(|| text(table, number(entry, PATH_AT)?))?
    };
    entries.take(count).filter_map(path).map(PathBuf::from).collect()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// The text that begins at this place of the table and ends with a NUL.
fn text(table: &[u8], at: u32) -> Option<&str> {
    let rest = table.get(at as usize..)?;
    let length = rest.iter().position(|byte| *byte == 0)?;
    str::from_utf8(&rest[..length]).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cache with these libraries: the kind, the name and the path of each.
    pub fn cache(libraries: &[(u32, &str, &str)]) -> Vec<u8> {
        let (mut entries, mut texts) = (Vec::new(), Vec::new());
        let first = HEADER_BYTES + libraries.len() * ENTRY_BYTES;
        let mut add = |word: &str| {
            let at = (first + texts.len()) as u32;
            texts.extend(word.as_bytes());
            texts.push(0);
            at
        };
        for (kind, name, path) in libraries {
            for word in [*kind, add(name), add(path), 0, 0, 0] {
                entries.extend(word.to_ne_bytes());
            }
        }
        let mut table = MAGIC.to_vec();
        table.extend((libraries.len() as u32).to_ne_bytes());
        table.resize(HEADER_BYTES, 0);
        table.extend(entries);
        table.extend(texts);
        table
    }

    pub const KIND: u32 = OWN_KIND;

    #[test]
    fn libraries_of_this_machines_kind_are_found_in_either_form_of_the_cache() {
        let libraries = [
            (KIND ^ 0x1000, "libcuda.so.1", "/usr/lib32/libcuda.so.1"),
            (KIND, "libc.so.6", "/usr/lib/libc.so.6"),
            (KIND, "libcuda.so.1", "/usr/lib/libcuda.so.1"),
        ];
        let new = cache(&libraries);
        let expected = [PathBuf::from("/usr/lib/libcuda.so.1")];
        assert_eq!(paths_in(&new, "libcuda.so.1"), expected);
        let old = [b"ld.so-1.7.0\0\0\0\0\0".as_slice(), &new].concat();
        assert_eq!(paths_in(&old, "libcuda.so.1"), expected);
        assert_eq!(paths_in(&new, "libnvidia-ml.so.1"), Vec::<PathBuf>::new());
    }

    #[test]
    fn damaged_cache_names_nothing() {
        let whole = cache(&[(KIND, "libcuda.so.1", "/usr/lib/libcuda.so.1")]);
        for length in 0..whole.len() {
            assert_eq!(paths_in(&whole[..length], "libcuda.so.1"), Vec::<PathBuf>::new());
        }
        let mut many = whole.clone();
        many[COUNT_AT..COUNT_AT + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(paths_in(&many, "libcuda.so.1").len(), 1);
        let mut beyond = whole;
        beyond[HEADER_BYTES + PATH_AT..HEADER_BYTES + PATH_AT + 4].fill(0xff);
        assert_eq!(paths_in(&beyond, "libcuda.so.1"), Vec::<PathBuf>::new());
    }
}
