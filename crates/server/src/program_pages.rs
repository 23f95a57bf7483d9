//! The pages of the program's own file: a start runs through much code that a server at rest never needs again.
//!
//! These pages stay in the machine's cache of files, from where what is needed again comes without a read of the disk; but as long as
//! they are mapped they count as this process's memory, and the kernel takes other things first when memory is short.

use std::ffi::{c_int, c_void};

/// Unmaps the pages of the program's code and constants that are in memory. To be called when the start is over.
pub fn give_back() {
    // SAFETY: the function below is of the type that is wanted, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(give_back_segments), std::ptr::null_mut()) };
}

/// Looks at the first object alone, which is the program.
unsafe extern "C" fn give_back_segments(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes an object that lives for the length of this call.
    let object = unsafe { &*object };
    // SAFETY: and so do its program headers, of which there are so many.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    for header in headers.iter().filter(|header| is_only_read(header)) {
        let start = (object.dlpi_addr + header.p_vaddr) as usize;
        let end = start + header.p_memsz as usize;
        // Whole pages within the segment: its neighbours may be written to.
        let (start, end) = (start.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
        if start < end {
            let address = std::ptr::without_provenance_mut::<c_void>(start);
            // SAFETY: nothing writes to the segment, so that its pages come back from the file as they are.
            unsafe { libc::madvise(address, end - start, libc::MADV_DONTNEED) };
        }
    }
    1
}

/// A multiple of every size of page that a machine of this kind has.
const PAGE_BYTES: usize = 64 << 10;

/// Whether a segment is mapped from the file and never written to, not by the loader either: a page that was is not in the file.
fn is_only_read(header: &libc::Elf64_Phdr) -> bool {
    header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of this process that is mapped from its program's file, in kB.
    fn mapped_kb() -> u64 {
        let program = std::fs::read_link("/proc/self/exe").expect("the program");
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let (mut of_program, mut total) = (false, 0);
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if !first.ends_with(':') {
                let is_code = words.next() == Some("r-xp");
                of_program = is_code && line.ends_with(program.to_str().expect("a path"));
            } else if first == "Rss:" && of_program {
                total += words.next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default();
            }
        }
        total
    }

    #[test]
    fn the_code_of_the_start_leaves_memory_and_what_is_needed_comes_back() {
        let before = mapped_kb();
        give_back();
        let after = mapped_kb();
        assert!(after < before / 2, "{before} kB before, {after} kB after");
    }
}
