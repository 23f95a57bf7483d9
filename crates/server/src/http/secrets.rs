//! The calls about secrets. A value is encrypted before it reaches the writer, and is in no answer but that to its own call.

use crate::fleet::request::key_context;
use crate::secret::{backend, repository, stored};
use crate::shared::Shared;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::command::ResealedSecret;
use cluster::rights::is_project;
use model::bounds;
use model::principal::Principal;
use model::reason::Refusal;
use model::secret::SecretValue;
use std::collections::HashMap;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    match call {
        Call::Secrets { project } => {
            check(shared, &by, &project)?;
            Ok(Answer::Secrets(shared.read().secrets_of(&project).keys().cloned().collect()))
        }
        Call::Secret { project, name } => {
            check(shared, &by, &project)?;
            Ok(Answer::Secret { value: stored::value(shared, &project, &name)? })
        }
        Call::SetSecret { project, name, value } => {
            check(shared, &by, &project)?;
            check_value(&value)?;
            let _sealing = shared.sealing.read().await;
            let sealed = stored::seal(shared, &project, &name, &value)?;
            shared.writer.run(Command::SetSecret { project, name, sealed }, by).await?;
            Ok(Answer::Done)
        }
        Call::RemoveSecrets { project, names } => {
            check(shared, &by, &project)?;
            shared.writer.run(Command::RemoveSecrets { project, names }, by).await?;
            Ok(Answer::Done)
        }
        Call::RotateSecretKey => rotate(shared, by).await,
        other => unreachable!("{other:?} is answered elsewhere"),
    }
}

fn check(shared: &Shared, by: &Principal, project: &str) -> Result<(), Refusal> {
    let state = shared.read();
    authorise(&state, by, Act::ManageSecrets(project))?;
    if is_project(&state, project) {
        return Ok(());
    }
    Err(Refusal::UnknownThing { what: "project".into(), name: project.into() })
}

/// A refusal shows the length of a value and nothing else of it.
fn check_value(value: &SecretValue) -> Result<(), Refusal> {
    let refused = |value: &str, expected: String| {
        let what = bounds::SECRET_BYTES.what.into();
        Err(Refusal::InvalidValue { what, value: value.into(), expected })
    };
    let most = bounds::SECRET_BYTES.most;
    match &value.0 {
        text if text.len() > most => {
            refused(&format!("{} bytes", text.len()), format!("at most {most} bytes"))
        }
        text if text.contains('\0') => {
            refused("with a NUL character", "expected text without one".into())
        }
        _ => Ok(()),
    }
}

/// A crash in between leaves both keys in the file and each value readable; the next rotation goes on from there.
async fn rotate(shared: &Arc<Shared>, by: Principal) -> Result<Answer, Refusal> {
    authorise(&shared.read(), &by, Act::Administer)?;
    shared.secret_keys.add()?;
    let before: Vec<_> = {
        let state = shared.read();
        let of_project = state.secrets.iter().flat_map(|(project, secrets)| {
            secrets
                .iter()
                .map(move |(name, sealed)| (project.clone(), name.clone(), sealed.clone()))
        });
        of_project.filter(|(_, _, sealed)| !shared.secret_keys.is_newest(sealed)).collect()
    };
    let mut resealed = Vec::with_capacity(before.len());
    for (project, name, before) in before {
        let value = stored::open(shared, &project, &name, &before)?;
        let after = stored::seal(shared, &project, &name, &value)?;
        resealed.push(ResealedSecret { project, name, before, after });
    }
    shared.writer.run(Command::ResealSecrets(resealed), by.clone()).await?;
    repository::reseal_all(shared).await?;
    // What was encrypted with an older key is in the state once those who did it are done; submits wait only for the rest.
    let _alone = shared.sealing.write().await;
    repository::reseal_all(shared).await?;
    reseal_fleets(shared, &by).await?;
    reseal_backends(shared, &by).await?;
    shared.secret_keys.retain(shared.read().sealed_values())?;
    Ok(Answer::Done)
}

