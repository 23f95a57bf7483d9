//! The agent's certificate and keys: obtained for a join token, renewed in time, kept in `STATE/agent/credentials.json`,
//! mode 600.

use crate::error::AgentError;
use crate::link::connection::{Link, client_config};
use crate::link::new_key::NewKey;
use crate::link::private_file::{read_json, write_json};
use crate::wall_clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::dynamic_node::FutureMachine;
use model::time::Timestamp;
use ring::digest::{SHA256, digest};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::frame;
use wire::link::{
    CHANNEL_CONTROL, JoinAccepted, JoinFile, JoinRequest, RENEWALS_MAX, SignedRenewal, ToAgent,
    ToServer,
};
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
    /// When the certificate ends; `None` for one of before certificates ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Certificates that were renewed and have not expired, the newest first: a server restored from a backup knows these alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<FormerCertificate>,
    /// The server's words that led to the newest certificate, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renewals: Vec<SignedRenewal>,
    /// Which is shown to servers: 0 for the newest, else one of those before.
    #[serde(skip)]
    shown: usize,
}

/// A certificate that was renewed. A server that is restored from a backup of before knows no newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FormerCertificate {
    key: String,
    certificate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

/// How many former certificates are kept. They are renewed when half of their life is over: no more are good at a time.
const FORMER_MAX: usize = 3;

/// A certificate that the server gave in place of the one before.
pub(crate) struct RenewedCertificate {
    pub key: NewKey,
    pub certificate: String,
    pub expires: Timestamp,
    /// A server of before signed none.
    pub proof: Option<SignedRenewal>,
}

/// How a machine joins where it has not.
#[derive(Default)]
pub(crate) struct JoinWay {
    pub file: Option<PathBuf>,
    /// `host:port`, in place of those of the join file; empty: those.
    pub servers: Vec<String>,
    /// The node that this machine is, where the join file is for several.
    pub node: String,
    /// No configuration file needs to name it.
    pub dynamic: bool,
    /// It is to be a FUTURE node that this machine is like.
    pub future: Option<Box<FutureMachine>>,
}

impl JoinWay {
    fn join_file(&self) -> Result<Option<JoinFile>, AgentError> {
        let mut join: Option<JoinFile> =
            self.file.as_deref().map(read_join_file).transpose()?.flatten();
        if let Some(join) = join.as_mut().filter(|_| !self.servers.is_empty()) {
            join.servers.clone_from(&self.servers);
        }
        Ok(join)
    }
}

