//! `sluice apply -f FILE`: shows the offers for a configuration, asks, submits, and follows the run. `active_run` is the run of the
//! same name that is there already, `dependencies` the runs that a task names, `run_links` what of a run is opened beside its log,
//! `array_run` the tasks of an array, which are followed together.

mod active_run;
mod array_run;
mod dependencies;
mod run_links;

use super::fleet_apply::{self, FleetApply};
use super::log_output::LogOutput;
use super::service_url::ServerBase;
use super::{
    ask, attach, cluster, confirm, each_group, nodes_of, offer_json, print, print_json, stop,
    task_file, unexpected, volume, workspace,
};
use crate::client::Client;
use crate::command::program_name::program_name;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration::load::Override;
use ::dstack::configuration::resources::Resources;
use ::dstack::configuration::task::Task;
use ::dstack::configuration::{Configuration, Loaded};
use ::dstack::effective;
use ::dstack::no_offer;
use ::dstack::node_offer;
use ::dstack::offer::Offer;
use ::dstack::offer_size::why_larger;
use ::dstack::request::{
    self, Draft, KnownInstances, RequestError, Submitter, is_same_run, next_deployment,
    set_deployment, update_in_place,
};
use ::dstack::run_summary::{self, Nodes, RunSummary};
use ::dstack::status::RunStatus;
use ::dstack::table::{self, Plan, PsRow, RunKind};
use ::server::stored_form;
use ::slurm::words::note;
use active_run::{active_run, first_of, group_specs, specs_of};
use clap::{Args, Parser};
use dependencies::resolve_dependencies;
use model::change::{JobChange, JobFilter, JobRef};
use model::fleet::MAIN_PROJECT;
use model::id::JobId;
use model::node::NodeConfig;
use model::os_text;
use model::partition::Partition;
use model::reason::Refusal;
use model::service::Service;
use model::time::Timestamp;
use run_links::{RunLinks, RunPorts};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, Submission};
use wire::view::{ClusterView, JobView};

/// A run that has not started by then is reported as waiting.
const WAITING_AFTER_MS: u64 = 1_000;

#[derive(Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub server: ServerLocationArgs,
    /// The configuration, or a batch script; - reads a configuration from standard input
    #[arg(short, long, default_value = task_file::DEFAULT_FILE, value_name = "FILE")]
    pub file: String,
    /// The run's name, whatever the configuration says
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// The project, which is the account that the run is charged to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    pub project: String,
    /// A profile of .dstack/profiles.yml, here or in your home; else the one that is the default there
    #[arg(long, env = "DSTACK_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// A variable of the run, whatever the configuration says; KEY alone has the value that it has here
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub env: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Submit again even if the same run is active
    #[arg(long)]
    pub force: bool,
    /// Return once the run is submitted
    #[arg(short, long)]
    pub detach: bool,
    /// Taken as dstack's client takes it: the plan has all its properties without it
    #[arg(short = 'v', long = "verbose")]
    pub _verbose: bool,
    /// Print JSON once the run is submitted, or without -d when it has ended; needs -y. `sluice logs --json` has its output
    #[arg(long, requires = "yes")]
    pub json: bool,
}

impl ApplyArgs {
    /// Prints for people.
    fn say(&self, text: &str) -> Result<(), VerbError> {
        if self.json { Ok(()) } else { print(text) }
    }
}

/// What is done about a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Submit,
    /// The active run was updated in place.
    Update,
    Unchanged,
    Declined,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Submit => "submitted",
            Self::Update => "updated",
            Self::Unchanged => "unchanged",
            Self::Declined => "declined",
        }
    }
}

#[derive(Parser)]
struct SubmitLine {
    #[command(flatten)]
    args: ApplyArgs,
}

