//! Credential plugins of a kubeconfig: a program that prints a token, as `aws eks get-token` does. What it gave is used until it
//! expires.

use crate::clock;
use crate::machines::cloud::rest::word;
use crate::machines::cloud::secret::SecretText;
use crate::machines::program_call;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long before its end a credential is asked for anew, seconds.
const RESERVE_S: i64 = 60;

/// How long one that does not say its end is used, seconds.
const LIFE_S: i64 = 300;

#[derive(Clone)]
pub struct IssuedCredential {
    pub token: Option<SecretText>,
    /// Certificate and key, as PEM.
    pub identity: Option<(Vec<u8>, SecretText)>,
}

#[derive(Default)]
pub struct ExecPlugin(Mutex<Option<Kept>>);

struct Kept {
    /// The plugin as the kubeconfig has it: another one gives another credential.
    plugin: Value,
    credential: IssuedCredential,
    /// Seconds since the epoch.
    until: i64,
}

impl ExecPlugin {
    /// What the plugin of a user gives, or gave a while ago.
    pub fn credential(&self, plugin: &Value, limit: Duration) -> Result<IssuedCredential, String> {
        let now = clock::now().secs();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.as_ref().filter(|kept| kept.plugin == *plugin && now < kept.until);
        if let Some(known) = known {
            return Ok(known.credential.clone());
        }
        let (credential, until) = ask(plugin, limit)?;
        let until = until.unwrap_or(now + LIFE_S + RESERVE_S) - RESERVE_S;
        *kept = Some(Kept { plugin: plugin.clone(), credential: credential.clone(), until });
        Ok(credential)
    }

    /// Forgets what was given: the API does not accept it any more.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn ask(plugin: &Value, limit: Duration) -> Result<(IssuedCredential, Option<i64>), String> {
    let (program, version) = (word(plugin, "/command"), word(plugin, "/apiVersion"));
    let wrong = |why: &str| format!("exec: {program}: {why}");
    let mut command = Command::new(program);
    for argument in plugin["args"].as_array().into_iter().flatten() {
        command.arg(argument.as_str().map_or_else(|| argument.to_string(), str::to_owned));
    }
    for variable in plugin["env"].as_array().into_iter().flatten() {
        command.env(word(variable, "/name"), word(variable, "/value"));
    }
    let request = json!({
        "apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": false},
    });
    command.env("KUBERNETES_EXEC_INFO", request.to_string());
    let answer = program_call::run(program, command, Vec::new(), limit);
    let answer = answer.map_err(|why| format!("exec: {why}"))?;
    if !answer.status.success() {
        return Err(wrong(&format!("it ended: {}", answer.status)));
    }
    let value: Value =
        serde_json::from_slice(&answer.text).map_err(|_| wrong("its answer is no JSON"))?;
    let given = |key: &str| value["status"][key].as_str().filter(|text| !text.is_empty());
    let certificate = given("clientCertificateData").map(|text| text.as_bytes().to_vec());
    let credential = IssuedCredential {
        token: given("token").map(SecretText::new),
        identity: certificate.zip(given("clientKeyData").map(SecretText::new)),
    };
    if credential.token.is_none() && credential.identity.is_none() {
        return Err(wrong("its answer has no credential"));
    }
    let until = given("expirationTimestamp").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    Ok((credential, until.map(|at| at.as_second())))
}
