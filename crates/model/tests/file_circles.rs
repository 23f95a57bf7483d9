//! No circle between the files of a crate: what a file imports never leads back to it. A module and its own children may
//! import each other. The test is here because `model` is the crate that builds first.

#![allow(clippy::disallowed_methods, reason = "this test reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates that still have circles. None is to be added.
const NOT_YET: &[&str] = &["agent", "cluster", "sluice"];

type ModulePath = Vec<String>;

/// The modules of one crate, each with the paths that its file names: `crate::a::B` as `[a, B]`.
#[derive(Default)]
struct Modules(BTreeMap<ModulePath, Vec<ModulePath>>);

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn module_of(src: &Path, file: &Path) -> ModulePath {
    let relative = file.strip_prefix(src).expect("a file of the crate").with_extension("");
    let parts = relative.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main")).collect()
}

/// The text without comments and without the tests at its end.
fn code_of(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a readable file");
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Reads one path, or every path of a group `a::{b, c::d}`, from the start of the text; returns what is left of it.
fn read_paths<'a>(text: &'a str, prefix: &[String], found: &mut Vec<ModulePath>) -> &'a str {
    let (mut rest, mut path) = (text.trim_start(), prefix.to_vec());
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            let mut left = group;
            loop {
                left = read_paths(left, &path, found).trim_start();
                match left.strip_prefix(',') {
                    Some(more) => left = more,
                    None => return left.strip_prefix('}').unwrap_or(left),
                }
            }
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        match &rest[..end] {
            "" => return rest,
            "super" => drop(path.pop()),
            "self" | "crate" => {}
            name => path.push(name.to_owned()),
        }
        let Some(more) = rest[end..].strip_prefix("::") else {
            found.push(path);
            return &rest[end..];
        };
        rest = more;
    }
}

impl Modules {
    fn read(src: &Path) -> Self {
        let (mut files, mut modules) = (Vec::new(), Self::default());
        rust_files(src, &mut files);
        for file in files.into_iter().filter(|f| !module_of(src, f).contains(&"tests".into())) {
            let (code, module) = (code_of(&file), module_of(src, &file));
            let paths = modules.0.entry(module.clone()).or_default();
            // A `pub use` may begin with a child's name: how an item is named from outside.
            for (start, prefix) in
                [("crate::", &[][..]), ("super::", &module), ("pub use ", &module)]
            {
                for (at, _) in
                    code.match_indices(start).filter(|at| !code[..at.0].ends_with([':', '_']))
                {
                    let skip = if start == "pub use " { start.len() } else { 0 };
                    read_paths(&code[at + skip..], prefix, paths);
                }
            }
        }
        modules
    }

    /// The module that the path leads to, through what the modules on the way re-export.
    fn resolve(&self, path: &[String]) -> ModulePath {
        let known = (0..=path.len()).rev().find(|n| self.0.contains_key(&path[..*n])).unwrap_or(0);
        let (module, item) = (&path[..known], path.get(known));
        let exports =
            |p: &&ModulePath| p.last() == item && p.len() > known + 1 && p.starts_with(module);
        let exported =
            self.0.get(module).into_iter().flatten().find(exports).filter(|_| item.is_some());
        exported.map_or_else(|| module.to_vec(), |longer| self.resolve(longer))
    }

    fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let is_apart = |a: &ModulePath, b: &ModulePath| !a.starts_with(b) && !b.starts_with(a);
        let edges_of = |(from, paths): (_, &Vec<ModulePath>)| {
            let targets = paths.iter().map(|path| self.resolve(path));
            (from, targets.filter(|to| is_apart(from, to)).collect())
        };
        self.0.iter().map(edges_of).collect()
    }
}

#[test]
fn no_file_imports_itself_through_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut circles = Vec::new();
    for dir in std::fs::read_dir(crates).expect("crates").map(|e| e.expect("an entry").path()) {
        let modules = Modules::read(&dir.join("src"));
        let edges = modules.edges();
        for start in edges.keys().filter(|_| !NOT_YET.iter().any(|name| dir.ends_with(name))) {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(at) = open.pop() {
                open.extend(edges.get(at).into_iter().flatten().filter(|to| seen.insert(*to)));
            }
            if seen.contains(start) {
                circles.push(format!("{}: {}", dir.display(), start.join("::")));
            }
        }
    }
    assert_eq!(circles, [""; 0], "files in circles");
}
