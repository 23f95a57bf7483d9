//! The last line of a terminal while a job waits: why, where it stands in the queue and when it is expected to start. The line
//! is rewritten in place, and is gone before anything else is printed.

use crate::command::slurm::step::terminal;
use ::slurm::option::Command;
use ::slurm::output::Moment;
use ::slurm::words::reason;
use model::id::JobId;
use model::printable::printable;
use model::reason::Reason;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::explain::WaitView;

/// The width of a terminal that does not tell it.
const COLUMNS: u16 = 80;

/// How many characters of the line the terminal shows.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Whether there is somebody to read the line.
pub fn is_wanted(quiet: bool) -> bool {
    !quiet && io::stderr().is_terminal()
}

/// Writes the line over the one before it.
pub fn show(command: Command, job: JobId, wait: &WaitView) {
    let tz = timezone::local();
    let moment = Moment::at(::server::clock::now(), &tz);
    let (_, columns) = terminal::size_of(io::stderr()).unwrap_or((0, COLUMNS));
    let text = format!("{}: {}", command.name(), text(job, wait, moment));
    // A line that reaches the last column would be continued on the next one, where no carriage return brings it back.
    let text: String = text.chars().take(usize::from(columns.saturating_sub(1))).collect();
    let length = text.chars().count();
    let before = SHOWN.swap(length, Ordering::Relaxed);
    eprint!("\r{text}{}", " ".repeat(before.saturating_sub(length)));
}

/// Takes the line away, if there is one.
pub fn clear() {
    let shown = SHOWN.swap(0, Ordering::Relaxed);
    if shown > 0 {
        eprint!("\r{}\r", " ".repeat(shown));
    }
}

/// `job 12 waits: Priority; position 4; expected start 2026-11-17T14:05:00`
fn text(job: JobId, wait: &WaitView, moment: Moment<'_>) -> String {
    let Some(why) = &wait.reason else { return format!("job {job} starts with the next plan") };
    let mut text = format!("job {job} waits: {}", printable(&reason::text(why)));
    // Only what waits for its turn has a place in the queue.
    if wait.ahead > 0 || matches!(why, Reason::Resources | Reason::Priority) {
        text += &format!("; position {}", u64::from(wait.ahead) + 1);
    }
    if wait.limit_never_met.is_some() {
        return text + "; it does not start as it is";
    }
    let start = match (&wait.expected, wait.begin) {
        (Some(expected), _) => moment.iso(expected.start),
        (None, Some(begin)) => format!("not before {}", moment.iso(begin)),
        (None, None) => "not known".to_owned(),
    };
    text + "; expected start " + &start
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use model::time::Timestamp;
    use wire::explain::ExpectedStart;

    #[test]
    fn line_has_the_reason_the_position_and_the_expected_start() {
        let utc = TimeZone::UTC;
        let moment = Moment::at(Timestamp(0), &utc);
        let line = |wait: &WaitView| text(JobId(12), wait, moment);
        let reason = |reason: Reason| WaitView { reason: Some(reason), ..WaitView::default() };
        assert_eq!(line(&WaitView::default()), "job 12 starts with the next plan");
        let mut wait = reason(Reason::Resources);
        assert_eq!(line(&wait), "job 12 waits: Resources; position 1; expected start not known");
        wait.ahead = 3;
        wait.expected = Some(ExpectedStart {
            start: Timestamp(0),
            partition: "main".to_owned(),
            nodes: vec!["n1".to_owned()],
        });
        assert_eq!(
            line(&wait),
            "job 12 waits: Resources; position 4; expected start 1970-01-01T00:00:00"
        );
        let mut begins = reason(Reason::BeginTime);
        begins.begin = Some(Timestamp(0));
        assert_eq!(
            line(&begins),
            "job 12 waits: BeginTime; expected start not before 1970-01-01T00:00:00"
        );
    }
}
