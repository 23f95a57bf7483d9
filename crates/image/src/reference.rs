//! How an image is named: Docker's references with Docker's normalisation, the forms of Enroot and Pyxis, and paths.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::digest::Digest;
use crate::error::{Error, Result, shown};

/// Where an image comes from. What a path leads to is found out when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Registry(Reference),
    /// A folder or an archive: root file system, OCI image layout, `docker save`, tarball, `.sif`, squashfs.
    /// The tag chooses among the images of an OCI image layout or archive.
    Path {
        path: PathBuf,
        tag: Option<String>,
    },
}

/// An image in a registry, with everything that Docker leaves out filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host and port, as in `localhost:5000`; `docker.io` for Docker Hub.
    pub registry: String,
    /// As in `library/alpine`.
    pub repository: String,
    pub version: Version,
    /// The user of Enroot's `USER@`: whose credentials to look up.
    pub user: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    Tag(String),
    Digest(Digest),
}

const DOCKER_HUB: &str = "docker.io";
const REFERENCE_LEN_MAX: usize = 4096;
const REPOSITORY_LEN_MAX: usize = 255;
const TAG_LEN_MAX: usize = 128;
const HOST_LEN_MAX: usize = 255;

/// Schemes of other tools, and what to write instead.
const REFUSED_SCHEMES: [(&str, &str); 7] = [
    (
        "dockerd://",
        "Docker's own images are named without it where Docker is the node's runtime; elsewhere save the image with docker save and give the archive's path",
    ),
    (
        "podman://",
        "Podman's own images are named in full without it where Podman is the node's runtime; elsewhere save the image with podman save and give the archive's path",
    ),
    (
        "docker-daemon:",
        "Docker's own images are named without it where Docker is the node's runtime; elsewhere save the image with docker save and give the archive's path",
    ),
    (
        "library://",
        "Singularity's library is not a registry of images; pull it to a .sif and give its path",
    ),
    ("shub://", "Singularity Hub is not a registry of images; pull it to a .sif and give its path"),
    ("oras://", "ORAS artifacts are not images; pull it to a .sif and give its path"),
    ("http://", "give the image as HOST/NAME:TAG, without http://"),
];

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |fault: &str| bad_reference(text, fault);
        if text.is_empty() {
            return Err(bad("give a name as in alpine:3.20, or a path as in /images/alpine.tar"));
        }
        if text.len() > REFERENCE_LEN_MAX {
            return Err(bad("it is too long for a name or a path"));
        }
        if text.contains(|c: char| c.is_control()) {
            return Err(bad("it has a control character"));
        }
        for (scheme, advice) in REFUSED_SCHEMES {
            if text.starts_with(scheme) {
                return Err(bad(advice));
            }
        }
        if text.starts_with("https://") {
            return Err(bad("give the image as HOST/NAME:TAG, without https://"));
        }
        if let Some(rest) = text.strip_prefix("docker://") {
            return parse_reference(text, rest).map(Self::Registry);
        }
        for scheme in ["oci-archive:", "docker-archive:", "oci:"] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return path_with_tag(rest)
                    .ok_or_else(|| bad("a path must follow, as in oci:/images/x"));
            }
        }
        if is_path(text) {
            let path = text.strip_prefix("file://").unwrap_or(text).into();
            return Ok(Self::Path { path, tag: None });
        }
        parse_reference(text, text).map(Self::Registry)
    }
}

fn bad_reference(text: &str, fault: &str) -> Error {
    Error::BadReference { text: shown(text.as_bytes()), fault: fault.to_owned() }
}

/// No repository begins so, and none may end in `.sif` without a path before it that looks like one.
fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.', '~'])
        || text.starts_with("file://")
        || [".sif", ".sqsh", ".squashfs", ".tar", ".tar.gz", ".tgz", ".tar.zst"]
            .iter()
            .any(|end| text.ends_with(end) && !text.contains([':', '@', '#']))
}

/// `PATH[:TAG]`, where a tag has no slash.
fn path_with_tag(text: &str) -> Option<Source> {
    let (path, tag) = match text.rsplit_once(':') {
        Some((path, tag)) if is_tag(tag) => (path, Some(tag.to_owned())),
        _ => (text, None),
    };
    (!path.is_empty()).then(|| Source::Path { path: path.into(), tag })
}

fn parse_reference(whole: &str, text: &str) -> Result<Reference> {
    let bad = |fault: &str| bad_reference(whole, fault);
    let (text, digest) = match text.rsplit_once('@') {
        Some((rest, digest)) if digest.starts_with("sha") || digest.starts_with("md5") => {
            (rest, Some(digest.parse::<Digest>().map_err(bad)?))
        }
        _ => (text, None),
    };
    let (user, registry, name) = match text.split_once('#') {
        Some((place, name)) => {
            let (user, registry) = split_user(place);
            if !is_host(registry) {
                return Err(bad(
                    "before # stands a registry, as in nvcr.io#nvidia/pytorch:24.01-py3",
                ));
            }
            (user, Some(registry), name)
        }
        None => {
            let (user, name) = split_user(text);
            match name.split_once('/') {
                Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
                    if !is_host(host) {
                        return Err(bad(
                            "the registry is not a host, as in nvcr.io or localhost:5000",
                        ));
                    }
                    (user, Some(host), rest)
                }
                _ => (user, None, name),
            }
        }
    };
    let (repository, tag) = match name.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (name, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(bad("a tag has letters, digits, _ . - and at most 128 of them"));
    }
    if !is_repository(repository) {
        return Err(bad(
            "a name has lower-case letters, digits, and single . _ - between them, as in nvidia/pytorch",
        ));
    }
    let registry = match registry {
        None | Some("index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com") => {
            DOCKER_HUB
        }
        Some(host) => host,
    };
    let library = registry == DOCKER_HUB && !repository.contains('/');
    Ok(Reference {
        registry: registry.to_owned(),
        repository: if library { format!("library/{repository}") } else { repository.to_owned() },
        version: match digest {
            Some(digest) => Version::Digest(digest),
            None => Version::Tag(tag.unwrap_or("latest").to_owned()),
        },
        user,
    })
}

