//! The way from a standby to the leader: a connection to the leader's agents' port, on which the standby proves by the cluster's key
//! that it is a server, and says whose HTTP follows. The proof holds for that connection alone.

use crate::auth::identity::Identity;
use crate::shared::server_list::ServerList;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::postgres::ServerAddress;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::frame;
use wire::link::{
    CHANNEL_CONTROL, PASSED_EXPORT_BYTES, PASSED_EXPORT_LABEL, PassedClient, PassedFrom,
    SERVER_NAME, ToServer,
};

/// How long a request waits for a leader that can be reached. A takeover is quicker.
const LEADER_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

pub struct LeaderLink {
    tls: TlsConnector,
    servers: Arc<ServerList>,
}

/// A connection to the server that led when it was made.
pub struct LeaderStream {
    pub stream: TlsStream<TcpStream>,
    leader: Option<ServerAddress>,
    servers: Arc<ServerList>,
}

impl LeaderStream {
    /// Returns when another server leads: one that is frozen, or that its database does not answer, may never answer itself.
    pub fn succeeded(&self) -> impl Future<Output = ()> + Send + use<> {
        let (leader, servers) = (self.leader.clone(), self.servers.clone());
        async move {
            match leader {
                Some(leader) => servers.succeeded(&leader).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl LeaderLink {
    pub fn new(tls: Arc<ClientConfig>, servers: Arc<ServerList>) -> Self {
        Self { tls: TlsConnector::from(tls), servers }
    }

    /// A connection that carries the HTTP of this client, to whoever leads; or the line that says why there is none. Nothing of
    /// the request was sent before.
    pub async fn open(
        &self,
        identity: &Identity,
        from: PassedFrom,
    ) -> Result<LeaderStream, String> {
        let end = Instant::now() + LEADER_TIMEOUT;
        loop {
            let leader = self.servers.leader();
            let mut why = None;
            for address in leader.iter().flat_map(|leader| &leader.agents) {
                match timeout(CONNECT_TIMEOUT, self.connect(identity, &from, address)).await {
                    Ok(Ok(stream)) => {
                        let leader = leader.clone();
                        return Ok(LeaderStream { stream, leader, servers: self.servers.clone() });
                    }
                    Ok(Err(error)) => why = Some(error.to_string()),
                    Err(_) => why = Some("it does not answer".into()),
                }
            }
            if Instant::now() >= end {
                let name = leader.map(|leader| leader.name).unwrap_or_default();
                return Err(match why {
                    Some(why) => {
                        format!("this server is a standby, and {name}, which leads: {why}")
                    }
                    None => "this server is a standby, and nobody leads: try again".into(),
                });
            }
            sleep(PAUSE).await;
        }
    }

    async fn connect(
        &self,
        identity: &Identity,
        from: &PassedFrom,
        address: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
        let mut stream = self.tls.connect(name, socket).await?;
        let of_connection = stream
            .get_ref()
            .1
            .export_keying_material([0_u8; PASSED_EXPORT_BYTES], PASSED_EXPORT_LABEL, None)
            .map_err(io::Error::other)?;
        let message = ToServer::Passed(PassedClient {
            version: wire::version::PROTOCOL,
            signature: identity.sign_text(&from.signed_text(&of_connection)),
            from: from.clone(),
        });
        let mut first = Vec::new();
        frame::encode_message(CHANNEL_CONTROL, &message, &mut first).map_err(io::Error::other)?;
        stream.write_all(&first).await?;
        stream.flush().await?;
        Ok(stream)
    }
}
