//! What GPUs report of themselves, by their vendor's library (NVML), loaded at run time.
//!
//! The library runs in a process of its own, the monitor (`sluice agent --gpu-monitor`): one that crashes or hangs takes
//! neither the agent nor a job with it. The monitor prints a line of JSON for each round of readings. `nvml` is the
//! library, `child` the parent's side of the process.

pub(crate) mod child;
mod nvml;

use model::gpu_health::GpuReading;
use nvml::Nvml;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::Duration;

/// The variable that names another library, for tests.
const LIBRARY_VARIABLE: &str = "SLUICE_NVML";
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Between two rounds of readings.
const INTERVAL: Duration = Duration::from_secs(5);

/// A line of the monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Readings(Vec<GpuReading>),
    /// The library cannot be used; nothing follows.
    Failed(String),
}

/// The monitor's own process: prints readings until nobody reads them.
pub fn run() {
    // The agent's end is the monitor's end, also while the library hangs.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let library = std::env::var(LIBRARY_VARIABLE).unwrap_or_else(|_| LIBRARY.to_owned());
    let mut nvml = match Nvml::load(&library) {
        Ok(nvml) => nvml,
        Err(why) => {
            print(&Line::Failed(why));
            return;
        }
    };
    while print(&Line::Readings(nvml.readings())) {
        nvml.wait(INTERVAL);
    }
}

/// Prints a line. Returns whether somebody reads it.
fn print(line: &Line) -> bool {
    let Ok(mut text) = serde_json::to_vec(line) else { return false };
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush()).is_ok()
}
