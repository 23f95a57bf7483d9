//! The SSH endpoint as clients ask about it: where it is, and with which keys a user comes in.

use model::secret::SecretValue;
use serde::{Deserialize, Serialize};

/// What a client in a job sends first at its node's socket for an SSH connection to another node of its run; the login and a
/// newline follow. No request of HTTP begins so.
pub const INTERNODE_PREFIX: &str = "SSH-TO ";
/// The longest such line, without the newline.
pub const INTERNODE_LINE_BYTES_MAX: usize = INTERNODE_PREFIX.len() + 64;

/// The login that such a line says, without its newline.
pub fn internode_login(line: &[u8]) -> Option<&str> {
    std::str::from_utf8(line).ok()?.strip_prefix(INTERNODE_PREFIX)
}

/// The namespace of the signature that proves a key.
pub const KEY_PROOF_NAMESPACE: &str = "key@sluice";
/// The longest signature: RSA with 16,384 bits, in base64.
pub const KEY_PROOF_BYTES_MAX: usize = 16 << 10;

/// What a user signs to prove a key. It is of one user at one endpoint of one cluster, so that the signature is of use to nobody
/// else. `authority` is the fingerprint of the authority of the cluster's certificate.
pub fn key_proof_text(user: &str, authority: &str, endpoint: &SshEndpoint) -> String {
    let host_key = &endpoint.host_key;
    format!("sluice key add\nuser {user}\nauthority {authority}\nendpoint {host_key}\n")
}

/// What is asked or changed, of one user's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SshRequest {
    List,
    Add {
        /// A line as in `id_ed25519.pub`.
        key: String,
        /// That whoever asks has the private key: a signature of [`key_proof_text`] as `ssh-keygen -Y sign` makes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<String>,
    },
    /// By its fingerprint, or by its comment where one key alone has it.
    Remove {
        key: String,
    },
    /// The user's key that the server holds is replaced: who has it from before is kept out.
    Renew,
    /// What an ssh client needs, with the user's key that the server holds.
    Connect,
}

/// Where the endpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshEndpoint {
    pub host: String,
    pub port: u16,
    /// Its public key, as in `known_hosts`.
    pub host_key: String,
}

/// A public key that a user registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKeyView {
    /// `SHA256:…`
    pub fingerprint: String,
    /// `ssh-ed25519`
    pub algorithm: String,
    pub comment: String,
    /// Nobody has proved to have its private key: it opens jobs by their numbers alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unproved: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshAnswer {
    /// `None` where the server has no SSH endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SshEndpoint>,
    /// The name of the keys' user, as the server knows it.
    #[serde(default)]
    pub user: String,
    /// The fingerprints of the authorities that a client of this server may have pinned, the cluster's own first; only for
    /// [`SshRequest::List`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<SshKeyView>,
    /// The user's key that the server holds, in OpenSSH's form; only for [`SshRequest::Connect`] by a caller without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<SecretValue>,
}

/// How the nodes of one run reach one another by `ssh`: with a key that opens that run alone, and only while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternodeSsh {
    /// In OpenSSH's form.
    pub private_key: SecretValue,
    /// The endpoint's public key, as in `known_hosts`.
    pub host_key: String,
    /// In the order of the ranks.
    pub hosts: Vec<InternodeHost>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternodeHost {
    /// The address and the name of the node, where no other node of the run has them too.
    pub names: Vec<String>,
    /// By which the SSH endpoint knows the job and its node.
    pub login: String,
}
