//! From a task to the submission that the server gets: every amount is a range, and dstack's defaults are filled in.
//!
//! Nothing here looks at the machine: the caller, its folder and its environment come in with the [`Submitter`].

use crate::configuration::env::ResolvedVariable;
use crate::configuration::fault::Fault;
use crate::configuration::policy::{FleetName, Instance, StopCriteria};
use crate::configuration::resources::Resources;
use crate::configuration::task::{self, FileMapping, NodeGroup, Task};
use crate::{name, script};
use model::amount::Bytes;
use model::array::ArraySpec;
use model::change::JobField;
use model::container::{Container, ContainerPorts, ContainerUser, Mount, Variables};
use model::cron::Schedule;
use model::dependency::Dependency;
use model::fleet;
use model::gpu::GpuSpec;
use model::grammar::GrammarError;
use model::interpolation::{self, Piece, Place, Reference};
use model::node::{NodeConfig, NodeFacts};
use model::partition::Partition;
use model::principal::{Principal, Role};
use model::range::Range;
use model::request::{DeviceMake, Grant, GresRequest, Memory, Per, Request, Sharing, WaitPolicy};
use model::run::{Component, JobSpec, Launch, LaunchKind, Retry};
use model::secret::{RegistryAuth, SecretValue};
use model::time::{TimeLimit, Timestamp};
use model::volume::VolumeUse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::client::Submission;
use wire::workspace::Workspace;

/// The variables of the submitting client that a run gets; dstack passes no others on.
const FROM_CLIENT: [&str; 5] = ["HOME", "PATH", "USER", "SHELL", "LANG"];

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
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

/// The run that the task describes.
pub fn draft(task: &Task, submitter: &Submitter<'_>) -> Result<Draft, RequestError> {
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
        hold: None,
        priority: None,
        requeue_unsaid: false,
        script: Some(script(task)?),
        environment: Some(environment),
        first_step: None,
        configuration: None,
        unique_name: false,
        registry_auth: registry_auth(task),
        workspace: workspace(task).map(Box::new),
        git_credentials: None,
    };
    Ok(Draft { submission, notices: notices(task) })
}

/// The commands as one script. References to nodes of groups become references to ranks, as nodes of the first group: an
/// address is filled in when the nodes are known.
fn script(task: &Task) -> Result<String, RequestError> {
    let mut ends: Vec<u32> = Vec::new();
    for group in &task.groups {
        ends.push(ends.last().unwrap_or(&0).saturating_add(group.nodes));
    }
    let rank = |group: u32, node: u32| {
        let named = task.groups.get(group as usize).filter(|named| node < named.nodes)?;
        Some(ends[group as usize] - named.nodes + node)
    };
    let text = if let Some(words) = entrypoint(task) {
        script::of_words(&words)
    } else if task.groups.is_empty() {
        let docker = task.container.docker.then(|| script::START_DOCKER.to_owned());
        let commands: Vec<String> = docker.into_iter().chain(task.commands.clone()).collect();
        script::script(&task.shell, &commands)
    } else {
        if !script::is_posix(&task.shell) {
            return Err(RequestError::ShellOfGroups(task.shell.0.clone()));
        }
        let docker = task.container.docker.then(|| script::START_DOCKER.to_owned());
        let own = task.groups.iter().map(|group| match &group.commands[..] {
            [] => &task.commands[..],
            own => own,
        });
        let own: Vec<Vec<String>> =
            own.map(|own| docker.iter().chain(own).cloned().collect()).collect();
        let groups: Vec<(u32, &[String])> =
            ends.iter().copied().zip(own.iter().map(Vec::as_slice)).collect();
        script::of_groups(&task.shell, &groups)
    };
    let pieces = interpolation::parse(&text, Place::Command);
    let pieces = pieces.map_err(|error| RequestError::Reference(error.to_string()))?;
    let mut written = String::new();
    for piece in pieces {
        match piece {
            // What is no reference stays none.
            Piece::Text(text) => written.push_str(&text.replace("${{", "$${{")),
            Piece::Reference(Reference::NodeAddress { group, node }) => {
                let unknown = || Reference::NodeAddress { group, node }.text();
                let rank = rank(group, node).ok_or_else(|| {
                    RequestError::Reference(format!("{}: there is no such node", unknown()))
                })?;
                written.push_str(&Reference::NodeAddress { group: 0, node: rank }.text());
            }
            Piece::Reference(other) => written.push_str(&other.text()),
        }
    }
    Ok(written)
}

