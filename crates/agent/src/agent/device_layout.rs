//! Watches how NVIDIA's GPUs are divided into slices (MIG), which an administrator may change under running jobs.
//!
//! After a change the machine is detected anew, and the server hears of it by a new hello. Jobs run on: those whose slices
//! are gone are told in their output. While a job has a GPU by the former division, the node takes no new ones, because
//! the numbers of its GPUs are not the same any more.

use super::{Agent, AttemptEntry};
use crate::detect::{GpuDevice, Machine, gpu};
use crate::node::facts;
use model::gres::GPU;
use model::limits::{DeviceLimits, DeviceUnit};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use wire::supervisor::ToSupervisor;

/// The start of the names of NVIDIA's device files, and of those that are the rights to a slice.
const NVIDIA: &str = "/dev/nvidia";
const SLICE_RIGHT: &str = "/dev/nvidia-caps/";
/// Jobs that are named in a reason.
const NAMED_MAX: usize = 8;

/// The devices of an attempt that may be divided anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DividedGpus {
    /// The files of each unit, sorted.
    units: Vec<Vec<String>>,
    /// The number of the division that they are of.
    generation: u64,
    /// It was said that some are gone.
    is_told: bool,
}

impl DividedGpus {
    fn of(units: &[DeviceUnit], generation: u64) -> DividedGpus {
        let gpus = units.iter().filter(|unit| unit.name == GPU && unit.index.is_some());
        let files = gpus.map(|unit| sorted(unit.files.iter().map(String::as_str)));
        let nvidia = files.filter(|files| files.iter().any(|file| file.starts_with(NVIDIA)));
        DividedGpus { units: nvidia.collect(), generation, is_told: false }
    }
}

pub(super) struct DeviceLayout {
    /// The files of NVIDIA's devices and slices, as the machine was detected with them.
    known: Vec<String>,
    /// Counts the divisions. An attempt of an earlier agent that had another is of number 0.
    generation: u64,
    /// What the last change was.
    change: String,
    is_detecting: bool,
    found_in: mpsc::Sender<Option<Machine>>,
    found: mpsc::Receiver<Option<Machine>>,
    /// What the last hello said of each node.
    said: BTreeMap<String, String>,
    /// The server is to be greeted anew.
    pub renew: bool,
}

impl DeviceLayout {
    pub fn of(machine: &Machine) -> DeviceLayout {
        let (found_in, found) = mpsc::channel(1);
        DeviceLayout {
            known: files_of_nvidia(machine),
            generation: 1,
            change: "it is not the one that jobs were started with".into(),
            is_detecting: false,
            found_in,
            found,
            said: BTreeMap::new(),
            renew: false,
        }
    }

    pub async fn next(&mut self) -> Option<Machine> {
        match self.found.recv().await {
            Some(found) => found,
            None => std::future::pending().await,
        }
    }
}

/// In the order of detection. A unit is one text, as gres.conf has it.
fn files_of_nvidia(machine: &Machine) -> Vec<String> {
    machine.gpus.iter().map(GpuDevice::files).filter(|files| files.starts_with(NVIDIA)).collect()
}

fn sorted<'a>(files: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut files: Vec<String> = files.map(str::to_owned).collect();
    files.sort_unstable();
    files
}

/// The difference between two divisions, in a line: how many slices went and came, or how many whole GPUs.
fn difference(before: &[String], after: &[String]) -> String {
    let (before, after): (BTreeSet<&String>, BTreeSet<&String>) =
        (before.iter().collect(), after.iter().collect());
    let listed = |units: Vec<&&String>| {
        let shown: Vec<&str> = units.iter().map(|unit| unit.as_str()).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(" ") }
    };
    let gone = listed(before.difference(&after).collect());
    let new = listed(after.difference(&before).collect());
    format!("gone: {gone}; new: {new}")
}

impl Agent {
    /// The devices of a share that may be divided anew, as they are now.
    pub(super) fn divided_gpus(&self, units: &[DeviceUnit]) -> DividedGpus {
        DividedGpus::of(units, self.layout.generation)
    }

