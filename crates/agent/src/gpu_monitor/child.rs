//! The monitor's process as its parent sees it: started, read with a bound and a timeout, and killed.

use super::{LIBRARY_VARIABLE, Line};
use crate::detect::gpu;
use crate::killed_child::reap;
use model::gpu_health::GpuReading;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest line: the readings of all GPUs.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long the first reading may take: a driver that no other process uses is loaded for it.
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the monitor may be silent.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a killed monitor is waited for: it may hang in the driver, where a kill has to wait.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The device that every process with a GPU of NVIDIA's opens.
const CONTROL_DEVICE: &str = "/dev/nvidiactl";

/// Whether there is anything that a monitor could read.
pub(crate) fn is_needed() -> bool {
    has_nvidia() || !gpu::readable_by_files(&gpu::root()).is_empty()
}

pub(super) fn has_nvidia() -> bool {
    Path::new(CONTROL_DEVICE).exists() || std::env::var_os(LIBRARY_VARIABLE).is_some()
}

/// The monitor: this program again.
pub(crate) fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "--gpu-monitor"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// One round of readings, by a monitor of its own. No GPUs where there is nothing to ask.
pub(crate) fn read_once() -> Result<Vec<GpuReading>, String> {
    if !is_needed() {
        return Ok(Vec::new());
    }
    let mut child = command().spawn().map_err(|e| format!("the GPU monitor: {e}"))?;
    let line = child.stdout.take().map(|output| first_line(output, Instant::now() + FIRST_TIMEOUT));
    let _ = child.kill();
    reap(&mut child, REAP_TIMEOUT);
    match line {
        Some(Ok(line)) => readings(&line),
        _ => Err(format!("the GPU monitor said nothing for {} s", FIRST_TIMEOUT.as_secs())),
    }
}

/// The output's first line, without a thread: the caller may be about to fork.
fn first_line(mut output: ChildStdout, deadline: Instant) -> Result<Vec<u8>, Errno> {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    while line.len() < LINE_BYTES_MAX as usize && !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, left) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    line.truncate(line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len()));
    Ok(line)
}

/// The readings in a line, or why there are none.
pub(crate) fn readings(line: &[u8]) -> Result<Vec<GpuReading>, String> {
    match serde_json::from_slice(line) {
        Ok(Line::Readings(readings)) => Ok(readings),
        Ok(Line::Failed(why)) => Err(why),
        Err(_) if line.is_empty() => Err("the GPU monitor ended".into()),
        Err(_) => Err("the GPU monitor's line cannot be read".into()),
    }
}
