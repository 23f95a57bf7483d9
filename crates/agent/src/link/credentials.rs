//! The agent's certificate and keys: obtained for a join token, renewed in time, kept in `STATE/agent/credentials.json`,
//! mode 600.

use crate::error::AgentError;
use crate::link::connection::{Link, client_config};
use crate::wall_clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::secret::SecretValue;
use model::time::Timestamp;
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::frame;
use wire::link::{CHANNEL_CONTROL, JoinAccepted, JoinFile, JoinRequest, ToAgent, ToServer};
use wire::version::PROTOCOL;

/// How long the server may take to answer a join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The most that is read of a join file or of the credentials.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub version: u32,
    pub servers: Vec<String>,
    authority: String,
    key: String,
    certificate: String,
    pub order_key: String,
    pub nodes: Vec<String>,
    /// The digest of the token that they were issued for: a join file with another token means to join again.
    token_digest: String,
    /// When the certificate ends; `None` for one of before certificates ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

/// A new key, and the request for its certificate.
pub(crate) struct NewKey {
    /// PEM, as the request.
    key: SecretValue,
    pub request: String,
}

impl NewKey {
    pub fn generate(name: String) -> Result<NewKey, AgentError> {
        let failed = |e: rcgen::Error| AgentError::Tls(e.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let request = params.serialize_request(&key).and_then(|r| r.pem()).map_err(failed)?;
        Ok(NewKey { key: SecretValue(key.serialize_pem()), request })
    }
}

/// A certificate that the server gave in place of the one before.
pub(crate) struct RenewedCertificate {
    pub key: NewKey,
    pub certificate: String,
    pub expires: Timestamp,
}

impl Credentials {
    /// Returns the credentials kept in `folder`, or joins with the join file's token, at these servers if any are given. With
    /// the join file of a group this machine is the node `node`.
    pub async fn obtain(
        folder: &Path,
        join_file: Option<&Path>,
        servers: &[String],
        node: &str,
    ) -> Result<Credentials, AgentError> {
        let kept = Self::load(folder)?;
        let mut join: Option<JoinFile> = join_file.map(read_join_file).transpose()?.flatten();
        if let Some(join) = join.as_mut().filter(|_| !servers.is_empty()) {
            join.servers = servers.to_vec();
        }
        match (kept, join) {
            (Some(kept), None) => Ok(kept),
            (Some(kept), Some(join)) if join.pattern.is_some() && kept.is_live_for(&join) => {
                if kept.nodes == [node] {
                    return Ok(kept);
                }
                let (kept, node) = (kept.nodes, node.to_owned());
                Err(AgentError::OtherMachine { path: folder.display().to_string(), kept, node })
            }
            // The token of one node was spent for them; that of a group may be good for others.
            (Some(kept), Some(join))
                if kept.token_digest == token_digest(&join.token) && join.pattern.is_none() =>
            {
                Ok(kept)
            }
            (_, Some(join)) => {
                let name = join.pattern.is_some().then_some(node);
                let credentials = Self::join(&join, name).await?;
                credentials.save(folder)?;
                Ok(credentials)
            }
            (None, None) => Err(AgentError::NotJoined),
        }
    }

    /// Whether they are of the cluster of this join file, and have not ended.
    fn is_live_for(&self, join: &JoinFile) -> bool {
        self.authority == join.authority && self.ended().is_none()
    }

    /// The end of the certificate, if it lies in the past.
    pub fn ended(&self) -> Option<Timestamp> {
        self.expires.filter(|end| *end <= wall_clock::now())
    }

    /// Takes a new certificate over, and keeps it.
    pub fn renew(&mut self, folder: &Path, new: RenewedCertificate) -> Result<(), AgentError> {
        let RenewedCertificate { key, certificate, expires } = new;
        let next =
            Credentials { key: key.key.0, certificate, expires: Some(expires), ..self.clone() };
        next.save(folder)?;
        *self = next;
        Ok(())
    }

