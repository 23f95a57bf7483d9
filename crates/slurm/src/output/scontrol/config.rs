//! `scontrol show config`.

use crate::output::Moment;
use crate::output::text::push;
use std::fmt::Write;
use wire::view::ConfigView;

/// The prefix of keys of `cgroup.conf` in a [`ConfigView`]. They have a section of their own in the listing.
pub const CGROUP_PREFIX: &str = "cgroup.";

/// The settings in alphabetical order without regard to case, then those of `cgroup.conf`, then the server's state.
pub fn push(out: &mut String, config: &ConfigView, moment: Moment<'_>, hostname: &str) {
    push!(out, "Configuration data as of {}\n", moment.iso(config.now));
    let cgroup = |key: &str| key.starts_with(CGROUP_PREFIX);
    push_part(out, config.values.iter().filter(|(key, _)| !cgroup(key)));
    out.push_str("\nCgroup Support Configuration:\n");
    push_part(out, config.values.iter().filter(|(key, _)| cgroup(key)));
    out.push('\n');
    out.push_str(&super::ping(hostname, true));
}

fn push_part<'a>(out: &mut String, entries: impl Iterator<Item = (&'a String, &'a String)>) {
    let mut entries: Vec<(&str, &str)> = entries
        .map(|(key, value)| (key.strip_prefix(CGROUP_PREFIX).unwrap_or(key), value.as_str()))
        .collect();
    entries.sort_by_cached_key(|(key, _)| key.to_ascii_lowercase());
    for (key, value) in entries {
        push!(out, "{key:<23} = {value}\n");
    }
}
