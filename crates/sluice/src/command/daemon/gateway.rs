//! `sluice gateway`: passes requests to services on, at an address of its own.

use super::inherited_sockets::{GATEWAY, GATEWAY_HTTP, InheritedSockets};
use super::server_user::SERVER_ACCOUNT;
use super::state_dir::StateDir;
use super::{listen_addresses, log, service_manager};
use crate::client::tls::{Trust, client_config};
use crate::client::{Client, HostPort, ServerLocation, default_state_dir};
use crate::command::verb::{VerbError, VerbResult, unexpected};
use ::server::gateway::{self, AcmeOptions, CertificateFiles, GatewayOptions, ServerAddress};
use clap::Args;
use model::ip_network::IpNetwork;
use model::publication::check_gateway_name;
use model::secret::SecretValue;
use nix::unistd::{Uid, User};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use wire::client::{Answer, Call};
use wire::gateway::{GatewayReport, GatewayRoutes};

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

#[derive(Args)]
pub struct GatewayArgs {
    /// The server: https://HOST:PORT, or http:// on loopback
    #[arg(long, env = "SLUICE_SERVER", value_name = "URL")]
    server: String,
    /// A file with a token of the role gateway (sluice token user root --role gateway); without it, SLUICE_TOKEN has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The folder for its routes and logs; by default /var/lib/sluice-gateway for root, ~/.local/state/sluice-gateway for others
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where clients connect: ADDR:PORT
    #[arg(long, default_value = "127.0.0.1:6824", value_parser = listen_addresses::address)]
    listen: SocketAddr,
    /// The certificate that clients are shown, with its chain (PEM); it is read again when it changes
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Order certificates for the host names of services by ACME: `lets-encrypt`, or the URL of an authority's directory
    #[arg(long, value_name = "URL", requires = "http")]
    acme: Option<String>,
    /// Where the authority's notices go, as in ops@example.org
    #[arg(long, value_name = "MAIL", requires = "acme")]
    acme_contact: Option<String>,
    /// The authorities (PEM) that the ACME server's own certificate may be of; without it, those of this machine
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_authority: Option<PathBuf>,
    /// Where services without https are answered, all others are led to it, and an ACME authority proves names: ADDR:PORT, seen
    /// from outside as port 80
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_addresses::address)]
    http: Option<SocketAddr>,
    /// The name by which the server lists it; without it, the short host name
    #[arg(long)]
    name: Option<String>,
    /// Write a line for each request to access.log in its folder
    #[arg(long)]
    access_log: bool,
    /// A proxy of the site before this gateway, as in 10.0.0.0/8: its X-Forwarded-For and X-Forwarded-Proto are believed; may be given
    /// several times
    #[arg(long, value_name = "NETWORK")]
    trusted_proxy: Vec<IpNetwork>,
}

pub fn run(args: GatewayArgs) -> VerbResult {
    let server = User::from_name(SERVER_ACCOUNT).ok().flatten().map(|account| account.uid);
    for listen in args.http.into_iter().chain([args.listen]) {
        check_user(nix::unistd::geteuid(), server, listen)?;
    }
    let name = args.name.clone().unwrap_or_else(short_host_name);
    check_gateway_name(&name).map_err(|why| VerbError::Message(format!("--name: {why}")))?;
    let location = location(&args)?;
    check_token(&location)?;
    let mut inherited = InheritedSockets::take();
    let usual = || default_state_dir().with_file_name("sluice-gateway");
    let state = StateDir::prepare_empty(&args.dir.clone().unwrap_or_else(usual))?;
    state.claim("gateway")?;
    log::start(&state, "gateway");
    let has_tls = args.certificate.is_some() || args.acme.is_some();
    let is_bare = !has_tls && !args.listen.ip().is_loopback();
    if is_bare {
        let text = format!(
            "--listen {}: clients of other machines need TLS: --certificate FILE --key FILE, or --acme URL",
            args.listen
        );
        return Err(VerbError::Message(text));
    }
    let listener = inherited.tcp_or(GATEWAY, Some(args.listen), || bind(args.listen))?;
    let acme = acme(&args)?;
    let http = args.http.map(|at| inherited.tcp_or(GATEWAY_HTTP, Some(at), || bind(at)));
    let http = http.transpose()?;
    inherited.keep(GATEWAY, &listener);
    http.iter().for_each(|http| inherited.keep(GATEWAY_HTTP, http));
    inherited.forget_rest();
    let listen = listener.local_addr().unwrap_or(args.listen);
    let path = |path: PathBuf| path.display().to_string();
    let certificate = args.certificate.zip(args.key).map(|(certificate, key)| CertificateFiles {
        certificate: path(certificate),
        key: path(key),
    });
    let scheme = if has_tls { "https" } else { "http" };
    let server = server_address(&location)?;
    let mut client = Client::at(location);
    let options = GatewayOptions {
        name,
        listener,
        certificate,
        acme,
        http,
        dir: state.path.clone(),
        server,
        access_log: args.access_log,
        trusted_proxies: args.trusted_proxy,
        ask: Box::new(move |report| ask(&mut client, report)),
    };
    // The process that reads this line may have given up: the gateway runs on.
    let ready = move || {
        let _ = writeln!(std::io::stdout(), "the gateway is up: {scheme}://{listen}");
        service_manager::tell_ready();
    };
    gateway::run(options, ready)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to run as the server's own account, whose clients of the server's socket are administrators, and as root where other
/// machines connect: a gateway keeps the user that it was started as, and strangers reach it.
fn check_user(own: Uid, server: Option<Uid>, listen: SocketAddr) -> Result<(), VerbError> {
    if !own.is_root() && server == Some(own) {
        let text = format!(
            "user {SERVER_ACCOUNT} is the server's own: run the gateway as another, such as sluice-gateway"
        );
        return Err(VerbError::Message(text));
    }
    if own.is_root() && !listen.ip().is_loopback() {
        let text = format!(
            "{listen}: a gateway that other machines reach does not run as root: \
             run it as a user of its own, such as sluice-gateway"
        );
        return Err(VerbError::Message(text));
    }
    Ok(())
}

fn bind(at: SocketAddr) -> Result<TcpListener, VerbError> {
    let failed = |e| VerbError::Message(format!("cannot listen at {at}: {e}"));
    TcpListener::bind(at).map_err(failed)
}

/// How certificates are ordered, if they are.
fn acme(args: &GatewayArgs) -> Result<Option<AcmeOptions>, VerbError> {
    let Some(directory) = &args.acme else { return Ok(None) };
    let directory = match directory.as_str() {
        "lets-encrypt" => LETS_ENCRYPT.to_owned(),
        url if url.starts_with("https://") => url.to_owned(),
        other => {
            let text = format!("--acme {other}: expected https://…, or lets-encrypt");
            return Err(VerbError::Message(text));
        }
    };
    let trust = match &args.acme_authority {
        Some(file) => {
            Trust::Authority(std::fs::read_to_string(file).map_err(VerbError::file(file))?)
        }
        None => Trust::Machine,
    };
    let tls = client_config(&trust).map_err(|e| VerbError::Message(format!("--acme: {e}")))?;
    let contact = args.acme_contact.as_ref().map(|mail| format!("mailto:{mail}"));
    Ok(Some(AcmeOptions { directory, contact, tls: Arc::new(tls) }))
}

fn short_host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = name.unwrap_or_default();
    name.split('.').next().filter(|name| !name.is_empty()).unwrap_or("gateway").to_owned()
}

