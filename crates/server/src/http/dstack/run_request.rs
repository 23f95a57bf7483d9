//! From the run that dstack's client sends to the submission that the queue takes.

use super::answer::Refused;
use super::kept_spec::raw;
use super::project::account_of;
use super::{file, repo};
use crate::clock;
use crate::http::ssh_keys::settle_held_key;
use crate::shared::Shared;
use dstack::api::error::ApiError;
use dstack::api::run::RunSpec;
use dstack::configuration::task::Task;
use dstack::configuration::value::Value;
use dstack::configuration::{Loaded, from_json};
use dstack::effective::{client_form, effective, for_client, profile_for_client};
use dstack::environment::NO_REPOSITORY;
use dstack::name;
use dstack::request::{KnownInstances, Submitter, draft, resolve_instances};
use model::principal::Principal;
use serde_json::json;
use serde_json::value::RawValue;
use wire::client::Submission;

/// Where a run finds its programs, whatever the server's own environment is.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A run as it was asked for.
pub struct RunRequest {
    pub name: String,
    pub task: Task,
    pub submission: Submission,
    /// What the client sent beside the configuration, with the run's name filled in.
    sent: RunSpec,
    /// The public key that the server holds for its user, where the client sent none.
    held_key: Option<String>,
    /// The configuration as it was read.
    configuration: Value,
}

/// A run as it is submitted, with the text that is kept of it.
pub struct KeptRequest {
    pub name: String,
    pub task: Task,
    pub submission: Submission,
    /// As [`RunRequest::effective`].
    pub text: Box<RawValue>,
}

impl RunRequest {
    /// What the client sent, with the run's name filled in.
    pub fn run_spec(&self) -> RunSpec {
        RunSpec { configuration: for_client(&self.configuration, None), ..self.sent.clone() }
    }

    /// What the client sent, with the defaults that it is run with.
    pub fn effective(&self) -> RunSpec {
        let configuration = for_client(&effective(self.configuration.clone()), None);
        let sent = self.sent.clone();
        let ssh_key_pub = sent.ssh_key_pub.or_else(|| self.held_key.clone());
        RunSpec { configuration, ssh_key_pub, ..sent }
    }

    /// The same for a run that is submitted, whose text is written straight from what was read.
    pub fn kept(self) -> KeptRequest {
        let Self { name, task, submission, sent, held_key, configuration } = self;
        let mut run = sent.with_configuration(client_form(effective(configuration)));
        run.ssh_key_pub = run.ssh_key_pub.or(held_key);
        KeptRequest { name, task, submission, text: raw(&run) }
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Everything that it brings along is there.
    Run,
    /// The changes to its repository are uploaded once the plan was agreed to.
    Plan,
    /// Offers are shown also for what cannot be run yet.
    Offers,
}

pub fn read(
    shared: &Shared,
    by: &Principal,
    project: &str,
    mut run_spec: RunSpec,
    purpose: Purpose,
) -> Result<RunRequest, Refused> {
    let invalid = |text: String| ApiError::invalid_body(&["run_spec", "configuration"], text);
    let loaded = from_json(&run_spec.configuration, run_spec.profile.as_ref())
        .map_err(|fault| invalid(fault.to_string()))?;
    // From here on it is what was read of it.
    run_spec.configuration = Default::default();
    of_loaded(shared, by, project, loaded, run_spec, purpose)
}

/// As [`read`], of a configuration that was read already.
pub fn of_loaded(
    shared: &Shared,
    by: &Principal,
    project: &str,
    loaded: Loaded,
    run_spec: RunSpec,
    purpose: Purpose,
) -> Result<RunRequest, Refused> {
    if purpose != Purpose::Offers {
        loaded.applicable().map_err(|fault| Refused::because(fault.to_string()))?;
    }
    let Some(mut task) = loaded.configuration.into_task() else {
        return Err(Refused::because("expected a task, a dev environment or a service"));
    };
    if let Some(account) = account_of(project) {
        if task.account.as_ref().is_some_and(|said| *said != account) {
            return Err(Refused::because(format!(
                "`account`: runs of project {project} are its own"
            )));
        }
        task.account = Some(account);
    }
    let random = u64::from_le_bytes(clock::random());
    let name = run_spec.run_name.clone().or(task.name.clone());
    let name = name.unwrap_or_else(|| name::generate(random));
    if !name::is_valid(&name) {
        return Err(Refused::because(format!("run name {name:?}: expected {}", name::RULE)));
    }
    task.name = Some(name.clone());
    if !task.instances.is_empty() {
        let known = {
            let state = shared.read();
            let nodes = state.nodes.values().map(|node| (&*node.config, &node.facts));
            KnownInstances::new(&task, state.partitions.iter().map(|partition| &**partition), nodes)
        };
        resolve_instances(&mut task, &known)
            .map_err(|error| Refused::because(error.to_string()))?;
    }
    let mut submission = submission(shared, by, &task, random)?;
    if let (Some(workspace), true) = (&mut submission.workspace, purpose != Purpose::Offers) {
        let (said, here) = (task.files.len(), run_spec.file_archives.len());
        if said != here {
            let text = format!("`files`: expected an archive for each, {said}, and not {here}");
            return Err(Refused::because(text));
        }
        let is_run = purpose == Purpose::Run;
        if is_run {
            workspace.files = file::named(shared, by, &run_spec.file_archives)?;
        } else {
            file::find(shared, by, &run_spec.file_archives)?;
        }
        let repository = repo::of_run(shared, by, project, &run_spec, &task, is_run)?;
        (workspace.repository, submission.git_credentials) = repository.unzip();
    }
    let sent = RunSpec {
        run_name: Some(name.clone()),
        repo_id: run_spec.repo_id.or_else(|| Some(NO_REPOSITORY.to_owned())),
        repo_data: run_spec.repo_data.or_else(|| Some(json!({"repo_type": "virtual"}))),
        profile: run_spec.profile.map(profile_for_client),
        ..run_spec
    };
    let is_key_held = sent.ssh_key_pub.is_none() && shared.setup.ssh.is_some();
    let held_key = is_key_held.then(|| {
        settle_held_key(shared, &by.name);
        shared.ssh_keys.held_public_line(&by.name)
    });
    Ok(RunRequest { name, task, submission, sent, held_key, configuration: loaded.value })
}

fn submission(
    shared: &Shared,
    by: &Principal,
    task: &Task,
    random: u64,
) -> Result<Submission, Refused> {
    let login = shared.volatile.logins.find(by.uid);
    let home = login.as_ref().map_or("/".to_owned(), |login| login.home.clone());
    let variable = |name: &str| match name {
        "HOME" => Some(home.clone()),
        "USER" => Some(by.name.clone()),
        "SHELL" => login.as_ref().map(|login| login.shell.clone()),
        "PATH" => Some(PATH.to_owned()),
        _ => None,
    };
    let submitter = Submitter {
        now: clock::now(),
        random,
        work_dir: &home,
        file: None,
        submit_line: "dstack apply".to_owned(),
        host: shared.setup.hostname.clone(),
        session: 0,
        umask: 0o022,
        variable: &variable,
    };
    let drafted = draft(task, &submitter);
    let mut drafted = drafted.map_err(|error| Refused::because(error.to_string()))?;
    drafted.keep_within(shared.read().partitions.iter().map(|partition| &**partition));
    Ok(drafted.submission)
}
