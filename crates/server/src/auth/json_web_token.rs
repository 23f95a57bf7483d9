//! JSON Web Tokens of Slurm's REST API: signed with HS256 by a key of the site or of the server, and kept nowhere. A token says whose
//! it is (`sun`) and until when (`exp`); it cannot be revoked, but by another key.

use super::key_files::KeyFiles;
use crate::clock;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use cluster::config::JwtKey;
use model::time::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The server's own key, where the site names none.
pub const FILE: &str = "jwt_hs256.key";

/// The one algorithm. A token that names another is refused before anything else of it is looked at.
const ALGORITHM: &str = "HS256";

/// The fewest bytes of a key: those of the hash, as the standard asks.
const KEY_BYTES_MIN: usize = 32;
const KEY_BYTES_MAX: u64 = 4096;

/// The longest token that is read.
const TOKEN_BYTES_MAX: usize = 8192;

/// How far the clock of another machine that made a token may be ahead.
const CLOCK_DIFFERENCE_S: i64 = 60;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0}: {1}: the key of JSON Web Tokens must be the server's user's to read")]
    Unreadable(PathBuf, std::io::Error),
    #[error("{0}: expected a file of the server's user or root")]
    Foreign(PathBuf),
    #[error("{0}: others may read the key of JSON Web Tokens: expected mode 600")]
    Open(PathBuf),
    #[error(
        "{0}: the key of JSON Web Tokens has {1} bytes: expected {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"
    )]
    Length(PathBuf, usize),
    #[error("the key of JSON Web Tokens could not be written: {0}")]
    Unwritten(String),
}

/// Held while the server's own key is made: two calls at once make one.
static MAKING: Mutex<()> = Mutex::new(());

/// The key that takes tokens.
pub fn key(place: &JwtKey, files: &KeyFiles) -> Result<Vec<u8>, KeyError> {
    match place {
        JwtKey::Own => read(&files.path(FILE)),
        JwtKey::File(path) => read(Path::new(path)),
    }
}

/// The key that signs tokens. The server's own is made when the first token is, where other servers of the cluster find it too.
pub fn key_to_sign(place: &JwtKey, files: &KeyFiles) -> Result<Vec<u8>, KeyError> {
    if *place == JwtKey::Own {
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.path(FILE).exists() {
            let random = clock::random::<KEY_BYTES_MIN>();
            let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let written = files.write(FILE, &text);
            written.map_err(|error| KeyError::Unwritten(error.to_string()))?;
        }
    }
    key(place, files)
}

/// The key in a file that nobody but its owner may read. A link is not followed, and a pipe not waited for.
fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let unreadable = |error| KeyError::Unreadable(path.to_owned(), error);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file: File = opened.map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    let own = nix::unistd::geteuid().as_raw();
    if !found.is_file() || ![0, own].contains(&found.uid()) {
        return Err(KeyError::Foreign(path.to_owned()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(KeyError::Open(path.to_owned()));
    }
    let mut key = Vec::new();
    file.take(KEY_BYTES_MAX + 1).read_to_end(&mut key).map_err(unreadable)?;
    if key.len() < KEY_BYTES_MIN || key.len() as u64 > KEY_BYTES_MAX {
        return Err(KeyError::Length(path.to_owned(), key.len()));
    }
    Ok(key)
}

#[derive(Serialize)]
struct NewHeader {
    alg: &'static str,
    typ: &'static str,
}

#[derive(Serialize)]
struct NewClaims<'a> {
    exp: i64,
    iat: i64,
    sun: &'a str,
}

pub fn sign(key: &[u8], user: &str, now: Timestamp, life: Duration) -> String {
    let header = NewHeader { alg: ALGORITHM, typ: "JWT" };
    let claims = NewClaims { exp: (now + life).secs(), iat: now.secs(), sun: user };
    let text = format!("{}.{}", encoded(&header), encoded(&claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    format!("{text}.{}", BASE64.encode(tag.as_ref()))
}

fn encoded(part: &impl Serialize) -> String {
    BASE64.encode(serde_json::to_vec(part).expect("texts and numbers are always written"))
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood: there are none here.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    exp: i64,
    #[serde(default)]
    iat: Option<i64>,
    #[serde(default)]
    nbf: Option<i64>,
    /// Slurm's own name for the user, and the one of other makers of tokens.
    #[serde(default)]
    sun: Option<String>,
    #[serde(default)]
    username: Option<String>,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    Malformed,
    Algorithm,
    Signature,
    Expired,
    Future,
    NoUser,
}

impl TokenError {
    /// Repeats nothing of what the token says.
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "this is no JSON Web Token",
            Self::Algorithm => "this token is not signed with HS256",
            Self::Signature => "this token has another signature",
            Self::Expired => "this token has expired: make another (scontrol token)",
            Self::Future => "this token is not yet good: its time is in the future",
            Self::NoUser => "this token names no user",
        }
    }
}

