//! Volumes: folders that are kept under a name, on a node, in a folder that nodes share or on a disk of a cloud, and how jobs
//! name them.

use crate::amount::Bytes;
use crate::cloud_volume::{CloudPlace, Disk};
use crate::container::{is_path_below_root, is_plain_path};
use crate::grammar::GrammarError;
use crate::interpolation::{self, Piece, Place, Reference};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a name must look like, for error lines.
pub const NAME_RULE: &str = "1 to 60 small letters, digits and -, a letter first";
const NAME_BYTES_MAX: usize = 60;
const ID_BYTES: usize = 16;
/// Room for `${{ dstack.node_rank }}` beside the name itself.
const ASKED_NAME_BYTES_MAX: usize = 200;
const PATH_BYTES_MAX: usize = 4096;
/// The most volumes of which one is chosen.
const ALTERNATIVES_MAX: usize = 32;
const USE_RULE: &str = "NAME:/path[:ro]";

pub fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.bytes().all(letter)
}

/// A volume of a project. Its folder is its owner's alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Part of its folder's name: a volume that is made anew under an old name never shows the old one's files.
    pub id: VolumeId,
    pub owner: VolumeOwner,
    pub place: VolumePlace,
    /// What may be written to it; `None` for as much as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    pub created: Timestamp,
    pub state: VolumeState,
    /// The disk of a cloud, where the volume is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Box<Disk>>,
}

impl Volume {
    /// Where it is, where it is a disk of a cloud.
    pub fn cloud(&self) -> Option<&CloudPlace> {
        match &self.place {
            VolumePlace::Cloud(place) => Some(place),
            VolumePlace::Node(_) | VolumePlace::Shared(_) => None,
        }
    }

