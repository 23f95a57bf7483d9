//! What the last start in a state folder had: its configuration folder, and the names that were in it. A start without
//! `--config` is then the same cluster, and one with another says so first. The ports are kept by `listen_addresses`.

use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use cluster::ClusterConfig;
use model::hostlist;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SAVED: &str = "start.json";

/// One start, as it is saved in the state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStart {
    /// The configuration folder; `None` for this machine as it is found.
    pub config: Option<PathBuf>,
    /// A host list.
    nodes: String,
    partitions: Vec<String>,
}

impl LastStart {
    pub fn of(folder: Option<&Path>, config: &ClusterConfig) -> Self {
        Self {
            config: folder.map(Path::to_path_buf),
            nodes: hostlist::compress(config.nodes.iter().map(|node| &node.name)),
            partitions: config.partitions.iter().map(|partition| partition.name.clone()).collect(),
        }
    }

    /// `None` where nothing was started, or only by a program that saved nothing.
    pub fn read(state: &StateDir) -> Option<Self> {
        let bytes = std::fs::read(state.path.join(SAVED)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub fn save(&self, state: &StateDir) -> Result<(), VerbError> {
        let file = state.path.join(SAVED);
        let text = serde_json::to_string(self)
            .map_err(|error| VerbError::Message(format!("{}: {error}", file.display())))?;
        let written = state.trusted()?.replace(SAVED, 0o644, text.as_bytes());
        written.map_err(VerbError::file(&file))
    }

    /// Whether everything that an earlier start had is there, from the same folder.
    pub fn has_all_of(&self, earlier: &LastStart) -> bool {
        let names = |of: &LastStart| -> BTreeSet<String> {
            hostlist::expand(&of.nodes).unwrap_or_default().into_iter().collect()
        };
        let has = |partition: &String| self.partitions.contains(partition);
        self.config == earlier.config
            && earlier.partitions.iter().all(has)
            && names(earlier).is_subset(&names(self))
    }
}

/// The configuration folder of this start, and a line for whoever starts it where that is not what he may expect.
pub fn choose(
    asked: Option<PathBuf>,
    without: bool,
    last: Option<&LastStart>,
) -> (Option<PathBuf>, Option<String>) {
    let before = last.and_then(|last| last.config.as_deref());
    let chosen = match (&asked, before) {
        (None, Some(before)) if !without => {
            let line = format!(
                "the configuration is that of the last start: {} (--no-config starts without one)",
                before.display()
            );
            return (Some(before.to_path_buf()), Some(line));
        }
        _ => asked,
    };
    let shown = |folder: Option<&Path>| match folder {
        Some(folder) => folder.display().to_string(),
        None => "none".to_owned(),
    };
    let is_other = last.is_some() && chosen.as_deref() != before;
    let line = is_other.then(|| {
        let (before, now) = (shown(before), shown(chosen.as_deref()));
        format!("the configuration of the last start was {before}; that of this one is {now}")
    });
    (chosen, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(config: Option<&str>, nodes: &str, partitions: &[&str]) -> LastStart {
        LastStart {
            config: config.map(PathBuf::from),
            nodes: nodes.to_owned(),
            partitions: partitions.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn start_without_a_folder_has_that_of_the_last_and_another_is_told() {
        let (lab, bare) = (start(Some("/lab"), "n1", &[]), start(None, "here", &[]));
        let chosen = |asked: Option<&str>, without, last: Option<&LastStart>| {
            let (folder, line) = choose(asked.map(PathBuf::from), without, last);
            (folder.map(|folder| folder.display().to_string()), line.is_some())
        };
        let at = |folder: &str| Some(folder.to_owned());
        assert_eq!(chosen(None, false, None), (None, false));
        assert_eq!(chosen(Some("/lab"), false, None), (at("/lab"), false));
        assert_eq!(chosen(Some("/lab"), false, Some(&lab)), (at("/lab"), false));
        assert_eq!(chosen(None, false, Some(&lab)), (at("/lab"), true));
        assert_eq!(chosen(Some("/other"), false, Some(&lab)), (at("/other"), true));
        assert_eq!(chosen(None, true, Some(&lab)), (None, true));
        assert_eq!(chosen(Some("/lab"), false, Some(&bare)), (at("/lab"), true));
        assert_eq!(chosen(None, false, Some(&bare)), (None, false));
        let (_, line) = choose(None, true, Some(&lab));
        let words = "the configuration of the last start was /lab; that of this one is none";
        assert_eq!(line.as_deref(), Some(words));
    }

    #[test]
    fn start_that_lacks_a_name_or_has_another_folder_is_not_the_same() {
        let before = start(Some("/lab"), "n[1-3]", &["main", "debug"]);
        for (now, same) in [
            (start(Some("/lab"), "n[1-4]", &["debug", "main"]), true),
            (start(Some("/lab"), "n[2-4]", &["debug", "main"]), false),
            (start(Some("/lab"), "n[1-3]", &["main"]), false),
            (start(Some("/other"), "n[1-3]", &["main", "debug"]), false),
        ] {
            assert_eq!(now.has_all_of(&before), same, "{now:?}");
        }
    }
}
