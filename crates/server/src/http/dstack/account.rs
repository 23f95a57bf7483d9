//! Repositories.

use super::answer::{ApiResult, Json, Refused};
use dstack::api::stored::InitRepo;

/// Nothing is kept of a repository: every run has the one without files.
pub async fn init_repo(Json(repo): Json<InitRepo>) -> ApiResult<()> {
    match repo.repo_info["repo_type"].as_str() {
        Some("virtual") | None => Ok(Json(())),
        Some(_) => Err(Refused::because("`repos`: repositories are not available yet")),
    }
}
