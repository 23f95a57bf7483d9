//! The access token for Google's API: by a service account's key, or of the server's own machine. It is kept until shortly
//! before its end.

use super::super::http::{Http, Request};
use super::super::rest::{self, shown, word};
use super::super::secret::{CredentialText, SecretText};
use crate::clock;
use crate::machines::source::SourceError;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use model::cloud_source::CloudConfig;
use model::machine::FailureKind;
use model::time::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

const METADATA: &str = "http://metadata.google.internal";
const METADATA_LIMIT: Duration = Duration::from_secs(3);
const SCOPE: &str = "https://www.googleapis.com/auth/compute";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// How long a token is asked for, and how long before its end another one is.
const LIFE_S: i64 = 3600;
const RENEWAL: Duration = Duration::from_secs(300);

/// A service account's key, as Google writes it.
#[derive(Deserialize)]
struct KeyFile {
    client_email: String,
    private_key: String,
    token_uri: String,
}

pub struct AccessTokens {
    text: Option<CredentialText>,
    metadata: String,
    http: Http,
    kept: Mutex<Option<(SecretText, Timestamp)>>,
}

impl AccessTokens {
    pub fn new(cloud: &CloudConfig, given: Option<&SecretText>, limit: Duration) -> Self {
        let metadata = cloud.metadata.clone().unwrap_or_else(|| METADATA.to_owned());
        let text = CredentialText::of(cloud.credentials.as_ref(), given);
        Self { text, metadata, http: Http::new(cloud, limit), kept: Mutex::new(None) }
    }

    pub fn token(&self) -> Result<SecretText, SourceError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, end)) = &*kept
            && clock::now() + RENEWAL < *end
        {
            return Ok(token.clone());
        }
        let now = clock::now();
        let (token, life_s) = match &self.text {
            Some(text) => self.by_key(text, now)?,
            None => self.of_machine()?,
        };
        *kept = Some((token.clone(), now + Duration::from_secs(life_s)));
        Ok(token)
    }

    fn by_key(
        &self,
        text: &CredentialText,
        now: Timestamp,
    ) -> Result<(SecretText, u64), SourceError> {
        let place = text.place();
        let wrong = |why: &str| SourceError::refused(format!("credentials: {place}: {why}"));
        let file: KeyFile = serde_json::from_str(text.read()?.expose())
            .map_err(|_| wrong("expected a service account's key, as JSON"))?;
        let key = Zeroizing::new(file.private_key);
        let key = pkcs8(&key).ok_or_else(|| wrong("private_key: expected PEM"))?;
        let key = RsaKeyPair::from_pkcs8(&key)
            .map_err(|_| wrong("private_key: expected an RSA key, PKCS #8"))?;
        let claims = json!({
            "iss": file.client_email,
            "scope": SCOPE,
            "aud": file.token_uri,
            "iat": now.secs(),
            "exp": now.secs() + LIFE_S,
        });
        let assertion = assertion(&key, &claims).ok_or_else(|| wrong("it cannot sign"))?;
        let body = SecretText::new(format!("grant_type={GRANT}&assertion={}", assertion.expose()));
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let request = Request {
            method: "POST",
            url: &file.token_uri,
            headers: &headers,
            body: Some(body.expose().as_bytes()),
        };
        read_token(&self.http, &request)
    }

    fn of_machine(&self) -> Result<(SecretText, u64), SourceError> {
        let path = "/computeMetadata/v1/instance/service-accounts/default/token";
        let url = format!("{}{path}", self.metadata);
        let headers = [("Metadata-Flavor", "Google")];
        let request = Request { method: "GET", url: &url, headers: &headers, body: None };
        read_token(&Http::direct(METADATA_LIMIT), &request).map_err(|_| {
            SourceError::refused(format!(
                "no credentials: no file is named, and the metadata service at {} gives no token",
                self.metadata
            ))
        })
    }
}

/// The token that is asked for, and for how many seconds it is good.
fn read_token(http: &Http, request: &Request<'_>) -> Result<(SecretText, u64), SourceError> {
    let (status, answer) = rest::read(request.url, &http.send(request)?)?;
    let token = word(&answer, "/access_token");
    if status != 200 || token.is_empty() {
        let why = [word(&answer, "/error"), word(&answer, "/error_description")].join(": ");
        let kind = if status >= 500 { FailureKind::Unknown } else { FailureKind::Refused };
        let text = format!(
            "no access token: status {status}: {} (are the key and this machine's clock right?)",
            shown(&why)
        );
        return Err(SourceError { kind, text });
    }
    Ok((SecretText::new(token), answer["expires_in"].as_u64().unwrap_or(0)))
}

/// The bytes of a key in PEM.
fn pkcs8(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let body = pem.split("-----BEGIN PRIVATE KEY-----").nth(1)?;
    let body = body.split("-----END PRIVATE KEY-----").next()?;
    let text: Zeroizing<String> =
        Zeroizing::new(body.chars().filter(|c| !c.is_whitespace()).collect());
    STANDARD.decode(text.as_bytes()).ok().map(Zeroizing::new)
}

/// A signed statement (JSON Web Token) of these claims.
fn assertion(key: &RsaKeyPair, claims: &serde_json::Value) -> Option<SecretText> {
    let head = json!({"alg": "RS256", "typ": "JWT"}).to_string();
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(head), part(claims.to_string()));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
    Some(SecretText::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_in_pem_is_read_and_what_is_none_is_not() {
        let pem = "-----BEGIN PRIVATE KEY-----\nAAEC\nAwQ=\n-----END PRIVATE KEY-----\n";
        assert_eq!(pkcs8(pem).as_deref(), Some(&vec![0, 1, 2, 3, 4]));
        assert!(pkcs8("words").is_none());
        assert!(pkcs8("-----BEGIN PRIVATE KEY-----\n~\n-----END PRIVATE KEY-----").is_none());
    }
}
