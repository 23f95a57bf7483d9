//! HTTPS to the certificate authority: one request on a connection of its own.

use axum::http::{HeaderValue, Response, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long one request may take, and bytes of its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

type AnyError = Box<dyn std::error::Error + Send + Sync>;
type Exchange = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

pub struct AcmeHttp(pub Arc<ClientConfig>);

impl HttpClient for AcmeHttp {
    fn request(&self, request: hyper::Request<BodyWrapper<Bytes>>) -> Exchange {
        let config = self.0.clone();
        Box::pin(async move {
            let answered = timeout(REQUEST_TIMEOUT, exchange(config, request)).await;
            let answered = answered.unwrap_or_else(|_| Err("it does not answer".into()));
            answered.map(BytesResponse::from).map_err(Error::Other)
        })
    }
}

async fn exchange(
    config: Arc<ClientConfig>,
    mut request: hyper::Request<BodyWrapper<Bytes>>,
) -> Result<Response<Full<Bytes>>, AnyError> {
    let uri = request.uri().clone();
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
    let host = host.ok_or_else(|| format!("{uri}: expected https://"))?;
    let address = (host, uri.port_u16().unwrap_or(HTTPS_PORT));
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(authority)?);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(parts, Full::new(body)))
}