    pub fn tls(&self) -> Result<Arc<ClientConfig>, AgentError> {
        client_config(&self.authority, Some((&self.certificate, &self.key)))
    }

    fn load(folder: &Path) -> Result<Option<Credentials>, AgentError> {
        read_json(&folder.join("credentials.json"))
    }

    fn save(&self, folder: &Path) -> Result<(), AgentError> {
        let path = folder.join("credentials.json");
        let fresh = folder.join("credentials.new");
        let json = serde_json::to_vec_pretty(self).map_err(|e| AgentError::Content {
            path: path.display().to_string(),
            reason: e.to_string(),
        })?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| AgentError::file("make", folder, e))?;
        // A file of that name left by a crash may have another mode.
        let _ = fs::remove_file(&fresh);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(&json).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|e| AgentError::file("write", &path, e))
    }

    /// Makes a key that never leaves this machine, and has the server sign its certificate.
    async fn join(join: &JoinFile, node: Option<&str>) -> Result<Credentials, AgentError> {
        let key = NewKey::generate(
            node.map_or_else(|| join.nodes.first().cloned().unwrap_or_default(), str::to_owned),
        )?;
        let mut last = AgentError::NotJoined;
        for address in &join.servers {
            match ask(address, join, node, &key.request).await {
                Ok(joined) => {
                    return Ok(Credentials {
                        version: PROTOCOL,
                        servers: join.servers.clone(),
                        authority: join.authority.clone(),
                        key: key.key.0,
                        certificate: joined.certificate,
                        order_key: joined.order_key,
                        nodes: joined.nodes,
                        token_digest: token_digest(&join.token),
                        expires: joined.expires,
                    });
                }
                // All servers know the same tokens: another would refuse it too.
                Err(refused @ AgentError::Refused { .. }) => return Err(refused),
                Err(error) if error.is_of_other_authority() => {
                    let cluster = join.cluster.clone();
                    last = AgentError::OtherCluster { address: address.clone(), cluster };
                }
                // Somebody has answered at another address: that is told.
                Err(_) if matches!(last, AgentError::OtherCluster { .. }) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn ask(
    address: &str,
    join: &JoinFile,
    node: Option<&str>,
    request: &str,
) -> Result<JoinAccepted, AgentError> {
    let mut link = Link::dial(address, client_config(&join.authority, None)?).await?;
    link.send(&ToServer::Join(JoinRequest {
        version: PROTOCOL,
        token: join.token.clone(),
        certificate_request: request.to_owned(),
        node: node.map(str::to_owned),
    }))?;
    link.flush().await?;
    let answer = async {
        loop {
            for frame in link.receive().await?.iter().filter(|f| f.channel == CHANNEL_CONTROL) {
                match frame::decode_message(&frame.payload) {
                    Ok(ToAgent::Joined(joined)) => return Ok(joined),
                    Ok(ToAgent::Refused { why }) => return Err(AgentError::Refused { why }),
                    Ok(_) => {}
                    Err(e) => return Err(AgentError::Link(e.to_string())),
                }
            }
        }
    };
    tokio::time::timeout(JOIN_TIMEOUT, answer)
        .await
        .map_err(|_| AgentError::Link(format!("{address} did not answer the join")))?
}

fn token_digest(token: &str) -> String {
    STANDARD.encode(digest(&SHA256, token.as_bytes()))
}

fn read_join_file(path: &Path) -> Result<Option<JoinFile>, AgentError> {
    read_json(path).map_err(|error| match error {
        AgentError::Content { path, reason } => AgentError::JoinFile { path, reason },
        other => other,
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, AgentError> {
    let mut text = Vec::new();
    match File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(AgentError::file("read", path, e)),
    }
    serde_json::from_slice(&text).map(Some).map_err(|e| AgentError::Content {
        path: path.display().to_string(),
        reason: e.to_string(),
    })
}