/// The user whom a token is for, if it holds.
pub fn verify(key: &[u8], token: &str, now: Timestamp) -> Result<String, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed);
    }
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(tag), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed);
    };
    let head: Header = decoded(header)?;
    if head.alg != ALGORITHM || head.crit.is_some() {
        return Err(TokenError::Algorithm);
    }
    let tag = BASE64.decode(tag).map_err(|_| TokenError::Malformed)?;
    let signed = &token[..header.len() + 1 + claims.len()];
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes(), &tag)
        .map_err(|_| TokenError::Signature)?;
    let claims: Claims = decoded(claims)?;
    if claims.exp <= now.secs() {
        return Err(TokenError::Expired);
    }
    let begins = claims.iat.max(claims.nbf);
    if begins.is_some_and(|time| time > now.secs().saturating_add(CLOCK_DIFFERENCE_S)) {
        return Err(TokenError::Future);
    }
    let user = claims.sun.or(claims.username).filter(|name| !name.is_empty());
    user.ok_or(TokenError::NoUser)
}

fn decoded<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let bytes = BASE64.decode(part).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::os::unix::fs::PermissionsExt;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// A token with any header and claims, signed with a key.
    fn forged(header: &Value, claims: &Value, key: &[u8]) -> String {
        let text = format!("{}.{}", encoded(header), encoded(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
        format!("{text}.{}", BASE64.encode(tag.as_ref()))
    }

    #[test]
    fn token_names_its_user_until_its_end() {
        let token = sign(KEY, "ann", NOW, Duration::from_secs(60));
        assert_eq!(verify(KEY, &token, NOW), Ok("ann".to_owned()));
        let later = NOW + Duration::from_secs(60);
        assert_eq!(verify(KEY, &token, later), Err(TokenError::Expired));
    }

    #[test]
    fn forged_expired_and_early_tokens_are_refused() {
        let (now, hs) = (NOW.secs(), json!({"alg": "HS256", "typ": "JWT"}));
        let root = json!({"exp": now + 60, "iat": now, "sun": "root"});
        assert_eq!(verify(KEY, &forged(&hs, &root, KEY), NOW), Ok("root".to_owned()));
        let other = b"another key of the right length!";
        assert_eq!(verify(KEY, &forged(&hs, &root, other), NOW), Err(TokenError::Signature));
        for alg in ["none", "None", "RS256", "HS512", "hs256", ""] {
            let header = json!({ "alg": alg });
            assert_eq!(verify(KEY, &forged(&header, &root, KEY), NOW), Err(TokenError::Algorithm));
        }
        let critical = json!({"alg": "HS256", "crit": ["exp"]});
        assert_eq!(verify(KEY, &forged(&critical, &root, KEY), NOW), Err(TokenError::Algorithm));
        for (claims, why) in [
            (json!({"exp": now, "sun": "root"}), TokenError::Expired),
            (json!({"exp": now + 900, "iat": now + 600, "sun": "root"}), TokenError::Future),
            (json!({"exp": now + 900, "nbf": now + 600, "sun": "root"}), TokenError::Future),
            (json!({"exp": now + 60}), TokenError::NoUser),
            (json!({"exp": now + 60, "sun": ""}), TokenError::NoUser),
            (json!({"sun": "root"}), TokenError::Malformed),
            (json!({"exp": "never", "sun": "root"}), TokenError::Malformed),
        ] {
            assert_eq!(verify(KEY, &forged(&hs, &claims, KEY), NOW), Err(why), "{claims}");
        }
        let good = sign(KEY, "ann", NOW, Duration::from_secs(60));
        let unsigned = format!("{}.", good.rsplit_once('.').expect("a signature").0);
        let longer = format!("{good}.x");
        for bad in ["", "a", "a.b", "a.b.c.d", "..", unsigned.as_str(), longer.as_str()] {
            assert!(verify(KEY, bad, NOW).is_err(), "{bad}");
        }
        assert_eq!(verify(KEY, &"a".repeat(100_000), NOW), Err(TokenError::Malformed));
    }

    #[test]
    fn key_file_is_private_and_long_enough() {
        let dir = tempfile::tempdir().expect("a folder");
        let keys = dir.path().join("keys");
        std::fs::create_dir(&keys).expect("a folder");
        let files = KeyFiles::from(&keys);
        assert!(key(&JwtKey::Own, &files).is_err(), "no token was made yet");
        let made: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let sign = || key_to_sign(&JwtKey::Own, &files).expect("a key");
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(sign)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let own = key(&JwtKey::Own, &files).expect("the same");
        assert!(made.iter().all(|one| *one == own), "all calls at once sign with one key");
        let mode = std::fs::metadata(keys.join(FILE)).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = dir.path().join("site.key");
        let site = JwtKey::File(path.display().to_string());
        let write = |bytes: &[u8], mode: u32| {
            std::fs::write(&path, bytes).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("a mode");
            key(&site, &files)
        };
        assert_eq!(write(KEY, 0o600).expect("a key"), KEY);
        assert!(matches!(write(KEY, 0o640), Err(KeyError::Open(_))));
        assert!(matches!(write(b"short", 0o600), Err(KeyError::Length(..))));
        let link = dir.path().join("link");
        write(KEY, 0o600).expect("a key");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let linked = JwtKey::File(link.display().to_string());
        assert!(matches!(key(&linked, &files), Err(KeyError::Unreadable(..))));
    }
}
