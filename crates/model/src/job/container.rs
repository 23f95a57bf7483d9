//! The container that processes of a job run in, as it was asked for, and its grammars: mounts, names, variables.

use crate::amount::Bytes;
use crate::bounds::CONTAINER_PORTS;
use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};

const MOUNT_PATHS: &str = "absolute paths without .., and a target below /";
/// Flags of a mount that are taken. Those but `ro` and `rw` say what a mount is in any case: it includes what is mounted in
/// the folder, gives no rights, and what is mounted in it later stays inside.
const MOUNT_FLAGS: &str = "SOURCE[:TARGET[:FLAGS]], FLAGS of ro, rw, bind, rbind, private, rprivate, slave, rslave, nosuid \
                           and nodev joined by +";
const NAME_CHARS_MAX: usize = 128;
/// The image of a step that runs on the node itself, although its job has a container.
pub const NO_CONTAINER: &str = "none";
/// Mounts that one option names.
const MOUNTS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// A bundle, a root file system, a tarball, a `.sif` file, or a reference to an image of a registry. Its form
    /// decides. `None` only with a name: that container must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// `None` for the image's own, or the job's where the container has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<ContainerName>,
    /// `None` as the site has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_home: Option<bool>,
    /// The user whom processes are inside.
    #[serde(skip_serializing_if = "ContainerUser::is_self")]
    pub user: ContainerUser,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Variables of the job that win over the image's own.
    #[serde(skip_serializing_if = "Variables::is_none")]
    pub variables: Variables,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub entrypoint: bool,
    /// The image's own entrypoint and command run in place of the job's script.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_command: bool,
    /// A program with its arguments that runs in place of the job's script; empty for the script.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Root inside has every capability over the container's own namespaces, where the site allows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// A Docker daemon runs inside: the image is the site's for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub docker: bool,
    /// Nothing of the user's is shown inside but what `mounts` name: no home, no working directory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The size of `/dev/shm`; `None` for half of the job's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Bytes>,
    /// Ports that are reached from outside where the container has a network of its own.
    #[serde(skip_serializing_if = "ContainerPorts::is_empty")]
    pub ports: ContainerPorts,
    /// The file that a step saves the container's files to when its tasks have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save: Option<String>,
}

/// The user whom the processes of a container are inside. Outside they are always the job's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerUser {
    /// The job's own user.
    #[default]
    JobUser,
    /// Root, which is the job's user outside.
    Root,
    /// The user that the image names, else root; mapped like `Root`.
    OfImage,
    /// A name or number, with an optional group: `app`, `1000:1000`; mapped like `Root`.
    Named(String),
}

/// Ports inside a container, each once. Read only as what [`ContainerPorts::new`] takes: a node opens one of its own for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u16>")]
pub struct ContainerPorts(Vec<u16>);

impl ContainerPorts {
    pub fn new(mut ports: Vec<u16>) -> Result<Self, GrammarError> {
        ports.sort_unstable();
        ports.dedup();
        if ports.len() > CONTAINER_PORTS.most || ports.first() == Some(&0) {
            let found = format!("{} ports", ports.len());
            let expected = format!("at most {}, each above 0", CONTAINER_PORTS.most);
            return Err(GrammarError::new("ports of a container", &found, expected));
        }
        Ok(Self(ports))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::Deref for ContainerPorts {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.0
    }
}

impl TryFrom<Vec<u16>> for ContainerPorts {
    type Error = GrammarError;

    fn try_from(ports: Vec<u16>) -> Result<Self, GrammarError> {
        Self::new(ports)
    }
}

/// The network of a container that does not have its node's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerNetwork {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
}

/// A port of the node that leads to one of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    pub container: u16,
    pub node: u16,
}

impl Container {
    /// The image that it names.
    pub fn image_name(&self) -> Option<&str> {
        self.image.as_deref().filter(|image| *image != NO_CONTAINER)
    }

    /// It names neither an image nor a container that is there: a step has its job's image then.
    pub fn has_image_of_job(&self) -> bool {
        self.image.is_none() && self.name.is_none()
    }

    /// The image that a step with these options is shown with; `None` for that of its job. Without a container, and in one that it
    /// joins by its name alone, it is shown with none.
    pub fn image_of_step(&self) -> Option<&str> {
        let named = (!self.has_image_of_job()).then_some(NO_CONTAINER);
        self.image.as_deref().or(named)
    }

    /// It takes the site's consent: a Docker daemon is privileged, and has a folder of its own that it writes to.
    pub fn takes_consent(&self) -> bool {
        self.privileged || self.docker
    }
}

impl ContainerUser {
    fn is_self(&self) -> bool {
        *self == Self::JobUser
    }
}

/// Which of the job's variables win over variables of the same name in the image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variables {
    Named(Vec<String>),
    All,
}

