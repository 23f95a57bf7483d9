//! From [`JobOptions`] to what the server is sent, with Slurm's rules for options that were not given.
//!
//! [`resources`] makes the job's request, [`step`] the launch of an `srun`. Nothing here looks at the machine: the user, folder and
//! environment of the caller come with the [`Submitter`].

mod mail;
pub mod multi_prog;
pub mod resources;
pub mod step;

use crate::environment::cpu_freq::set_cpu_frequency;
use crate::environment::export::{exported, option_variables};
use crate::environment::mem_bind::mem_bind_variables;
use crate::environment::{Environment, PRIO_PROCESS};
use crate::option::invocation::Batch;
use crate::option::job_options::{Export, OpenMode, PriorityOption, conflicts};
use crate::option::{Command, JobOptions, OptionError, OptionKey, table};
use crate::words::refusal;
use model::bounds;
use model::container::{Container, NO_CONTAINER};
use model::interpolation::Reference;
use model::principal::Principal;
use model::run::{Component, Hold, JobSpec, Launch, LaunchKind, SignalBefore};
use model::secret::SecretVariable;
use model::service::Service;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::client::Submission;

pub use crate::environment::export::LoginUser;

/// The names of jobs that have no file to be named after.
const NAME_OF_STDIN: &str = "sbatch";
const NAME_OF_WRAP: &str = "wrap";
const NAME_OF_SHELL: &str = "interactive";

/// A job finds the cluster by these variables, so they are passed on whatever `--export` says.
const CLUSTER_PREFIX: &str = "SLUICE_";

/// `--priority=TOP`: higher than every number that `--priority` takes.
const PRIORITY_TOP: u64 = 4_294_967_293;

/// The process that submits: its user, folder, environment and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitter {
    pub command: Command,
    /// The command and its arguments as they were typed.
    pub words: Vec<String>,
    pub owner: Principal,
    /// The folder in which the command was called.
    pub work_dir: String,
    pub host: String,
    pub session: u32,
    pub umask: u32,
    /// The command's own nice value.
    pub nice: i32,
    /// Soft limits, by names such as `NOFILE`.
    pub rlimits: Vec<(String, u64)>,
    pub variables: Vec<(String, String)>,
    /// Read only if [`wants_login`].
    pub login: LoginUser,
    pub now: Timestamp,
}

impl Submitter {
    /// The command as it was typed, for those who look at the job; a long one is cut.
    pub fn submit_line(&self) -> String {
        let mut line = self.words.join(" ");
        bounds::cut(&mut line, bounds::SUBMIT_LINE_BYTES);
        line
    }
}

/// A submission, and what the user is told about it.
#[derive(Debug, Clone)]
pub struct Draft {
    pub submission: Submission,
    /// Lines for standard error, without the command's name.
    pub notes: Vec<String>,
}

/// The job of an `sbatch`.
pub fn batch(batch: &Batch, submitter: &Submitter) -> Result<Draft, OptionError> {
    let options = first(&batch.components);
    // Any component may have `--wrap`.
    let wrapped = batch.components.iter().any(|options| options.wrap.is_some());
    let name = match &batch.script_name {
        Some(path) => base_name(path),
        None if wrapped => NAME_OF_WRAP,
        None => NAME_OF_STDIN,
    };
    let command = batch.script_name.as_ref().map(|path| join(&submitter.work_dir, path));
    let launch = Launch {
        arguments: batch.args.clone(),
        command: command.map(Into::into),
        service: service(options).map(Box::new),
        ..launch(LaunchKind::Batch, options, submitter)
    };
    let mut draft = draft(options, name, launch, submitter)?;
    let others = batch.components.iter().skip(1).map(|options| (options, name));
    draft.add_components(others, submitter)?;
    if options.get_user_env.is_some() && draft.submission.spec.launch.container.is_some() {
        let why = "a container has the environment of its image";
        draft.notes.push(format!("note: --get-user-env has no meaning here: {why}"));
    }
    draft.submission.script = Some(batch.script.clone().into());
    draft.submission.environment = Some(batch_environment(options, submitter));
    Ok(draft)
}

/// `--service`: the job is a replica, or each task of its array is one.
fn service(options: &JobOptions) -> Option<Service> {
    let tasks = options.array.as_ref().map_or(1, |array| array.indices.len());
    let replicas = u32::try_from(tasks).unwrap_or(u32::MAX);
    Some(Service { replicas, ..Service::at(options.service?) })
}

/// The allocation that an `srun` or `salloc` holds; `argv` is what it will run.
pub fn allocation(
    options: &JobOptions,
    argv: &[String],
    submitter: &Submitter,
) -> Result<Draft, OptionError> {
    // The command of `salloc` runs beside the allocation and does not name it.
    let program = argv.first().filter(|_| submitter.command != Command::Salloc);
    let name = program.map_or(NAME_OF_SHELL, |program| base_name(program));
    let launch = launch(LaunchKind::Interactive, options, submitter);
    let mut draft = draft(options, name, launch, submitter)?;
    draft.submission.environment = allocation_environment(options);
    Ok(draft)
}

