//! What GPUs report of themselves: NVIDIA's by the vendor's library (NVML), loaded at run time, those of AMD and Intel and
//! accelerators by their drivers' files.
//!
//! They are read in a process of its own, the monitor (`sluice agent --gpu-monitor`): a library or a driver that crashes or
//! hangs takes neither the agent nor a job with it. The monitor prints a line of JSON for each round of readings. `nvml` is
//! the library, `kernel_files` the drivers' files, `gaudi_tool` a vendor's tool, `child` the parent's side of the process.

pub(crate) mod child;
mod gaudi_tool;
mod kernel_files;
mod nvml;

use crate::detect::gpu;
use kernel_files::KernelFiles;
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
    let mut files = KernelFiles::find(&gpu::root());
    let library = std::env::var(LIBRARY_VARIABLE).unwrap_or_else(|_| LIBRARY.to_owned());
    let mut nvml = match child::has_nvidia().then(|| Nvml::load(&library)).transpose() {
        Ok(nvml) => nvml,
        // The others are read all the same.
        Err(_) if !files.is_empty() => None,
        Err(why) => {
            print(&Line::Failed(why));
            return;
        }
    };
    loop {
        let mut round = nvml.as_mut().map(Nvml::readings).unwrap_or_default();
        round.extend(files.readings());
        if !print(&Line::Readings(round)) {
            return;
        }
        match &mut nvml {
            Some(nvml) => nvml.wait(INTERVAL),
            None => std::thread::sleep(INTERVAL),
        }
    }
}

/// Prints a line. Returns whether somebody reads it.
fn print(line: &Line) -> bool {
    let Ok(mut text) = serde_json::to_vec(line) else { return false };
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush()).is_ok()
}
