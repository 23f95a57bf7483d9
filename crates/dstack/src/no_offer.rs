//! Why a request has no offer, in words for whoever wrote it.

use crate::configuration::resources::Resources;
use crate::offer::size;
use model::amount::Bytes;
use model::reason::{NeverFits, Refusal, UnmetConstraint};

/// The answer to a run for which nothing is free, and whose `retry` does not say that it waits.
pub const WOULD_WAIT: &str =
    "nothing is free for it now; with `retry: {on_events: [no-capacity]}` it would wait";

/// What is missing. Where larger amounts are there, and values without dots rule them out, it says so.
pub fn explained(why: &Refusal, resources: &Resources) -> String {
    let missing = missing(why, resources);
    let exact = ruling_out(why, resources);
    let Some((name, value)) = exact.first() else { return missing };
    let verb = if exact.len() == 1 { "is" } else { "are" };
    let names: Vec<String> = exact.iter().map(|(name, _)| format!("`{name}`")).collect();
    let names = names.join(", ");
    format!("{missing} ({names} {verb} exact: `{name}: {value}..` would be that or more)")
}

/// What no node has, in dstack's words.
pub fn missing(why: &Refusal, resources: &Resources) -> String {
    const NEVER: &str = "no node can ever satisfy the request";
    let constraint = match why {
        Refusal::UnknownGres(_) => {
            let asked = resources.gpu.as_ref().map(|gpu| format!("; `gpu: {gpu}` is asked for"));
            return format!("no node of this cluster has GPUs{}", asked.unwrap_or_default());
        }
        Refusal::NodeConfiguration(unmet) => unmet,
        other => return other.to_string(),
    };
    let missing = match &constraint.why {
        NeverFits::Gres { name, asked, most, kinds_there, .. } => {
            let gpus = gpus(*asked, name);
            let there = match &kinds_there[..] {
                [] => String::new(),
                kinds => format!("; those here are {}", kinds.join(", ")),
            };
            format!("{NEVER}: {gpus} on one node, the largest has {most}{there}")
        }
        NeverFits::Memory { asked_mib, most_mib } => {
            let (asked, most) = in_one_unit(*asked_mib, *most_mib);
            format!("{NEVER}: {asked} of memory on one node, the largest has {most}")
        }
        NeverFits::Disk { asked_mib, most_mib } => {
            let (asked, most) = in_one_unit(*asked_mib, *most_mib);
            format!("{NEVER}: {asked} of local disk, the largest node has {most} (its TmpDisk)")
        }
        NeverFits::Nodes { most: 0, .. } => format!("{NEVER}: none has {resources} together"),
        NeverFits::Nodes { asked, most } => {
            format!("{NEVER}: {asked} nodes, there are {most} that fit")
        }
        _ => why.to_string(),
    };
    match constraint.silence() {
        Some(silence) => format!("{missing}; {silence}, which may have one"),
        None => missing,
    }
}

/// Both amounts in GB, or in MB where one is less than 1 GB or they would look the same.
fn in_one_unit(asked_mib: u64, most_mib: u64) -> (String, String) {
    let in_gb = |mib: u64| size(Bytes::from_mib(mib));
    let is_small = asked_mib < 1_024 || (1..1_024).contains(&most_mib);
    if is_small || in_gb(asked_mib) == in_gb(most_mib) {
        return (format!("{asked_mib}MB"), format!("{most_mib}MB"));
    }
    (in_gb(asked_mib), in_gb(most_mib))
}

/// `2 GPUs A100 with 80GB of memory`, of the name that the scheduler has for it: `gpu:A100 with 80GB of memory`.
fn gpus(count: u64, name: &str) -> String {
    let sort = name.strip_prefix("gpu").unwrap_or(name);
    let sort = sort.strip_prefix(':').map_or_else(|| sort.to_owned(), |kind| format!(" {kind}"));
    let s = if count == 1 { "" } else { "s" };
    format!("{count} GPU{s}{sort}")
}

/// The exact amounts, each with its value, that rule out what is there: as ranges they would have an offer.
fn ruling_out(why: &Refusal, resources: &Resources) -> Vec<(&'static str, String)> {
    let Refusal::NodeConfiguration(UnmetConstraint { why, .. }) = why else { return Vec::new() };
    let exact = exact(resources);
    let only = |name: &str| -> Vec<(&'static str, String)> {
        exact.iter().filter(|(of, _)| *of == name).cloned().collect()
    };
    match why {
        // Whole cores are more than the value, and a node has so many.
        NeverFits::Cpus { asked, most } => {
            let value = u64::from(resources.cpu.count.min);
            if *asked > value && *most >= value { only("cpu") } else { Vec::new() }
        }
        NeverFits::Memory { asked_mib, most_mib } => {
            let value = resources.memory.min.mib();
            if *asked_mib > value && *most_mib >= value { only("memory") } else { Vec::new() }
        }
        NeverFits::Gres { larger_memory: true, .. } => only("gpu.memory"),
        // No amount is lacking by itself: the shares that nodes give do not have all of them.
        NeverFits::Nodes { most: 0, .. } => exact,
        _ => Vec::new(),
    }
}

