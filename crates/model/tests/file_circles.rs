//! No circle between the files of any crate: what a file imports never leads back to it. A module and its own children
//! may import each other. The test is here because `model` is the crate that builds first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type ModulePath = Vec<String>;

/// The modules of one crate, each with the paths that its file names: `crate::a::B` as `[a, B]`.
#[derive(Default)]
struct Modules(BTreeMap<ModulePath, Vec<ModulePath>>);

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a readable folder").map(|e| e.expect("an entry")) {
        match entry.path() {
            path if path.is_dir() => rust_files(&path, found),
            path if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            _ => {}
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
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Reads one path, or every path of a group `a::{b, c::d}`, from the start of the text; returns what is left of it.
fn read_paths<'a>(text: &'a str, prefix: &[String], found: &mut Vec<ModulePath>) -> &'a str {
    let mut rest = text.trim_start();
    let mut path = prefix.to_vec();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            rest = group.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                let before = rest.len();
                rest = read_paths(rest, &path, found).trim_start();
                rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
                if rest.len() == before {
                    break;
                }
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            return rest;
        }
        match &rest[..end] {
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => {
                found.push(path);
                return rest;
            }
        }
    }
}

impl Modules {
    fn read(src: &Path) -> Self {
        let (mut files, mut modules) = (Vec::new(), Self::default());
        rust_files(src, &mut files);
        let own: Vec<ModulePath> = files.iter().map(|file| module_of(src, file)).collect();
        for (file, module) in files.iter().zip(&own) {
            let (code, paths) = (code_of(file), modules.0.entry(module.clone()).or_default());
            for (start, prefix) in [("crate::", &[][..]), ("super::", module), ("self::", module)] {
                for (at, _) in code.match_indices(start) {
                    let follows =
                        code[..at].chars().next_back().is_some_and(|c| c == ':' || c == '_');
                    let skip = if start == "super::" { 0 } else { start.len() };
                    if !follows {
                        read_paths(&code[at + skip..], prefix, paths);
                    }
                }
            }
            // `pub use child::Item`: how an item is named from outside.
            for (at, use_) in code.match_indices("pub use ") {
                read_paths(&code[at + use_.len()..], module, paths);
            }
        }
        modules
    }

    /// The module that the path leads to, through what the modules on the way re-export.
    fn resolve(&self, path: &[String], depth: u32) -> ModulePath {
        let known = (0..=path.len()).rev().find(|n| self.0.contains_key(&path[..*n])).unwrap_or(0);
        let Some(item) = path.get(known).filter(|_| depth < 8) else {
            return path[..known].to_vec();
        };
        let module = &path[..known];
        let exported = self
            .0
            .get(module)
            .into_iter()
            .flatten()
            .find(|p| p.last() == Some(item) && p.len() > known + 1 && p.starts_with(module));
        exported.map_or_else(|| module.to_vec(), |p| self.resolve(p, depth + 1))
    }

    fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let target = |from: &ModulePath, path: &ModulePath| {
            let to = self.resolve(path, 0);
            (!to.starts_with(from) && !from.starts_with(&to)).then_some(to)
        };
        let of = |(from, paths): (_, &Vec<_>)| {
            (from, paths.iter().filter_map(|p| target(from, p)).collect())
        };
        self.0.iter().map(of).collect()
    }
}

#[test]
fn no_file_imports_itself_through_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut circles = Vec::new();
    for one in std::fs::read_dir(crates).expect("crates").map(|e| e.expect("an entry").path()) {
        let modules = Modules::read(&one.join("src"));
        let edges = modules.edges();
        for start in edges.keys() {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(at) = open.pop() {
                open.extend(edges.get(at).into_iter().flatten().filter(|to| seen.insert(*to)));
            }
            if seen.contains(start) {
                circles.push(format!("{}: {}", one.display(), start.join("::")));
            }
        }
    }
    assert_eq!(circles, [""; 0], "files in circles");
}
