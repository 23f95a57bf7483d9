//! `sluice apply -f FILE`: shows the offers for a configuration, asks, submits, and follows the run.

use super::{attach, cluster, confirm, jobs, nodes_of, print, stop, unexpected, workspace};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration;
use ::dstack::configuration::task::Task;
use ::dstack::configuration::value::Value;
use ::dstack::effective;
use ::dstack::offer::Offer;
use ::dstack::request::{self, Draft, RequestError, Submitter, is_same_run};
use ::dstack::run_summary::{self, Nodes, RunSummary};
use ::dstack::table::{self, Plan, PsRow};
use ::dstack::{name, node_offer};
use clap::Args;
use jiff::tz::TimeZone;
use model::change::JobFilter;
use model::fleet::MAIN_PROJECT;
use model::id::{BlobRef, JobId};
use model::reason::Refusal;
use model::run::LaunchKind;
use model::time::Timestamp;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use std::process::ExitCode;
use store::BlobId;
use wire::client::{Answer, Call, Submission};
use wire::view::JobView;

/// Bounds what is read of a file; a file near this size is refused by the YAML parser.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A run that has not started by then is reported as waiting.
const WAITING_AFTER_MS: u64 = 1_000;

const WOULD_WAIT: &str =
    "nothing is free for it now; with `retry: {on_events: [no-capacity]}` it would wait";

#[derive(Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The configuration; - reads standard input
    #[arg(short, long, default_value = ".dstack.yml", value_name = "FILE")]
    file: String,
    /// The run's name, whatever the configuration says
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    /// The project, which is the account that the run is charged to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Submit again even if the same run is active
    #[arg(long)]
    force: bool,
    /// Return once the run is submitted
    #[arg(short, long)]
    detach: bool,
}

pub fn run(args: ApplyArgs) -> VerbResult {
    let (mut task, configuration) = read_task(&args)?;
    if args.project != MAIN_PROJECT {
        // What the configuration says itself is an account of the same books.
        task.account.get_or_insert_with(|| args.project.clone());
    }
    let mut client = args.server.client()?;
    resolve_dependencies(&mut client, &mut task, &args)?;
    let file = (args.file != "-").then_some(args.file.as_str());
    let line = format!("sluice apply -f {}", args.file);
    let mut draft = translate(&task, &args.file, file, line)?;
    let name = &draft.submission.spec.name;
    let kept = effective::run_spec(name, file.map(str::to_owned), &configuration);
    draft.submission.configuration = Some(serde_json::to_string(&kept).map_err(message)?);
    if let Some(brought) = &mut draft.submission.workspace {
        workspace::fill(brought, &task, folder_of(&args.file))?;
    }
    let cluster = cluster(&mut client)?;
    draft.keep_within(&cluster.partitions);
    for notice in &draft.notices {
        eprintln!("{}: {notice}", args.file);
    }
    let nodes = nodes_of(cluster);
    let offers = offers(&mut client, &draft.submission, &nodes)?;
    let user = user_name();
    print(&table::plan(&Plan {
        project: &args.project,
        user: &user,
        task: &task,
        offers: &offers,
    }))?;
    print("\n")?;
    if !confirm_submit(&mut client, &draft, &args)? {
        return Ok(ExitCode::SUCCESS);
    }
    let name = draft.submission.spec.name.clone();
    let job = match submit(&mut client, draft.submission)? {
        Ok(job) => job,
        Err(why) => return no_capacity(&name, &why),
    };
    if args.detach {
        print(&format!("Run {name} submitted, detaching...\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    follow_run(&mut client, job, &name, &nodes)
}

/// The task, and the configuration in dstack's own form.
fn read_task(args: &ApplyArgs) -> Result<(Task, Value), VerbError> {
    let mut bytes = Vec::new();
    let read = match args.file.as_str() {
        "-" => stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes),
        path => File::open(path).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)),
    };
    read.map_err(VerbError::file(&args.file))?;
    let loaded = configuration::parse(&args.file, &bytes).map_err(message)?;
    for notice in &loaded.notices {
        eprintln!("{}", notice.in_file(&args.file));
    }
    let applicable = loaded.applicable().map_err(|fault| message(fault.in_file(&args.file)))?;
    let Some(mut task) = applicable.task() else {
        let text = format!("{}: expected `type: task` or `type: dev-environment`", args.file);
        return Err(VerbError::Message(text));
    };
    if let Some(given) = &args.name {
        if !name::is_valid(given) {
            return Err(VerbError::Message(format!("--name {given:?}: expected {}", name::RULE)));
        }
        task.name = Some(given.clone());
    }
    let configuration = loaded.value.clone();
    Ok((task, configuration))
}

