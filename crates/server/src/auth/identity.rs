//! The server's keys: an authority for agents' certificates, its own certificate, and the key that
//! signs orders. Made at the first start, kept readable by the server alone.

use crate::error::ServerError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::link::{RENEWAL_CONTEXT, Renewal, SERVER_NAME, SignedRenewal};
use wire::order::{Order, SignedOrder};

pub struct Identity {
    authority_pem: String,
    issuer: Issuer<'static, KeyPair>,
    order_key: Ed25519KeyPair,
    pub tls: Arc<rustls::ServerConfig>,
}

fn failed(e: impl std::fmt::Display) -> ServerError {
    ServerError::Identity(e.to_string())
}

impl Identity {
    pub fn load_or_make(dir: &Path) -> Result<Self, ServerError> {
        if !dir.join("order.key").exists() {
            make(dir)?;
        }
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(ServerError::file(path))
        };
        let authority_pem = read("authority.pem")?;
        let authority_key = KeyPair::from_pem(&read("authority.key")?).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&authority_pem, authority_key).map_err(failed)?;
        let order = BASE64.decode(read("order.key")?.trim()).map_err(failed)?;
        let order_key = Ed25519KeyPair::from_pkcs8(&order).map_err(failed)?;
        let tls = tls_config(&authority_pem, &read("server.pem")?, &read("server.key")?)?;
        Ok(Self { authority_pem, issuer, order_key, tls })
    }

    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    pub fn order_public_key(&self) -> String {
        BASE64.encode(self.order_key.public_key().as_ref())
    }

    pub fn sign(&self, order: &Order) -> Result<SignedOrder, ServerError> {
        let body = serde_json::to_string(order).map_err(failed)?;
        let signature = BASE64.encode(self.order_key.sign(body.as_bytes()).as_ref());
        Ok(SignedOrder { body, signature })
    }

    /// The word that a certificate took the place of another.
    pub fn sign_renewal(&self, renewal: &Renewal) -> Result<SignedRenewal, ServerError> {
        let body = serde_json::to_string(renewal).map_err(failed)?;
        let signature = self.order_key.sign(&renewal_text(&body));
        Ok(SignedRenewal { body, signature: BASE64.encode(signature.as_ref()) })
    }

    /// A renewal that this server has signed, or the one that it was restored from.
    pub fn verify_renewal(&self, signed: &SignedRenewal) -> Option<Renewal> {
        let signature = BASE64.decode(&signed.signature).ok()?;
        let key = UnparsedPublicKey::new(&ED25519, self.order_key.public_key().as_ref());
        key.verify(&renewal_text(&signed.body), &signature).ok()?;
        serde_json::from_str(&signed.body).ok()
    }

    /// Secret bytes for this use alone, the same after a restart. Signatures by this key are deterministic, and one over such a
    /// text is given to nobody.
    pub fn derived_secret(&self, context: &str) -> Vec<u8> {
        let text = format!("sluice derived secret\n{context}");
        self.order_key.sign(text.as_bytes()).as_ref().to_vec()
    }

    /// The word of this server, for the others of its cluster.
    pub fn sign_text(&self, text: &[u8]) -> String {
        BASE64.encode(self.order_key.sign(text).as_ref())
    }

    /// Whether a server of this cluster has signed the text.
    pub fn is_signed(&self, text: &[u8], signature: &str) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.order_key.public_key().as_ref());
        BASE64.decode(signature).is_ok_and(|signature| key.verify(text, &signature).is_ok())
    }

    /// TLS to another server of the cluster, which the authority of both vouches for.
    pub fn client_tls(&self) -> Result<Arc<rustls::ClientConfig>, ServerError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority_certificate()?).map_err(failed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// Signs an agent's certificate request until this time; gives the certificate and its fingerprint.
    pub fn certify(
        &self,
        request_pem: &str,
        end: Timestamp,
    ) -> Result<(String, String), ServerError> {
        let mut request = CertificateSigningRequestParams::from_pem(request_pem).map_err(failed)?;
        // Only the key is taken from the request: the server says which nodes it speaks for.
        request.params.is_ca = IsCa::NoCa;
        request.params.subject_alt_names.clear();
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let end = Duration::from_secs(u64::try_from(end.secs()).unwrap_or_default());
        request.params.not_after = rcgen::date_time_ymd(1970, 1, 1) + end;
        let certificate = request.signed_by(&self.issuer).map_err(failed)?;
        Ok((certificate.pem(), fingerprint(certificate.der())))
    }

    /// Makes a key for the clients' port and certifies it for these names. The authority is at the end of the chain, so
    /// that `sluice login` can show it and remember it.
    pub fn certify_names(
        &self,
        names: &[String],
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ServerError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "sluice");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let authority = self.authority_certificate()?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(failed)?;
        Ok((vec![certificate.der().clone(), authority], key))
    }

    /// The fingerprint of the authority, which a person compares at `sluice login`.
    pub fn authority_fingerprint(&self) -> Result<String, ServerError> {
        self.authority_certificate().map(|authority| fingerprint(&authority))
    }

    fn authority_certificate(&self) -> Result<CertificateDer<'static>, ServerError> {
        CertificateDer::from_pem_slice(self.authority_pem.as_bytes()).map_err(failed)
    }
}

