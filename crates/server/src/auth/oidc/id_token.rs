//! The identity token: signed by one of the provider's keys with RS256 or ES256, made by the provider for this client, now, and for
//! the browser that asked.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use model::time::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How far the provider's clock may be from ours.
const CLOCK_DIFFERENCE_S: i64 = 60;

const TOKEN_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is malformed")]
    Malformed,
    #[error("it is signed neither with RS256 nor with ES256")]
    Algorithm,
    #[error("none of the provider's keys is its own")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("another provider made it")]
    Issuer,
    #[error("it is for another client")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("its time is in the future")]
    Future,
    #[error("it answers another request")]
    Nonce,
}

/// A key of the provider, as it publishes it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

impl Jwk {
    fn fits(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        let kind = match algorithm {
            Algorithm::Rs256 => self.kty == "RSA",
            Algorithm::Es256 => self.kty == "EC" && self.crv.as_deref() == Some("P-256"),
        };
        let is_named = match (kid, self.kid.as_deref()) {
            (Some(wanted), Some(own)) => wanted == own,
            // A provider with one key need not name it.
            _ => true,
        };
        kind && is_named && self.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let part = |text: &Option<String>| BASE64.decode(text.as_deref()?).ok();
        match algorithm {
            Algorithm::Rs256 => {
                let (Some(n), Some(e)) = (part(&self.n), part(&self.e)) else { return false };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Algorithm::Es256 => {
                let (Some(x), Some(y)) = (part(&self.x), part(&self.y)) else { return false };
                let point = [&[4_u8][..], x.as_slice(), y.as_slice()].concat();
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
}

/// What a token says, if it holds.
pub fn verify(
    token: &str,
    keys: &[Jwk],
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<Map<String, Value>, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed);
    }
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed);
    };
    let head: Header = decoded(header)?;
    let algorithm = Algorithm::of(&head.alg).filter(|_| head.crit.is_none());
    let algorithm = algorithm.ok_or(TokenError::Algorithm)?;
    let signature = BASE64.decode(signature).map_err(|_| TokenError::Malformed)?;
    let signed = &token.as_bytes()[..header.len() + 1 + claims.len()];
    let mut fitting = keys.iter().filter(|key| key.fits(algorithm, head.kid.as_deref())).peekable();
    if fitting.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    if !fitting.any(|key| key.verifies(algorithm, signed, &signature)) {
        return Err(TokenError::Signature);
    }
    let claims: Map<String, Value> = decoded(claims)?;
    check(&claims, expected, now)?;
    Ok(claims)
}

fn check(
    claims: &Map<String, Value>,
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_i64);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenError::Issuer);
    }
    let (is_for_us, is_for_others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == expected.client_id, false),
        Some(Value::Array(all)) => {
            let is_us = |one: &Value| one == expected.client_id;
            (all.iter().any(is_us), !all.iter().all(is_us))
        }
        _ => (false, false),
    };
    // A token for several says who asked for it.
    let asked_by = text("azp");
    let is_ours = asked_by.is_none_or(|by| by == expected.client_id);
    if !is_for_us || !is_ours || is_for_others && asked_by.is_none() {
        return Err(TokenError::Audience);
    }
    let end = time("exp").ok_or(TokenError::Malformed)?;
    if end.saturating_add(CLOCK_DIFFERENCE_S) <= now.secs() {
        return Err(TokenError::Expired);
    }
    let begins = time("iat").max(time("nbf"));
    if begins.is_some_and(|time| time > now.secs().saturating_add(CLOCK_DIFFERENCE_S)) {
        return Err(TokenError::Future);
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(TokenError::Nonce);
    }
    Ok(())
}

fn decoded<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let bytes = BASE64.decode(part).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://id.example", client_id: "sluice", nonce: "n" };

    struct Provider {
        key: EcdsaKeyPair,
    }

    impl Provider {
        fn new() -> Self {
            let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
            let key = EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).expect("a key");
            Self { key }
        }

        fn jwk(&self, kid: &str) -> Jwk {
            let point = self.key.public_key().as_ref();
            let part = |bytes: &[u8]| Some(BASE64.encode(bytes));
            Jwk {
                kty: "EC".into(),
                kid: Some(kid.into()),
                crv: Some("P-256".into()),
                x: part(&point[1..33]),
                y: part(&point[33..]),
                ..Jwk::default()
            }
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| BASE64.encode(value.to_string());
            let text = format!("{}.{}", part(header), part(claims));
            let signed = self.key.sign(&SystemRandom::new(), text.as_bytes()).expect("signed");
            format!("{text}.{}", BASE64.encode(signed.as_ref()))
        }
    }

    fn claims() -> Value {
        let now = NOW.secs();
        json!({
            "iss": "https://id.example", "aud": "sluice", "exp": now + 300, "iat": now, "nonce": "n",
            "preferred_username": "ann",
        })
    }

    #[test]
    fn token_of_the_provider_is_taken() {
        let provider = Provider::new();
        let token = provider.token(&json!({"alg": "ES256", "kid": "k"}), &claims());
        let keys = [Provider::new().jwk("other"), provider.jwk("k")];
        let found = verify(&token, &keys, EXPECTED, NOW).expect("it holds");
        assert_eq!(found["preferred_username"], "ann");
    }

    #[test]
    fn every_other_token_is_refused() {
        let provider = Provider::new();
        let keys = [provider.jwk("k")];
        let header = json!({"alg": "ES256", "kid": "k"});
        let with = |name: &str, value: Value| {
            let mut changed = claims();
            changed[name] = value;
            provider.token(&header, &changed)
        };
        let now = NOW.secs();
        let headed =
            |alg: &str, kid: &str| provider.token(&json!({"alg": alg, "kid": kid}), &claims());
        for (token, why) in [
            (with("iss", json!("https://evil.example")), TokenError::Issuer),
            (with("aud", json!("another")), TokenError::Audience),
            (with("aud", json!(["sluice", "another"])), TokenError::Audience),
            (with("azp", json!("another")), TokenError::Audience),
            (with("exp", json!(now - 300)), TokenError::Expired),
            (with("iat", json!(now + 300)), TokenError::Future),
            (with("nonce", json!("m")), TokenError::Nonce),
            (with("nonce", Value::Null), TokenError::Nonce),
            (with("exp", Value::Null), TokenError::Malformed),
            (provider.token(&json!({"alg": "none"}), &claims()), TokenError::Algorithm),
            (headed("HS256", "k"), TokenError::Algorithm),
            (headed("RS256", "k"), TokenError::UnknownKey),
            (headed("ES256", "x"), TokenError::UnknownKey),
            (Provider::new().token(&header, &claims()), TokenError::Signature),
            ("a.b".into(), TokenError::Malformed),
        ] {
            assert_eq!(verify(&token, &keys, EXPECTED, NOW).map(drop), Err(why), "{why}");
        }
    }
}
