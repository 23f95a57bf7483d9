//! Why a process has no container: the part that failed, and one line about it.

use model::reason::{LaunchFailure, LaunchFault};

/// What is only a text is the container's own failure: its image, its files, its namespaces.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct ContainerError {
    fault: LaunchFault,
    what: String,
}

impl ContainerError {
    pub fn new(fault: LaunchFault, what: String) -> Self {
        Self { fault, what }
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
