//! The variables that Slurm gives to a job's and a step's processes, and the lines that its node writes into their output.
//!
//! All of it is made from the allocation before anything starts: the node knows no dialect, and fills in only the values that
//! [`wire::order::ProcessVariable`] names.

pub mod cpu_freq;
pub mod export;
pub mod gpu;
mod gpu_bind;
pub mod het_job;
pub mod het_step;
pub mod job;
pub mod mem_bind;
pub mod notice;
pub mod prolog_epilog;
pub mod step;

use std::collections::BTreeMap;

/// The variable with the nice value of the command that asked for the job or step.
pub const PRIO_PROCESS: &str = "SLURM_PRIO_PROCESS";

/// Variables by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// `NAME=value`, each ended by NUL: how an environment is stored. An entry without `=` is dropped.
    pub fn from_block(block: &str) -> Self {
        block.split('\0').filter_map(|entry| entry.split_once('=')).collect()
    }

    pub fn to_block(&self) -> String {
        let mut block = String::new();
        for (name, value) in &self.0 {
            block.extend([name.as_str(), "=", value.as_str(), "\0"]);
        }
        block
    }

    /// `NAME=value`: how an order carries it.
    pub fn to_entries(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// Sets a variable that is not set yet.
    pub fn set_default(&mut self, name: &str, value: impl ToString) {
        self.0.entry(name.to_owned()).or_insert_with(|| value.to_string());
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// Sets all variables of `other`, over those of the same name.
    pub fn extend(&mut self, other: Environment) {
        self.0.extend(other.0);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Counts of neighbouring nodes in Slurm's short form: `2(x2),1`.
pub fn compress_counts(counts: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for count in counts {
        match runs.last_mut() {
            Some((same, times)) if *same == count => *times += 1,
            _ => runs.push((count, 1)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(
            |(count, times)| {
                if times > 1 { format!("{count}(x{times})") } else { count.to_string() }
            },
        )
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
