//! The name that a supervisor has in a list of processes, by which others know it again, and the line that `ps` prints of it.

use model::id::AttemptId;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// As much of a name as the kernel keeps of a process.
const COMM_BYTES: usize = 15;

/// A command line that is longer stays as it is.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The fields of `/proc/PID/stat` with the begin and the end of the arguments, counted from the one behind the name.
const ARG_START: usize = 45;
const ARG_END: usize = 46;

pub(crate) fn title(attempt: AttemptId) -> String {
    format!("sluice:{attempt}")
}

/// `sluice: supervisor job 12`
pub(crate) fn line(attempt: AttemptId) -> String {
    format!("sluice: supervisor job {}", attempt.job)
}

/// Whether a name that the kernel shows (`/proc/PID/comm`) is that of the attempt's supervisor.
pub(crate) fn is_title_of(comm: &str, attempt: AttemptId) -> bool {
    let title = title(attempt);
    comm.trim_end() == &title[..title.len().min(COMM_BYTES)]
}

/// Where the arguments of this process are in its memory; a fork has them in the same place.
pub(crate) fn argument_area() -> Option<Range<u64>> {
    static AREA: OnceLock<Option<Range<u64>>> = OnceLock::new();
    let read = || area_in(&std::fs::read_to_string("/proc/self/stat").ok()?);
    AREA.get_or_init(read).clone()
}

fn area_in(stat: &str) -> Option<Range<u64>> {
    // The name may have blanks and brackets of its own.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (start, end) = (number(ARG_START)?, number(ARG_END)?);
    // Zeros stand for what may not be known.
    let is_known = start > 0 && end > start && end - start <= LINE_BYTES_MAX;
    is_known.then_some(start..end)
}

/// Has `ps` print a line in place of this process's command line, which is that of the launcher. The line stays within what
/// the arguments took; the kernel writes, so that nothing but them can be reached.
pub(crate) fn show_line(line: &str) -> io::Result<()> {
    let Some(area) = argument_area() else { return Err(io::ErrorKind::Unsupported.into()) };
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    memory.write_all_at(&filled(line, (area.end - area.start) as usize), area.start)
}

/// The line with zeros up to the length. The last byte is always one: by it the kernel knows the end of the arguments.
fn filled(line: &str, length: usize) -> Vec<u8> {
    let mut bytes = line.as_bytes().to_vec();
    bytes.truncate(length.saturating_sub(1));
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_fills_the_place_of_the_arguments_and_is_cut_to_it() {
        assert_eq!(filled("ab", 5), b"ab\0\0\0");
        assert_eq!(filled("abcdef", 4), b"abc\0");
        assert_eq!(filled("ab", 0), b"");
    }

    #[test]
    fn place_of_the_arguments_is_read_behind_any_name() {
        let fields = |start: u64, end: u64| {
            let before = "1 ".repeat(ARG_START);
            format!("12 (a) b (c)) {before}{start} {end} 7 8 0\n")
        };
        assert_eq!(area_in(&fields(100, 140)), Some(100..140));
        for (start, end) in [(0, 0), (140, 100), (100, 100 + LINE_BYTES_MAX + 1)] {
            assert_eq!(area_in(&fields(start, end)), None, "{start} {end}");
        }
        assert_eq!(area_in("12 (a"), None);
    }

    #[test]
    fn kernel_shows_the_line_for_the_command_line() {
        let before = std::fs::read("/proc/self/cmdline").expect("a command line");
        show_line("sluice: supervisor job 12").expect("written");
        let after = std::fs::read("/proc/self/cmdline").expect("a command line");
        assert_eq!(after, filled("sluice: supervisor job 12", before.len()));
    }
}