/// The server with the token of the file.
fn location(args: &GatewayArgs) -> Result<ServerLocation, VerbError> {
    let found = ServerLocation::from_server(&args.server)?;
    let Some(file) = &args.token_file else { return Ok(found) };
    let text = std::fs::read_to_string(file).map_err(VerbError::file(file))?;
    let token = SecretValue(text.trim().to_owned());
    Ok(match found {
        ServerLocation::Http { address, .. } => ServerLocation::Http { address, token },
        ServerLocation::Https(mut server) => {
            server.token = token;
            ServerLocation::Https(server)
        }
        socket @ ServerLocation::Socket(_) => socket,
    })
}

/// Refuses a gateway without any token: the server would tell it nothing.
fn check_token(location: &ServerLocation) -> Result<(), VerbError> {
    let has_token = match location {
        ServerLocation::Http { token, .. } => !token.0.is_empty(),
        ServerLocation::Https(server) => !server.token.0.is_empty(),
        // It is refused as no address of a server.
        ServerLocation::Socket(_) => true,
    };
    let text = "a gateway needs a token of the role gateway: --token-file FILE, or SLUICE_TOKEN \
                (sluice token user root --role gateway makes one)";
    has_token.then_some(()).ok_or_else(|| VerbError::Message(text.into()))
}

/// Where requests go that the gateway cannot pass on itself.
fn server_address(location: &ServerLocation) -> Result<ServerAddress, VerbError> {
    let at = |address: &HostPort, tls, token: &SecretValue| ServerAddress {
        host: address.host.clone(),
        port: address.port,
        tls,
        token: token.clone(),
    };
    match location {
        ServerLocation::Http { address, token } => Ok(at(address, None, token)),
        ServerLocation::Https(server) => {
            let config = client_config(&server.trust)
                .map_err(|e| VerbError::Message(format!("the server's authority: {e}")))?;
            Ok(at(&server.address, Some(Arc::new(config)), &server.token))
        }
        ServerLocation::Socket(_) => {
            let text = "--server: expected https://HOST:PORT, or http:// on loopback";
            Err(VerbError::Message(text.into()))
        }
    }
}

fn ask(client: &mut Client, report: GatewayReport) -> Result<GatewayRoutes, String> {
    match client.call(Call::SyncGateway(report)) {
        Ok(Answer::GatewayRoutes(routes)) => Ok(*routes),
        Ok(Answer::Refused(why)) => Err(why.to_string()),
        Ok(other) => Err(unexpected(&other).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_is_neither_the_servers_account_nor_root_for_other_machines() {
        let (root, server, own) = (Uid::from_raw(0), Uid::from_raw(990), Uid::from_raw(991));
        let near: SocketAddr = "127.0.0.1:6824".parse().expect("an address");
        let far: SocketAddr = "0.0.0.0:443".parse().expect("an address");
        assert!(check_user(own, Some(server), far).is_ok());
        assert!(check_user(own, None, far).is_ok());
        assert!(check_user(server, Some(server), near).is_err());
        assert!(check_user(root, Some(server), far).is_err());
        assert!(check_user(root, Some(server), near).is_ok());
    }
}
