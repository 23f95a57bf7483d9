//! What a run brings along: archives of files and a repository, which are placed on each of its nodes before its commands
//! run. [`entries`] reads an archive and is the one place that says which archives are good.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::bounds;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::path::{Component, Path};
use tar::{Archive, EntryType};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Workspace {
    /// The run starts in the folder that its node makes for it alone and removes after it.
    #[serde(default)]
    pub own_folder: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileArchive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
    /// Only the branch that the run names is cloned, and no other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single_branch: bool,
    /// A Python environment of this version is made for the run: `3.12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// CUDA's compiler has to be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvcc: bool,
}

/// A file or a folder, as a tar archive without compression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileArchive {
    /// Where it is placed, whatever its name in the archive is: absolute, below `~/`, or below the working directory.
    pub path: String,
    pub archive: Blob,
}

/// A repository that is cloned with `git` by the run's user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// By which its user's client knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub url: String,
    #[serde(default)]
    pub branch: Option<String>,
    /// The commit; `None` for the newest of the branch.
    #[serde(default)]
    pub hash: Option<String>,
    /// What the submitter had changed since that commit, as `git diff --binary` writes it.
    #[serde(default)]
    pub diff: Option<Blob>,
    /// As that of a [`FileArchive`].
    pub path: String,
    /// A folder that is there already and not empty is used as it is; else it is an error.
    #[serde(default)]
    pub skip_if_exists: bool,
    /// The variable that names its folder to the run; set when the run is launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_variable: Option<String>,
    /// The submitter's, for commits that the run makes.
    #[serde(default)]
    pub user_name: Option<String>,
    #[serde(default)]
    pub user_email: Option<String>,
}

/// Whether an address for HTTP holds a user or a password. That of an ssh address is no secret.
pub fn has_credentials(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") && host.contains('@')
}

/// Whether a text can be the name of a commit: it becomes an argument of `git`.
pub fn is_commit(text: &str) -> bool {
    (4..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Bytes, in base 64 where they travel.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(pub Vec<u8>);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64.decode(text).map(Self).map_err(D::Error::custom)
    }
}

/// An entry of a good archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Below the archive's only top, whose own entry has no parts.
    pub path: Vec<String>,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Folder,
    File {
        /// The bits of `rwxrwxrwx` alone.
        mode: u32,
        bytes: Vec<u8>,
    },
    /// A symbolic link to something below the archive's top.
    Link {
        target: String,
    },
    /// The same bytes as an entry before it.
    Copy {
        of: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive cannot be read: {0}")]
    Damaged(String),
    #[error("the archive is empty")]
    Empty,
    #[error("{0}: expected a path below one folder, without ..")]
    Outside(String),
    #[error("{0}: a link to {1} leads out of the archive")]
    LinkOutside(String, String),
    #[error("{0}: expected files, folders and links, and not a {1}")]
    Special(String, &'static str),
    #[error("{0}...: expected paths of at most {bytes} bytes and {parts} parts", bytes = bounds::ARCHIVE_PATH_BYTES.most, parts = bounds::ARCHIVE_PATH_PARTS.most)]
    LongPath(String),
    #[error("expected an archive of at most {0} entries")]
    ManyEntries(usize),
}

/// All entries of an archive. Every name is below one top, no link leads out of it, and nothing is a device.
pub fn entries(archive: &[u8]) -> Result<Vec<Entry>, ArchiveError> {
    let damaged = |error: std::io::Error| ArchiveError::Damaged(error.to_string());
    let mut top: Option<String> = None;
    let mut found: Vec<Entry> = Vec::new();
    let mut files = HashSet::new();
    for entry in Archive::new(archive).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        if found.len() == bounds::ARCHIVE_ENTRIES.most {
            return Err(ArchiveError::ManyEntries(found.len()));
        }
        check_length(&entry.path_bytes())?;
        entry.link_name_bytes().map_or(Ok(()), |link| check_length(&link))?;
        let name = entry.path().map_err(damaged)?.into_owned();
        let shown = name.display().to_string();
        let (own_top, path) = parts(&name).ok_or_else(|| ArchiveError::Outside(shown.clone()))?;
        if *top.get_or_insert_with(|| own_top.clone()) != own_top {
            return Err(ArchiveError::Outside(shown));
        }
        let target = entry.link_name().map_err(damaged)?.map(|link| link.into_owned());
        let content = match (entry.header().entry_type(), target) {
            (EntryType::Directory, _) => Content::Folder,
            (EntryType::Regular | EntryType::Continuous, _) => {
                let mode = entry.header().mode().map_err(damaged)? & 0o777;
                let mut bytes = Vec::new();
                // No more than the archive holds, whatever its header says.
                std::io::Read::read_to_end(&mut entry, &mut bytes).map_err(damaged)?;
                if bytes.len() as u64 != entry.size() {
                    return Err(ArchiveError::Damaged(format!("{shown} is cut short")));
                }
                files.insert(path.clone());
                Content::File { mode, bytes }
            }
            (EntryType::Symlink, Some(target)) => {
                let said = target.display().to_string();
                if !stays_inside(&target, path.len()) {
                    return Err(ArchiveError::LinkOutside(shown, said));
                }
                Content::Link { target: said }
            }
            (EntryType::Link, Some(target)) => {
                let (of_top, of) = parts(&target).unwrap_or_default();
                if of_top != own_top || !files.contains(&of) {
                    return Err(ArchiveError::LinkOutside(shown, target.display().to_string()));
                }
                Content::Copy { of }
            }
            (kind, _) => return Err(ArchiveError::Special(shown, kind_name(kind))),
        };
        found.push(Entry { path, content });
    }
    if found.is_empty() { Err(ArchiveError::Empty) } else { Ok(found) }
}

