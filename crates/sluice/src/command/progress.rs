//! A line on the terminal while something takes longer than a moment. It is rewritten in place, and gone when that is done.

use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(500);

/// Does `work`, which reads `file`, and says meanwhile how far it is, where standard error is a terminal.
pub fn while_reading<T>(file: &File, work: impl FnOnce() -> T) -> T {
    on_terminal(|| how_far(file), work)
}

/// Does `work`, of which nobody can say how far it is, and says meanwhile what is done and for how long, where standard error is
/// a terminal.
pub fn while_working<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    on_terminal(|| how_long(what, begun.elapsed()), work)
}

fn on_terminal<T>(line: impl Fn() -> String + Send, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    // The cursor goes back to the begin, so that a message which is printed meanwhile takes the line's place.
    let done = shown_while(INTERVAL, line, |line| eprint!("\r{line}\x1b[K\r"), work);
    eprint!("\r\x1b[K");
    done
}

/// Does `work`, and shows a line after each interval until it is done.
fn shown_while<T>(
    interval: Duration,
    line: impl Fn() -> String + Send,
    show: impl Fn(&str) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                show(&line());
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn how_long(what: &str, elapsed: Duration) -> String {
    format!("{what}: {} s", elapsed.as_secs())
}

/// By the position that whoever reads the file shares.
fn how_far(mut file: &File) -> String {
    let read = file.stream_position().unwrap_or_default();
    let all = file.metadata().map_or(0, |found| found.len());
    format!("{} of {} MiB", read >> 20, all >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::SeekFrom;

    #[test]
    fn line_is_shown_while_the_work_goes_on() {
        let (told, seen) = mpsc::channel();
        let show = move |line: &str| drop(told.send(line.to_owned()));
        let work = || seen.recv_timeout(Duration::from_secs(60)).expect("a line");
        let result = shown_while(Duration::from_millis(1), || "half".to_owned(), show, work);
        assert_eq!(result, "half");
    }

    #[test]
    fn position_of_a_file_is_told_and_kept() {
        let mut file = tempfile::tempfile().expect("a file");
        file.set_len(3 << 20).expect("its length");
        file.seek(SeekFrom::Start(1 << 20)).expect("its position");
        assert_eq!(how_far(&file), "1 of 3 MiB");
        assert_eq!(file.stream_position().expect("its position"), 1 << 20);
        // A file that another thread reads, as that of `sbcast`, is looked at by a second handle.
        let second = file.try_clone().expect("another handle");
        file.seek(SeekFrom::Start(2 << 20)).expect("its position");
        assert_eq!(how_far(&second), "2 of 3 MiB");
    }

    #[test]
    fn work_without_a_measure_is_told_with_its_time() {
        let line = how_long("the state is moved", Duration::from_millis(2900));
        assert_eq!(line, "the state is moved: 2 s");
    }
}
