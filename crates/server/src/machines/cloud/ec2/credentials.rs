//! Where the key for EC2 comes from: what was given with the source, or the file that the site names, the server's environment, or
//! the role of the server's own machine. A role's key is kept until shortly before its end.

use super::super::http::{Http, Request};
use super::super::secret::{CredentialText, SecretText};
use super::sign::AccessKey;
use crate::clock;
use crate::machines::source::SourceError;
use model::cloud_source::CloudConfig;
use model::time::Timestamp;
use serde::Deserialize;
use std::sync::Mutex;
use std::time::Duration;

/// The metadata service of a machine of EC2.
pub const METADATA: &str = "http://169.254.169.254";

/// How long the metadata service may take: where there is none nobody answers.
const METADATA_LIMIT: Duration = Duration::from_secs(3);

/// How long before its end a role's key is asked for anew.
const RENEWAL: Duration = Duration::from_secs(300);

pub struct Credentials {
    text: Option<CredentialText>,
    metadata: String,
    role: Mutex<Option<(AccessKey, Timestamp)>>,
}

/// A role's key, as the metadata service tells it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKey {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl Credentials {
    pub fn new(cloud: &CloudConfig, given: Option<&SecretText>) -> Self {
        let metadata = cloud.metadata.clone().unwrap_or_else(|| METADATA.to_owned());
        let text = CredentialText::of(cloud.credentials.as_ref(), given);
        Self { text, metadata, role: Mutex::new(None) }
    }

    pub fn key(&self) -> Result<AccessKey, SourceError> {
        if let Some(text) = &self.text {
            return parse(text.read()?.expose()).map_err(|why| {
                SourceError::refused(format!("credentials: {}: {why}", text.place()))
            });
        }
        match of_environment() {
            Some(key) => Ok(key),
            None => self.role_key(),
        }
    }

    fn role_key(&self) -> Result<AccessKey, SourceError> {
        let mut kept = self.role.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((key, end)) = &*kept
            && clock::now() + RENEWAL < *end
        {
            return Ok(key.clone());
        }
        let without = |why: &str| {
            SourceError::refused(format!(
                "no credentials: no file is named, AWS_ACCESS_KEY_ID is not set, and the metadata service at {} {why}",
                self.metadata
            ))
        };
        let http = Http::direct(METADATA_LIMIT);
        let token = ("X-aws-ec2-metadata-token-ttl-seconds", "300");
        let token = self.ask(&http, "PUT", "/latest/api/token", token);
        let token = token.map_err(|_| without("does not answer"))?;
        let header = ("X-aws-ec2-metadata-token", token.expose());
        let path = "/latest/meta-data/iam/security-credentials/";
        let role = self.ask(&http, "GET", path, header).map_err(|_| without("has no role"))?;
        let role = role.expose().lines().next().unwrap_or_default().trim().to_owned();
        let found = self.ask(&http, "GET", &format!("{path}{role}"), header);
        let found = found.map_err(|_| without("has no key of the role"))?;
        let wrong = || without("answers with what is no key");
        let found: RoleKey = serde_json::from_str(found.expose()).map_err(|_| wrong())?;
        let end: jiff::Timestamp = found.expiration.parse().map_err(|_| wrong())?;
        let key = AccessKey {
            id: found.access_key_id,
            secret: SecretText::new(found.secret_access_key),
            session: Some(SecretText::new(found.token)),
        };
        *kept = Some((key.clone(), Timestamp::from_secs(end.as_second())));
        Ok(key)
    }

    fn ask(
        &self,
        http: &Http,
        method: &str,
        path: &str,
        header: (&str, &str),
    ) -> Result<SecretText, SourceError> {
        let url = format!("{}{path}", self.metadata);
        // A PUT without a length is refused by some.
        let empty: &[u8] = &[];
        let body = (method == "PUT").then_some(empty);
        let reply = http.send(&Request { method, url: &url, headers: &[header], body })?;
        match reply.status {
            200 => Ok(SecretText::new(reply.text()?)),
            status => Err(SourceError::refused(format!("{path}: {status}"))),
        }
    }
}

fn of_environment() -> Option<AccessKey> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(AccessKey {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: SecretText::new(variable("AWS_SECRET_ACCESS_KEY")?),
        session: variable("AWS_SESSION_TOKEN").map(SecretText::new),
    })
}

/// Reads the key of the profile `default`, or of the file's first profile, as AWS's own tools write it.
fn parse(text: &str) -> Result<AccessKey, &'static str> {
    let expected = "expected aws_access_key_id = … and aws_secret_access_key = …, below [default]";
    let mut section = "";
    let mut values: Vec<(&str, &str, &str)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim();
        } else if let Some((key, value)) = line.split_once('=') {
            values.push((section, key.trim(), value.trim()));
        }
    }
    let has_default = values.iter().any(|(of, ..)| *of == "default");
    let first = values.first().map_or("", |(of, ..)| *of);
    let wanted = if has_default { "default" } else { first };
    let value = |key: &str| {
        let mut of_profile = values.iter().filter(|(of, ..)| *of == wanted);
        let found = of_profile.find(|(_, name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(.., value)| *value).filter(|value| !value.is_empty())
    };
    let (id, secret) = (value("aws_access_key_id"), value("aws_secret_access_key"));
    let (Some(id), Some(secret)) = (id, secret) else { return Err(expected) };
    let session = value("aws_session_token").map(SecretText::new);
    Ok(AccessKey { id: id.to_owned(), secret: SecretText::new(secret), session })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_as_awss_own_tools_write_it() {
        let plain = "aws_access_key_id = A\naws_secret_access_key = s/+=\n";
        let expected = AccessKey { id: "A".into(), secret: SecretText::new("s/+="), session: None };
        let other = "[other]\naws_access_key_id = B\naws_secret_access_key = t\n";
        for text in [
            plain.to_owned(),
            format!("[lab]\n{plain}"),
            format!("[default]\n{plain}{other}"),
            format!("{other}[default]\n{plain}"),
        ] {
            assert_eq!(parse(&text), Ok(expected.clone()), "{text}");
        }
        let with_session = format!("[default]\n{plain}aws_session_token=z\n");
        assert_eq!(parse(&with_session).map(|key| key.session), Ok(Some(SecretText::new("z"))));
        for text in ["", "[default]\naws_access_key_id = A\n", "{}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let shown = format!("{expected:?}");
        assert!(shown.contains("(secret)") && !shown.contains("s/+"), "{shown}");
    }
}