/// Puts the numbers of jobs in place of the names that the task depends on.
pub fn resolve_dependencies(
    task: &mut Task,
    job_of: impl Fn(&str) -> Option<u32>,
) -> Result<(), RequestError> {
    for term in &mut task.depends_on {
        let Some((kind, run)) = term.split_once(':') else { continue };
        if run.parse::<u32>().is_err() {
            let job = job_of(run).ok_or_else(|| RequestError::NoSuchRun(run.to_owned()))?;
            *term = format!("{kind}:{job}");
        }
    }
    Ok(())
}

/// Names of the nodes that instances are looked for among.
#[derive(Default)]
pub struct KnownInstances {
    /// Of host names and addresses, in small letters, to the name of the node.
    hosts: HashMap<String, String>,
    /// The nodes of each fleet in the order of their names; the default one also by no name.
    fleets: HashMap<Option<String>, Vec<String>>,
}

impl KnownInstances {
    /// What the task needs of the cluster, whose nodes come in the order of their names. It is made while others wait for the
    /// cluster's state: nothing is asked of each pair of two lists.
    pub fn new<'c>(
        task: &Task,
        partitions: impl Iterator<Item = &'c Partition>,
        nodes: impl Iterator<Item = (&'c NodeConfig, &'c NodeFacts)>,
    ) -> Self {
        let mut known = Self::default();
        if task.instances.iter().any(|instance| matches!(instance, Instance::Host(_))) {
            for (config, facts) in nodes {
                let said = [&config.hostname, &config.address, &facts.hostname, &facts.address];
                for host in said {
                    let host = host.to_ascii_lowercase();
                    known.hosts.entry(host).or_insert_with(|| config.name.clone());
                }
            }
        }
        if task.instances.iter().any(|instance| matches!(instance, Instance::OfFleet { .. })) {
            for partition in partitions {
                let mut nodes = partition.nodes.clone();
                nodes.sort_unstable();
                if partition.default {
                    known.fleets.insert(None, nodes.clone());
                }
                known.fleets.insert(Some(partition.name.clone()), nodes);
            }
        }
        known
    }
}

/// Puts the names of nodes in place of hosts and of numbers in fleets.
pub fn resolve_instances(task: &mut Task, known: &KnownInstances) -> Result<(), RequestError> {
    for instance in &mut task.instances {
        let (found, said) = match instance {
            Instance::Name(_) => continue,
            Instance::Host(host) => (known.hosts.get(&host.to_ascii_lowercase()), host.clone()),
            Instance::OfFleet { fleet, number } => {
                let named = self::partitions(std::slice::from_ref(fleet))?;
                let named = named.into_iter().next();
                let of_fleet = known.fleets.get(&named);
                // Hosts of a fleet over SSH have their number in their name, also where others have left.
                let numbered = named.map(|fleet| format!("{fleet}-{number}"));
                let found = of_fleet.and_then(|nodes| {
                    let by_name = nodes.iter().find(|node| Some(*node) == numbered.as_ref());
                    by_name.or_else(|| nodes.get(*number as usize))
                });
                (found, format!("{number} of fleet {}", fleet.name))
            }
        };
        let name = found.ok_or(RequestError::NoSuchInstance(said))?;
        *instance = Instance::Name(name.clone());
    }
    task.instances.sort_unstable_by(|one, other| named(one).cmp(named(other)));
    task.instances.dedup_by(|one, other| named(one) == named(other));
    Ok(())
}

fn named(instance: &Instance) -> &str {
    match instance {
        Instance::Name(name) => name,
        Instance::Host(_) | Instance::OfFleet { .. } => "",
    }
}