/// Refuses a path before anything is made of its parts.
fn check_length(path: &[u8]) -> Result<(), ArchiveError> {
    let parts = path.split(|byte| *byte == b'/').count();
    if path.len() <= bounds::ARCHIVE_PATH_BYTES.most && parts <= bounds::ARCHIVE_PATH_PARTS.most {
        return Ok(());
    }
    Err(ArchiveError::LongPath(String::from_utf8_lossy(&path[..path.len().min(60)]).into_owned()))
}

/// The first part of a relative path, and the others; `None` if it leads upwards or is absolute.
fn parts(path: &Path) -> Option<(String, Vec<String>)> {
    let mut all = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => all.push(part.to_str()?.to_owned()),
            Component::CurDir => {}
            _ => return None,
        }
    }
    let rest = all.split_off(all.len().min(1));
    Some((all.pop()?, rest))
}

/// Whether a link at this depth below the top leads to something below the top as well. It may lead upwards only at its
/// beginning: after the name of another link, `..` would not be what the text says.
fn stays_inside(target: &Path, depth: usize) -> bool {
    let parts: Vec<Component<'_>> = target.components().collect();
    let up = parts.iter().take_while(|part| **part == Component::ParentDir).count();
    let rest_is_plain =
        parts[up..].iter().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    target.to_str().is_some() && depth > up && rest_is_plain
}

