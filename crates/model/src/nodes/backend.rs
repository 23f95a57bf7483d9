//! A backend: a source of machines that an administrator made by a call, with its credentials. It is kept in the journal, where a
//! source of sluice.toml is kept in that file.

use crate::fleet::{self, MAIN_PROJECT};
use crate::machine::SourceConfig;
use crate::secret::Sealed;
use serde::{Deserialize, Serialize};

/// The longest name of a source: the names of its nodes begin with it.
pub const SOURCE_NAME_BYTES_MAX: usize = 32;

/// Who has a backend made, changed and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendOrigin {
    /// Administrators, by calls.
    #[default]
    Call,
    /// dstack's `config.yml`, which names it.
    File,
    /// `config.yml` named it once. It makes no machines and disks any more, and is removed when those that it has are gone.
    DroppedFromFile,
}

impl BackendOrigin {
    fn is_call(&self) -> bool {
        *self == Self::Call
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The project whose jobs machines are made for and taken by; those of the main project are everybody's.
    pub project: String,
    /// The site says that its machines are everybody's, though it is a project's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    #[serde(default, skip_serializing_if = "BackendOrigin::is_call")]
    pub origin: BackendOrigin,
    pub source: SourceConfig,
    /// What was given, as JSON, without keys and tokens.
    pub configuration: String,
    /// The text that a file of credentials, or a kubeconfig, would have; `None` for those of the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Sealed>,
}

impl Backend {
    /// How the project calls it: by its kind, which a project has one of.
    pub fn name(&self) -> &'static str {
        self.source.kind.name()
    }

    /// It makes nothing new, and is removed when nothing of it is left.
    pub fn is_dropped(&self) -> bool {
        self.origin == BackendOrigin::DroppedFromFile
    }

    /// The project for whose jobs alone its machines are made, and which alone they take; `None` for everybody's.
    pub fn only_for(&self) -> Option<&str> {
        fleet::only_for(&self.project).filter(|_| !self.shared)
    }
}

/// The name of the source that is a project's backend of this kind: letters of a project's name that a source's cannot have are
/// `-` in it.
pub fn source_name(kind: &str, project: &str) -> String {
    if project == MAIN_PROJECT {
        return kind.to_owned();
    }
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = kind.chars().chain(['-']).chain(project.chars().map(letter)).collect();
    name.chars().take(SOURCE_NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_of_a_project_is_a_source_of_a_name_of_its_own() {
        assert_eq!(source_name("aws", MAIN_PROJECT), "aws");
        assert_eq!(source_name("aws", "Vision_2"), "aws-vision-2");
        assert_eq!(source_name("kubernetes", &"x".repeat(40)).len(), SOURCE_NAME_BYTES_MAX);
    }
}