impl Credentials {
    /// Returns the credentials kept in `folder`, or joins with the join file's token.
    pub async fn obtain(folder: &Path, way: &JoinWay) -> Result<Credentials, AgentError> {
        let kept = Self::load(folder)?;
        let node = way.node.as_str();
        match (kept, way.join_file()?) {
            (Some(kept), None) => Ok(kept),
            (Some(kept), Some(join)) if join.pattern.is_some() && kept.is_live_for(&join) => {
                // Which FUTURE node it became is what is kept.
                if kept.nodes == [node] || way.future.is_some() {
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
            (_, Some(join)) => Self::join_and_save(folder, &join, way).await,
            (None, None) => Err(AgentError::NotJoined),
        }
    }

    /// Joins with the join file of a group though there are credentials, which the server does not take; `None` without one.
    pub async fn join_again(
        folder: &Path,
        way: &JoinWay,
    ) -> Result<Option<Credentials>, AgentError> {
        match way.join_file()?.filter(|join| join.pattern.is_some()) {
            Some(join) => Self::join_and_save(folder, &join, way).await.map(Some),
            None => Ok(None),
        }
    }

    async fn join_and_save(
        folder: &Path,
        join: &JoinFile,
        way: &JoinWay,
    ) -> Result<Credentials, AgentError> {
        let node = join.pattern.is_some().then_some(way.node.as_str());
        let name = node.or(join.nodes.first().map(String::as_str)).unwrap_or_default();
        let key = NewKey::for_join(folder, &token_digest(&join.token), name.to_owned())?;
        let credentials = Self::join(join, way, key).await?;
        credentials.save(folder)?;
        NewKey::forget_pending(folder);
        Ok(credentials)
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
        let RenewedCertificate { key, certificate, expires, proof } = new;
        let mut next =
            Credentials { key: key.key.0, certificate, expires: Some(expires), ..self.clone() };
        next.former.insert(0, self.newest());
        let now = wall_clock::now();
        next.former.retain(|former| former.expires.is_none_or(|end| end > now));
        next.former.truncate(FORMER_MAX);
        match proof {
            Some(proof) => next.renewals.insert(0, proof),
            // The words of before do not lead to this one.
            None => next.renewals.clear(),
        }
        next.renewals.truncate(RENEWALS_MAX);
        next.save(folder)?;
        *self = next;
        Ok(())
    }

    pub fn tls(&self) -> Result<Arc<ClientConfig>, AgentError> {
        let newest = (&self.certificate, &self.key);
        let former = self.shown.checked_sub(1).and_then(|at| self.former.get(at));
        let shown = former.map_or(newest, |former| (&former.certificate, &former.key));
        client_config(&self.authority, Some((shown.0, shown.1)))
    }

    fn newest(&self) -> FormerCertificate {
        FormerCertificate {
            key: self.key.clone(),
            certificate: self.certificate.clone(),
            expires: self.expires,
        }
    }

    /// Shows the certificate before the one that was refused, if there is one that has not ended; else the newest again.
    pub fn show_next(&mut self) -> bool {
        let now = wall_clock::now();
        let is_good = |former: &FormerCertificate| former.expires.is_none_or(|end| end > now);
        let next = self.former.iter().skip(self.shown).position(is_good);
        self.shown = next.map_or(0, |after| self.shown + after + 1);
        self.shown > 0
    }

    pub fn show_newest(&mut self) {
        self.shown = 0;
    }

    /// The certificate that is shown was taken: it is the one to use from now on.
    pub fn settle(&mut self, folder: &Path) {
        let Some(at) = self.shown.checked_sub(1).filter(|at| *at < self.former.len()) else {
            return;
        };
        let newest = self.newest();
        let taken = std::mem::replace(&mut self.former[at], newest);
        (self.key, self.certificate) = (taken.key, taken.certificate);
        (self.expires, self.shown) = (taken.expires, 0);
        if let Err(error) = self.save(folder) {
            tracing::warn!(%error, "that a former certificate is used is not kept");
        }
    }

    /// Whether some are kept in `folder`.
    pub fn are_kept(folder: &Path) -> bool {
        folder.join("credentials.json").exists()
    }

    fn load(folder: &Path) -> Result<Option<Credentials>, AgentError> {
        read_json(&folder.join("credentials.json"))
    }

    fn save(&self, folder: &Path) -> Result<(), AgentError> {
        write_json(folder, "credentials", self)
    }

    /// Has the server sign the certificate of a key that never leaves this machine.
    async fn join(join: &JoinFile, way: &JoinWay, key: NewKey) -> Result<Credentials, AgentError> {
        let mut last = AgentError::NotJoined;
        for address in &join.servers {
            match ask(address, join, way, &key.request).await {
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
                        former: Vec::new(),
                        renewals: Vec::new(),
                        shown: 0,
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
    way: &JoinWay,
    request: &str,
) -> Result<JoinAccepted, AgentError> {
    let mut link = Link::dial(address, client_config(&join.authority, None)?).await?;
    link.send(&ToServer::Join(JoinRequest {
        version: PROTOCOL,
        token: join.token.clone(),
        certificate_request: request.to_owned(),
        node: join.pattern.is_some().then(|| way.node.clone()),
        dynamic: way.dynamic,
        future: way.future.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::SecretValue;

    fn renewed(number: u64, end: Timestamp) -> RenewedCertificate {
        let key = NewKey { key: SecretValue(format!("key {number}")), request: String::new() };
        let proof = SignedRenewal { body: number.to_string(), signature: String::new() };
        let certificate = format!("certificate {number}");
        RenewedCertificate { key, certificate, expires: end, proof: Some(proof) }
    }

    #[test]
    fn former_certificates_are_kept_until_their_end_and_the_one_that_is_taken_becomes_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = wall_clock::now();
        let later = now + Duration::from_secs(3600);
        let mut credentials = Credentials {
            version: PROTOCOL,
            servers: Vec::new(),
            authority: String::new(),
            key: "key 0".into(),
            certificate: "certificate 0".into(),
            order_key: String::new(),
            nodes: Vec::new(),
            token_digest: String::new(),
            expires: Some(Timestamp(1)),
            former: Vec::new(),
            renewals: Vec::new(),
            shown: 0,
        };
        for number in 1..=10 {
            credentials.renew(folder.path(), renewed(number, later)).expect("kept");
        }
        let former = |c: &Credentials| -> Vec<String> {
            c.former.iter().map(|former| former.certificate.clone()).collect()
        };
        assert_eq!(former(&credentials), ["certificate 9", "certificate 8", "certificate 7"]);
        let words = credentials.renewals.iter().map(|word| word.body.as_str());
        assert_eq!(words.collect::<Vec<_>>().join(" "), "10 9 8 7 6 5 4 3", "as many as are kept");
        assert!(credentials.show_next() && credentials.show_next());
        credentials.settle(folder.path());
        assert_eq!((credentials.key.as_str(), credentials.shown), ("key 8", 0));
        assert_eq!(former(&credentials), ["certificate 9", "certificate 10", "certificate 7"]);
        let kept = Credentials::load(folder.path()).expect("readable").expect("there");
        assert_eq!(kept, credentials);
        let all = std::iter::repeat_with(|| credentials.show_next()).take(4);
        assert_eq!(all.collect::<Vec<_>>(), [true, true, true, false], "then from the newest on");
    }
}
