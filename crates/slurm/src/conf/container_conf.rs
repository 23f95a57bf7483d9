//! job_container.conf: folders that each job sees a version of its own of. It is read where slurm.conf says
//! `JobContainerType=job_container/tmpfs`, and there every node must have a place that the versions are kept in.
//!
//! A line that begins with `NodeName` or `BasePath` is for those nodes, or for all; of several for one node the last
//! counts, as in Slurm. Any other line is for all lines that do not say otherwise.

use std::collections::BTreeMap;

use model::site::PrivateFolders;

use super::error::Findings;
use super::lines::Line;
use super::record::Record;
use super::record_keys::CONTAINER;

const DIRS_DEFAULT: [&str; 2] = ["/tmp", "/dev/shm"];

/// Who has private folders, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Private {
    /// Of the nodes that are not named.
    pub all: Option<PrivateFolders>,
    /// None: it has none, and so it says.
    pub nodes: BTreeMap<String, Option<PrivateFolders>>,
    /// A line for all nodes was there.
    of_all: bool,
}

impl Private {
    /// The first of the nodes of which nothing is said, in words; none if there is no such.
    pub(super) fn missing<'n>(&self, mut nodes: impl Iterator<Item = &'n str>) -> Option<String> {
        if self.of_all {
            return None;
        }
        if self.nodes.is_empty() {
            return Some(String::new());
        }
        let missed = nodes.find(|node| !self.nodes.contains_key(*node))?;
        Some(format!(" for node {missed}"))
    }
}

pub fn read(lines: &[Line], findings: &mut Findings) -> Private {
    let begins = |line: &&Line| {
        let key = line.first().map(|pair| pair.key.to_ascii_lowercase());
        matches!(key.as_deref(), Some("nodename" | "basepath"))
    };
    let (own, general): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(begins);
    let general: Vec<_> = general.into_iter().flatten().cloned().collect();
    let general = Record::read(CONTAINER, &general, findings);
    let mut private = Private::default();
    for line in own {
        let record = Record::read(CONTAINER, line, findings).over(&general, &[]);
        let Some(folders) = folders(&record, findings) else { continue };
        match record.hosts("NodeName") {
            Some(hosts) => {
                private.nodes.extend(hosts.into_iter().map(|host| (host, folders.clone())));
            }
            None => {
                // It stands after those that were named, and so it counts.
                private.nodes.clear();
                private.all = folders;
                private.of_all = true;
            }
        }
    }
    private
}

/// None where something is wrong with it, which is among the findings then.
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
    let usual = || DIRS_DEFAULT.map(str::to_owned).to_vec();
    let dirs = if given.is_empty() { usual() } else { given };
    let entry = record.entry("BasePath").filter(|_| good)?;
    // The versions would be hidden by what they are shown as.
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
    use super::Private;
    use crate::conf::{ConfError, MemoryFiles, load_dir};
    use std::path::Path;

    fn load(slurm: &str, container: &str) -> Result<Private, Vec<ConfError>> {
        let files = MemoryFiles::default()
            .with(Path::new("/c").join("slurm.conf"), slurm.to_owned())
            .with(Path::new("/c").join("job_container.conf"), container.to_owned());
        load_dir(&files, Path::new("/c")).map(|conf| conf.private)
    }

    const ON: &str = "JobContainerType=job_container/tmpfs";
    const NODES: &str =
        "JobContainerType=job_container/tmpfs\nNodeName=n[1-3]\nPartitionName=p Nodes=ALL";

    #[test]
    fn folders_are_private_only_where_the_type_says_so() {
        let file = "AutoBasePath=true\nBasePath=/scratch";
        let private = load(ON, file).expect("a good file").all.expect("folders");
        assert_eq!((private.base.as_str(), private.make_base), ("/scratch", true));
        assert_eq!(private.dirs, ["/tmp", "/dev/shm"]);
        assert_eq!(load("", file).expect("a good file"), Private::default());
        let off = load("JobContainerType=job_container/none", file).expect("a good file");
        assert_eq!(off, Private::default());
        assert!(load("JobContainerType=job_container/bogus", file).is_err(), "not taken for off");
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
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

    /// Where each of the three nodes keeps its jobs' folders.
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
    fn lines_are_for_the_nodes_that_they_name_and_the_last_counts() {
        let file = "AutoBasePath=true\nNodeName=n[1-2] BasePath=/a\nNodeName=n3 BasePath=/b AutoBasePath=no";
        assert_eq!(bases(file), ["/a+", "/a+", "/b"]);
        assert_eq!(bases("BasePath=/a\nNodeName=n2 BasePath=/b"), ["/a", "/b", "/a"]);
        assert_eq!(bases("NodeName=n2 BasePath=/b\nBasePath=/a"), ["/a", "/a", "/a"]);
        assert_eq!(bases("BasePath=/a\nNodeName=n2 BasePath=none"), ["/a", "-", "/a"]);
        let refused = load(NODES, "NodeName=n[1-2] BasePath=/a").expect_err("n3 has no line");
        assert!(refused[0].to_string().ends_with("job_container.conf for node n3"), "{refused:?}");
    }

    #[test]
    fn a_program_before_is_of_its_line_or_of_all() {
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
