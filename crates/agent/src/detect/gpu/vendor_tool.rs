//! A tool of a GPU's vendor, asked for what no file says. It runs for a bounded time: a broken driver must not keep the
//! node from starting, nor other GPUs from being read.

use crate::killed_child::reap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLL_PAUSE: Duration = Duration::from_millis(20);
/// How long a killed tool is waited for.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);
/// What a tool may print: it fits the buffer of a pipe, so that the tool never waits for its reader.
const OUTPUT_BYTES_MAX: u64 = 1 << 16;

/// The first of these places below `root` that has the tool.
pub(crate) fn find(root: &Path, places: &[&str]) -> Option<PathBuf> {
    places.iter().map(|place| root.join(place)).find(|path| path.is_file())
}

/// What the tool prints; `None` if it cannot be run, fails, or is not done in time.
pub(crate) fn output(tool: &Path, arguments: &[&str], timeout: Duration) -> Option<String> {
    let mut command = Command::new(tool);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    if !ends_well(&mut child, Instant::now() + timeout) {
        return None;
    }
    let mut text = String::new();
    child.stdout.take()?.take(OUTPUT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether the tool succeeded in time.
fn ends_well(child: &mut Child, until: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL_PAUSE),
            _ => {
                let _ = child.kill();
                reap(child, REAP_TIMEOUT);
                return false;
            }
        }
    }
}