pub fn run(args: ApplyArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let loaded = task_file::read(&args.file, args.profile.as_deref(), &[], &args.env)?;
    if let Configuration::Fleet(fleet) = task_file::applicable(&loaded, &args.file)? {
        let asked = FleetApply {
            project: &args.project,
            file: &args.file,
            name: args.name.as_deref(),
            user: user_name(),
            yes: args.yes,
            detach: args.detach,
        };
        return fleet_apply::apply(&mut client, &asked, fleet, loaded.value.to_json());
    }
    if let Configuration::Volume(asked) = task_file::applicable(&loaded, &args.file)? {
        let (name, project) = (args.name.as_deref(), args.project.clone());
        let call = volume::of_cloud(asked, name, &args.file, project)?;
        if !args.yes && !confirm("Create the volume?")? {
            print("Exiting...\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        ask(&mut client, call)?;
        print("OK\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (task, mut draft, nodes) = prepare(&mut client, &args, &loaded)?;
    let (first, why) = offers(&mut client, &draft.submission, &nodes)?;
    let mut offers_of_each = vec![first];
    let of_groups = task.groups.iter().map(|group| &group.resources);
    let of_replicas = task.replica_groups.iter().map(|group| &group.resources);
    let resources: Vec<&Resources> = of_groups.chain(of_replicas).collect();
    let first = resources.first().copied().unwrap_or(&task.resources);
    let mut missing: Vec<String> = why.iter().map(|why| no_offer::explained(why, first)).collect();
    if !draft.submission.het_components.is_empty() {
        let others = request::group_requests(&draft.submission);
        for (request, resources) in others.iter().zip(&resources).skip(1) {
            let (found, why) = offers(&mut client, request, &nodes)?;
            offers_of_each.push(found);
            missing.extend(why.iter().map(|why| no_offer::explained(why, resources)));
        }
    }
    let user = user_name();
    args.say(&table::plan(&Plan {
        project: &args.project,
        user: &user,
        task: &task,
        kind: RunKind::of(&loaded.configuration),
        offers: &offers_of_each,
        cluster_limit: cluster_limit(&draft),
    }))?;
    // Each of the groups has its own offers; a run without groups has one list.
    let mut asked = std::iter::once(first).chain(resources.iter().copied().skip(1));
    let several = task.nodes.min > 1 || !task.groups.is_empty();
    let larger = |offers: &Vec<Offer>| why_larger(asked.next()?, offers, several);
    if let Some(why) = offers_of_each.iter().find_map(larger) {
        args.say(&format!(" {why}\n"))?;
    }
    for why in &missing {
        args.say(&format!("{why}\n"))?;
    }
    args.say("\n")?;
    let action = confirm_submit(&mut client, &mut draft, &args)?;
    let name = draft.submission.spec.name.clone();
    let offers: Vec<_> = offers_of_each.iter().flatten().map(offer_json::to_json).collect();
    let mut said = json!({
        "project": args.project, "name": name, "result": action.word(), "offers": offers,
    });
    if !missing.is_empty() {
        said["no_offers"] = json!(missing);
    }
    if action != Action::Submit {
        if args.json {
            print_json(&said)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The replicas of a service are followed by its first.
    let array = draft.submission.array.as_ref().filter(|_| task.service.is_none());
    let array_tasks = array.map(|array| array.indices.len());
    let job = match submit(&mut client, draft.submission, first)? {
        Ok(job) => job,
        Err(why) if args.json => return Err(not_submitted(&name, &why)),
        Err(why) => return no_capacity(&name, &why),
    };
    said["job_id"] = json!(job);
    let project = task.account.as_deref().unwrap_or(MAIN_PROJECT);
    if task.service.is_some() {
        let base = ServerBase::of(&mut client)?;
        let path = || json!({ "url": base.whole(&Service::path(project, &name)) });
        let service = submitted(&mut client, job).and_then(|run| base.service(&run));
        let service = service.unwrap_or_else(path);
        args.say(&service_lines(&name, &service))?;
        said["service"] = service;
    }
    if args.json {
        let mut code = ExitCode::SUCCESS;
        if !args.detach {
            let ended = run_end(&mut client, job, array_tasks.is_some())?;
            said["status"] = json!(ended.status);
            said["exit_status"] = json!(ended.exit);
            said["error"] = json!(ended.run_error());
            code = exit_code(&ended);
        }
        print_json(&said)?;
        return Ok(code);
    }
    if args.detach {
        print(&format!("Run {name} submitted, detaching...\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(count) = array_tasks {
        return array_run::follow(&mut client, job, &name, count);
    }
    let links = RunLinks::of(&task, &loaded);
    follow_run(&mut client, job, &name, &nodes, &links)
}

/// Submits what a file describes, with other values for some of its properties, without a word.
pub fn submit_file(file: &str, overrides: &[Override]) -> Result<(Client, JobId), VerbError> {
    // The environment says what it says to `sluice apply`.
    let words = ["sbatch", &format!("--file={file}"), "--yes", "--detach"];
    let words = words.map(os_text::to_os);
    let SubmitLine { args } = SubmitLine::try_parse_from(words).map_err(message)?;
    let mut client = args.server.client()?;
    let loaded = task_file::read(&args.file, args.profile.as_deref(), overrides, &args.env)?;
    let has_groups = !loaded.value.get("groups").is_null();
    if has_groups && overrides.iter().any(|one| one.path.starts_with(&["resources"])) {
        let why = "options for resources are not for `groups`, which have their own";
        return Err(VerbError::Message(format!("{file}: {why}")));
    }
    let (task, draft, _) = prepare(&mut client, &args, &loaded)?;
    let name = draft.submission.spec.name.clone();
    let submitted = submit(&mut client, draft.submission, &task.resources)?;
    let job = submitted.map_err(|why| not_submitted(&name, &why))?;
    Ok((client, job))
}

/// The task of the file as a submission that the server refuses while a run of its name is active, and the nodes of the cluster.
fn prepare(
    client: &mut Client,
    args: &ApplyArgs,
    loaded: &Loaded,
) -> Result<(Task, Draft, Nodes), VerbError> {
    let (mut task, configuration) = task_file::task_of(loaded, &args.file, args.name.as_deref())?;
    if args.project != MAIN_PROJECT {
        // What the configuration says itself is an account of the same books.
        task.account.get_or_insert_with(|| args.project.clone());
    }
    resolve_dependencies(client, &mut task, args)?;
    let cluster = cluster(client)?;
    resolve_instances(&mut task, &cluster, &args.file)?;
    let file = (args.file != "-").then_some(args.file.as_str());
    let line = format!("sluice apply -f {}", args.file);
    let mut draft = translate(&task, &args.file, file, line)?;
    draft.submission.unique_name = true;
    let name = &draft.submission.spec.name;
    let kept = effective::run_spec(name, file.map(str::to_owned), &configuration);
    draft.submission.configuration = Some(serde_json::to_string(&kept).map_err(message)?);
    if let Some(brought) = &mut draft.submission.workspace {
        workspace::fill(brought, &task, folder_of(&args.file))?;
    }
    draft.keep_within(cluster.partitions.iter());
    let mut nodes = cluster.nodes.iter().map(|node| &node.config);
    if !nodes.any(may_be_machine) && !cluster.partitions.iter().any(takes_machines_in) {
        draft.tell_of_machine_choice(&task);
    }
    for notice in &draft.notices {
        eprintln!("{}: {notice}", args.file);
    }
    Ok((task, draft, nodes_of(cluster)))
}

/// Whether the node is a machine of a source, or may be one when it is powered up.
fn may_be_machine(node: &NodeConfig) -> bool {
    node.machine.is_some() || node.cloud
}

/// Whether machines of sources may become nodes of the partition.
fn takes_machines_in(partition: &Partition) -> bool {
    !partition.dynamic_members.is_none()
}

/// The names of the nodes that `instances` names otherwise. Errors begin with `what`.
pub(super) fn resolve_instances(
    task: &mut Task,
    cluster: &ClusterView,
    what: &str,
) -> Result<(), VerbError> {
    let nodes = cluster.nodes.iter().map(|node| (&node.config, &node.facts));
    let known = KnownInstances::new(task, cluster.partitions.iter(), nodes);
    request::resolve_instances(task, &known)
        .map_err(|error| VerbError::Message(format!("{what}: {error}")))
}

fn message(error: impl std::fmt::Display) -> VerbError {
    VerbError::Message(error.to_string())
}

/// Errors begin with `what`.
pub(super) fn translate(
    task: &Task,
    what: &str,
    file: Option<&str>,
    submit_line: String,
) -> Result<Draft, VerbError> {
    let here = std::env::current_dir().map_err(VerbError::file("."))?;
    let file = file.map(|file| here.join(file).display().to_string());
    let host = nix::unistd::gethostname().map_err(message)?;
    let session = nix::unistd::getsid(None).map_or(0, |id| id.as_raw().unsigned_abs());
    let work_dir = here.display().to_string();
    let variable = |name: &str| std::env::var(name).ok();
    let submitter = Submitter {
        now: ::server::clock::now(),
        random: u64::from_le_bytes(::server::clock::random()),
        work_dir: &work_dir,
        file,
        submit_line,
        host: host.to_string_lossy().into_owned(),
        session,
        umask: umask(),
        variable: &variable,
    };
    request::draft(task, &submitter).map_err(|error| match error {
        RequestError::Environment(fault) => VerbError::Message(fault.in_file(what)),
        other => VerbError::Message(format!("{what}: {other}")),
    })
}

/// The folder that the paths of a configuration are relative to.
fn folder_of(file: &str) -> &Path {
    Path::new(file).parent().filter(|_| file != "-").unwrap_or(Path::new(""))
}

/// The name of the calling user, or the id if it has no name.
fn user_name() -> String {
    let uid = nix::unistd::getuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// The mask can only be read by setting another.
fn umask() -> u32 {
    use nix::sys::stat::{Mode, umask};
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

/// The offers, those on free nodes first. None if no node can ever run it, with the reason.
pub(super) fn offers(
    client: &mut Client,
    submission: &Submission,
    nodes: &Nodes,
) -> Result<(Vec<Offer>, Option<Refusal>), VerbError> {
    let patient = Box::new(request::for_offers(submission));
    match client.call(Call::Offers(patient))? {
        Answer::Offers(mut found) => {
            found.sort_by_key(wire::client::Offer::turn);
            let shown = found
                .iter()
                .map(|offer| {
                    let made = offer.machine.as_deref();
                    node_offer::offered(offer, made.or_else(|| nodes.get(&offer.node)))
                })
                .collect();
            Ok((shown, None))
        }
        Answer::Refused(why @ (Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_))) => {
            Ok((Vec::new(), Some(why)))
        }
        Answer::Refused(Refusal::UnknownPartition(name)) => {
            Err(VerbError::Message(format!("fleet {name} does not exist")))
        }
        Answer::Refused(why) => Err(why.into()),
        other => Err(unexpected(&other)),
    }
}

/// After what time the cluster ends the run. It is the run's own limit where that says one.
fn cluster_limit(draft: &Draft) -> Option<Duration> {
    let minutes = draft.submission.spec.request().time_limit?.minutes()?;
    Some(Duration::from_secs(60 * u64::from(minutes)))
}

/// Whether to submit: the user confirms it, and an active run of the same name is stopped first.
fn confirm_submit(
    client: &mut Client,
    draft: &mut Draft,
    args: &ApplyArgs,
) -> Result<Action, VerbError> {
    let name = &draft.submission.spec.name.clone();
    let active = active_run(client, name)?;
    let Some(first) = active.first().map(first_of) else {
        let yes = args.yes || confirm(&format!("Submit the run {name}?"))?;
        if !yes {
            print("Exiting...\n")?;
            return Ok(Action::Declined);
        }
        return Ok(Action::Submit);
    };
    let asked = stored_form(&draft.submission);
    // Tasks of an array that have ended may be gone: what there is does not tell which it was.
    let is_array = active.iter().any(|job| job.array.is_some());
    let is_service = draft.submission.spec.launch.service.is_some();
    let known = if is_service { group_specs(&active) } else { specs_of(&active) };
    let is_unchanged =
        (is_service || !is_array && draft.submission.array.is_none()) && is_same_run(known, &asked);
    if is_unchanged && !args.force {
        args.say(&format!("Active run {name} already exists. Detected no changes.\n"))?;
        args.say("Use --force to apply anyway.\n")?;
        return Ok(Action::Unchanged);
    }
    let specs = specs_of(&active);
    if let Some(fields) = update_in_place(&specs, &asked).filter(|_| !is_array && !args.force) {
        args.say(&format!("Active run {name} already exists and can be updated in place.\n"))?;
        let yes = args.yes || confirm("Update the run?")?;
        if !yes {
            print("Exiting...\n")?;
            return Ok(Action::Declined);
        }
        for part in &active {
            let change = JobChange::Fields(fields.clone());
            ask(client, Call::UpdateJob { job: JobRef::whole(part.id), change })?;
        }
        args.say(&format!("Run {name} updated\n"))?;
        return Ok(Action::Update);
    }
    let next = specs.first().and_then(|spec| next_deployment(spec, &draft.submission.spec));
    if let Some(next) = next.filter(|_| !args.force) {
        args.say(&format!("Active service {name} is replaced once the new replicas are ready.\n"))?;
        if !args.yes && !confirm("Update the service?")? {
            print("Exiting...\n")?;
            return Ok(Action::Declined);
        }
        set_deployment(&mut draft.submission, next);
        return Ok(Action::Submit);
    }
    args.say(&format!("Active run {name} already exists and cannot be updated in place.\n"))?;
    if !args.yes && !confirm("Stop and override the run?")? {
        print("Exiting...\n")?;
        return Ok(Action::Declined);
    }
    match active.first().filter(|job| job.spec.launch.service.is_some()) {
        Some(service) => stop::end_service(client, service)?,
        None => stop::end(client, first, false)?,
    }
    for part in active.iter().filter(|part| !part.state.is_ended()) {
        attach::await_end(client, part.id)?;
    }
    Ok(Action::Submit)
}

/// A run that was submitted, as far as the server shows it.
fn submitted(client: &mut Client, job: JobId) -> Option<JobView> {
    let filter =
        JobFilter { jobs: vec![JobRef::whole(job)], all_states: true, ..JobFilter::default() };
    each_group(client, filter).unwrap_or_default().into_iter().next()
}

/// Where the service is, and its model where it has one.
fn service_lines(name: &str, service: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = format!("Service {name} is at {}\n", text(&service["url"]));
    let model = &service["model"];
    if !model.is_null() {
        let (model, at) = (text(&model["name"]), text(&model["base_url"]));
        lines.push_str(&format!("Model {model} is at {at}\n"));
    }
    lines
}

/// Submits. The inner error says why a run that does not wait cannot start now.
fn submit(
    client: &mut Client,
    submission: Submission,
    resources: &Resources,
) -> Result<Result<JobId, String>, VerbError> {
    match client.call(Call::Submit(Box::new(submission)))? {
        Answer::Submitted { job, beyond_partition, beyond_time, unknown_names, .. } => {
            let lines = beyond_partition.iter().map(note::beyond_partition);
            let lines = lines.chain(beyond_time.iter().map(note::beyond_time));
            let lines = lines.chain(note::unknown_names(&unknown_names));
            lines.for_each(|line| eprintln!("{}: note: {line}", program_name()));
            Ok(Ok(job))
        }
        Answer::Refused(Refusal::NoCapacityNow) => Ok(Err(no_offer::WOULD_WAIT.to_owned())),
        Answer::Refused(why @ (Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_))) => {
            Ok(Err(no_offer::missing(&why, resources)))
        }
        Answer::Refused(why) => Err(why.into()),
        other => Err(unexpected(&other)),
    }
}

fn no_capacity(name: &str, why: &str) -> VerbResult {
    let row = PsRow {
        name: name.to_owned(),
        status: RunSummary::without_capacity().message,
        submitted: time_of_day(::server::clock::now()),
        ..PsRow::default()
    };
    print(&table::ps(&[row], false))?;
    Err(not_submitted(name, why))
}

fn not_submitted(name: &str, why: &str) -> VerbError {
    VerbError::Message(format!("run {name} was not submitted: {why}"))
}

fn time_of_day(time: Timestamp) -> String {
    let text = model::time::format_iso(time, &timezone::local());
    text.get(11..16).unwrap_or_default().to_owned()
}

/// Shows the run when it starts, its output, and its end. The exit code says whether it succeeded.
fn follow_run(
    client: &mut Client,
    job: JobId,
    name: &str,
    nodes: &Nodes,
    links: &RunLinks,
) -> VerbResult {
    attach::detach_on_interrupt(name)?;
    let started = attach::await_start(client, job, WAITING_AFTER_MS, |view| {
        let message = RunSummary::of_job(view).message;
        eprintln!("{name} waits ({message}); Ctrl-C detaches from it");
    })?;
    let started = attach::whole(client, started)?;
    print(&table::ps(&run_summary::rows(&started, nodes, &time_of_day(started.submit)), false))?;
    let summary = RunSummary::of_job(&started);
    // A node that gets the image says in the run's log how far it is.
    let word = if summary.status == RunStatus::Provisioning { "" } else { " completed" };
    print(&format!("\n{name} provisioning{word} ({})\n", summary.message))?;
    if !started.state.is_ended() {
        links.print(client, &started)?;
    }
    let mut ports = RunPorts::of(links);
    let ended = attach::follow(client, job, 0, &mut LogOutput::Plain, &mut ports)?;
    drop(ports);
    let ended = RunSummary::of_job(&ended);
    let mut message = ended.message.clone();
    if let Some(first) = message.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    match ended.run_error().as_str() {
        "" => print(&format!("{message}\n"))?,
        why => print(&format!("{message}: {why}\n"))?,
    }
    Ok(exit_code(&ended))
}

/// Waits for the end of the run. That of an array is the end of its first task that did not succeed.
fn run_end(client: &mut Client, job: JobId, is_array: bool) -> Result<RunSummary, VerbError> {
    if is_array {
        let tasks = array_run::ended(client, job)?;
        if let Some(end) = array_run::speaks_for_all(&tasks) {
            return Ok(end.clone());
        }
    }
    Ok(RunSummary::of_job(&attach::ended(client, job)?))
}

fn exit_code(ended: &RunSummary) -> ExitCode {
    if ended.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;

    #[test]
    fn node_of_a_cloud_that_is_powered_down_may_become_a_machine() {
        let own = NodeConfig::plain("n1", 2, Bytes::from_gib(4));
        assert!(!may_be_machine(&own));
        assert!(may_be_machine(&NodeConfig { cloud: true, ..own }));
    }
}