    /// Whether it is a claim of Kubernetes.
    pub fn is_claim(&self) -> bool {
        self.cloud().is_some_and(|place| place.claim.is_some())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeOwner {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumePlace {
    /// Among the files of this node's agent.
    Node(String),
    /// In a folder that the site says its nodes share.
    Shared(String),
    /// On a disk of a cloud, which is attached to the machine of the job that uses it.
    Cloud(Box<CloudPlace>),
}

impl fmt::Display for VolumePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Shared(folder) => write!(f, "shared folder {folder}"),
            Self::Cloud(place) => write!(f, "{place}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its folder, or its disk, is being made.
    Creating,
    Ready,
    /// Its folder, or its disk, is being removed; a deletion that broke off may be asked for again.
    Deleting,
    /// The cloud would not make its disk, or has lost it.
    Failed,
}

/// Sixteen hexadecimal digits. Read only as that: root makes a folder of this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct VolumeId(String);

impl VolumeId {
    pub fn from_random(random: u128) -> Self {
        Self(format!("{:016x}", random as u64))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for VolumeId {
    type Error = GrammarError;

    fn try_from(text: String) -> Result<Self, GrammarError> {
        let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == ID_BYTES && text.bytes().all(is_digit) {
            return Ok(Self(text));
        }
        Err(GrammarError::new("volume id", &text, "sixteen hexadecimal digits"))
    }
}

/// The folder of a volume, as a node is told it: a name that leads nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedFolder")]
pub struct VolumeFolder {
    /// The shared folder that it is in; `None` for the node's own files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    pub name: String,
    /// A folder of the node that is made when it is first asked for: `instance: true`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instance: bool,
}

impl VolumeFolder {
    pub fn of(name: &str, volume: &Volume) -> Self {
        let shared = match &volume.place {
            // A disk is mounted at the folder of the volume among the node's own files.
            VolumePlace::Node(_) | VolumePlace::Cloud(_) => None,
            VolumePlace::Shared(folder) => Some(folder.clone()),
        };
        Self { shared, name: format!("{name}.{}", volume.id.0), instance: false }
    }

    /// The folder of this name that a user has on each node. No volume's has such a name: its own begins with a letter.
    pub fn of_instance(name: &str, uid: u32) -> Self {
        Self { shared: None, name: format!("{uid}.{name}"), instance: true }
    }
}

#[derive(Deserialize)]
struct UncheckedFolder {
    #[serde(default)]
    shared: Option<String>,
    name: String,
    #[serde(default)]
    instance: bool,
}

impl TryFrom<UncheckedFolder> for VolumeFolder {
    type Error = GrammarError;

    fn try_from(any: UncheckedFolder) -> Result<Self, GrammarError> {
        let UncheckedFolder { shared, name, instance } = any;
        let is_good = match name.split_once('.') {
            Some((uid, own)) if instance => {
                shared.is_none() && uid.parse::<u32>().is_ok() && is_name(own)
            }
            Some((own, id)) => is_name(own) && VolumeId::try_from(id.to_owned()).is_ok(),
            None => false,
        };
        if !is_good || shared.as_deref().is_some_and(|folder| !is_plain_path(folder)) {
            return Err(GrammarError::new("volume folder", &name, "NAME.ID"));
        }
        Ok(Self { shared, name, instance })
    }
}

/// The digits of the largest rank.
const RANK_DIGITS_MAX: usize = 10;

/// A volume in a job: which, and where its processes find it. Read only as what [`VolumeUse::new`] takes: root acts on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedUse")]
pub struct VolumeUse {
    /// May hold `${{ dstack.node_rank }}`.
    pub name: String,
    /// Names of other volumes that will do as well, as those of other regions; one of all is chosen when the job is submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// A folder of each node under this name in place of a volume that was created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instance: bool,
    /// The project of the volume, set when the job is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

impl VolumeUse {
    pub fn new(name: &str, path: &str) -> Result<Self, GrammarError> {
        let wrong = |expected: String| {
            Err(GrammarError::new("volume", &format!("{name}:{path}"), expected))
        };
        let pieces = interpolation::parse(name, Place::VolumeName).unwrap_or_default();
        // The shortest number stands for any: names are checked again when the ranks are known.
        let filled = interpolation::fill(&pieces, |_| Some("0".into())).unwrap_or_default();
        if name.len() > ASKED_NAME_BYTES_MAX || !is_name(&filled) {
            return wrong(format!("{USE_RULE}, NAME of {NAME_RULE}"));
        }
        if !is_path_below_root(path) || path.len() > PATH_BYTES_MAX {
            return wrong(format!("{USE_RULE}, an absolute path without .. below /"));
        }
        let (name, path, others) = (name.to_owned(), path.to_owned(), Vec::new());
        Ok(Self { name, others, path, read_only: false, instance: false, project: None })
    }

    /// One of several volumes, the first of which is tried first.
    pub fn one_of(names: &[String], path: &str) -> Result<Self, GrammarError> {
        let (first, others) = match names {
            [first, others @ ..] if others.len() < ALTERNATIVES_MAX => (first.as_str(), others),
            _ => ("", &[][..]),
        };
        for other in others {
            Self::new(other, path)?;
        }
        Ok(Self { others: others.to_vec(), ..Self::new(first, path)? })
    }

    /// `NAME:/path`, `NAME:/path:ro`
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let wrong = || GrammarError::new("volume", text, USE_RULE);
        let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (path, read_only) = match rest.split_once(':') {
            None => (rest, false),
            Some((path, "rw")) => (path, false),
            Some((path, "ro")) => (path, true),
            Some(_) => return Err(wrong()),
        };
        Ok(Self { read_only, ..Self::new(name, path)? })
    }

    /// Several, with commas between them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, GrammarError> {
        text.split(',').map(Self::parse).collect()
    }

    fn pieces(&self) -> Vec<Piece> {
        interpolation::parse(&self.name, Place::VolumeName).unwrap_or_default()
    }

    /// Each node has a volume of its own.
    pub fn is_by_rank(&self) -> bool {
        interpolation::references(&self.pieces()).next().is_some()
    }

    /// The name of the volume on the node of this rank.
    pub fn name_on(&self, rank: u32) -> String {
        let value = |reference: &Reference| match reference {
            Reference::NodeRank => Some(rank.to_string()),
            _ => None,
        };
        interpolation::fill(&self.pieces(), value).unwrap_or_default()
    }

    /// Whether one of this many nodes has the volume of this name. No name is made for each node: a job may have many.
    pub fn has_name(&self, name: &str, nodes: u32) -> bool {
        let pieces = self.pieces();
        let Some(at) = pieces.iter().position(|piece| matches!(piece, Piece::Reference(_))) else {
            return self.name_on(0) == name;
        };
        let before: String = pieces[..at]
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Reference(_) => "",
            })
            .collect();
        let Some(rest) = name.strip_prefix(&before) else { return false };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        // What follows the rank may begin with digits too.
        (1..=digits.min(RANK_DIGITS_MAX)).any(|length| {
            let rank = rest[..length].parse::<u32>().ok().filter(|rank| *rank < nodes);
            rank.is_some_and(|rank| self.name_on(rank) == name)
        })
    }

    /// The names on this many nodes: one, or one for each.
    pub fn names(&self, nodes: u32) -> impl Iterator<Item = String> + '_ {
        let ranks = if self.is_by_rank() { nodes } else { 1 };
        (0..ranks).map(|rank| self.name_on(rank))
    }
}

impl fmt::Display for VolumeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = if self.read_only { ":ro" } else { "" };
        write!(f, "{}:{}{flag}", self.name, self.path)
    }
}

#[derive(Deserialize)]
struct UncheckedUse {
    name: String,
    #[serde(default)]
    others: Vec<String>,
    path: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    instance: bool,
    #[serde(default)]
    project: Option<String>,
}