impl Default for Variables {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

impl Variables {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn wins(&self, name: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|one| one == name),
            Self::All => true,
        }
    }
}

/// Read only as what [`Mount::parse`] takes: root acts on it, whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedMount")]
pub struct Mount {
    /// An absolute path on the node, opened as the job's user.
    pub source: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Left out where the source does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl Mount {
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let wrong = |expected: &str| GrammarError::new("container mount", text, expected);
        let mut parts = text.split(':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().filter(|target| !target.is_empty()).unwrap_or(source);
        let flags = parts.next().unwrap_or_default();
        if parts.next().is_some() {
            return Err(wrong(MOUNT_FLAGS));
        }
        let mut read_only = false;
        for flag in flags.split('+').filter(|flag| !flag.is_empty()) {
            match flag {
                "ro" => read_only = true,
                "rw" => read_only = false,
                "bind" | "rbind" | "private" | "rprivate" | "slave" | "rslave" | "nosuid"
                | "nodev" => {}
                _ => return Err(wrong(MOUNT_FLAGS)),
            }
        }
        let (source, target) = (source.to_owned(), target.to_owned());
        UncheckedMount { source, target, read_only, optional: false }
            .try_into()
            .map_err(|_| wrong(MOUNT_PATHS))
    }

    /// Several, with commas between them.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, GrammarError> {
        if text.split(',').count() > MOUNTS_MAX {
            let expected = format!("at most {MOUNTS_MAX} mounts");
            return Err(GrammarError::new("container mount", text, expected));
        }
        text.split(',').map(Self::parse).collect()
    }
}

#[derive(Deserialize)]
struct UncheckedMount {
    source: String,
    target: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    optional: bool,
}

impl TryFrom<UncheckedMount> for Mount {
    type Error = GrammarError;

    fn try_from(any: UncheckedMount) -> Result<Self, GrammarError> {
        let UncheckedMount { source, target, read_only, optional } = any;
        if !is_plain_path(&source) || !is_path_below_root(&target) {
            let text = format!("{source}:{target}");
            return Err(GrammarError::new("container mount", &text, MOUNT_PATHS));
        }
        Ok(Self { source, target, read_only, optional })
    }
}

/// An absolute path without `..`.
pub fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

/// A plain path of something else than the root, however that is written.
pub fn is_path_below_root(path: &str) -> bool {
    is_plain_path(path) && path.split('/').any(|part| !matches!(part, "" | "."))
}

/// A folder inside in which processes can begin: a plain path, and none of `/proc`, whose folders would be the runtime's own.
pub fn is_work_dir(path: &str) -> bool {
    is_plain_path(path) && path.split('/').find(|part| !matches!(*part, "" | ".")) != Some("proc")
}

/// The folder inside in which processes are to begin.
pub fn parse_work_dir(text: &str) -> Result<String, GrammarError> {
    if is_work_dir(text) {
        return Ok(text.to_owned());
    }
    let expected = "an absolute path without .., and none below /proc";
    Err(GrammarError::new("container working directory", text, expected))
}

/// A container that outlives its step, so that later steps find what earlier ones wrote. Read only as what
/// [`ContainerName::parse`] takes: it names a folder of root's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedName")]
pub struct ContainerName {
    pub name: String,
    #[serde(default)]
    pub join: Join,
}

/// What is done with a container of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// It is used if it is there, and made if not.
    #[default]
    Auto,
    /// It must not be there.
    Create,
    /// It must be running: its processes are joined.
    Running,
    /// It may be there, but is not joined while it runs.
    NotRunning,
}

impl ContainerName {
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let expected = "NAME[:auto|create|exec|no_exec], NAME of letters, digits, _ . and -";
        let wrong = || GrammarError::new("container name", text, expected);
        let (name, flag) = text.split_once(':').unwrap_or((text, "auto"));
        let join = match flag {
            "auto" => Join::Auto,
            "create" => Join::Create,
            "exec" => Join::Running,
            "no_exec" => Join::NotRunning,
            _ => return Err(wrong()),
        };
        UncheckedName { name: name.to_owned(), join }.try_into().map_err(|_| wrong())
    }
}

#[derive(Deserialize)]
struct UncheckedName {
    name: String,
    #[serde(default)]
    join: Join,
}

impl TryFrom<UncheckedName> for ContainerName {
    type Error = GrammarError;

