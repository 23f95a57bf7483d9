//! The agent's certificate and keys: obtained once for a one-time token, kept in `STATE/agent/credentials.json`, mode
//! 600.

use crate::error::AgentError;
use crate::link::connection::{Link, client_config};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::frame;
use wire::link::{CHANNEL_CONTROL, JoinAccepted, JoinFile, JoinRequest, ToAgent, ToServer};
use wire::version::PROTOCOL;

/// How long the server may take to answer a join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

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
}

impl Credentials {
    /// Returns the credentials kept in `folder`, or joins with the join file's token, at these servers if any are given.
    pub async fn obtain(
        folder: &Path,
        join_file: Option<&Path>,
        servers: &[String],
    ) -> Result<Credentials, AgentError> {
        let kept = Self::load(folder)?;
        let mut join: Option<JoinFile> = join_file.map(read_json).transpose()?.flatten();
        if let Some(join) = join.as_mut().filter(|_| !servers.is_empty()) {
            join.servers = servers.to_vec();
        }
        match (kept, join) {
            (Some(kept), None) => Ok(kept),
            (Some(kept), Some(join)) if kept.token_digest == token_digest(&join.token) => Ok(kept),
            (_, Some(join)) => {
                let credentials = Self::join(&join).await?;
                credentials.save(folder)?;
                Ok(credentials)
            }
            (None, None) => Err(AgentError::NotJoined),
        }
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
    async fn join(join: &JoinFile) -> Result<Credentials, AgentError> {
        let failed = |e: rcgen::Error| AgentError::Tls(e.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
        // Only for a person who looks at it: the server takes nothing of the request but its key.
        let first = join.nodes.first().map_or("", String::as_str);
        params.distinguished_name.push(DnType::CommonName, first);
        let request = params.serialize_request(&key).and_then(|r| r.pem()).map_err(failed)?;
        let mut last = AgentError::NotJoined;
        for address in &join.servers {
            match ask(address, join, &request).await {
                Ok(joined) => {
                    return Ok(Credentials {
                        version: PROTOCOL,
                        servers: join.servers.clone(),
                        authority: join.authority.clone(),
                        key: key.serialize_pem(),
                        certificate: joined.certificate,
                        order_key: joined.order_key,
                        nodes: joined.nodes,
                        token_digest: token_digest(&join.token),
                    });
                }
                // All servers know the same tokens: another would refuse it too.
                Err(refused @ AgentError::Refused { .. }) => return Err(refused),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn ask(address: &str, join: &JoinFile, request: &str) -> Result<JoinAccepted, AgentError> {
    let mut link = Link::dial(address, client_config(&join.authority, None)?).await?;
    link.send(&ToServer::Join(JoinRequest {
        version: PROTOCOL,
        token: join.token.clone(),
        certificate_request: request.to_owned(),
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

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, AgentError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(AgentError::file("read", path, e)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| AgentError::Content {
        path: path.display().to_string(),
        reason: e.to_string(),
    })
}