fn renewal_text(body: &str) -> Vec<u8> {
    [RENEWAL_CONTEXT, body].concat().into_bytes()
}

/// SHA-256 of a certificate, as hex.
pub fn fingerprint(certificate: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let mut text = String::with_capacity(2 * digest.as_ref().len());
    for byte in digest.as_ref() {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Makes the folder of the keys, which only the server's user can enter.
pub fn make_folder(dir: &Path) -> Result<(), ServerError> {
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(dir).map_err(ServerError::file(dir))
}

fn make(dir: &Path) -> Result<(), ServerError> {
    make_folder(dir)?;
    let authority_key = KeyPair::generate().map_err(failed)?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "sluice authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let authority_pem = authority.self_signed(&authority_key).map_err(failed)?.pem();
    let issuer = Issuer::from_params(&authority, &authority_key);
    let server_key = KeyPair::generate().map_err(failed)?;
    let mut server = CertificateParams::new(vec![SERVER_NAME.to_string()]).map_err(failed)?;
    server.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let server_pem = server.signed_by(&server_key, &issuer).map_err(failed)?.pem();
    let random = ring::rand::SystemRandom::new();
    let order = Ed25519KeyPair::generate_pkcs8(&random).map_err(failed)?;
    write_private(dir, "authority.pem", &authority_pem)?;
    write_private(dir, "authority.key", &authority_key.serialize_pem())?;
    write_private(dir, "server.pem", &server_pem)?;
    write_private(dir, "server.key", &server_key.serialize_pem())?;
    // Last: its presence says that the others are whole.
    write_private(dir, "order.key", &BASE64.encode(order.as_ref()))
}

pub fn write_private(dir: &Path, name: &str, text: &str) -> Result<(), ServerError> {
    let path = dir.join(name);
    let partial = dir.join(format!("{name}.partial"));
    let write = || -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(ServerError::file(&path))
}

fn tls_config(
    authority: &str,
    certificate: &str,
    key: &str,
) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).map_err(failed)?)
        .map_err(failed)?;
    // Without a certificate a connection may only join, with a token.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(failed)?;
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(failed)?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(failed)?;
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(failed)?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::link::PassedFrom;

    #[test]
    fn proof_of_a_standby_holds_for_its_client_its_connection_and_its_cluster_alone() {
        let (one, other) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
        let ours = Identity::load_or_make(one.path()).expect("keys");
        let theirs = Identity::load_or_make(other.path()).expect("keys");
        let user = |uid: u32| PassedFrom::Socket { uid, gid: 100, user: "ada".into() };
        let text = user(1000).signed_text(&[1; 32]);
        let signature = ours.sign_text(&text);
        assert!(ours.is_signed(&text, &signature));
        // The further servers of a cluster have the same keys.
        let again = Identity::load_or_make(one.path()).expect("the same keys");
        assert!(again.is_signed(&text, &signature));
        assert!(!ours.is_signed(&user(1000).signed_text(&[2; 32]), &signature), "replayed");
        assert!(!ours.is_signed(&user(0).signed_text(&[1; 32]), &signature), "another user");
        assert!(!theirs.is_signed(&text, &signature), "another cluster");
        let bare = serde_json::to_vec(&user(1000)).expect("JSON");
        assert!(!ours.is_signed(&text, &ours.sign_text(&bare)), "signed as something else");
        assert!(!ours.is_signed(&text, "no signature"));
    }
}
