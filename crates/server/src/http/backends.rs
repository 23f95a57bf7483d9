//! The calls about backends. Credentials are encrypted before they reach the writer, and are in no answer.

use crate::configure::backend::{self, GivenBackend, GivenCredentials};
use crate::secret::backend as stored;
use crate::shared::Shared;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use model::backend::{Backend, BackendOrigin};
use model::bounds;
use model::principal::Principal;
use model::reason::Refusal;
use model::secret::{Sealed, SecretValue};
use serde_json::Value;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    match call {
        Call::SetBackend { project, config_yaml } => {
            authorise(&shared.read(), &by, Act::Administer)?;
            set(shared, by, project, &values(&config_yaml.0)?).await?;
        }
        Call::RemoveBackends { project, names } => {
            shared.writer.run(Command::RemoveBackends { project, names }, by).await?;
        }
        other => unreachable!("{other:?} is answered elsewhere"),
    }
    Ok(Answer::Done)
}

/// The values of a backend's YAML.
pub fn values(text: &str) -> Result<Value, Refusal> {
    bounds::BACKEND_BYTES.hold(text.len())?;
    let values = dstack::yaml_file::values(text.as_bytes());
    values.map_err(refused)
}

/// Makes a backend by a call, or changes it. One of `config.yml` stays that file's, and keeps the price file that no call names.
pub async fn set(
    shared: &Arc<Shared>,
    by: Principal,
    project: String,
    given: &Value,
) -> Result<(), Refusal> {
    authorise(&shared.read(), &by, Act::Administer)?;
    let mut given = backend::read(given, &project).map_err(refused)?;
    let name = given.source.name.clone();
    let notices = given.notices.join("; ");
    let known = shared.read().backends.get(&name).cloned();
    let origin = match known.filter(|known| known.origin == BackendOrigin::File) {
        Some(known) => {
            given.source.kind.keep_prices(&known.source.kind);
            known.origin
        }
        None => BackendOrigin::Call,
    };
    set_from(shared, by, project, given, origin).await?;
    if !notices.is_empty() {
        tracing::info!("backend {name}: {notices}");
    }
    Ok(())
}

fn refused(why: impl std::fmt::Display) -> Refusal {
    Refusal::Other(format!("backend: {why}"))
}

/// Makes a backend, or changes it. Credentials that are not said are those that it has.
pub async fn set_from(
    shared: &Arc<Shared>,
    by: Principal,
    project: String,
    given: GivenBackend,
    origin: BackendOrigin,
) -> Result<(), Refusal> {
    authorise(&shared.read(), &by, Act::Administer)?;
    let source = given.source;
    let _sealing = shared.sealing.read().await;
    let credentials = match given.credentials {
        GivenCredentials::Text(text) => Some(sealed(shared, &source.name, &text)?),
        GivenCredentials::OfMachine => None,
        GivenCredentials::Unsaid { required } => {
            let state = shared.read();
            let known = state.backend(&project, source.kind.name());
            let credentials = known.and_then(|known| known.credentials.clone());
            if required && credentials.is_none() {
                return Err(refused("creds: missing: expected its keys"));
            }
            credentials
        }
    };
    let configuration = given.configuration.to_string();
    let is_shared = given.shared;
    let backend =
        Backend { project, shared: is_shared, origin, source, configuration, credentials };
    shared.writer.run(Command::SetBackend(Box::new(backend)), by).await?;
    Ok(())
}

/// The credentials as the state keeps them. Those that it has already stay in their form, so that the same backend changes nothing.
fn sealed(shared: &Shared, source: &str, text: &SecretValue) -> Result<Sealed, Refusal> {
    let known = shared.read().backends.get(source).and_then(|known| known.credentials.clone());
    let is_same =
        |sealed: &Sealed| stored::open(shared, source, sealed).is_ok_and(|known| known == *text);
    match known.filter(is_same) {
        Some(known) => Ok(known),
        None => Ok(stored::seal(shared, source, text)?),
    }
}