/// The amounts that are asked for exactly, each with its value.
fn exact(resources: &Resources) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if resources.cpu.count.is_exact() {
        found.push(("cpu", resources.cpu.count.min.to_string()));
    }
    if resources.memory.is_exact() {
        found.push(("memory", resources.memory.min.format_dstack()));
    }
    let gpu = resources.gpu.as_ref();
    let memory = gpu.and_then(|gpu| gpu.memory.as_ref()).filter(|memory| memory.is_exact());
    if let Some(memory) = memory {
        found.push(("gpu.memory", memory.min.format_dstack()));
    }
    if let Some(gpu) = gpu.filter(|gpu| gpu.count.is_exact() && gpu.count.min > 0) {
        found.push(("gpu.count", gpu.count.min.to_string()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, parse};

    fn said(why: &Refusal, resources: &str) -> String {
        let text = format!("type: task\ncommands: [a]\nresources: {resources}\n");
        let loaded = parse("t.yml", text.as_bytes()).expect("a task");
        let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
        explained(why, &task.resources)
    }

    #[test]
    fn exact_amount_is_pointed_at_only_where_it_rules_out_what_is_there() {
        let never = |why: NeverFits, resources: &str| {
            let text = said(&Refusal::NodeConfiguration(why.into()), resources);
            let text = text.strip_prefix("no node can ever satisfy the request: ");
            text.expect("what it is about").to_owned()
        };
        let cpus = |asked, most| NeverFits::Cpus { asked, most };
        // More than 64 are on no node either.
        let text = never(cpus(64, 8), "{cpu: 64, memory: 1GB}");
        assert_eq!(text, "64 CPUs on one node, the largest has 8");
        // A core has two threads, and is not divided.
        assert_eq!(
            never(cpus(2, 1), "{cpu: 1, memory: 1GB}"),
            "2 CPUs on one node, the largest has 1 (`cpu` is exact: `cpu: 1..` would be that or more)"
        );
        let disk = NeverFits::Disk { asked_mib: 10, most_mib: 5 };
        let text = never(disk, "{cpu: 1, memory: 1GB}");
        assert_eq!(text, "10MB of local disk, the largest node has 5MB (its TmpDisk)");
        let memory = |asked_mib, most_mib| NeverFits::Memory { asked_mib, most_mib };
        let table = [
            (memory(921_600, 128_000), "900GB of memory on one node, the largest has 125GB"),
            (memory(8_200, 8_190), "8200MB of memory on one node, the largest has 8190MB"),
            (memory(2_048, 512), "2048MB of memory on one node, the largest has 512MB"),
        ];
        for (why, expected) in table {
            assert_eq!(never(why, "{cpu: 1, memory: 1000GB..}"), expected);
        }
        let gpus = |larger_memory| NeverFits::Gres {
            name: "gpu with 24GB of memory".into(),
            asked: 1,
            most: 0,
            larger_memory,
            kinds_there: Vec::new(),
        };
        let text = "1 GPU with 24GB of memory on one node, the largest has 0";
        assert_eq!(never(gpus(false), "{cpu: 1, gpu: '24GB'}"), text);
        assert_eq!(
            never(gpus(true), "{cpu: 1, gpu: '24GB'}"),
            format!("{text} (`gpu.memory` is exact: `gpu.memory: 24GB..` would be that or more)")
        );
        assert_eq!(
            never(NeverFits::Nodes { asked: 1, most: 0 }, "{cpu: 3, memory: 1GB, disk: 9GB..}"),
            "none has cpu=3 mem=1GB disk=9GB.. together \
             (`cpu`, `memory` are exact: `cpu: 3..` would be that or more)"
        );
    }

    #[test]
    fn gpus_that_there_are_instead_are_named() {
        let why = NeverFits::Gres {
            name: "gpu:a100".into(),
            asked: 1,
            most: 0,
            larger_memory: false,
            kinds_there: vec!["h100".into(), "l4".into()],
        };
        let text = said(&Refusal::NodeConfiguration(why.into()), "{cpu: 1, gpu: 'A100:1'}");
        let there = "1 GPU a100 on one node, the largest has 0; those here are h100, l4";
        assert!(text.ends_with(there), "{text}");
    }

    #[test]
    fn missing_gpus_are_named_as_dstack_names_them() {
        let none = Refusal::UnknownGres("gpu".into());
        let text = said(&none, "{cpu: 1, gpu: A100}");
        assert!(text.starts_with("no node of this cluster has GPUs; `gpu: "), "{text}");
        assert!(text.ends_with("A100:1..` is asked for"), "{text}");
        assert_eq!(gpus(2, "gpu:h100 of nvidia"), "2 GPUs h100 of nvidia");
    }
}
