//! Connections of a gateway to the server's proxy.

use crate::proxy::open_connection::OpenConnection;
use model::metadata_address::is_no_host;
use model::secret::SecretValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wire::gateway::GatewayRoutes;

/// Where the server is, as the gateway reaches it.
pub struct ServerAddress {
    pub host: String,
    /// The clients' port; the proxy's own is asked where the server names one.
    pub port: u16,
    /// `None` for plain HTTP on this machine.
    pub tls: Option<Arc<ClientConfig>>,
    /// The gateway's own token, by which the server believes whose requests it passes on.
    pub token: SecretValue,
}

impl ServerAddress {
    /// Leaves replicas out that listen on a loopback address of another machine than the gateway's.
    pub fn reachable(&self, mut routes: GatewayRoutes) -> GatewayRoutes {
        if !is_loopback(&self.host) {
            for service in &mut routes.services {
                service.replicas.retain(|replica| !is_loopback(&replica.host));
            }
        }
        routes
    }

    /// Whether a replica of this host may be at this address. Its node may have said the host, and is not to lead requests to the
    /// gateway's own machine, or to a cloud's own services there. The server names a loopback address where the node is on its own
    /// machine, and passes any other name on, whatever it leads to (`127.1`).
    pub fn may_lead_to(&self, host: &str, address: IpAddr) -> bool {
        let is_near = is_loopback(&self.host) && is_loopback(host);
        (is_near || !address.to_canonical().is_loopback()) && !is_no_host(address)
    }

    pub async fn connect(&self, proxy_port: Option<u16>, most: Duration) -> Option<OpenConnection> {
        let port = proxy_port.unwrap_or(self.port);
        timeout(most, self.connect_to(port)).await.ok().flatten()
    }

    async fn connect_to(&self, port: u16) -> Option<OpenConnection> {
        let stream = TcpStream::connect((self.host.as_str(), port)).await.ok()?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => OpenConnection::handshake(stream, ()).await,
            Some(config) => {
                let name = ServerName::try_from(self.host.clone()).ok()?;
                let connector = TlsConnector::from(config.clone());
                OpenConnection::handshake(connector.connect(name, stream).await.ok()?, ()).await
            }
        }
    }
}

/// Whether the host is a loopback address, or the usual name of one.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{AttemptId, JobId};
    use model::publication::HttpsChoice;
    use wire::gateway::{ReplicaRoute, ServiceRoute};

    #[test]
    fn node_leads_a_gateway_neither_to_itself_nor_to_a_clouds_own_services() {
        let may_lead = |server: &str, host: &str, address: &str| {
            let token = SecretValue(String::new());
            let server = ServerAddress { host: server.into(), port: 6820, tls: None, token };
            server.may_lead_to(host, address.parse().expect("an address"))
        };
        for (address, is_near_server, is_elsewhere) in [
            ("10.0.0.7", true, true),
            ("2001:db8::7", true, true),
            ("127.0.0.1", true, false),
            ("::ffff:127.0.0.1", true, false),
            ("0.0.0.0", false, false),
            ("::", false, false),
            ("169.254.169.254", false, false),
            ("fd00:ec2::254", false, false),
            ("224.0.0.1", false, false),
        ] {
            assert_eq!(may_lead("127.0.0.1", address, address), is_near_server, "{address}");
            assert_eq!(may_lead("head.example", address, address), is_elsewhere, "{address}");
        }
        assert!(may_lead("127.0.0.1", "localhost", "::1"));
        for name in ["127.1", "0x7f000001", "node.evil.example", "a.localhost"] {
            assert!(!may_lead("127.0.0.1", name, "127.0.0.1"), "{name}");
            assert!(may_lead("127.0.0.1", name, "10.0.0.7"), "{name}");
        }
    }

    #[test]
    fn loopback_of_another_machine_is_no_route() {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let replica = |host: &str| {
            let (host, sockets) = (host.to_owned(), Vec::new());
            ReplicaRoute { attempt, host, port: 80, sockets, uid: None }
        };
        let service = ServiceRoute {
            project: "main".into(),
            run: "web".into(),
            auth: true,
            strip_prefix: true,
            https: HttpsChoice::Auto,
            is_ready: true,
            rate_limits: Vec::new(),
            replicas: vec![replica("127.0.0.1"), replica("10.0.0.7"), replica("localhost")],
        };
        let routes = GatewayRoutes { services: vec![service], ..GatewayRoutes::default() };
        let left = |host: &str| {
            let token = SecretValue(String::new());
            let server = ServerAddress { host: host.into(), port: 6820, tls: None, token };
            server.reachable(routes.clone()).services[0].replicas.len()
        };
        assert_eq!((left("127.0.0.1"), left("head.example")), (3, 1));
    }
}
