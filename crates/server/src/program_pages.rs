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
    use std::process::Command;

    /// Reads so much of the code, as a start does.
    const READ_BYTES: usize = 8 << 20;

    /// Where the program's code is mapped, and how many kB of it are in memory.
    fn code() -> (std::ops::Range<usize>, u64) {
        let program = std::fs::read_link("/proc/self/exe").expect("the program");
        let program = program.to_str().expect("a path");
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let mut lines = smaps.lines();
        let mapping = lines.find(|line| line.contains(" r-xp ") && line.ends_with(program));
        let (from, to) =
            mapping.and_then(|line| line.split(' ').next()?.split_once('-')).expect("a range");
        let address = |text: &str| usize::from_str_radix(text, 16).expect("an address");
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a size");
        let kb = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        (address(from)..address(to), kb)
    }

    /// Tests in other threads would bring pages back meanwhile, and what is counted is the process's: the test runs itself as one of
    /// its own.
    #[test]
    fn code_of_the_start_leaves_memory_and_what_is_needed_comes_back() {
        let mut test = Command::new(std::env::current_exe().expect("this program"));
        test.args(["--exact", "program_pages::tests::code_leaves_memory_in_a_process_of_its_own"]);
        let ended = test.arg("--include-ignored").output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "run by the test above"]
    fn code_leaves_memory_in_a_process_of_its_own() {
        let (range, _) = code();
        let read = range.start..range.end.min(range.start + READ_BYTES);
        for at in read.step_by(4096) {
            // SAFETY: the mapping is the running program's code, which can be read and stays.
            unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
        }
        let (_, before) = code();
        give_back();
        let (_, after) = code();
        assert!(after < before / 2, "{before} kB before, {after} kB after");
    }
}
