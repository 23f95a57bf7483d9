//! Each test that SPECIFICATION.md names is there. The test is here because `model` is the crate that builds first.

#![allow(clippy::disallowed_methods, reason = "this test reads the sources")]

use std::collections::BTreeSet;
use std::path::Path;

/// The names of tests are sentences: words with fewer underscores are keys and options.
const UNDERSCORES_MIN: usize = 3;

/// The names that follow `before` in a text, up to `after`.
fn names_between<'t>(text: &'t str, before: &'t str, after: &'t str) -> Vec<&'t str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = text.match_indices(before).filter_map(move |(at, _)| {
        let rest = &text[at + before.len()..];
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        rest[end..].starts_with(after).then_some(&rest[..end])
    });
    names.collect()
}

/// Takes the functions of the files below a folder whose names end so.
fn take_functions(dir: &Path, ending: &str, before: &str, found: &mut BTreeSet<String>) {
    for path in std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()) {
        if path.is_dir() {
            take_functions(&path, ending, before, found);
        } else if path.extension().is_some_and(|of| of == ending) {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            found.extend(names_between(&text, before, "(").into_iter().map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_specification_names_is_there() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = BTreeSet::new();
    take_functions(&project.join("crates"), "rs", "fn ", &mut known);
    // The checks inside emulated machines are functions of a shell.
    take_functions(&project.join("scripts/vm"), "sh", "\n", &mut known);
    let text = std::fs::read_to_string(project.join("SPECIFICATION.md")).expect("it is there");
    let named: BTreeSet<&str> = names_between(&text, "`", "`")
        .into_iter()
        .filter(|name| name.matches('_').count() >= UNDERSCORES_MIN)
        .collect();
    assert!(named.len() > 500, "{} names", named.len());
    let missing: Vec<&&str> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(missing.is_empty(), "SPECIFICATION.md names tests that there are not: {missing:?}");
}
