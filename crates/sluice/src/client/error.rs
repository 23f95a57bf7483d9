//! Why the server could not be asked.

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `was_asked`: the request may have reached a server.
    #[error("no server answers at {place}: {why}")]
    Unreachable { place: String, why: String, was_asked: bool },
    #[error("{0}")]
    Protocol(String),
    /// The server, or the agent that speaks for it, takes no call of this user.
    #[error("{0}")]
    Forbidden(String),
}

impl ClientError {
    /// Slurm's sentence, which scripts look for, where no server answers; and the cause.
    pub fn in_slurms_words(&self) -> String {
        match self {
            Self::Unreachable { .. } => {
                format!("Unable to contact slurm controller (connect failure): {self}")
            }
            Self::Protocol(_) | Self::Forbidden(_) => self.to_string(),
        }
    }

    /// What somebody who has no server yet needs to know.
    pub fn hint(&self) -> Option<&'static str> {
        let hint = "`sluice up` starts a cluster on this machine; --state DIR or SLUICE_STATE says where one was \
                    started, --server, SLUICE_SERVER or `sluice login` where another machine's is";
        matches!(self, Self::Unreachable { .. }).then_some(hint)
    }
}
