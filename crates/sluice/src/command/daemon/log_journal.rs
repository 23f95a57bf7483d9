//! Lines for systemd's journal: a priority in `<>`, which it takes off, and no time, which it has itself.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::registry::LookupSpan;

/// Whether standard error goes to the journal: the manager names the stream's file, which a redirection changes.
pub fn is_behind_stderr() -> bool {
    let Ok(stderr) = nix::sys::stat::fstat(std::io::stderr()) else { return false };
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    is_stream(&named, stderr.st_dev, stderr.st_ino)
}

/// `DEVICE:INODE`
fn is_stream(named: &str, device: u64, inode: u64) -> bool {
    let parsed = named.split_once(':').and_then(|(device, inode)| {
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    parsed == Some((device, inode))
}

pub struct JournalLines(Format<Full, ()>);

impl Default for JournalLines {
    fn default() -> Self {
        Self(format().without_time().with_level(false).with_ansi(false))
    }
}

/// The priorities of syslog.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_known_by_the_file_that_its_manager_names() {
        assert!(is_stream("8:4711", 8, 4711));
        for other in ["", "8", "8:4712", "9:4711", "x:y", "8:4711:1"] {
            assert!(!is_stream(other, 8, 4711), "{other}");
        }
    }

    #[test]
    fn lines_begin_with_the_priority_and_have_no_time() {
        use std::sync::{Arc, Mutex};
        use tracing_subscriber::{fmt, layer::SubscriberExt};
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().expect("kept").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let lines = lines.event_format(JournalLines::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(node = "gpu1", "node down");
            tracing::info!("works");
        });
        let text = String::from_utf8(kept.0.lock().expect("kept").clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("<4>") && lines[0].ends_with("node down node=\"gpu1\""),
            "{text}"
        );
        assert!(lines[1].starts_with("<6>") && lines[1].ends_with("works"), "{text}");
    }
}
