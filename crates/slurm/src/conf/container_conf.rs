//! job_container.conf: folders of which each job has its own version. It is read if slurm.conf has
//! `JobContainerType=job_container/tmpfs`. Every node must then have a folder to keep the versions in.
//!
//! A line that begins with `NodeName` is for those nodes, one that begins with `BasePath` for all. The last line for a node
//! counts, as in Slurm. Any other line has defaults for these lines.

use std::collections::BTreeMap;

use model::site::PrivateFolders;

use super::error::Findings;
use crate::conf::keys::record::Record;
use crate::conf::keys::record_keys::CONTAINER;
use crate::conf::text::lines::ConfLine;

const DIRS_DEFAULT: [&str; 2] = ["/tmp", "/dev/shm"];

/// The nodes whose jobs have private folders, and where these are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrivateFolderConf {
    /// The folders of nodes that no line names.
    pub all: Option<PrivateFolders>,
    /// The folders of named nodes. `None` is a node whose line says `BasePath=none`.
    pub nodes: BTreeMap<String, Option<PrivateFolders>>,
    /// Whether the file has a line for all nodes.
    has_line_for_all: bool,
}

impl PrivateFolderConf {
    /// Names the first node that no line covers, as the end of an error; `None` if all are covered.
    pub(super) fn missing<'n>(&self, mut nodes: impl Iterator<Item = &'n str>) -> Option<String> {
        if self.has_line_for_all {
            return None;
        }
        if self.nodes.is_empty() {
            return Some(String::new());
        }
        let missed = nodes.find(|node| !self.nodes.contains_key(*node))?;
        Some(format!(" for node {missed}"))
    }
}

pub fn read(lines: &[ConfLine], findings: &mut Findings) -> PrivateFolderConf {
    let begins = |line: &&ConfLine| {
        let key = line.first().map(|pair| pair.key.to_ascii_lowercase());
        matches!(key.as_deref(), Some("nodename" | "basepath"))
    };
    let (own, general): (Vec<&ConfLine>, Vec<&ConfLine>) = lines.iter().partition(begins);
    let general: Vec<_> = general.into_iter().flatten().cloned().collect();
    let general = Record::read(CONTAINER, &general, findings);
    let mut private = PrivateFolderConf::default();
    for line in own {
        let record = Record::read(CONTAINER, line, findings).with_defaults(&general, &[]);
        let Some(folders) = folders(&record, findings) else { continue };
        match record.hosts("NodeName") {
            Some(hosts) => {
                private.nodes.extend(hosts.into_iter().map(|host| (host, folders.clone())));
            }
            None => {
                // The last line counts: it replaces those for single nodes before it.
                private.nodes.clear();
                private.all = folders;
                private.has_line_for_all = true;
            }
        }
    }
    private
}

/// The folders of one line. The outer `None` means an error, which is in the findings; the inner one `BasePath=none`.
fn folders(record: &Record, findings: &mut Findings) -> Option<Option<PrivateFolders>> {
    let mut good = true;
    for key in ["BasePath", "Dirs", "InitScript"] {
        if let Some(entry) = record.entry(key)
            && entry.text.split(',').any(|path| !is_plain(path.trim()))
        {
            let expected = "expected paths from the root, without ..";
            findings.wrong(&entry.place, key, &entry.text, expected);
            good = false;
        }
    }
    let Some(base) = record.text("BasePath") else {
        if let Some(entry) = record.entry("NodeName") {
            let expected = "expected a BasePath on the same line";
            findings.wrong(&entry.place, "NodeName", &entry.text, expected);
        }
        return None;
    };
    let given = record.words("Dirs");
    let default = || DIRS_DEFAULT.map(str::to_owned).to_vec();
    let dirs = if given.is_empty() { default() } else { given };
    let entry = record.entry("BasePath").filter(|_| good)?;
    // A base inside a private folder would be hidden by the job's version of that folder.
    if let Some(dir) = dirs.iter().find(|dir| is_below(&base, dir)) {
        let expected = format!("expected a path outside {dir}, which is private");
        findings.wrong(&entry.place, "BasePath", &base, expected);
        return None;
    }
    if base == "none" {
        return Some(None);
    }
    let make_base = record.flag("AutoBasePath").unwrap_or(false);
    let init_script = record.text("InitScript").filter(|path| path != "none");
    Some(Some(PrivateFolders { base, make_base, dirs, init_script }))
}

fn is_plain(path: &str) -> bool {
    path == "none" || (path.starts_with('/') && path.split('/').all(|part| part != ".."))
}