    fn try_from(any: UncheckedName) -> Result<Self, GrammarError> {
        let UncheckedName { name, join } = any;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let is_plain = !name.is_empty() && !name.starts_with('.') && name.chars().all(is_good);
        if !is_plain || name.len() > NAME_CHARS_MAX {
            let expected = "letters, digits, _ . and -";
            return Err(GrammarError::new("container name", &name, expected));
        }
        Ok(Self { name, join })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed_and_bad_ones_refused() {
        let good = [
            ("/data", ("/data", "/data", false)),
            ("/data:/mnt/data", ("/data", "/mnt/data", false)),
            ("/data:/mnt/data:ro", ("/data", "/mnt/data", true)),
            ("/data:/mnt/data:rbind+ro", ("/data", "/mnt/data", true)),
            ("/data:/mnt/data:ro+rprivate", ("/data", "/mnt/data", true)),
            ("/data::ro", ("/data", "/data", true)),
        ];
        for (text, (source, target, read_only)) in good {
            let mount = Mount::parse(text).expect(text);
            let found = (mount.source.as_str(), mount.target.as_str(), mount.read_only);
            assert_eq!(found, (source, target, read_only), "{text}");
        }
        let bad = ["", "data", "/a/../b", "/a:b", "/a:/b:exec", "/a:/b:ro:x", "/a:/", "/a:/../x"];
        for text in bad {
            assert!(Mount::parse(text).is_err(), "{text}");
        }
        assert_eq!(Mount::parse_list("/a,/b:/c:ro").map(|list| list.len()), Ok(2));
    }

    /// What a client sends itself, without Slurm's or dstack's grammar.
    #[test]
    fn what_is_not_plain_is_not_read_from_json_either() {
        let name =
            |name: &str| serde_json::from_value::<ContainerName>(serde_json::json!({"name": name}));
        assert!(name("torch").is_ok());
        for bad in ["x/../../home/kim", "..", ".", "", "a,lowerdir=b", "a/b"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        let mount = |source: &str, target: &str| {
            serde_json::from_value::<Mount>(serde_json::json!({"source": source, "target": target}))
        };
        assert!(mount("/data", "/data").is_ok());
        assert!(mount("/data", "/./data").is_ok());
        for (source, target) in [("data", "/data"), ("/a/../b", "/c"), ("/a", "/b/..")] {
            assert!(mount(source, target).is_err(), "{source} {target}");
        }
        for root in ["/", "/.", "//", "/./"] {
            assert!(mount("/a", root).is_err(), "{root}");
        }
    }

    #[test]
    fn ports_are_few_and_each_is_one() {
        let read = |json: &str| serde_json::from_str::<ContainerPorts>(json);
        assert_eq!(read("[80,8000,80]").map(|ports| ports.to_vec()).ok(), Some(vec![80, 8000]));
        assert!(read("[0]").is_err());
        let most: Vec<u16> = (1..).take(CONTAINER_PORTS.most).collect();
        assert!(ContainerPorts::new(most.clone()).is_ok());
        let over = most.into_iter().chain([60_000]).collect();
        assert_eq!(
            ContainerPorts::new(over).expect_err("too many").to_string(),
            "invalid ports of a container \"65 ports\": expected at most 64, each above 0"
        );
    }

    #[test]
    fn working_directory_is_an_absolute_path_and_none_of_the_runtimes_own() {
        for good in ["/", "/data", "/data/./src", "/process", "/data/proc"] {
            assert_eq!(parse_work_dir(good).as_deref(), Ok(good));
        }
        for bad in ["src", "./src", "/data/../etc", "/proc", "/proc/self/fd/7", "//./proc/1"] {
            let said = parse_work_dir(bad).expect_err(bad).to_string();
            let start = format!("invalid container working directory \"{bad}\": expected ");
            assert!(said.starts_with(&start), "{said}");
        }
    }

    #[test]
    fn step_has_the_image_that_it_names_or_that_of_its_job() {
        let of = |image: Option<&str>, name: Option<&str>| Container {
            image: image.map(str::to_owned),
            name: name.map(|name| ContainerName::parse(name).expect("a good name")),
            read_only: true,
            ..Container::default()
        };
        assert_eq!(of(Some("debian"), None).image_of_step(), Some("debian"));
        assert_eq!(of(Some("debian"), Some("kept")).image_of_step(), Some("debian"));
        assert_eq!(of(Some(NO_CONTAINER), None).image_of_step(), Some(NO_CONTAINER));
        assert_eq!(of(None, Some("kept")).image_of_step(), Some(NO_CONTAINER));
        assert_eq!(of(None, None).image_of_step(), None);
    }

    #[test]
    fn names_have_a_word_for_what_is_there() {
        let named = |text: &str| ContainerName::parse(text).map(|name| (name.name, name.join));
        assert_eq!(named("torch"), Ok(("torch".into(), Join::Auto)));
        assert_eq!(named("a.b-c_1:exec"), Ok(("a.b-c_1".into(), Join::Running)));
        assert_eq!(named("x:no_exec"), Ok(("x".into(), Join::NotRunning)));
        for bad in ["", ".", "..", "a/b", "a b", "x:later", &"x".repeat(200)] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }
}
