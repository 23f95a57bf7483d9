//! What a server keeps for a project beside its runs: secrets, logs, metrics, files and repositories.

use super::time::Time;
use model::secret::SecretValue;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    pub id: String,
    pub name: String,
    /// `None` in a list.
    pub value: Option<SecretValue>,
}

/// `secrets/get`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GetSecret {
    pub name: String,
}

/// `secrets/create_or_update`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SetSecret {
    pub name: String,
    pub value: SecretValue,
}

/// `secrets/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteSecrets {
    pub secrets_names: Vec<String>,
}

/// `logs/poll`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct PollLogs {
    pub run_name: String,
    pub job_submission_id: String,
    pub start_time: Option<Time>,
    pub end_time: Option<Time>,
    pub descending: bool,
    pub next_token: Option<String>,
    pub limit: Option<u32>,
    pub diagnose: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Logs {
    pub logs: Vec<LogEvent>,
    pub external_url: Option<String>,
    /// Where the next poll goes on; `None` at the end.
    pub next_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvent {
    pub timestamp: Time,
    /// `stdout`
    pub log_source: String,
    /// In base 64.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    pub metrics: Vec<Metric>,
}

/// One series, the newest value first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    pub name: String,
    pub timestamps: Vec<Time>,
    pub values: Vec<Number>,
}

/// `files/upload_archive`, `files/get_archive_by_hash`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileArchive {
    pub id: String,
    /// The SHA-256 of its bytes.
    pub hash: String,
}

/// `files/get_archive_by_hash`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct GetArchiveByHash {
    pub hash: String,
}

/// `repos/init`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct InitRepo {
    pub repo_id: String,
    pub repo_info: Value,
    pub repo_creds: Option<RepoCreds>,
}

/// `repos/get`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct GetRepo {
    pub repo_id: String,
    pub include_creds: bool,
}

/// `repos/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteRepos {
    pub repos_ids: Vec<String>,
}

/// The query of `repos/upload_code`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RepoOfUpload {
    pub repo_id: String,
}

/// A repository as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepoHead {
    pub repo_id: String,
    pub repo_info: Value,
    pub repo_creds: Option<RepoCreds>,
}

/// Where a repository is, and what it is cloned with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RepoCreds {
    pub clone_url: String,
    pub private_key: Option<SecretValue>,
    pub oauth_token: Option<SecretValue>,
}

/// `repo_data` of a run: the state of the repository on the user's machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RepoData {
    /// `remote`, or `virtual` for none.
    pub repo_type: String,
    pub repo_branch: Option<String>,
    pub repo_hash: Option<String>,
    pub repo_config_name: Option<String>,
    pub repo_config_email: Option<String>,
}
