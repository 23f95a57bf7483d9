//! How far a pull is, for its own caller and for everybody who waits for it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folders::write_record;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// For another pull of the same image, or for a slot.
    Waiting,
    /// The registry is asked what the reference leads to.
    Resolving,
    Downloading,
    Unpacking,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub phase: Phase,
    /// Bytes as they travel, of the layers that are not there yet.
    pub bytes_done: u64,
    pub bytes_total: u64,
    pub layers_done: u32,
    pub layers_total: u32,
}

/// What is told of every step of a pull. It is called from several threads, at most ten times a second.
pub type OnProgress<'a> = &'a (dyn Fn(&Progress) + Sync);

const STRIDE: Duration = Duration::from_millis(100);

/// Keeps the progress of one pull, in memory and in its file, until it is dropped.
pub struct Reporter<'a> {
    state: Mutex<State>,
    file: PathBuf,
    callback: Option<OnProgress<'a>>,
}

struct State {
    progress: Progress,
    told: Option<Instant>,
    layers: Vec<u64>,
}

impl<'a> Reporter<'a> {
    pub fn new(file: PathBuf, callback: Option<OnProgress<'a>>) -> Self {
        let progress = Progress {
            // Its turn has come when it is made.
            phase: Phase::Resolving,
            bytes_done: 0,
            bytes_total: 0,
            layers_done: 0,
            layers_total: 0,
        };
        Self {
            state: Mutex::new(State { progress, told: None, layers: Vec::new() }),
            file,
            callback,
        }
    }

    pub fn phase(&self, phase: Phase) {
        self.change(true, |state| state.progress.phase = phase);
    }

    pub fn expect(&self, layers: usize, bytes: u64) {
        self.change(true, |state| {
            state.layers = vec![0; layers];
            state.progress.layers_total = u32::try_from(layers).unwrap_or(u32::MAX);
            state.progress.bytes_total = bytes;
        });
    }

    pub fn downloaded(&self, layer: usize, bytes: u64) {
        self.change(false, |state| {
            if let Some(slot) = state.layers.get_mut(layer) {
                *slot = bytes;
            }
            state.progress.bytes_done = state.layers.iter().sum();
        });
    }

    pub fn layer_done(&self) {
        self.change(true, |state| {
            state.progress.layers_done += 1;
            let downloading = state.progress.bytes_done < state.progress.bytes_total;
            state.progress.phase = if downloading { Phase::Downloading } else { Phase::Unpacking };
        });
    }

    fn change(&self, now: bool, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        change(&mut state);
        if !now && state.told.is_some_and(|told| told.elapsed() < STRIDE) {
            return;
        }
        state.told = Some(Instant::now());
        // A file for others to look at: a pull does not fail for it.
        let _ = write_record(&self.file, &state.progress);
        if let Some(callback) = self.callback {
            callback(&state.progress);
        }
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
