//! Secrets, by the same calls as `sluice secret`.

use super::answer::{ApiResult, Json, Refused};
use crate::http::calls;
use crate::secret::stored::SECRET;
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::stored::{DeleteSecrets, GetSecret, Secret, SetSecret};
use model::principal::Principal;
use model::reason::Refusal;
use model::secret::{self, SecretValue};
use std::sync::Arc;
use wire::client::{Answer, Call};

/// dstack's own line for a bad name, as its clients know it.
const NAME_LINE: &str = "Secret name should match regex '^[A-Za-z0-9-_]{1,200}$";

pub fn id(project: &str, name: &str) -> String {
    uuid("secret", &format!("{project}/{name}"))
}

fn body(project: &str, name: String, value: Option<SecretValue>) -> Secret {
    Secret { id: id(project, &name), name, value }
}

/// A secret that is not there, in dstack's own words.
fn missing(why: Refusal) -> Refused {
    match why {
        Refusal::UnknownThing { what, .. } if what == SECRET => {
            Refused::not_found("Resource not found")
        }
        other => other.into(),
    }
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult<Vec<Secret>> {
    match calls::answer(&shared, by, Call::Secrets { project: project.clone() }).await? {
        Answer::Secrets(names) => {
            Ok(Json(names.into_iter().map(|name| body(&project, name, None)).collect()))
        }
        _ => Err(Refused::because("the secrets were not listed")),
    }
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(GetSecret { name }): Json<GetSecret>,
) -> ApiResult<Secret> {
    let call = Call::Secret { project: project.clone(), name: name.clone() };
    match calls::answer(&shared, by, call).await.map_err(missing)? {
        Answer::Secret { value } => Ok(Json(body(&project, name, Some(value)))),
        _ => Err(Refused::because("the secret was not read")),
    }
}

pub async fn create_or_update(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(SetSecret { name, value }): Json<SetSecret>,
) -> ApiResult<Secret> {
    if !secret::is_name(&name) {
        return Err(Refused::because(NAME_LINE));
    }
    let call =
        Call::SetSecret { project: project.clone(), name: name.clone(), value: value.clone() };
    calls::answer(&shared, by, call).await?;
    Ok(Json(body(&project, name, Some(value))))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(DeleteSecrets { secrets_names: names }): Json<DeleteSecrets>,
) -> ApiResult<()> {
    let call = Call::RemoveSecrets { project, names };
    calls::answer(&shared, by, call).await.map_err(missing)?;
    Ok(Json(()))
}
