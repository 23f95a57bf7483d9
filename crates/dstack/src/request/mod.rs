//! From a task to the submission that the server gets: every amount is a range, and dstack's defaults are filled in.
//!
//! Nothing here looks at the machine: the caller, its folder and its environment come in with the [`Submitter`].

mod dependency;
mod instances;
mod launch;
mod resources;
mod update;

pub use dependency::{NamedRun, resolve_dependencies};
pub use instances::{KnownInstances, resolve_instances};
pub use update::{is_same_run, next_deployment, set_deployment, update_in_place};

use crate::configuration::fault::Fault;
use crate::configuration::policy::SpotPolicy;
use crate::configuration::resources::Resources;
use crate::configuration::task::{FileMapping, Mount, NodeGroup, Task};
use crate::name;
use crate::status::RunStatus;
use dependency::dependency;
use launch::{environment, launch, registry_auth, script, workspace};
use model::amount::Bytes;
use model::array::ArraySpec;
use model::cron::Schedule;
use model::grammar::GrammarError;
use model::partition::Partition;
use model::principal::{Principal, Role};
use model::request::{Request, WaitPolicy};
use model::run::{Component, Hold, JobSpec};
use model::service::Service;
use model::time::{TimeLimit, Timestamp};
use resources::requests;
use std::path::Path;
use std::sync::Arc;
use wire::client::{GroupTexts, Submission};

/// The client that submits, and what surrounds it.
pub struct Submitter<'a> {
    pub now: Timestamp,
    /// For the name of a run without one.
    pub random: u64,
    /// The client's folder: the run starts there if it names none of its own.
    pub work_dir: &'a str,
    /// The configuration file as an absolute path; `None` for standard input.
    pub file: Option<String>,
    pub submit_line: String,
    pub host: String,
    pub session: u32,
    pub umask: u32,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// The submission, and what the user is told besides.
