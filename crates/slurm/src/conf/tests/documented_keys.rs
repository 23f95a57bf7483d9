//! docs/configuration.md says of every key what becomes of it, as the tables of keys do.

use crate::conf::keys::global_keys::GLOBAL;
use crate::conf::keys::record_keys::{
    CGROUP, CONTAINER, FRONTEND, GRES, NODE, PARTITION, TOPOLOGY,
};
use crate::conf::keys::{Key, KeySupport, KeyTable};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

/// The first cell of a table's row in the list of keys that act.
const ROWS: [(&str, KeyTable); 7] = [
    ("slurm.conf", GLOBAL),
    ("`NodeName`", NODE),
    ("`PartitionName`", PARTITION),
    ("gres.conf", GRES),
    ("topology.conf", TOPOLOGY),
    ("cgroup.conf", CGROUP),
    ("job_container.conf", CONTAINER),
];

/// The words of a text that stand between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn of_support(table: &KeyTable, wanted: impl Fn(KeySupport) -> bool) -> Vec<&'static Key> {
    table.keys.iter().filter(|key| wanted(key.support)).collect()
}

#[test]
fn keys_that_act_are_those_of_the_page() {
    for (name, table) in ROWS {
        let start = format!("| {name} | ");
        let row = PAGE.lines().find_map(|line| line.strip_prefix(&start)).expect(name);
        let mut named = BTreeSet::new();
        for word in quoted(row) {
            let known = |key: &&Key| match word.strip_suffix('*') {
                Some(beginning) => key.name.starts_with(beginning),
                None => key.name == word,
            };
            named.extend(table.keys.iter().filter(known).map(|key| key.name));
        }
        let acts = of_support(&table, |support| support == KeySupport::Used);
        let acts: BTreeSet<&str> = acts.iter().map(|key| key.name).collect();
        assert_eq!(named, acts, "the keys of {name}: on the page, and in its table");
    }
}

/// The lists that follow the table are these lines.
#[test]
fn keys_without_effect_and_refused_keys_are_those_of_the_page() {
    let mut tables = ROWS.to_vec();
    tables.push(("`FrontendName`", FRONTEND));
    let line = |names: Vec<&Key>, name: &str| {
        let names: Vec<String> = names.iter().map(|key| format!("`{}`", key.name)).collect();
        (!names.is_empty()).then(|| format!("- {name}: {}", names.join(" ")))
    };
    let without = |support| matches!(support, KeySupport::Accepted | KeySupport::Retired);
    let refused = |support| matches!(support, KeySupport::Refused { .. });
    let of = |wanted: &dyn Fn(KeySupport) -> bool| -> Vec<String> {
        tables.iter().filter_map(|(name, table)| line(of_support(table, wanted), name)).collect()
    };
    for (heading, lines) in [("### Without effect", of(&without)), ("### Refused", of(&refused))] {
        let (_, section) = PAGE.split_once(&format!("{heading}\n")).expect(heading);
        let section = section.split("\n#").next().unwrap_or_default();
        let written: Vec<&str> = section.lines().filter(|line| line.starts_with("- ")).collect();
        assert_eq!(written, lines, "expected below {heading}:\n{}", lines.join("\n"));
    }
}