impl Draft {
    /// Adds the further components of a heterogeneous job: jobs without a script, whose nodes its steps use.
    pub fn add_components<'a>(
        &mut self,
        others: impl Iterator<Item = (&'a JobOptions, &'a str)>,
        submitter: &Submitter,
    ) -> Result<(), OptionError> {
        for (options, name) in others {
            if self.submission.array.is_some() || options.array.is_some() {
                return Err(OptionError::Refused(refusal::INVALID_ARRAY.text));
            }
            let launch = launch(LaunchKind::Interactive, options, submitter);
            let Draft { submission, notes } = draft(options, name, launch, submitter)?;
            self.submission.het_components.push(submission.spec);
            // The components start together: if one is held, all are.
            self.submission.hold = self.submission.hold.or(submission.hold);
            self.notes.extend(notes);
        }
        Ok(())
    }
}

/// A line for each option that was given and has no meaning here.
fn without_meaning(options: &JobOptions, command: Command) -> impl Iterator<Item = String> {
    options.without_meaning.iter().filter_map(move |key| table::note(command, *key))
}

fn draft(
    options: &JobOptions,
    default_name: &str,
    launch: Launch,
    submitter: &Submitter,
) -> Result<Draft, OptionError> {
    conflicts::check(submitter.command, options)?;
    let (request, mut notes) = resources::request(options, submitter.now);
    notes.extend(without_meaning(options, submitter.command));
    notes.extend(mail::notes(options));
    // Slurm's JobRequeue is 1 unless configured otherwise, and only a batch job can be run again.
    let requeue = launch.kind == LaunchKind::Batch && options.requeue.unwrap_or(true);
    let spec = JobSpec {
        name: options.job_name.as_deref().unwrap_or(default_name).into(),
        owner: Arc::new(submitter.owner.clone()),
        account: options.account.clone(),
        qos: options.qos.clone(),
        components: [Component { request: Arc::new(request) }].into(),
        launch: Arc::new(launch),
        dependency: options.dependency.clone().map(Box::new),
        kill_on_invalid_dependency: options.kill_on_invalid_dep.unwrap_or(false),
        nice: options.nice.unwrap_or(0),
        dstack_priority: None,
        requeue,
        retry: None,
        signal: signal(options),
        comment: options.comment.clone(),
        wckey: options.wckey.clone(),
        submit_line: submitter.submit_line().into(),
        submit_host: submitter.host.as_str().into(),
        submit_sid: submitter.session,
        mail: mail::of(options).map(Box::new),
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    };
    let submission = Submission {
        spec,
        het_components: Vec::new(),
        array: options.array.clone(),
        hold: options.hold.then_some(Hold::User),
        requeue_unsaid: options.requeue.is_none(),
        priority: options.priority.map(|priority| match priority {
            PriorityOption::Value(value) => u64::from(value),
            PriorityOption::Top => PRIORITY_TOP,
        }),
        script: None,
        environment: None,
        first_step: None,
        configuration: None,
        unique_name: false,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        group_texts: Vec::new(),
        is_only_of_call: false,
        is_repeat: false,
    };
    Ok(Draft { submission, notes })
}

/// The interval of `--acctg-freq`: `30`, or the entry of `task` in `task=10,energy=60`.
fn sample_s(text: &str) -> Option<u32> {
    let words = text.split(',').map(|word| word.split_once('=').unwrap_or(("task", word)));
    let mut of_tasks = words.filter(|(kind, _)| kind.eq_ignore_ascii_case("task"));
    of_tasks.next_back().and_then(|(_, seconds)| seconds.trim().parse().ok())
}

fn launch(kind: LaunchKind, options: &JobOptions, submitter: &Submitter) -> Launch {
    Launch {
        kind,
        script: None,
        environment: None,
        arguments: Vec::new(),
        work_dir: work_dir(options, submitter).into(),
        command: None,
        stdin: options.input.as_deref().map(file_name),
        stdout: options.output.as_deref().map(file_name),
        stderr: options.error.as_deref().map(file_name),
        first_step: None,
        configuration: None,
        secret_variables: secret_variables(options),
        has_project_secrets: false,
        volumes: options.volumes.clone(),
        without_container: false,
        shared_memory: None,
        startup_order: Default::default(),
        ends_with_first_node: false,
        limit_s: None,
        stop_s: None,
        // The command of an allocation runs beside it.
        login_environment: options.get_user_env.filter(|_| kind == LaunchKind::Batch),
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        blob_bytes: Default::default(),
        unattended: options.no_shell,
        append_output: options.open_mode == Some(OpenMode::Append),
        umask: submitter.umask,
        rlimits: propagated(options, submitter).into(),
        rlimits_asked: options.propagate.is_some(),
        sample_s: options.untyped.get(&OptionKey::AcctgFreq).and_then(|text| sample_s(text)),
        container: container(kind, options).map(Box::new),
        service: None,
        port_forwards: None,
    }
}

/// The container that the script of a batch job runs in; of an allocation, each `srun` brings its own.
fn container(kind: LaunchKind, options: &JobOptions) -> Option<Container> {
    let is_none = |one: &Container| one.image.as_deref() == Some(NO_CONTAINER);
    options.container.clone().filter(|one| kind == LaunchKind::Batch && !is_none(one))
}

