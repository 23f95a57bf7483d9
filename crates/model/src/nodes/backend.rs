//! A backend: a source of machines that an administrator made by a call, with its credentials. It is kept in the journal, where a
//! source of sluice.toml is kept in that file.

use crate::fleet::MAIN_PROJECT;
use crate::machine::SourceConfig;
use crate::secret::Sealed;
use serde::{Deserialize, Serialize};

/// The longest name of a source: the names of its nodes begin with it.
pub const SOURCE_NAME_BYTES_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The project whose jobs machines are made for; those of the main project are made for everybody's.
    pub project: String,
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

    /// The project that alone has its machines made; `None` for everybody.
    pub fn only_for(&self) -> Option<&str> {
        Some(self.project.as_str()).filter(|project| *project != MAIN_PROJECT)
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