fn kind_name(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Char | EntryType::Block => "device",
        EntryType::Fifo => "pipe",
        _ => "special entry",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{Builder, Header};

    /// A name, its kind, and its text or where it leads.
    type Part = (&'static str, EntryType, &'static str);

    /// Writes names as they are, which the builder itself refuses for some.
    fn archive(of: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, kind, text) in of {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            if is_link {
                header.as_old_mut().linkname[..text.len()].copy_from_slice(text.as_bytes());
            }
            let content = if is_link { &[][..] } else { text.as_bytes() };
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn credentials_in_an_address_are_noticed() {
        for (url, expected) in [
            ("https://user:token@host/x.git", true),
            ("HTTPS://token@host/x.git", true),
            ("https://host/a@b/x.git", false),
            ("https://host/x.git", false),
            ("ssh://git@host/x.git", false),
            ("git@host:x.git", false),
            ("file:///a@b/x.git", false),
        ] {
            assert_eq!(has_credentials(url), expected, "{url}");
        }
    }

    #[test]
    fn good_archive_has_one_top_and_links_within_it() {
        use EntryType::*;
        let good = archive(&[
            ("top", Directory, ""),
            ("top/bin", Directory, ""),
            ("top/bin/run", Regular, "#!"),
            ("top/bin/up", Symlink, "../bin/run"),
            ("top/same", Link, "top/bin/run"),
        ]);
        let found = entries(&good).expect("good");
        assert_eq!(found[0], Entry { path: vec![], content: Content::Folder });
        let run = Content::File { mode: 0o755, bytes: b"#!".to_vec() };
        assert_eq!(found[2], Entry { path: vec!["bin".into(), "run".into()], content: run });
        let copy = Content::Copy { of: vec!["bin".into(), "run".into()] };
        assert_eq!(found[4].content, copy);
    }

    #[test]
    fn paths_and_their_number_are_bounded() {
        let named = |names: &[String]| {
            let mut builder = Builder::new(Vec::new());
            for name in names {
                let mut header = Header::new_gnu();
                header.set_size(0);
                header.set_mode(0o644);
                // A name that does not fit a header goes before it, as long as it is.
                builder.append_data(&mut header, name, &[][..]).unwrap();
            }
            entries(&builder.into_inner().unwrap())
        };
        let (bytes, parts) = (bounds::ARCHIVE_PATH_BYTES.most, bounds::ARCHIVE_PATH_PARTS.most);
        let deep = |parts: usize| vec!["a"; parts].join("/");
        assert_eq!(named(&[deep(parts)]).expect("good")[0].path.len(), parts - 1);
        assert!(named(&["n".repeat(bytes)]).is_ok());
        for bad in [deep(parts + 1), deep(1 << 16), "n".repeat(bytes + 1)] {
            let said = named(&[bad]).expect_err("too long").to_string();
            assert!(said.contains("at most 4096 bytes and 64 parts"), "{said}");
            assert!(said.len() < 200 && said.lines().count() == 1, "{said}");
        }
        let most = bounds::ARCHIVE_ENTRIES.most;
        let many: Vec<String> = (0..=most).map(|n| format!("t/{n}")).collect();
        assert_eq!(named(&many[..most]).expect("good").len(), most);
        assert_eq!(named(&many), Err(ArchiveError::ManyEntries(most)));
    }

    #[test]
    fn archive_that_leads_out_or_has_devices_is_refused_in_one_line() {
        use EntryType::*;
        let bad: &[(&[Part], &str)] = &[
            (&[], "the archive is empty"),
            (&[("../a", Regular, "x")], "../a: expected a path below one folder"),
            (&[("t/../../a", Regular, "x")], "t/../../a: expected a path below"),
            (&[("/etc/a", Regular, "x")], "/etc/a: expected a path below"),
            (&[("a", Regular, "x"), ("b", Regular, "x")], "b: expected a path below one folder"),
            (&[("t/l", Symlink, "/etc/passwd")], "t/l: a link to /etc/passwd leads out"),
            (&[("t/l", Symlink, "../x")], "t/l: a link to ../x leads out"),
            (&[("t", Symlink, "x")], "t: a link to x leads out"),
            (&[("t/a/l", Symlink, "m/../../x")], "t/a/l: a link to m/../../x leads out"),
            (&[("t/h", Link, "/etc/shadow")], "t/h: a link to /etc/shadow leads out"),
            (&[("t/h", Link, "t/nothing")], "t/h: a link to t/nothing leads out"),
            (&[("t/d", Char, "")], "t/d: expected files, folders and links, and not a device"),
            (&[("t/p", Fifo, "")], "not a pipe"),
        ];
        for (of, words) in bad {
            let said = entries(&archive(of)).expect_err(words).to_string();
            assert!(said.contains(words) && said.lines().count() == 1, "{words}: {said}");
        }
        let mut cut = archive(&[("t", Regular, &"x".repeat(2000))]);
        cut.truncate(1024);
        assert!(entries(&cut).is_err());
        assert!(entries(b"not an archive").is_err());
    }
}