/// Whether [`Submitter::login`] is read: `--export` does not pass the caller's whole environment on.
pub fn wants_login(options: &JobOptions) -> bool {
    matches!(options.export, Some(Export::None | Export::Only(_)))
}

/// Whether `--export` passes the caller's search path on, or another.
fn exports_path(options: &JobOptions) -> bool {
    match &options.export {
        None | Some(Export::All(_)) => true,
        Some(Export::Only(variables)) => variables.iter().any(|variable| variable.name == "PATH"),
        Some(Export::None | Export::Nil) => false,
    }
}

/// The exported environment: `NAME=value` each, ended by NUL.
pub(crate) fn environment(options: &JobOptions, submitter: &Submitter) -> String {
    let own: Environment =
        submitter.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut env = exported(&own, options.export.as_ref(), &submitter.login);
    if options.get_user_env.is_some() && !exports_path(options) {
        // The login says it.
        env.remove("PATH");
    }
    for (name, value) in own.iter().filter(|(name, _)| name.starts_with(CLUSTER_PREFIX)) {
        env.set(name, value);
    }
    env.set("SLURM_SUBMIT_DIR", &submitter.work_dir);
    env.set("SLURM_SUBMIT_HOST", &submitter.host);
    env.set(PRIO_PROCESS, submitter.nice);
    set_secret_references(&mut env, options);
    env.to_block()
}

/// The variables of `--secret`. Their values in the environment are references, which the server fills in.
pub(crate) fn secret_variables(options: &JobOptions) -> Vec<String> {
    let names: BTreeSet<&String> = options.secrets.iter().map(|s| &s.variable).collect();
    names.into_iter().cloned().collect()
}

fn set_secret_references(env: &mut Environment, options: &JobOptions) {
    for SecretVariable { secret, variable } in &options.secrets {
        env.set(variable, Reference::Secret(secret.clone()).text());
    }
}

/// The references of an allocation, for the server to check; each `srun` in it has them filled in.
fn allocation_environment(options: &JobOptions) -> Option<String> {
    let mut env = Environment::new();
    set_secret_references(&mut env, options);
    (!options.secrets.is_empty()).then(|| env.to_block())
}

/// The script's environment, with the options that its steps know by variables. Those of a job that the submitter runs in are
/// not inherited.
fn batch_environment(options: &JobOptions, submitter: &Submitter) -> String {
    let mut env = Environment::from_block(&environment(options, submitter));
    let inside_job = env.get("SLURM_JOB_ID").is_some();
    if inside_job || options.distribution.is_some() {
        env.remove("SLURM_DISTRIBUTION");
        env.remove("SLURM_DIST_PLANESIZE");
    }
    if inside_job {
        for (name, _) in option_variables(options) {
            env.remove(name);
        }
    }
    set_step_variables(&mut env, options);
    env.to_block()
}

/// The options of a job that each `srun` in it knows by a variable.
pub fn set_step_variables(env: &mut Environment, options: &JobOptions) {
    let distribution = options.distribution.and_then(step::distribution_variables);
    let memory = options.mem_bind.as_ref().map(mem_bind_variables);
    for (name, value) in distribution.into_iter().chain(memory).flatten() {
        env.set(name, value);
    }
    for (name, value) in option_variables(options) {
        if let Some(value) = value {
            env.set(name, value);
        }
    }
    set_cpu_frequency(env, options.cpu_freq.as_ref());
}

/// `-D`, relative to the folder of the call.
pub(crate) fn work_dir(options: &JobOptions, submitter: &Submitter) -> String {
    match &options.chdir {
        Some(dir) => join(&submitter.work_dir, dir),
        None => submitter.work_dir.clone(),
    }
}

/// The file name `none` means the null device.
fn file_name(text: &str) -> Arc<str> {
    if text.eq_ignore_ascii_case("none") { "/dev/null".into() } else { text.into() }
}

/// The limits that `--propagate` names; all of them without that option.
pub fn propagated(options: &JobOptions, submitter: &Submitter) -> Vec<(String, u64)> {
    let Some(names) = &options.propagate else { return submitter.rlimits.clone() };
    let wanted = |name: &str| {
        names.iter().any(|asked| {
            let asked = asked.to_ascii_uppercase();
            asked == "ALL" || asked.strip_prefix("RLIMIT_").unwrap_or(&asked) == name
        })
    };
    submitter.rlimits.iter().filter(|(name, _)| wanted(name)).cloned().collect()
}

fn signal(options: &JobOptions) -> Option<SignalBefore> {
    options.signal.map(|asked| SignalBefore {
        signal: asked.signal,
        before_s: asked.before_secs,
        batch_only: asked.batch_only,
        overlaps: asked.for_reservation,
    })
}

fn first(components: &[JobOptions]) -> &JobOptions {
    components.first().expect("a command line always has one component")
}

pub(crate) fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

fn join(dir: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    format!("{}/{path}", dir.trim_end_matches('/'))
}

#[cfg(test)]
mod acting_options_tests;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