/// `USER@REST`; a user of an institution may have an `@` too.
fn split_user(text: &str) -> (Option<String>, &str) {
    match text.rsplit_once('@') {
        Some((user, rest)) if !user.is_empty() => (Some(user.to_owned()), rest),
        _ => (None, text),
    }
}

fn is_tag(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    first && rest && text.len() <= TAG_LEN_MAX
}

/// `HOST[:PORT]`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
pub fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, after)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
                ("ip", after.strip_prefix(':').or((!after.is_empty()).then_some("")))
            }
            _ => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let label = |label: &str| {
        let inside = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inside && !label.starts_with('-') && !label.ends_with('-')
    };
    let port_valid =
        port.is_none_or(|p| p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok());
    text.len() <= HOST_LEN_MAX && host.split('.').all(label) && port_valid
}

/// Components of lower-case letters and digits, parted by `.`, `_`, `__` or dashes; Docker's rule.
fn is_repository(text: &str) -> bool {
    let component = |component: &str| {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = component.as_bytes();
        let ends = bytes.first().is_some_and(|b| alphanumeric(*b))
            && bytes.last().is_some_and(|b| alphanumeric(*b));
        let separators = component.split(|c: char| alphanumeric(c as u8) && c.is_ascii());
        ends && separators
            .into_iter()
            .all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
    };
    text.len() <= REPOSITORY_LEN_MAX && text.split('/').all(component)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}/{}:{tag}", self.registry, self.repository),
            Version::Digest(digest) => write!(f, "{}/{}@{digest}", self.registry, self.repository),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(f),
            Self::Path { path, tag } => {
                f.write_str(&shown(path.as_os_str().as_encoded_bytes()))?;
                tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))
            }
        }
    }
}

impl Source {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path { path, .. } => Some(path),
            Self::Registry(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        match text.parse::<Source>() {
            Ok(source) => source.to_string(),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn names_are_filled_in_as_docker_does() {
        let digest = Digest::of(b"x");
        for (text, full) in [
            ("alpine", "docker.io/library/alpine:latest".to_owned()),
            ("alpine:3.20", "docker.io/library/alpine:3.20".into()),
            ("docker://alpine:3.20", "docker.io/library/alpine:3.20".into()),
            ("index.docker.io/alpine", "docker.io/library/alpine:latest".into()),
            ("bitnami/redis", "docker.io/bitnami/redis:latest".into()),
            ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3".into()),
            ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3".into()),
            ("docker://nvcr.io#nvidia/pytorch", "nvcr.io/nvidia/pytorch:latest".into()),
            ("docker://$oauthtoken@nvcr.io#nvidia/pytorch", "nvcr.io/nvidia/pytorch:latest".into()),
            ("localhost:5000/x", "localhost:5000/x:latest".into()),
            ("localhost/x", "localhost/x:latest".into()),
            ("[::1]:5000/a/b__c/d--e", "[::1]:5000/a/b__c/d--e:latest".into()),
            (&format!("a/b@{digest}"), format!("docker.io/a/b@{digest}")),
            (&format!("a/b:1@{digest}"), format!("docker.io/a/b@{digest}")),
        ] {
            assert_eq!(canonical(text), full, "{text}");
        }
    }

    #[test]
    fn the_user_of_enroot_is_kept_apart_from_the_name() {
        for (text, user) in [
            ("docker://$oauthtoken@nvcr.io#nvidia/pytorch", Some("$oauthtoken")),
            ("docker://me@site.org@nvcr.io#a", Some("me@site.org")),
            ("docker://me@alpine:3", Some("me")),
            ("docker://me@alpine", Some("me")),
            ("docker://alpine:3", None),
        ] {
            let Ok(Source::Registry(reference)) = text.parse() else { panic!("{text}") };
            assert_eq!(reference.user.as_deref(), user, "{text}");
        }
    }

    #[test]
    fn paths_are_not_taken_for_names() {
        for (text, path, tag) in [
            ("/images/x", "/images/x", None),
            ("./x", "./x", None),
            ("file:///x", "/x", None),
            ("images/tool.sif", "images/tool.sif", None),
            ("tool.sqsh", "tool.sqsh", None),
            ("oci:/images/x", "/images/x", None),
            ("oci:/images/x:v1", "/images/x", Some("v1")),
            ("docker-archive:x.tar", "x.tar", None),
        ] {
            let wanted = Source::Path { path: path.into(), tag: tag.map(str::to_owned) };
            assert_eq!(text.parse::<Source>().unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn a_bad_name_gets_one_line_that_says_what_is_right() {
        for (text, says) in [
            ("", "give a name"),
            ("UPPER", "lower-case"),
            ("a//b", "lower-case"),
            ("a..b", "lower-case"),
            ("-a", "lower-case"),
            ("a/", "lower-case"),
            ("a:", "a tag has"),
            ("a:b c", "a tag has"),
            ("a@sha256:12", "64 hexadecimal"),
            ("a@md5:12", "sha256:"),
            ("dockerd://a", "docker save"),
            ("oras://a", ".sif"),
            ("https://a/b", "without https"),
            ("host.x:99999/a", "not a host"),
            ("bad_host.x/a", "not a host"),
            ("#a", "before #"),
            ("a\nb", "control character"),
            ("oci:", "a path must follow"),
        ] {
            let error = text.parse::<Source>().expect_err(text).to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
