//! From the run that dstack's client sends to the submission that the queue takes.

use super::error::ApiError;
use crate::clock;
use crate::shared::Shared;
use axum::http::HeaderMap;
use dstack::configuration::load::{self, Configuration};
use dstack::configuration::task::Task;
use dstack::request::{Submitter, draft};
use dstack::name;
use model::principal::Principal;
use nix::unistd::{Uid, User};
use serde_json::{Value, json};
use wire::client::Submission;

/// A run as it was asked for.
pub struct RunRequest {
    pub task: Task,
    pub submission: Submission,
    /// What the client sent, with the run's name filled in.
    pub run_spec: Value,
    /// The same with the defaults that it is run with.
    pub effective: Value,
}

/// Folders and variables of the Unix account that the run gets.
struct Home {
    dir: String,
    shell: String,
}

pub fn read(
    shared: &Shared,
    by: &Principal,
    run_spec: &Value,
    headers: &HeaderMap,
) -> Result<RunRequest, ApiError> {
    let profile = Some(&run_spec["profile"]);
    let invalid = |text: String| ApiError::Invalid {
        place: ["body", "run_spec", "configuration"].map(str::to_owned).into(),
        text,
    };
    let loaded = load::from_json(&run_spec["configuration"], profile)
        .map_err(|fault| invalid(fault.to_string()))?;
    let applicable = loaded.applicable().map_err(|fault| ApiError::refused(fault.to_string()))?;
    let Configuration::Task(task) = applicable else {
        return Err(ApiError::refused("only tasks can be applied here"));
    };
    let random = u64::from_le_bytes(clock::random());
    let run_name = run_spec["run_name"].as_str().map(str::to_owned).or(task.name.clone());
    let run_name = run_name.unwrap_or_else(|| name::generate(random));
    if !name::is_valid(&run_name) {
        return Err(ApiError::refused(format!("run name {run_name:?}: expected {}", name::RULE)));
    }
    let mut task = (**task).clone();
    task.name = Some(run_name.clone());
    let submission = submission(shared, by, &task, headers, random)?;
    let mut run_spec = run_spec.clone();
    run_spec["run_name"] = json!(run_name);
    let mut effective = run_spec.clone();
    effective["configuration"] = loaded.value.to_json();
    Ok(RunRequest { task, submission, run_spec, effective })
}

fn submission(
    shared: &Shared,
    by: &Principal,
    task: &Task,
    headers: &HeaderMap,
    random: u64,
) -> Result<Submission, ApiError> {
    let home = home(by);
    let variable = |name: &str| match name {
        "HOME" => Some(home.dir.clone()),
        "USER" => Some(by.name.clone()),
        "SHELL" => Some(home.shell.clone()),
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned()),
        _ => None,
    };
    let client = headers.get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or("dstack");
    let submitter = Submitter {
        now: clock::now(),
        random,
        work_dir: &home.dir,
        file: None,
        submit_line: format!("dstack apply ({client})"),
        host: shared.setup.hostname.clone(),
        session: 0,
        umask: 0o022,
        variable: &variable,
    };
    let drafted = draft(task, &submitter).map_err(|error| ApiError::refused(error.to_string()))?;
    let mut drafted = drafted;
    drafted.keep_within(&shared.read().config.partitions);
    Ok(drafted.submission)
}

fn home(by: &Principal) -> Home {
    let user = User::from_uid(Uid::from_raw(by.uid)).ok().flatten();
    Home {
        dir: user.as_ref().map_or("/".into(), |user| user.dir.display().to_string()),
        shell: user.map_or("/bin/sh".into(), |user| user.shell.display().to_string()),
    }
}
