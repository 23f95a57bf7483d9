//! `scontrol show config`.

use super::config_keys::{Absent, CONFIG_KEYS, ConfigKey};
use crate::output::Moment;
use crate::output::text::push;
use std::fmt::Write;
use wire::view::ConfigView;

/// The prefix of keys of `cgroup.conf` in a [`ConfigView`]. They have a section of their own in the listing.
pub const CGROUP_PREFIX: &str = "cgroup.";

/// The word of [`ConfigView`] that says whether priorities are made of factors.
const MULTIFACTOR: &str = "priority/multifactor";

/// The settings in Slurm's order, those that act with what counts where nothing is set; then those of `cgroup.conf`, then
/// the server's state.
pub fn push(out: &mut String, config: &ConfigView, moment: Moment<'_>, hostname: &str) {
    push!(out, "Configuration data as of {}\n", moment.iso(config.now));
    for (key, value) in settings(config) {
        push_row(out, key, value);
    }
    out.push_str("\nCgroup Support Configuration:\n");
    let cgroup = config.values.iter().filter_map(|(key, value)| {
        key.strip_prefix(CGROUP_PREFIX).map(|key| (key, value.as_str()))
    });
    let mut cgroup: Vec<(&str, &str)> = cgroup.collect();
    cgroup.sort_by_cached_key(|(key, _)| key.to_ascii_lowercase());
    for (key, value) in cgroup {
        push_row(out, key, value);
    }
    out.push('\n');
    out.push_str(&super::ping(hostname, true));
}

fn push_row(out: &mut String, key: &str, value: &str) {
    push!(out, "{key:<23} = {value}\n");
}

/// Key and value of each line. A key that Slurm does not list stands where the alphabet has it.
fn settings(config: &ConfigView) -> Vec<(&str, &str)> {
    let factors = config.values.get("PriorityType").is_some_and(|kind| kind == MULTIFACTOR);
    let is_known = |name: &str| config.values.keys().any(|key| key.eq_ignore_ascii_case(name));
    let mut rows: Vec<(usize, &str, &str)> = Vec::new();
    for (key, value) in config.values.iter().filter(|(key, _)| !key.starts_with(CGROUP_PREFIX)) {
        rows.push(match place(key) {
            Ok(at) => (at, CONFIG_KEYS[at].name, value.as_str()),
            Err(at) => (at, key.as_str(), value.as_str()),
        });
    }
    for (at, key) in CONFIG_KEYS.iter().enumerate() {
        let value = match key.absent {
            Absent::Shown(value) => value,
            Absent::ShownOfFactors(value) if factors => value,
            Absent::ShownOfFactors(_) | Absent::Left => continue,
        };
        if !is_known(key.name) {
            rows.push((at, key.name, value));
        }
    }
    rows.sort_by_cached_key(|(at, key, _)| (*at, key.to_ascii_lowercase()));
    rows.into_iter().map(|(_, key, value)| (key, value)).collect()
}

/// The row of a key; `Err` with the row that it stands behind where it has none.
fn place(key: &str) -> Result<usize, usize> {
    let same = |row: &ConfigKey| row.name.eq_ignore_ascii_case(key);
    if let Some(at) = CONFIG_KEYS.iter().position(same) {
        return Ok(at);
    }
    let key = key.to_ascii_lowercase();
    Err(CONFIG_KEYS.iter().rposition(|row| row.name.to_ascii_lowercase() < key).unwrap_or(0))
}