    /// The same of an attempt that an earlier agent started: its record has the division of that time.
    pub(super) fn adopted_gpus(&self, limits: &DeviceLimits) -> DividedGpus {
        let rights = |files: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
            files.filter(|file| file.starts_with(SLICE_RIGHT)).map(str::to_owned).collect()
        };
        let then = rights(&mut limits.guarded.iter().map(String::as_str));
        let now = rights(&mut self.layout.known.iter().flat_map(|files| files.split(',')));
        let generation = if then == now { self.layout.generation } else { 0 };
        DividedGpus::of(&limits.granted, generation)
    }

    /// Looks whether GPUs are divided differently from before; called with every round of their readings.
    pub(super) fn check_layout(&mut self) {
        if self.layout.known != gpu::nvidia_units(&gpu::root()) && !self.layout.is_detecting {
            self.layout.is_detecting = true;
            let found_in = self.layout.found_in.clone();
            // The vendor's tools may take seconds.
            tokio::task::spawn_blocking(move || {
                let found = Machine::detect_with_libraries().ok();
                let _ = found_in.blocking_send(found.map(|(machine, _)| machine));
            });
        }
        self.tell_of_lost_slices();
        let mut nodes = self.nodes_with_gpus();
        nodes.extend(self.layout.said.keys());
        let is_news = nodes
            .iter()
            .any(|node| self.layout.said.get(*node) != self.layout_conflict(node).as_ref());
        self.layout.renew |= is_news;
    }

    /// Takes in what the machine has now.
    pub(super) fn on_machine(&mut self, found: Option<Machine>) {
        self.layout.is_detecting = false;
        let Some(machine) = found else { return };
        let now = files_of_nvidia(&machine);
        if now == self.layout.known {
            return;
        }
        self.layout.change = difference(&self.layout.known, &now);
        tracing::warn!(change = self.layout.change, "the GPUs are divided anew");
        self.layout.known = now;
        self.layout.generation += 1;
        self.layout.renew = true;
        self.machine.gpus = machine.gpus;
        for (name, hardware) in &mut self.hardware {
            *hardware = facts::with_own_gres(name, &self.machine, &*self.gres_of);
        }
        self.tell_of_lost_slices();
    }

    /// Says in the output of each job of which some slices are gone that they are. Once.
    fn tell_of_lost_slices(&mut self) {
        let (generation, known) = (self.layout.generation, &self.layout.known);
        let present: BTreeSet<Vec<String>> =
            known.iter().map(|files| sorted(files.split(','))).collect();
        for (key, held) in &mut self.attempts {
            if held.has_ended() || held.divided.is_told || held.divided.generation == generation {
                continue;
            }
            let gone = held.divided.units.iter().filter(|unit| !present.contains(*unit));
            let gone: Vec<String> = gone.map(|unit| unit.join(",")).collect();
            if gone.is_empty() {
                continue;
            }
            let line =
                format!("sluice: {}: GPUs of this job are gone: {}", key.node, gone.join(" "));
            tracing::warn!(node = key.node, attempt = %key.attempt, "{line}");
            held.divided.is_told = held.tell(line);
        }
    }

    /// The nodes with jobs that have GPUs which may be divided anew.
    fn nodes_with_gpus(&self) -> BTreeSet<&String> {
        let with = self.attempts.iter().filter(|(_, held)| !held.divided.units.is_empty());
        with.map(|(key, _)| &key.node).collect()
    }

    /// What of a node's GPUs has changed under jobs that have some of them; `None` if none has any.
    pub(super) fn layout_conflict(&self, node: &str) -> Option<String> {
        let is_former = |held: &AttemptEntry| {
            let of = &held.divided;
            !held.has_ended() && !of.units.is_empty() && of.generation != self.layout.generation
        };
        let of_node =
            self.attempts.iter().filter(|(key, held)| key.node == node && is_former(held));
        let jobs: BTreeSet<_> = of_node.map(|(key, _)| key.attempt.job).collect();
        let named: Vec<String> = jobs.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = jobs.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let change = &self.layout.change;
        (!jobs.is_empty())
            .then(|| format!("GPUs divided anew under jobs {}{more} ({change})", named.join(",")))
    }

    /// Notes what a hello says.
    pub(super) fn note_conflicts(&mut self) -> BTreeMap<String, String> {
        let nodes = self.nodes_with_gpus().into_iter();
        let said = nodes.filter_map(|node| Some((node.clone(), self.layout_conflict(node)?)));
        self.layout.said = said.collect();
        self.layout.said.clone()
    }
}

impl AttemptEntry {
    /// Passes a line for the job's output on. Returns whether it need not be tried again: an older supervisor has no way to
    /// write it.
    fn tell(&self, line: String) -> bool {
        if !self.takes_notices {
            return self.supervisor.is_some();
        }
        let Some(orders) = &self.orders else { return true };
        orders.try_send(ToSupervisor::Notice { line }).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(index: u32, files: &[&str]) -> DeviceUnit {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        DeviceUnit { name: GPU.into(), index: Some(index), files }
    }

    #[test]
    fn difference_names_the_units_that_went_and_came() {
        let text =
            |units: &[&str]| -> Vec<String> { units.iter().map(|u| (*u).to_owned()).collect() };
        let (before, after) =
            (text(&["/dev/nvidia0", "a,b"]), text(&["/dev/nvidia0", "a,c", "a,d"]));
        assert_eq!(difference(&before, &after), "gone: a,b; new: a,c a,d");
        assert_eq!(difference(&after, &after), "gone: none; new: none");
    }

    #[test]
    fn only_gpus_of_the_vendor_that_divides_them_are_watched() {
        let units = [
            unit(0, &["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2"]),
            unit(1, &["/dev/dri/renderD128"]),
            DeviceUnit { name: "fpga".into(), ..unit(2, &["/dev/nvidia1"]) },
        ];
        let watched = DividedGpus::of(&units, 3);
        let files = ["/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia0"];
        assert_eq!(watched.units, [files.map(str::to_owned).to_vec()]);
        assert_eq!((watched.generation, watched.is_told), (3, false));
    }
}
