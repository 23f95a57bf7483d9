//! Errors of an agent. Each is one line that says where it happened and, if possible, what to do.

use crate::cgroup::CgroupError;
use crate::detect::DetectError;
use nix::errno::Errno;
use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: String, source: io::Error },
    #[error("{path} cannot be read: {reason}")]
    Content { path: String, reason: String },
    #[error("another agent runs on {path}: stop it first, or give this one a --state of its own")]
    AlreadyRunning { path: String },
    #[error(
        "this agent has not joined a cluster: give it the join file (sluice token node NAME > FILE)"
    )]
    NotJoined,
    #[error(
        "node name {name:?} cannot be used: letters, digits, '_', '-' and '.' only, not starting with '.'"
    )]
    NodeName { name: String },
    #[error("the join file is for {granted:?}, and this agent was told to be {wanted:?}")]
    OtherNodes { granted: Vec<String>, wanted: Vec<String> },
    #[error("{path} is no whole join file: {reason}: copy it again, or make another")]
    JoinFile { path: String, reason: String },
    #[error(
        "{path} is of {kept:?}, and this machine is {node}: say --node, or remove the folder if it was copied from another machine"
    )]
    OtherMachine { path: String, kept: Vec<String>, node: String },
    #[error("the server at {address} is of another cluster than the join file{}", named(cluster))]
    OtherCluster { address: String, cluster: String },
    #[error(
        "this node's certificate ended on {end}: an administrator says `sluice node rejoin {node}`, and makes a join file if there is none: `sluice token node {node}`; then: sluice agent --join FILE"
    )]
    CertificateEnded { node: String, end: String },
    #[error("the certificate was renewed")]
    CertificateRenewed,
    #[error("the server did not accept this agent: {why}")]
    Refused { why: String },
    #[error("the server is of term {term}, and term {seen} has begun: it was replaced")]
    Deposed { term: u64, seen: u64 },
    #[error("no server at {address}: {}", link_fault(source))]
    Unreachable { address: String, source: io::Error },
    #[error("the server closed the link")]
    Closed,
    #[error(
        "the server at {address} takes the connection and says nothing: it hangs, or is frozen"
    )]
    Silent { address: String },
    #[error("the machine's devices have changed, which a new hello says")]
    DevicesChanged,
    #[error("{0}")]
    Login(String),
    #[error("the link to the server broke: {0}")]
    Link(String),
    #[error("certificates: {0}")]
    Tls(String),
    #[error(
        "the launcher process ended; nothing can be started without it, so this agent ends too"
    )]
    LauncherLost,
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Detect(#[from] DetectError),
}

/// `: it is for lab`, where the join file says the name of its cluster.
fn named(cluster: &str) -> String {
    if cluster.is_empty() { String::new() } else { format!(": it is for {cluster}") }
}

/// What an error of the link means, in one line. The TLS library's own words name its types and its manual.
pub(crate) fn link_fault(error: &io::Error) -> String {
    use rustls::AlertDescription as Alert;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => certificate_fault(why),
        Some(rustls::Error::AlertReceived(Alert::CertificateExpired)) => {
            "it says that this node's certificate has ended, or its clock is wrong".into()
        }
        Some(rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::DecryptError,
        )) => "it does not accept this node's certificate, which is of another cluster".into(),
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not speak TLS: is this the port of agents?".into()
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the other end closed the connection without a word".into()
        }
        _ => error.to_string(),
    }
}

/// Why the certificate of whoever answered is not taken.
fn certificate_fault(why: &rustls::CertificateError) -> String {
    use rustls::CertificateError as Fault;
    match why {
        Fault::UnknownIssuer | Fault::BadSignature => {
            "what answers there has no certificate of this cluster, or the cluster was set up anew"
                .into()
        }
        Fault::Expired | Fault::ExpiredContext { .. } => {
            "its certificate has ended, or this machine's clock is wrong".into()
        }
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            "its certificate is not valid yet, or this machine's clock is wrong".into()
        }
        other => format!("its certificate cannot be used: {other:?}"),
    }
}

impl AgentError {
    /// Whether somebody answered who has no certificate of the authority that is trusted.
    pub(crate) fn is_of_other_authority(&self) -> bool {
        let AgentError::Unreachable { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
    }

    /// Whether a server that answers later would take this agent: nobody was there, or the link broke. It is not so where
    /// somebody answered who is no server of this cluster, where a proxy refused, and where an address can never be dialled.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            AgentError::Unreachable { source, .. } => {
                let inner = source.get_ref();
                let is_tls = inner.is_some_and(|inner| inner.is::<rustls::Error>());
                let is_final = matches!(
                    source.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
                );
                !is_tls && !is_final
            }
            AgentError::Closed | AgentError::Silent { .. } | AgentError::Link(_) => true,
            _ => false,
        }
    }

    /// Whether somebody took the connection, or may have, and said nothing in time.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            AgentError::Silent { .. } => true,
            AgentError::Unreachable { source, .. } => source.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    /// Why this node can start no job now: its disk cannot be written. `None` for other errors.
    pub(crate) fn unfit(&self) -> Option<String> {
        let AgentError::File { source, .. } = self else { return None };
        let errno = Errno::from_raw(source.raw_os_error()?);
        let whole = matches!(errno, Errno::ENOSPC | Errno::EDQUOT | Errno::EROFS | Errno::EIO);
        whole.then(|| format!("spool: {}", errno.desc()))
    }

    pub(crate) fn file(
        action: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let path = path.as_ref().display().to_string();
        AgentError::File { action, path, source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_certificates_and_cut_links_are_told_in_words_of_ours() {
        let tls = |error| link_fault(&io::Error::new(io::ErrorKind::InvalidData, error));
        let stranger = rustls::CertificateError::UnknownIssuer;
        let table = [
            (tls(rustls::Error::InvalidCertificate(stranger)), "no certificate of this cluster"),
            (
                tls(rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA)),
                "does not accept this node's certificate",
            ),
            (
                link_fault(&io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "peer closed connection: https://docs.rs/rustls/",
                )),
                "closed the connection",
            ),
        ];
        for (said, words) in table {
            assert!(said.contains(words), "{said}");
            assert!(!said.contains("https:") && !said.contains("UnknownIssuer"), "{said}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(link_fault(&refused), refused.to_string());
    }

    #[test]
    fn join_waits_for_a_server_that_is_not_there_and_for_no_other() {
        let unreachable =
            |source: io::Error| AgentError::Unreachable { address: "head:6821".to_owned(), source };
        for kind in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::TimedOut,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::UnexpectedEof,
            // A name that does not resolve has no kind of its own.
            io::ErrorKind::Other,
        ] {
            assert!(unreachable(kind.into()).is_absence(), "{kind:?}");
        }
        assert!(AgentError::Closed.is_absence());
        let stranger = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let stranger = io::Error::new(io::ErrorKind::InvalidData, stranger);
        for error in [
            unreachable(stranger),
            unreachable(io::ErrorKind::InvalidInput.into()),
            unreachable(io::ErrorKind::PermissionDenied.into()),
            AgentError::Refused { why: "the token is wrong".to_owned() },
            AgentError::OtherCluster { address: "head:6821".to_owned(), cluster: String::new() },
            AgentError::NotJoined,
        ] {
            assert!(!error.is_absence(), "{error}");
        }
    }
}
