//! The keys of docs/configuration.md, made from the tables of keys.

use crate::conf::keys::global_keys::GLOBAL;
use crate::conf::keys::record_keys::{
    CGROUP, CONTAINER, DOWN_NODES, FRONTEND, GRES, NODE, NODE_SET, PARTITION, TOPOLOGY,
};
use crate::conf::keys::words::{WORDS, WordSupport};
use crate::conf::keys::{Key, KeySupport, KeyTable};

/// The lines of the page between which the keys are.
const BEGIN: &str = "<!-- keys -->\n";
const END: &str = "<!-- /keys -->\n";

const TABLES: [(&str, KeyTable); 10] = [
    ("slurm.conf", GLOBAL),
    ("`NodeName` lines", NODE),
    ("`PartitionName` lines", PARTITION),
    ("`NodeSet` lines", NODE_SET),
    ("`DownNodes` lines", DOWN_NODES),
    ("`FrontendName` lines", FRONTEND),
    ("gres.conf", GRES),
    ("topology.conf", TOPOLOGY),
    ("cgroup.conf", CGROUP),
    ("job_container.conf", CONTAINER),
];

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

fn keys() -> String {
    let mut text = String::new();
    for (name, table) in TABLES {
        text += &format!("\n### {name}\n");
        let mut list = |title: &str, support: &[KeySupport]| {
            let has = |key: &&Key| support.contains(&key.support);
            let names = quoted(table.keys.iter().filter(has).map(|key| key.name));
            if !names.is_empty() {
                text += &format!("\n{title}: {names}\n");
            }
        };
        list("Acts", &[KeySupport::Used]);
        list("No effect", &[KeySupport::Accepted, KeySupport::Retired]);
        for key in table.keys {
            let KeySupport::Refused { unless, why } = key.support else { continue };
            text += &format!("\nRefused: `{}`, since {why}", key.name);
            let taken = quoted(unless.iter().copied().filter(|value| !value.is_empty()));
            if !taken.is_empty() {
                text += &format!("; taken with {taken}");
            }
            text += "\n";
        }
        if name == "slurm.conf" {
            text += "\nOf these keys single words act; the others have no effect, and a notice names the nearest where one is misspelt.\n\n| key | words that act |\n|---|---|\n";
            for (key, support) in WORDS {
                let words = match support {
                    WordSupport::Only(words) => quoted(words.iter().copied()),
                    WordSupport::AllBut(words) => {
                        format!("all but {}", quoted(words.iter().copied()))
                    }
                };
                text += &format!("| `{key}` | {words} |\n");
            }
        }
    }
    text
}

#[test]
fn configuration_page_has_the_keys_of_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let there = std::fs::read_to_string(path).expect("the page");
    let (head, rest) = there.split_once(BEGIN).expect("the beginning of the keys");
    let (_, tail) = rest.split_once(END).expect("the end of the keys");
    let page = format!("{head}{BEGIN}{}\n{END}{tail}", keys());
    if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).expect("the page is written");
    }
    assert!(
        there == page,
        "docs/configuration.md has other keys than the tables; SLUICE_WRITE_DOCS=1 writes them anew"
    );
}
