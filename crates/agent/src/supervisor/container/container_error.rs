//! Why a process has no container: the part that failed, and one line about it.

use model::container::ContainerName;
use model::printable::printable;
use model::reason::{LaunchFailure, LaunchFault};

/// What is only a text is the container's own failure: its image, its files, its namespaces.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct ContainerError {
    fault: LaunchFault,
    what: String,
}

impl ContainerError {
    /// Texts of an image may be among the words: none of them ends the line or moves the cursor.
    pub fn new(fault: LaunchFault, what: String) -> Self {
        Self { fault, what: printable(&what).into_owned() }
    }

    pub fn volume(what: String) -> Self {
        Self::new(LaunchFault::Volume, what)
    }

    pub fn ports(what: String) -> Self {
        Self::new(LaunchFault::Ports, what)
    }

    /// What the run brings along could not be had.
    pub fn workspace(what: String) -> Self {
        Self::new(LaunchFault::Other, what)
    }
}

/// What is said where there is nothing to make a container of. `name`: the container that was asked for, which is not there.
pub(super) fn no_image(name: Option<&ContainerName>) -> String {
    let expected = "expected --container-image";
    match name {
        Some(ContainerName { name, .. }) => {
            format!("there is no container {name}, and no image to make it of: {expected}")
        }
        None => format!("the container has no image: {expected}"),
    }
}

impl From<String> for ContainerError {
    fn from(what: String) -> Self {
        Self::new(LaunchFault::Container, what)
    }
}

impl From<&str> for ContainerError {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl From<ContainerError> for LaunchFailure {
    fn from(error: ContainerError) -> Self {
        LaunchFailure::new(error.fault, error.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_without_an_image_is_told_by_the_name_that_was_asked_for() {
        let name = ContainerName::parse("torch:auto").expect("a good name");
        let of_name = "there is no container torch, and no image to make it of";
        assert_eq!(no_image(Some(&name)), format!("{of_name}: expected --container-image"));
        assert_eq!(no_image(None), "the container has no image: expected --container-image");
    }

    #[test]
    fn text_of_an_image_forges_no_line() {
        let error = ContainerError::from("user a\u{1b}[2J\nsluice: all is well".to_owned());
        assert_eq!(error.to_string(), "user a\\u{1b}[2J\\nsluice: all is well");
        let failure = LaunchFailure::from(error);
        assert!(!failure.what.contains(['\n', '\u{1b}']), "{}", failure.what);
    }
}