impl TryFrom<UncheckedUse> for VolumeUse {
    type Error = GrammarError;

    fn try_from(any: UncheckedUse) -> Result<Self, GrammarError> {
        let UncheckedUse { name, others, path, read_only, instance, project } = any;
        let names: Vec<String> = std::iter::once(name).chain(others).collect();
        Ok(Self { read_only, instance, project, ..Self::one_of(&names, &path)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_has_the_names_of_its_ranks_and_no_others() {
        let used = |name: &str| VolumeUse::new(name, "/data").expect("a use");
        assert!(used("data").has_name("data", 3) && !used("data").has_name("data0", 3));
        for pattern in ["p-${{ dstack.node_rank }}", "p${{ dstack.node_rank }}0x"] {
            let used = used(pattern);
            let all: Vec<String> = used.names(12).collect();
            for name in &all {
                assert!(used.has_name(name, 12), "{pattern} {name}");
                assert_eq!(used.has_name(name, 2), all[..2].contains(name), "{pattern} {name}");
            }
            for name in ["p-", "p-012", "p-spare", "q-1", "p", "p-99999999999", ""] {
                assert!(!used.has_name(name, 12), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn names_are_plain_words() {
        for good in ["a", "data-1", &"x".repeat(60)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "1a", "-a", "A", "a.b", "a/b", "..", "a b", "é", &"x".repeat(61)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn volume_of_a_job_has_a_name_and_a_path() {
        let good = ["data:/data", "data:/data:ro", "d-${{ dstack.node_rank }}:/x/y"];
        for text in good {
            assert_eq!(VolumeUse::parse(text).map(|one| one.to_string()).as_deref(), Ok(text));
        }
        let bad = [
            "data",
            "data:",
            "data:data",
            "data:/",
            "data://",
            "data:/a/../b",
            "/a:/b",
            "a.b:/c",
            "data:/a:rx",
            "data:/a:ro:x",
            ":/a",
            "${{ secrets.x }}:/a",
            "d-${{ dstack.x }}:/a",
        ];
        for text in bad {
            let error = VolumeUse::parse(text).expect_err(text).to_string();
            assert!(error.contains("NAME:/path"), "{text}: {error}");
        }
        assert_eq!(VolumeUse::parse_list("a:/a,b:/b:ro").map(|list| list.len()), Ok(2));
        let names = ["eu".to_owned(), "us".to_owned()];
        let several = VolumeUse::one_of(&names, "/a").expect("good");
        assert_eq!((several.name.as_str(), &several.others[..]), ("eu", &names[1..]));
        let text = serde_json::to_string(&several).expect("JSON");
        assert_eq!(serde_json::from_str::<VolumeUse>(&text).ok(), Some(several));
        assert!(VolumeUse::one_of(&[], "/a").is_err());
        assert!(VolumeUse::one_of(&["a".into(), "../b".into()], "/a").is_err());
        assert!(VolumeUse::one_of(&vec!["a".to_owned(); 40], "/a").is_err());
        // What a client sends itself.
        for json in [r#"{"name":"../x","path":"/a"}"#, r#"{"name":"x","path":"/a/../b"}"#] {
            assert!(serde_json::from_str::<VolumeUse>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn names_by_rank_are_one_for_each_node() {
        let by_rank = VolumeUse::parse("d-${{ dstack.node_rank }}:/d").expect("good");
        assert!(by_rank.is_by_rank());
        assert_eq!(by_rank.names(3).collect::<Vec<_>>(), ["d-0", "d-1", "d-2"]);
        let one = VolumeUse::parse("d:/d").expect("good");
        assert_eq!((one.is_by_rank(), one.names(3).collect::<Vec<_>>()), (false, vec!["d".into()]));
    }

    #[test]
    fn folders_lead_nowhere_else() {
        let read = |json: &str| serde_json::from_str::<VolumeFolder>(json);
        assert!(read(r#"{"name":"data.0123456789abcdef"}"#).is_ok());
        assert!(read(r#"{"name":"1000.data","instance":true}"#).is_ok());
        assert!(read(r#"{"shared":"/mnt","name":"data.0123456789abcdef"}"#).is_ok());
        for bad in [
            r#"{"name":"data"}"#,
            r#"{"name":"../x.0123456789abcdef"}"#,
            r#"{"name":"data.0123456789abcde/"}"#,
            r#"{"name":"1000.data"}"#,
            r#"{"name":"1000.../x","instance":true}"#,
            r#"{"shared":"/mnt/../etc","name":"data.0123456789abcdef"}"#,
            r#"{"shared":"/mnt","name":"1000.data","instance":true}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let made = VolumeFolder::of_instance("cache", 7);
        let text = serde_json::to_string(&made).expect("JSON");
        assert_eq!(read(&text).ok(), Some(made));
    }
}