/// The private keys of fleets under the newest key. Nobody applies a fleet meanwhile.
async fn reseal_fleets(shared: &Arc<Shared>, by: &Principal) -> Result<(), Refusal> {
    let fleets: Vec<_> = shared.read().fleets.values().cloned().collect();
    for fleet in fleets {
        let context = key_context(&fleet.project, &fleet.name);
        let mut forms = HashMap::new();
        for before in fleet.sealed_values() {
            if shared.secret_keys.is_newest(before) || forms.contains_key(before) {
                continue;
            }
            let value = shared.secret_keys.open(&context, before)?;
            forms.insert(before.clone(), shared.secret_keys.seal(&context, &value.0)?);
        }
        let command = Command::ResealFleet { name: fleet.name, forms };
        shared.writer.run(command, by.clone()).await?;
    }
    Ok(())
}

/// The credentials of backends under the newest key. Nobody makes or changes one meanwhile.
async fn reseal_backends(shared: &Arc<Shared>, by: &Principal) -> Result<(), Refusal> {
    let backends: Vec<_> = shared.read().backends.values().cloned().collect();
    for known in backends {
        let (source, Some(before)) = (known.source.name, known.credentials) else { continue };
        if shared.secret_keys.is_newest(&before) {
            continue;
        }
        let value = backend::open(shared, &source, &before)?;
        let after = backend::seal(shared, &source, &value)?;
        let command = Command::ResealBackend { source, before, after };
        shared.writer.run(command, by.clone()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::http::backends;
    use crate::testing::TestServer;
    use cluster::command::SetFleet;
    use model::fleet::{Blocks, MAIN_PROJECT};
    use model::ssh_fleet::{FleetHost, SshLogin};

    #[tokio::test(flavor = "multi_thread")]
    async fn rotation_encrypts_the_credentials_of_backends_anew() {
        let server = TestServer::start().await;
        let shared = &server.shared;
        let given = serde_json::json!({"type": "lambda", "regions": ["r"], "ssh_key": "lab",
            "endpoint": "http://127.0.0.1:1", "creds": {"type": "api_key", "api_key": "hush"}});
        let project = || MAIN_PROJECT.to_owned();
        backends::set(shared, server_principal(), project(), &given).await.expect("a backend");
        let before = shared.read().backends["lambda"].clone();
        assert!(!format!("{before:?}").contains("hush"), "{before:?}");
        rotate(shared, server_principal()).await.expect("rotated");
        let after = shared.read().backends["lambda"].credentials.clone().expect("a key");
        assert!(before.credentials != Some(after.clone()) && shared.secret_keys.is_newest(&after));
        let key = backend::credentials(shared, "lambda").expect("readable").expect("a key");
        assert_eq!(key.0, "hush");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rotation_encrypts_the_keys_of_fleets_anew() {
        let server = TestServer::start().await;
        let (shared, context) = (&server.shared, key_context(MAIN_PROJECT, "lab"));
        let key = shared.secret_keys.seal(&context, "hush").expect("sealed");
        let (hostname, user) = ("10.0.0.1".into(), "root".into());
        let host = FleetHost {
            id: "1".into(),
            login: SshLogin { hostname, port: 22, user, key: key.clone(), host_key: None },
            jump: None,
            internal_ip: None,
            network: None,
            address: None,
            blocks: Blocks::Auto,
            machine: None,
            failure: None,
            leaving: None,
        };
        let set = SetFleet {
            project: MAIN_PROJECT.into(),
            name: "lab".into(),
            configuration: "{}".into(),
            is_cluster: false,
            hosts: vec![host],
            cloud: None,
        };
        server.run(Command::SetFleet(Box::new(set))).await.expect("a fleet");
        rotate(shared, server_principal()).await.expect("rotated");
        let after = shared.read().fleets["lab"].hosts[&0].login.key.clone();
        assert!(after != key && shared.secret_keys.is_newest(&after));
        assert_eq!(shared.secret_keys.open(&context, &after).expect("a key").0, "hush");
        assert!(shared.secret_keys.open(&context, &key).is_err(), "the old key is gone");
    }
}