/// The names of the only nodes that will do.
fn node_pool(task: &Task) -> Result<Vec<String>, RequestError> {
    let name = |instance: &Instance| match instance {
        Instance::Name(name) => Ok(name.clone()),
        Instance::Host(host) => Err(RequestError::NoSuchInstance(host.clone())),
        Instance::OfFleet { fleet, number } => {
            Err(RequestError::NoSuchInstance(format!("{number} of fleet {}", fleet.name)))
        }
    };
    task.instances.iter().map(name).collect()
}

/// All that the task depends on, by the numbers of jobs.
fn dependency(task: &Task) -> Result<Option<Box<Dependency>>, RequestError> {
    let name = |term: &String| {
        let run = term.split_once(':').map_or(term.as_str(), |(_, run)| run);
        run.parse::<u32>().is_err().then(|| run.to_owned())
    };
    if let Some(name) = task.depends_on.iter().find_map(name) {
        return Err(RequestError::NoSuchRun(name));
    }
    match &task.depends_on[..] {
        [] => Ok(None),
        terms => Ok(Some(Box::new(Dependency::parse(&terms.join(","))?))),
    }
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
        het_components: submission.het_components.clone(),
        script: submission.script.clone(),
        environment: submission.environment.clone(),
        registry_auth: submission.registry_auth.clone(),
        ..without_texts(submission, submission.spec.clone())
    };
    for spec in specs(&mut waiting) {
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
    let one = |spec: &JobSpec| JobSpec { launch: submission.spec.launch.clone(), ..spec.clone() };
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
        first_step: None,
        configuration: None,
        unique_name: submission.unique_name,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
    }
}

/// The specifications of all groups.
fn specs(submission: &mut Submission) -> impl Iterator<Item = &mut JobSpec> {
    std::iter::once(&mut submission.spec).chain(&mut submission.het_components)
}