/// The newest run of each name that the task depends on.
fn resolve_dependencies(
    client: &mut Client,
    task: &mut Task,
    args: &ApplyArgs,
) -> Result<(), VerbError> {
    let named = task.depends_on.iter().filter_map(|term| Some(term.split_once(':')?.1.to_owned()));
    let names: Vec<String> = named.filter(|run| run.parse::<u32>().is_err()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let runs = jobs(client, JobFilter { names, ..JobFilter::default() })?;
    let newest = |name: &str| {
        let of_name = runs.iter().filter(|job| &*job.spec.name == name);
        of_name.map(|job| job.id.0).max()
    };
    request::resolve_dependencies(task, newest)
        .map_err(|error| VerbError::Message(format!("{}: {error}", args.file)))
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
        RequestError::Environment(fault) => VerbError::Message(format!("{what}:{fault}")),
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

/// The offers, those on free nodes first. Empty if no node can ever run it.
pub(super) fn offers(
    client: &mut Client,
    submission: &Submission,
    nodes: &Nodes,
) -> Result<Vec<Offer>, VerbError> {
    let patient = Box::new(request::for_offers(submission));
    match client.call(Call::Offers(patient))? {
        Answer::Offers(mut found) => {
            found.sort_by_key(|offer| !offer.available);
            Ok(found
                .iter()
                .map(|offer| node_offer::offered(offer, nodes.get(&offer.node)))
                .collect())
        }
        Answer::Refused(Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_)) => Ok(Vec::new()),
        Answer::Refused(Refusal::UnknownPartition(name)) => {
            Err(VerbError::Message(format!("fleet {name} does not exist")))
        }
        Answer::Refused(why) => Err(why.into()),
        other => Err(unexpected(&other)),
    }
}

/// Whether to submit: the user confirms it, and an active run of the same name is stopped first.
fn confirm_submit(client: &mut Client, draft: &Draft, args: &ApplyArgs) -> Result<bool, VerbError> {
    let name = &draft.submission.spec.name;
    let Some(active) = active_run(client, name)? else {
        let yes = args.yes || confirm(&format!("Submit the run {name}?"))?;
        if !yes {
            print("Exiting...\n")?;
        }
        return Ok(yes);
    };
    if is_unchanged(&active, &draft.submission) && !args.force {
        print(&format!("Active run {name} already exists. Detected no changes.\n"))?;
        print("Use --force to apply anyway.\n")?;
        return Ok(false);
    }
    print(&format!("Active run {name} already exists and cannot be updated in place.\n"))?;
    if !args.yes && !confirm("Stop and override the run?")? {
        print("Exiting...\n")?;
        return Ok(false);
    }
    stop::end(client, active.id, false)?;
    attach::await_end(client, active.id)?;
    Ok(true)
}

/// The active run of this name. Jobs of `sbatch` are no runs.
fn active_run(client: &mut Client, name: &str) -> Result<Option<JobView>, VerbError> {
    let filter = JobFilter { names: vec![name.to_owned()], ..JobFilter::default() };
    let active = jobs(client, filter)?.into_iter();
    Ok(active.filter(|job| job.spec.launch.kind == LaunchKind::Task).max_by_key(|job| job.id))
}

/// Compares as the server stores it: scripts and environments by the hashes of their contents.
fn is_unchanged(active: &JobView, submission: &Submission) -> bool {
    let blob = |text: &Option<String>| {
        text.as_ref().map(|text| BlobRef::from(&BlobId::of(text.as_bytes())))
    };
    let mut spec = submission.spec.clone();
    let launch = std::sync::Arc::make_mut(&mut spec.launch);
    launch.script = blob(&submission.script);
    launch.environment = blob(&submission.environment);
    let workspace = submission.workspace.as_ref().and_then(|w| serde_json::to_string(w).ok());
    launch.workspace = blob(&workspace).map(Box::new);
    is_same_run(&active.spec, &spec)
}

/// Submits. The inner error says why a run that does not wait cannot start now.
fn submit(client: &mut Client, submission: Submission) -> Result<Result<JobId, String>, VerbError> {
    match client.call(Call::Submit(Box::new(submission)))? {
        Answer::Submitted { job, .. } => Ok(Ok(job)),
        Answer::Refused(Refusal::NoCapacityNow) => Ok(Err(WOULD_WAIT.to_owned())),
        Answer::Refused(why @ (Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_))) => {
            Ok(Err(why.to_string()))
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
    Err(VerbError::Message(format!("run {name} was not submitted: {why}")))
}

fn time_of_day(time: Timestamp) -> String {
    let text = model::time::format_iso(time, &TimeZone::system());
    text.get(11..16).unwrap_or_default().to_owned()
}

/// Shows the run when it starts, its output, and its end. The exit code says whether it succeeded.
fn follow_run(client: &mut Client, job: JobId, name: &str, nodes: &Nodes) -> VerbResult {
    attach::detach_on_interrupt(name)?;
    let started = attach::await_start(client, job, WAITING_AFTER_MS, |view| {
        let message = RunSummary::of_job(view).message;
        eprintln!("{name} waits ({message}); Ctrl-C detaches from it");
    })?;
    print(&table::ps(&run_summary::rows(&started, nodes, &time_of_day(started.submit)), false))?;
    let summary = RunSummary::of_job(&started);
    print(&format!("\n{name} provisioning completed ({})\n", summary.status))?;
    let ended = RunSummary::of_job(&attach::follow(client, job, 0)?);
    let mut message = ended.message.clone();
    if let Some(first) = message.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    match ended.error.as_str() {
        "" => print(&format!("{message}\n"))?,
        why => print(&format!("{message}: {why}\n"))?,
    }
    Ok(if ended.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
