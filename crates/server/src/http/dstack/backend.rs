//! Backends, by the same calls as the web page's. What is shown of one has no key and no token.

use super::answer::{ApiResult, Json};
use crate::configure::backend::KINDS;
use crate::http::{backends, calls};
use crate::shared::Shared;
use axum::Extension;
use axum::extract::{Path, State};
use cluster::authorise::{Act, authorise};
use dstack::api::project::{BackendInfo, BackendYaml, DeleteBackends, ShownBackendYaml};
use model::backend::source_name;
use model::cloud_source::SourceKind;
use model::machine::SourceConfig;
use model::principal::Principal;
use model::reason::Refusal;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::Call;

const BACKEND: &str = "backend";

/// The types that a call can make one of.
pub async fn list_types() -> Json<[&'static str; 4]> {
    Json(KINDS)
}

/// The backends of a project as its members are shown them: those of sluice.toml, which are everybody's, and its own. A
/// provider program is of no type that dstack's clients know.
pub fn listed(state: &cluster::State, project: &str) -> Vec<BackendInfo> {
    let is_of_project = |source: &&SourceConfig| {
        let own = state.backends.get(&source.name);
        own.is_none_or(|own| own.project == project) && KINDS.contains(&source.kind.name())
    };
    let info = |source: &SourceConfig| {
        let own = state.backends.get(&source.name);
        let name = own.map_or(source.name.as_str(), |own| own.name());
        BackendInfo { name: name.to_owned(), config: summary(source) }
    };
    state.sources().filter(is_of_project).map(info).collect()
}

/// What everybody may know of a source, with what dstack's clients read none of its type without.
fn summary(source: &SourceConfig) -> Value {
    let mut shown = json!({"type": source.kind.name()});
    if let Some(cloud) = source.kind.cloud() {
        shown["regions"] = json!(cloud.regions);
    }
    if let SourceKind::Gcp(cloud) = &source.kind {
        shown["project_id"] = json!(cloud.project.as_deref().unwrap_or_default());
    }
    shown
}

/// The configuration with the form of its credentials, which dstack's clients read none without. The keys themselves are empty: those
/// that the backend has stay when it is sent back so.
fn with_creds(mut shown: Value, kind: &SourceKind, has_keys: bool) -> Value {
    let creds = match kind {
        SourceKind::Program(_) => return shown,
        SourceKind::Kubernetes(_) => {
            shown["kubeconfig"] = json!({"data": ""});
            return shown;
        }
        SourceKind::Lambda(_) => json!({"type": "api_key", "api_key": ""}),
        SourceKind::Aws(_) if has_keys => {
            json!({"type": "access_key", "access_key": "", "secret_key": ""})
        }
        SourceKind::Gcp(_) if has_keys => json!({"type": "service_account", "data": ""}),
        SourceKind::Aws(_) | SourceKind::Gcp(_) => json!({"type": "default"}),
    };
    shown["creds"] = creds;
    shown
}

/// The configuration of a backend as it was given, without its credentials, or of a source of sluice.toml what there is to show.
fn shown(
    shared: &Shared,
    by: &Principal,
    project: &str,
    name: &str,
) -> Result<(&'static str, Value), Refusal> {
    let state = shared.read();
    authorise(&state, by, Act::Administer)?;
    if let Some(backend) = state.backend(project, name) {
        let configuration: Value = serde_json::from_str(&backend.configuration)
            .map_err(|e| Refusal::Other(e.to_string()))?;
        let has_keys = backend.credentials.is_some();
        return Ok(("", with_creds(configuration, &backend.source.kind, has_keys)));
    }
    let of_file = state.config.sources.iter().find(|source| source.name == name);
    let unknown = || Refusal::UnknownThing { what: BACKEND.into(), name: name.into() };
    let source = of_file.ok_or_else(unknown)?;
    let has_keys = source.kind.cloud().is_some_and(|cloud| cloud.credentials.is_some());
    let shown = with_creds(summary(source), &source.kind, has_keys);
    Ok(("# A source of sluice.toml, which is changed there.\n", shown))
}

pub async fn config_info(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((project, backend)): Path<(String, String)>,
) -> ApiResult<Value> {
    Ok(Json(shown(&shared, &by, &project, &backend)?.1))
}

pub async fn get_yaml(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((project, name)): Path<(String, String)>,
) -> ApiResult<ShownBackendYaml> {
    let (note, configuration) = shown(&shared, &by, &project, &name)?;
    let keys = configuration.as_object().into_iter().flatten();
    let lines = keys.map(|(key, value)| format!("{key}: {}\n", flow(value)));
    let config_yaml = [note.to_owned()].into_iter().chain(lines).collect();
    Ok(Json(ShownBackendYaml { name, config_yaml }))
}

/// A value in YAML's flow style. Texts are as in JSON, whose escapes are YAML's.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(keys) => {
            let entry = |(key, value): (&String, &Value)| {
                let name = Value::from(key.as_str());
                format!("{name}: {}", flow(value))
            };
            format!("{{{}}}", keys.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Makes a backend of JSON, or changes it, by the path that was asked for.
pub async fn change(
    Extension(change): Extension<Change>,
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(given): Json<Value>,
) -> ApiResult<Value> {
    set(&shared, by, project, &given, change).await
}

/// The same of YAML. Who may not is told so before what is wrong with the text.
pub async fn change_yaml(
    Extension(change): Extension<Change>,
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(BackendYaml { config_yaml }): Json<BackendYaml>,
) -> ApiResult<()> {
    authorise(&shared.read(), &by, Act::Administer)?;
    set(&shared, by, project, &backends::values(&config_yaml.0)?, change).await?;
    Ok(Json(()))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(DeleteBackends { backends_names: names }): Json<DeleteBackends>,
) -> ApiResult<()> {
    calls::answer(&shared, by, Call::RemoveBackends { project, names }).await?;
    Ok(Json(()))
}

/// What a path does with a backend: its route says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create,
    Update,
}

/// A backend that is to be made must not be there, and one that is to be changed must.
async fn set(
    shared: &Arc<Shared>,
    by: Principal,
    project: String,
    given: &Value,
    change: Change,
) -> ApiResult<Value> {
    authorise(&shared.read(), &by, Act::Administer)?;
    let name = given["type"].as_str().unwrap_or_default().to_owned();
    let (is_backend, is_source) = {
        let state = shared.read();
        let source = state.source(&source_name(&name, &project));
        (state.backend(&project, &name).is_some(), source.is_some())
    };
    if change == Change::Create && is_backend {
        return Err(Refusal::AlreadyExists { what: BACKEND.into(), name }.into());
    }
    if change == Change::Update && !is_source {
        return Err(Refusal::UnknownThing { what: BACKEND.into(), name }.into());
    }
    backends::set(shared, by.clone(), project.clone(), given).await?;
    Ok(Json(shown(shared, &by, &project, &name)?.1))
}