#[derive(Debug, Clone)]
pub struct Draft {
    pub submission: Submission,
    /// One line for each thing that was asked for and changes nothing here.
    pub notices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// To be shown after the file's name.
    #[error(transparent)]
    Environment(#[from] Fault),
    #[error("fleet {project}/{name}: a fleet goes by its name in all projects: expected {name}")]
    OtherProject { project: String, name: String },
    #[error("`depends_on`: run {0} does not exist")]
    NoSuchRun(String),
    #[error("`depends_on`: {term} can never be met: the run is {status}")]
    NeverMet { term: String, status: RunStatus },
    #[error("`instances`: there is no instance {0}")]
    NoSuchInstance(String),
    #[error("`schedule`: {0}: no day of the calendar matches")]
    NeverScheduled(String),
    #[error("`schedule`: an array is not started again and again: leave out one of them")]
    ScheduledArray,
    #[error("`groups`: shell {0}: expected one that has `if` and `[`, as sh and bash do")]
    ShellOfGroups(String),
    #[error("`groups` of different resources: {0} is not for them: leave out one of them")]
    NotForDifferentGroups(&'static str),
    #[error("`files`: {0}: expected a path that ends with a name")]
    NamelessFile(String),
    #[error("`commands`: {0}")]
    Reference(String),
    #[error(
        "`{property}`: `${{{{ env.{name} }}}}`: expected a variable of `env`, for a probe one without secrets"
    )]
    Variable { property: &'static str, name: String },
    #[error("{0}")]
    Service(String),
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

/// The run that the task describes. The groups of replicas of a service are submitted together, each with its own specification and texts.
pub fn draft(task: &Task, submitter: &Submitter<'_>) -> Result<Draft, RequestError> {
    let mut draft = draft_one(task, submitter)?;
    if task.replica_groups.is_empty() {
        return Ok(draft);
    }
    if !task.schedule.is_empty() {
        return Err(RequestError::NotForDifferentGroups("`schedule`"));
    }
    // The server makes each group an array of its own, and holds those that are scaled.
    (draft.submission.array, draft.submission.hold) = (None, None);
    for group in task.replica_groups.iter().skip(1) {
        // What was settled since the file was read is settled for the run.
        let group = Task {
            name: task.name.clone(),
            account: task.account.clone(),
            depends_on: task.depends_on.clone(),
            instances: task.instances.clone(),
            ..group.clone()
        };
        let Draft { submission, notices } = draft_one(&group, submitter)?;
        let texts = GroupTexts {
            script: submission.script.unwrap_or_default(),
            environment: submission.environment.unwrap_or_default(),
            workspace: submission.workspace,
        };
        draft.submission.group_texts.push(texts);
        draft.submission.het_components.push(submission.spec);
        let auth = draft.submission.registry_auth.take();
        draft.submission.registry_auth = auth.or(submission.registry_auth);
        let new = notices.into_iter().filter(|notice| !draft.notices.contains(notice));
        let new: Vec<String> = new.collect();
        draft.notices.extend(new);
    }
    Ok(draft)
}

/// A run whose nodes or replicas are alike, or the groups of a task.
fn draft_one(task: &Task, submitter: &Submitter<'_>) -> Result<Draft, RequestError> {
    let own = task.env.resolve(submitter.variable)?;
    let nameless = |file: &&FileMapping| Path::new(&file.path).file_name().is_none();
    if let Some(FileMapping { path, .. }) = task.files.iter().find(nameless) {
        return Err(RequestError::NamelessFile(path.clone()));
    }
    let environment = environment(task, &own, submitter);
    let schedule = schedule(task)?;
    let mut requests = requests(task, submitter.now)?.into_iter();
    let mut request = requests.next().unwrap_or_default();
    if let Some(schedule) = &schedule {
        request.begin = Some(first_start(task, schedule, submitter.now)?);
        // What is free now says nothing about the times at which it is to run.
        request.wait_policy = WaitPolicy::Forever;
    }
    let is_scaled = task.service.as_ref().is_some_and(|service| service.scaling.is_some());
    if task.service.as_ref().is_some_and(Service::is_held_at_first) {
        // Its replicas start when its load asks for them, or once its router runs.
        request.wait_policy = WaitPolicy::Forever;
    }
    let name = task.name.clone().unwrap_or_else(|| name::generate(submitter.random));
    let spec = JobSpec {
        name: name.into(),
        owner: unset_owner(),
        account: task.account.clone(),
        qos: task.qos.clone(),
        components: [Component { request: Arc::new(request) }].into(),
        launch: Arc::new(launch(task, &own, submitter)?),
        dependency: dependency(task)?,
        kill_on_invalid_dependency: false,
        nice: 0,
        dstack_priority: u8::try_from(task.priority).ok(),
        requeue: task.retry.as_ref().is_some_and(|retry| retry.on_interruption),
        retry: task.retry.clone().map(Box::new),
        signal: None,
        comment: tags(task),
        wckey: None,
        submit_line: submitter.submit_line.as_str().into(),
        submit_host: submitter.host.as_str().into(),
        submit_sid: submitter.session,
        mail: None,
        schedule: schedule.map(Box::new),
        utilization: task.profile.utilization_policy,
        inactivity_s: task.inactivity.and_then(|time| u32::try_from(time.as_secs()).ok()),
        call: None,
    };
    let of_group = |(request, group): (Request, &NodeGroup)| {
        let mut own = JobSpec {
            components: [Component { request: Arc::new(request) }].into(),
            ..spec.clone()
        };
        let launch = Arc::make_mut(&mut own.launch);
        match &mut launch.container {
            Some(container) => container.shared_memory = group.resources.shm_size,
            None => launch.shared_memory = group.resources.shm_size,
        }
        own
    };
    let submission = Submission {
        het_components: requests.zip(task.groups.iter().skip(1)).map(of_group).collect(),
        spec,
        array: array(task)?,
        hold: is_scaled.then_some(Hold::User),
        priority: None,
        requeue_unsaid: false,
        script: Some(script(task)?.into()),
        environment: Some(environment),
        group_texts: Vec::new(),
        first_step: None,
        configuration: None,
        unique_name: false,
        registry_auth: registry_auth(task, &own)?,
        workspace: workspace(task).map(Box::new),
        git_credentials: None,
        is_only_of_call: false,
        is_repeat: false,
    };
    Ok(Draft { submission, notices: notices(task) })
}

/// The indices; the cluster's own limit is checked at submit.
fn array(task: &Task) -> Result<Option<ArraySpec>, RequestError> {
    let spec = task.array.as_deref().map(|text| ArraySpec::parse(text, u32::MAX));
    Ok(spec.transpose()?)
}

fn schedule(task: &Task) -> Result<Option<Schedule>, RequestError> {
    if task.schedule.is_empty() {
        return Ok(None);
    }
    if task.array.is_some() {
        return Err(RequestError::ScheduledArray);
    }
    Ok(Some(Schedule::parse(task.schedule.clone())?))
}

fn first_start(
    task: &Task,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Timestamp, RequestError> {
    let never = || RequestError::NeverScheduled(task.schedule.join(", "));
    schedule.next_after(now).ok_or_else(never)
}

/// The same request, willing to wait: offers depend neither on what is free at the moment nor on what the run brings along.
pub fn for_offers(submission: &Submission) -> Submission {
    let mut waiting = Submission {
        // The groups of a service need no place beside each other: each has its own offers.
        het_components: match submission.spec.launch.service {
            Some(_) => Vec::new(),
            None => submission.het_components.clone(),
        },
        script: submission.script.clone(),
        environment: submission.environment.clone(),
        registry_auth: submission.registry_auth.clone(),
        hold: None,
        ..without_texts(submission, submission.spec.clone())
    };
    for spec in specs(&mut waiting) {
        // By itself a group is not in its place among others.
        if let Some(service) = &mut Arc::make_mut(&mut spec.launch).service {
            service.group = None;
        }
        for component in Arc::make_mut(&mut spec.components) {
            let request = Arc::make_mut(&mut component.request);
            (request.wait_policy, request.begin) = (WaitPolicy::Forever, None);
        }
    }
    waiting
}

/// The request as one for each group of different resources, for the offers of each.
pub fn group_requests(submission: &Submission) -> Vec<Submission> {
    let all = std::iter::once(&submission.spec).chain(&submission.het_components);
    let one = |spec: &JobSpec| match spec.launch.service {
        Some(_) => spec.clone(),
        None => JobSpec { launch: submission.spec.launch.clone(), ..spec.clone() },
    };
    all.map(|spec| without_texts(submission, one(spec))).collect()
}

/// A submission of this specification without its script, its environment and what it brings along, which may be large.
fn without_texts(submission: &Submission, spec: JobSpec) -> Submission {
    Submission {
        spec,
        het_components: Vec::new(),
        array: submission.array.clone(),
        hold: submission.hold,
        priority: submission.priority,
        requeue_unsaid: submission.requeue_unsaid,
        script: None,
        environment: None,
        group_texts: Vec::new(),
        first_step: None,
        configuration: None,
        unique_name: submission.unique_name,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        is_only_of_call: false,
        is_repeat: false,
    }
}

/// The specifications of all groups.
fn specs(submission: &mut Submission) -> impl Iterator<Item = &mut JobSpec> {
    std::iter::once(&mut submission.spec).chain(&mut submission.het_components)
}

impl Draft {
    /// `max_duration: off` is as long as the partitions let anybody run; longer would never start.
    pub fn keep_within<'p>(&mut self, partitions: impl Iterator<Item = &'p Partition> + Clone) {
        let all = specs(&mut self.submission);
        for Component { request } in all.flat_map(|spec| Arc::make_mut(&mut spec.components)) {
            let named = &request.partitions;
            let is_chosen = |p: &&Partition| {
                if named.is_empty() { p.default } else { named.contains(&p.name) }
            };
            let longest = partitions.clone().filter(is_chosen).map(|p| p.max_time).max();
            if let (Some(TimeLimit::Unlimited), Some(most @ TimeLimit::Minutes(_))) =
                (request.time_limit, longest)
            {
                Arc::make_mut(request).time_limit = Some(most);
                let notice = format!("`max_duration`: the cluster ends every run after {most}");
                if !self.notices.contains(&notice) {
                    self.notices.push(notice);
                }
            }
        }
    }

    /// Says what chooses among machines where there are none: own nodes are in every region, of every type, and never spot.
    pub fn tell_of_machine_choice(&mut self, task: &Task) {
        let profile = &task.profile;
        let is_spot = matches!(profile.spot_policy, Some(SpotPolicy::Spot | SpotPolicy::Auto));
        let said = [
            ("regions", !profile.regions.is_empty()),
            ("availability_zones", !profile.availability_zones.is_empty()),
            ("instance_types", !profile.instance_types.is_empty()),
            ("spot_policy", is_spot),
        ];
        let notice = |name: &str| {
            format!("`{name}`: has no effect: no node of this cluster is a machine of a cloud")
        };
        let said = said.into_iter().filter(|(_, is_said)| *is_said);
        self.notices.extend(said.map(|(name, _)| notice(name)));
    }
}

/// An empty owner: the server puts in the principal of the connection.
fn unset_owner() -> Arc<Principal> {
    let (name, group) = (String::new(), String::new());
    let groups = Vec::new();
    Arc::new(Principal { name, uid: 0, gid: 0, group, groups, role: Role::User, token_limit: None })
}

fn tags(task: &Task) -> Option<String> {
    let each: Vec<String> = task.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!each.is_empty()).then(|| each.join(","))
}

/// One line for each property of the task that is not applied, by the tables of `yaml/property.rs`.
fn notices(task: &Task) -> Vec<String> {
    let auth = (task.container.registry_auth.is_some() && task.container.image.is_none())
        .then(|| "`registry_auth`: has no effect without an `image`".to_owned());
    let resources = &task.resources;
    let notices = auth.into_iter().chain(disk_notice(resources));
    notices.chain(shared_memory_notice(resources)).chain(folders_notice(task)).collect()
}

/// A run without an image has folders of its node without a mount, which would tell of one that is not there. The script does not tell
/// of it either: a script of another text is another run.
fn folders_notice(task: &Task) -> Option<String> {
    let folder = |volume: &Mount| match volume {
        Mount::Instance { instance_path, optional: false, .. } => Some(instance_path.clone()),
        _ => None,
    };
    let folders: Vec<String> = task.volumes.iter().filter_map(folder).collect();
    let is_told = !task.container.is_named() && !folders.is_empty();
    is_told.then(|| {
        let folders = folders.join(", ");
        format!("`volumes`: {folders}: without an `image` nothing is mounted: a node may lack it")
    })
}

/// What is in `/dev/shm` counts as memory: more of it than that ends the run before it is full.
fn shared_memory_notice(resources: &Resources) -> Option<String> {
    let memory = resources.memory.max.unwrap_or(resources.memory.min);
    let size = resources.shm_size.filter(|size| *size > memory && memory > Bytes(0))?;
    let (size, memory) = (size.format_dstack(), memory.format_dstack());
    Some(format!("`shm_size`: {size} is more than the `memory` of {memory}, as which it counts"))
}

/// What is asked for at least is what a run is given and held to: the end of a range of `disk` lets it have no more.
fn disk_notice(resources: &Resources) -> Option<String> {
    let disk = &resources.disk;
    let most = disk.max.filter(|most| *most > disk.min)?.format_dstack();
    Some(format!("`disk`: the maximum of {most} is not applied: a run is held to the minimum"))
}
