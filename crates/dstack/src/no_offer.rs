//! Why a request has no offer, in words for whoever wrote it.

use crate::configuration::resources::Resources;
use model::reason::Refusal;

/// The answer to a run for which nothing is free, and whose `retry` does not say that it waits.
pub const WOULD_WAIT: &str =
    "nothing is free for it now; with `retry: {on_events: [no-capacity]}` it would wait";

/// What is missing, and where that may be it, that a value without dots asks for exactly so much.
pub fn explained(why: &Refusal, resources: &Resources) -> String {
    let exact = exact(resources);
    if exact.is_empty() {
        return why.to_string();
    }
    let (verb, first) = if let [one] = &exact[..] { ("is", one) } else { ("are", &exact[0]) };
    let names: Vec<String> = exact.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (name, value) = first;
    let names = names.join(", ");
    format!("{why} ({names} {verb} exact: `{name}: {value}..` would be that or more)")
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
    use model::reason::NeverFits;

    #[test]
    fn missing_amount_is_named_and_exact_ones_are_pointed_at() {
        let said = |resources: &str| {
            let text = format!("type: task\ncommands: [a]\nresources: {resources}\n");
            let loaded = parse("t.yml", text.as_bytes()).expect("a task");
            let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
            let why = NeverFits::Cpus { asked: 64, most: 8 };
            explained(&Refusal::NodeConfiguration(why.into()), &task.resources)
        };
        let missing =
            "no node can ever satisfy the request: 64 CPUs on one node, the largest has 8";
        assert_eq!(said("{cpu: 64.., memory: 1GB..}"), missing);
        assert_eq!(
            said("{cpu: 64, memory: 1GB..}"),
            format!("{missing} (`cpu` is exact: `cpu: 64..` would be that or more)")
        );
        assert_eq!(
            said("{cpu: 64.., memory: 1GB, gpu: '24GB'}"),
            format!(
                "{missing} (`memory`, `gpu.memory` are exact: `memory: 1GB..` would be that or more)"
            )
        );
    }
}
