//! Repositories: where each is, what it is cloned with, and the changes of its user. They are a user's own, in each project.
//! What a repository is cloned with is kept encrypted.

use super::answer::{ApiResult, Json, Refused};
use super::file;
use super::multipart::UploadedFile;
use crate::secret::repository;
use crate::shared::Shared;
use crate::shared::uploads::{self, Kind};
use axum::Extension;
use axum::extract::{Path, Query, State};
use dstack::api::run::RunSpec;
use dstack::api::stored::{
    DeleteRepos, GetRepo, InitRepo, RepoCreds, RepoData, RepoHead, RepoOfUpload,
};
use dstack::configuration::task::Task;
use model::bounds;
use model::principal::Principal;
use model::secret::{GitCredentials, SecretValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use store::BlobId;
use tokio::task::block_in_place;
use wire::workspace::{Blob, Repository};

/// Fields of what a client says about a repository. dstack's own has two texts; of all that a user keeps, a list holds each.
const INFO_FIELDS_MAX: usize = 16;

/// A repository as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptRepository {
    /// Not in those of the build before, which are found by their id and not listed.
    #[serde(default)]
    project: Option<String>,
    #[serde(flatten)]
    head: RepoHead,
}

/// What a repository that the build before kept belongs to.
fn earlier_context(by: &Principal, project: &str, id: &str) -> String {
    format!("repository\0{}\0{project}\0{id}", by.uid)
}

fn key(project: &str, id: &str) -> String {
    BlobId::of(format!("{project}\0{id}").as_bytes()).to_string()
}

pub async fn init(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<InitRepo>,
) -> ApiResult<()> {
    match wanted.repo_info["repo_type"].as_str() {
        // A run without a repository has nothing that is kept.
        Some("virtual") | None => return Ok(Json(())),
        Some("remote") => {}
        Some(other) => {
            let text = format!("repository of type {other}: expected remote or virtual");
            return Err(Refused::because(text));
        }
    }
    if !is_plain(&wanted.repo_info) {
        let text = format!(
            "`repo_info`: expected at most {INFO_FIELDS_MAX} fields, each a text or a number"
        );
        return Err(Refused::because(text));
    }
    let (id, info) = (wanted.repo_id, wanted.repo_info);
    let head = RepoHead { repo_id: id, repo_info: info, repo_creds: wanted.repo_creds };
    let key = key(&project, &head.repo_id);
    let kept = KeptRepository { project: Some(project), head };
    let text = serde_json::to_string(&kept).map_err(|e| Refused::because(e.to_string()))?;
    repository::keep(&shared, by.uid, &key, &text).await?;
    Ok(Json(()))
}

/// Whether it has few fields, and nothing within them.
fn is_plain(info: &Value) -> bool {
    let is_inner = |value: &Value| value.is_object() || value.is_array();
    info.as_object()
        .is_some_and(|fields| fields.len() <= INFO_FIELDS_MAX && !fields.values().any(is_inner))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetRepo>,
) -> ApiResult<RepoHead> {
    let kept = block_in_place(|| kept(&shared, &by, &project, &wanted.repo_id));
    let mut head = kept.ok_or_else(|| Refused::not_found("Repo does not exist"))?;
    head.repo_creds = head.repo_creds.filter(|_| wanted.include_creds);
    Ok(Json(head))
}

/// The user's own repository.
fn kept(shared: &Shared, by: &Principal, project: &str, id: &str) -> Option<RepoHead> {
    let key = key(project, id);
    let context = earlier_context(by, project, id);
    let earlier = || repository::open_with(shared, by.uid, &key, &context);
    read(repository::open(shared, by.uid, &key).or_else(earlier)).map(|kept| kept.head)
}

fn read(text: Option<SecretValue>) -> Option<KeptRepository> {
    serde_json::from_str(&text?.0).ok()
}

/// The repositories that the user has initialised in the project, without what they are cloned with.
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult<Vec<RepoHead>> {
    let heads = block_in_place(|| {
        let keys = shared.uploads.kept(by.uid, Kind::Repository).into_iter();
        let all = keys.filter_map(|(key, _)| read(repository::open(&shared, by.uid, &key)));
        let own = all.filter(|kept| kept.project.as_deref() == Some(&project));
        let mut heads: Vec<_> =
            own.map(|kept| RepoHead { repo_creds: None, ..kept.head }).collect();
        heads.sort_by(|one, other| one.repo_id.cmp(&other.repo_id));
        heads
    });
    Ok(Json(heads))
}

pub async fn upload_code(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(_): Query<RepoOfUpload>,
    file: UploadedFile,
) -> ApiResult<()> {
    let key = file::key(&file);
    file::check_size(&shared, &file)?;
    let mut turn = shared.uploads.turn(by.uid).await;
    block_in_place(|| turn.put(Kind::Code, &key, &file.bytes))?;
    Ok(Json(()))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<DeleteRepos>,
) -> ApiResult<()> {
    // A user has no more of them.
    bounds::UPLOADS.hold(wanted.repos_ids.len())?;
    // Behind the user's own: others wait for one of his calls.
    let _turn = shared.uploads.turn(by.uid).await;
    block_in_place(|| {
        for id in &wanted.repos_ids {
            shared.uploads.remove(by.uid, Kind::Repository, &key(&project, id));
        }
    });
    Ok(Json(()))
}

/// The repository that a run is to clone, and what with; `None` for a run without one. The user's changes are uploaded after
/// the plan was made: `with_code` says whether they must be there.
pub fn of_run(
    shared: &Shared,
    by: &Principal,
    project: &str,
    run: &RunSpec,
    task: &Task,
    with_code: bool,
) -> Result<Option<(Repository, GitCredentials)>, Refused> {
    let Some(asked) = task.repos.first() else { return Ok(None) };
    let invalid = |text: String| Refused::because(format!("`repos`: {text}"));
    let data = run.repo_data.clone().unwrap_or_default();
    let data: RepoData = serde_json::from_value(data).map_err(|e| invalid(e.to_string()))?;
    let id = run.repo_id.as_deref().unwrap_or_default();
    let head = kept(shared, by, project, id).filter(|_| data.repo_type == "remote");
    let head =
        head.ok_or_else(|| invalid(format!("repository {id} is not known: run dstack init")))?;
    let RepoCreds { clone_url, private_key, oauth_token } = head.repo_creds.unwrap_or_default();
    let diff = match run.repo_code_hash.as_deref().filter(|_| with_code) {
        Some(code) if uploads::is_key(code) => {
            let bytes = shared.uploads.get(by.uid, Kind::Code, code);
            let missing = || invalid(format!("your changes {code} are not here: upload them"));
            Some(Blob(bytes.ok_or_else(missing)?))
        }
        Some(code) => return Err(invalid(format!("repo_code_hash {code:?}: expected 64 digits"))),
        None => None,
    };
    if clone_url.is_empty() {
        return Err(invalid(format!("repository {id} has no address: run dstack init")));
    }
    let repository = Repository {
        id: Some(id.to_owned()),
        url: clone_url,
        branch: data.repo_branch.or(asked.branch.clone()),
        hash: data.repo_hash.or(asked.hash.clone()),
        diff,
        path: run.repo_dir.clone().unwrap_or_else(|| asked.path.clone()),
        skip_if_exists: asked.skip_if_exists,
        folder_variable: None,
        user_name: data.repo_config_name,
        user_email: data.repo_config_email,
    };
    Ok(Some((repository, GitCredentials { oauth_token, private_key })))
}