fn is_below(path: &str, folder: &str) -> bool {
    std::path::Path::new(path).starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::PrivateFolderConf;
    use crate::conf::{ConfError, MemoryFiles, load_dir};
    use std::path::Path;

    fn load(slurm: &str, container: &str) -> Result<PrivateFolderConf, Vec<ConfError>> {
        let files = MemoryFiles::default()
            .with(Path::new("/c").join("slurm.conf"), slurm.to_owned())
            .with(Path::new("/c").join("job_container.conf"), container.to_owned());
        load_dir(&files, Path::new("/c")).map(|conf| conf.private)
    }

    const ON: &str = "JobContainerType=job_container/tmpfs";
    const NODES: &str =
        "JobContainerType=job_container/tmpfs\nNodeName=n[1-3]\nPartitionName=p Nodes=ALL";

    #[test]
    fn folders_are_private_only_with_the_tmpfs_type() {
        let file = "AutoBasePath=true\nBasePath=/scratch";
        let private = load(ON, file).expect("a good file").all.expect("folders");
        assert_eq!((private.base.as_str(), private.make_base), ("/scratch", true));
        assert_eq!(private.dirs, ["/tmp", "/dev/shm"]);
        assert_eq!(load("", file).expect("a good file"), PrivateFolderConf::default());
        let off = load("JobContainerType=job_container/none", file).expect("a good file");
        assert_eq!(off, PrivateFolderConf::default());
        assert!(load("JobContainerType=job_container/bogus", file).is_err(), "not taken for off");
    }

    #[test]
    fn relative_and_nested_paths_are_refused() {
        for file in [
            "BasePath=scratch",
            "BasePath=/a Dirs=/tmp,../x",
            "BasePath=/a InitScript=init",
            "NodeName=n1 AutoBasePath=yes",
            "BasePath=/tmp/jobs",
            "BasePath=/a/b Dirs=/a",
        ] {
            assert!(load(ON, file).is_err(), "{file}");
        }
        assert!(load(ON, "Dirs=/tmp").is_err(), "without BasePath");
    }

    #[test]
    fn programs_in_the_namespace_are_refused_and_their_times_are_not() {
        for key in ["CloneNSScript", "CloneNSEpilog"] {
            let errors = load(ON, &format!("BasePath=/a {key}=/etc/x")).expect_err(key);
            let text = errors[0].to_string();
            assert!(text.contains(key) && text.contains("namespace"), "{text}");
        }
        let file = "BasePath=/a EntireStepInNS=true CloneNSScript_Wait=5 CloneNSEpilog_Wait=5";
        assert!(load(ON, file).is_ok());
    }

    /// The base folder of each of the three nodes.
    fn bases(file: &str) -> Vec<String> {
        let private = load(NODES, file).expect("a good file");
        let base = |node: &str| {
            let folders = private.nodes.get(node).unwrap_or(&private.all);
            folders.as_ref().map_or("-".into(), |folders| {
                format!("{}{}", folders.base, if folders.make_base { "+" } else { "" })
            })
        };
        ["n1", "n2", "n3"].map(base).to_vec()
    }

    #[test]
    fn the_last_line_for_a_node_counts() {
        let file = "AutoBasePath=true\nNodeName=n[1-2] BasePath=/a\nNodeName=n3 BasePath=/b AutoBasePath=no";
        assert_eq!(bases(file), ["/a+", "/a+", "/b"]);
        assert_eq!(bases("BasePath=/a\nNodeName=n2 BasePath=/b"), ["/a", "/b", "/a"]);
        assert_eq!(bases("NodeName=n2 BasePath=/b\nBasePath=/a"), ["/a", "/a", "/a"]);
        assert_eq!(bases("BasePath=/a\nNodeName=n2 BasePath=none"), ["/a", "-", "/a"]);
        let refused = load(NODES, "NodeName=n[1-2] BasePath=/a").expect_err("n3 has no line");
        assert!(refused[0].to_string().ends_with("job_container.conf for node n3"), "{refused:?}");
    }

    #[test]
    fn the_init_script_comes_from_the_line_or_the_defaults() {
        let init = |file: &str, node: &str| {
            let private = load(NODES, file).expect("a good file");
            let folders = private.nodes.get(node).unwrap_or(&private.all).clone();
            folders.and_then(|folders| folders.init_script)
        };
        let file = "BasePath=/a InitScript=/etc/init\nNodeName=n2 BasePath=/a";
        assert_eq!(init(file, "n1").as_deref(), Some("/etc/init"));
        assert_eq!(init(file, "n2"), None);
        assert_eq!(init("InitScript=/x\nBasePath=/a", "n1").as_deref(), Some("/x"));
    }
}