impl Draft {
    /// `max_duration: off` is as long as the partitions let anybody run; longer would never start.
    pub fn keep_within(&mut self, partitions: &[Partition]) {
        let all = specs(&mut self.submission);
        for Component { request } in all.flat_map(|spec| Arc::make_mut(&mut spec.components)) {
            let named = &request.partitions;
            let is_chosen = |p: &&Partition| {
                if named.is_empty() { p.default } else { named.contains(&p.name) }
            };
            let longest = partitions.iter().filter(is_chosen).map(|p| p.max_time).max();
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
}

/// Whether both would run the same in all their groups: equal but for the submitter, the time and the host.
/// Scripts and environments are stored by content, and compared by their names.
pub fn is_same_run<'a>(
    one: impl IntoIterator<Item = &'a JobSpec>,
    other: impl IntoIterator<Item = &'a JobSpec>,
) -> bool {
    one.into_iter().map(essence).eq(other.into_iter().map(essence))
}

/// What a run that is active would have to change to be the other, where all of that is changed in place: its priority, and
/// the `inactivity_duration` that dev environments have. `None` if it differs in something else as well, or not at all.
pub fn update_in_place(active: &[&JobSpec], asked: &[JobSpec]) -> Option<Vec<JobField>> {
    let first = asked.first()?;
    let (priority, inactivity) = (first.dstack_priority?, first.inactivity_s);
    let mut updated: Vec<JobSpec> = active.iter().map(|spec| (*spec).clone()).collect();
    for spec in &mut updated {
        (spec.dstack_priority, spec.inactivity_s) = (Some(priority), inactivity);
    }
    let mut fields = Vec::new();
    if active.iter().any(|spec| spec.dstack_priority != Some(priority)) {
        fields.push(JobField::RunPriority(priority));
    }
    if active.iter().any(|spec| spec.inactivity_s != inactivity) {
        fields.push(JobField::RunInactivity(inactivity));
    }
    (!fields.is_empty() && is_same_run(&updated, asked)).then_some(fields)
}

/// What decides how a run runs.
fn essence(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.owner = unset_owner();
    (spec.account, spec.qos) = (None, None);
    (spec.submit_line, spec.submit_host, spec.submit_sid) = (no_text(), no_text(), 0);
    let launch = Arc::make_mut(&mut spec.launch);
    // What the server keeps beside the script and the environment, which it is made from as well.
    (launch.command, launch.configuration) = (None, None);
    // Encrypted: equal ones differ.
    (launch.registry_auth, launch.git_credentials) = (None, None);
    launch.blob_bytes = Default::default();
    // Set by the server.
    launch.has_project_secrets = false;
    for component in Arc::make_mut(&mut spec.components) {
        let request = Arc::make_mut(&mut component.request);
        request.wait_policy = WaitPolicy::Forever;
        // The next time of a schedule.
        request.begin = None;
        request.partitions.clear();
    }
    spec
}

fn no_text() -> Arc<str> {
    Arc::from("")
}

/// An empty owner: the server puts in the principal of the connection.
fn unset_owner() -> Arc<Principal> {
    let (name, group) = (String::new(), String::new());
    let groups = Vec::new();
    Arc::new(Principal { name, uid: 0, gid: 0, group, groups, role: Role::User, token_limit: None })
}

fn launch(
    task: &Task,
    own: &[ResolvedVariable],
    submitter: &Submitter<'_>,
) -> Result<Launch, RequestError> {
    let with_secrets = own.iter().filter(|variable| variable.has_secrets);
    Ok(Launch {
        secret_variables: with_secrets.map(|variable| variable.name.clone()).collect(),
        has_project_secrets: false,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        kind: LaunchKind::Task,
        script: None,
        environment: None,
        arguments: Vec::new(),
        work_dir: task.working_dir.as_deref().unwrap_or(submitter.work_dir).into(),
        command: submitter.file.as_deref().map(Into::into),
        stdin: None,
        stdout: None,
        stderr: None,
        first_step: None,
        configuration: None,
        blob_bytes: Default::default(),
        volumes: task.volumes.iter().filter_map(volume_use).collect::<Result<_, _>>()?,
        shared_memory: task.resources.shm_size.filter(|_| !task.container.is_named()),
        startup_order: task.startup_order,
        ends_with_first_node: task.stop_criteria == StopCriteria::MasterDone,
        limit_s: task.max_duration.and_then(|length| u32::try_from(length.as_secs()).ok()),
        stop_s: task.stop_duration.map(stop_s),
        unattended: false,
        append_output: false,
        umask: submitter.umask,
        rlimits: Arc::default(),
        rlimits_asked: false,
        sample_s: None,
        container: container(task)?.map(Box::new),
    })
}

/// `off` lets a run take as long as it wants to stop.
fn stop_s(length: Option<Duration>) -> u32 {
    length.and_then(|length| u32::try_from(length.as_secs()).ok()).unwrap_or(u32::MAX)
}

/// What runs in place of a shell: dstack's `entrypoint` with the commands as its arguments.
fn entrypoint(task: &Task) -> Option<Vec<String>> {
    let own = &task.container.entrypoint;
    (!own.is_empty()).then(|| own.iter().chain(&task.commands).cloned().collect())
}

/// The container of a task with an image: its own files and variables, with what the task names besides.
fn container(task: &Task) -> Result<Option<Container>, RequestError> {
    let asked = &task.container;
    if !asked.is_named() {
        return Ok(None);
    }
    Ok(Some(Container {
        // Docker's image is the site's to choose.
        image: asked.image.clone(),
        docker: asked.docker,
        privileged: asked.privileged || asked.docker,
        mounts: task.volumes.iter().filter_map(mount).collect(),
        user: match &asked.user {
            Some(user) => ContainerUser::Named(user.clone()),
            None => ContainerUser::OfImage,
        },
        command: entrypoint(task).unwrap_or_default(),
        work_dir: task.working_dir.clone(),
        variables: Variables::All,
        shared_memory: task.resources.shm_size,
        ports: ports(task)?,
        own_command: asked.entrypoint.is_empty()
            && task.commands.is_empty()
            && task.groups.is_empty(),
        isolated: true,
        ..Container::default()
    }))
}

/// The ports of the run; those that its groups name are of runs on several nodes, which have their nodes' network.
fn ports(task: &Task) -> Result<ContainerPorts, RequestError> {
    Ok(ContainerPorts::new(task.ports.iter().map(|port| port.of_run).collect())?)
}

/// What is prepared on the node for a run. Whoever submits it fills in the files and the repository that it brings along.
/// Without a `working_dir` such a run starts in a folder of its own, so that what it brings replaces nothing of its user's.
fn workspace(task: &Task) -> Option<Workspace> {
    let own_folder = brings_files(task) && task.working_dir.is_none() && !task.container.is_named();
    let (python, nvcc) = (task.python.clone(), task.container.nvcc);
    let is_needed = brings_files(task) || python.is_some() || nvcc;
    let single_branch = task.single_branch;
    is_needed.then(|| Workspace { own_folder, single_branch, python, nvcc, ..Workspace::default() })
}

fn brings_files(task: &Task) -> bool {
    !task.files.is_empty() || !task.repos.is_empty()
}

fn registry_auth(task: &Task) -> Option<RegistryAuth> {
    let (username, password) = task.container.registry_auth.clone()?;
    let auth = RegistryAuth { username: SecretValue(username), password: SecretValue(password) };
    task.container.image.is_some().then_some(auth)
}

/// A volume that has a name: one that was created, or with `instance: true` a folder of each node.
fn volume_use(volume: &task::Mount) -> Option<Result<VolumeUse, RequestError>> {
    let (name, path, instance) = match volume {
        task::Mount::Volume { names, path } => (names.first()?, path, false),
        task::Mount::Named { name, path } => (name, path, true),
        task::Mount::Instance { .. } => return None,
    };
    let used = VolumeUse::new(name, path);
    Some(used.map(|used| VolumeUse { instance, ..used }).map_err(Into::into))
}

/// A folder of the node, opened with the rights of the run's user.
fn mount(volume: &task::Mount) -> Option<Mount> {
    let task::Mount::Instance { instance_path, path, optional } = volume else { return None };
    let (source, target) = (instance_path.clone(), path.clone());
    Some(Mount { source, target, read_only: false, optional: *optional })
}

fn environment(task: &Task, own: &[ResolvedVariable], submitter: &Submitter<'_>) -> String {
    let is_own = |name: &str| own.iter().any(|variable| variable.name == name);
    // An image has its own home and paths.
    let from_client: &[&str] = if task.container.is_named() { &[] } else { &FROM_CLIENT };
    let inherited = from_client.iter().filter(|name| !is_own(name));
    let mut text = String::new();
    for name in inherited {
        if let Some(value) = (submitter.variable)(name) {
            text.push_str(&format!("{name}={value}\0"));
        }
    }
    for ResolvedVariable { name, value, .. } in own {
        text.push_str(&format!("{name}={value}\0"));
    }
    text
}

/// One request for all nodes of the run; or, where its groups differ, one for each, which start together.
fn requests(task: &Task, now: Timestamp) -> Result<Vec<Request>, RequestError> {
    let groups = task.different_groups();
    if groups.is_empty() {
        return Ok(vec![request(task, &task.resources, task.nodes, now)?]);
    }
    if !task.schedule.is_empty() {
        return Err(RequestError::NotForDifferentGroups("`schedule`"));
    }
    if task.array.is_some() {
        return Err(RequestError::NotForDifferentGroups("`array`"));
    }
    let of_group =
        |group: &NodeGroup| request(task, &group.resources, Range::exactly(group.nodes), now);
    groups.iter().map(of_group).collect()
}

fn request(
    task: &Task,
    resources: &Resources,
    nodes: Range<u32>,
    now: Timestamp,
) -> Result<Request, RequestError> {
    // A run on several nodes has whole ones, as in dstack: no two of its nodes are on one machine, and fabrics are its own.
    let is_multi_node = task.nodes.max != Some(1);
    Ok(Request {
        sharing: if is_multi_node { Sharing::Node } else { Sharing::Share },
        reservation: task.profile.reservation.clone(),
        partitions: partitions(&task.fleets)?,
        node_pool: node_pool(task)?,
        nodes,
        nodes_given: true,
        tasks_per_node: Some(1),
        cpus_per_task: one_or_more(&resources.cpu.count),
        cpus_per_task_given: true,
        memory: Memory::PerNode(resources.memory),
        gres: gpus(resources).into_iter().collect(),
        disk: resources.disk_given.then_some(resources.disk.min),
        architecture: resources.cpu.architecture,
        time_limit: Some(time_limit(task.max_duration)),
        wait_policy: wait_policy(task.retry.as_ref(), now),
        grant: Grant::Offer,
        ..Request::default()
    })
}

/// Every fleet is a partition too; the nodes of `static` are seen through the default one.
fn partitions(fleets: &[FleetName]) -> Result<Vec<String>, RequestError> {
    for FleetName { project, name } in fleets {
        if let Some(project) = project
            && project != fleet::MAIN_PROJECT
        {
            return Err(RequestError::OtherProject {
                project: project.clone(),
                name: name.clone(),
            });
        }
    }
    if fleets.iter().any(|named| named.name == fleet::STATIC) {
        return Ok(Vec::new());
    }
    Ok(fleets.iter().map(|named| named.name.clone()).collect())
}

/// `..4` has no minimum, but a process needs a CPU.
fn one_or_more(count: &Range<u32>) -> Range<u32> {
    let min = count.min.max(1);
    Range { min, max: count.max.map(|max| max.max(min)) }
}

/// Returns `None` when the request's minimum is zero: such a request is satisfied without a GPU.
fn gpus(resources: &Resources) -> Option<GresRequest> {
    let gpu = resources.gpu.as_ref().filter(|gpu| gpu.count.min > 0)?;
    Some(GresRequest {
        per: Per::Node,
        name: "gpu".into(),
        kinds: gpu.names.clone(),
        by_model: true,
        count: gpu.count.map(|count| u64::from(*count)),
        device_memory: device_memory(gpu),
        make: DeviceMake { vendor: gpu.vendor, compute_capability: gpu.compute_capability },
    })
}

/// The memory of each device. With an exact count, `total_memory` bounds it too.
fn device_memory(gpu: &GpuSpec) -> Option<Range<Bytes>> {
    let (Some(total), true) = (&gpu.total_memory, gpu.count.is_exact()) else {
        return gpu.memory;
    };
    let count = u64::from(gpu.count.min);
    let share = Range {
        min: Bytes(total.min.0.div_ceil(count)),
        max: total.max.map(|most| Bytes(most.0 / count)),
    };
    let Some(each) = gpu.memory else { return Some(share) };
    // Where the two ranges do not overlap the result is empty, and no device lies in it.
    let max = [each.max, share.max].into_iter().flatten().min();
    Some(Range { min: each.min.max(share.min), max })
}

fn time_limit(max_duration: Option<Duration>) -> TimeLimit {
    match max_duration.map(|length| length.as_secs().div_ceil(60)) {
        Some(minutes) => u32::try_from(minutes).map_or(TimeLimit::Unlimited, TimeLimit::Minutes),
        None => TimeLimit::Unlimited,
    }
}

/// Without a retry on no-capacity a run starts at once or not at all.
fn wait_policy(retry: Option<&Retry>, now: Timestamp) -> WaitPolicy {
    match retry.filter(|retry| retry.on_no_capacity).map(|retry| retry.duration_s) {
        Some(Some(secs)) => WaitPolicy::Until(now + Duration::from_secs(secs)),
        Some(None) => WaitPolicy::Forever,
        None => WaitPolicy::Now,
    }
}

fn tags(task: &Task) -> Option<String> {
    let each: Vec<String> = task.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!each.is_empty()).then(|| each.join(","))
}

/// One line for each property of the task that is not applied, by the tables of `yaml/property.rs`.
fn notices(task: &Task) -> Vec<String> {
    let resources = &task.resources;
    let gpu = resources.gpu.as_ref();
    let total = gpu.filter(|gpu| gpu.total_memory.is_some() && !gpu.count.is_exact());
    let notices = [
        total.map(|_| {
            "`resources.gpu.total_memory`: is checked only with an exact `count`: use `memory`"
                .into()
        }),
        (task.container.registry_auth.is_some() && task.container.image.is_none())
            .then(|| "`registry_auth`: has no effect without an `image`".to_owned()),
    ];
    notices.into_iter().flatten().collect()
}
