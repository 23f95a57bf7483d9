//! `sluice apply -f FILE`: shows the offers for a configuration, asks, submits, and follows the run.

use super::fleet_apply::{self, FleetApply};
use super::{
    attach, cluster, confirm, each_group, jobs, nodes_of, print, stop, unexpected, workspace,
};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration::task::Task;
use ::dstack::configuration::value::Value;
use ::dstack::configuration::{self, Configuration, Loaded, load};
use ::dstack::effective;
use ::dstack::node_groups::group_of;
use ::dstack::offer::Offer;
use ::dstack::request::{self, Draft, RequestError, Submitter, is_same_run};
use ::dstack::run_summary::{self, Nodes, RunSummary};
use ::dstack::table::{self, Plan, PsRow};
use ::dstack::{name, node_offer};
use ::server::stored_form;
use clap::{Args, Parser};
use jiff::tz::TimeZone;
use model::change::JobFilter;
use model::fleet::MAIN_PROJECT;
use model::id::JobId;
use model::reason::Refusal;
use model::run::LaunchKind;
use model::time::Timestamp;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::client::{Answer, Call, Submission};
use wire::view::JobView;

/// Bounds what is read of a file; a file near this size is refused by the YAML parser.
const FILE_BYTES_MAX: u64 = 4 << 20;

const PROFILES: &str = ".dstack/profiles.yml";

/// A run that has not started by then is reported as waiting.
const WAITING_AFTER_MS: u64 = 1_000;

const WOULD_WAIT: &str =
    "nothing is free for it now; with `retry: {on_events: [no-capacity]}` it would wait";

#[derive(Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub server: ServerLocationArgs,
    /// The configuration, or a batch script; - reads a configuration from standard input
    #[arg(short, long, default_value = ".dstack.yml", value_name = "FILE")]
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
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Submit again even if the same run is active
    #[arg(long)]
    pub force: bool,
    /// Return once the run is submitted
    #[arg(short, long)]
    pub detach: bool,
}

#[derive(Parser)]
struct SubmitLine {
    #[command(flatten)]
    args: ApplyArgs,
}

pub fn run(args: ApplyArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let loaded = read_configuration(&args)?;
    if let Configuration::Fleet(fleet) = applicable(&loaded, &args)? {
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
    let (task, draft, nodes) = prepare(&mut client, &args, &loaded)?;
    let mut offers_of_each = vec![offers(&mut client, &draft.submission, &nodes)?];
    if !draft.submission.het_components.is_empty() {
        for group in request::group_submissions(&draft.submission).iter().skip(1) {
            offers_of_each.push(offers(&mut client, group, &nodes)?);
        }
    }
    let user = user_name();
    print(&table::plan(&Plan {
        project: &args.project,
        user: &user,
        task: &task,
        offers: &offers_of_each,
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

/// Submits what a file describes, without a word.
pub fn submit_file(file: &str) -> Result<JobId, VerbError> {
    // The environment says what it says to `sluice apply`.
    let words = ["sbatch", &format!("--file={file}"), "--yes", "--detach"];
    let SubmitLine { args } = SubmitLine::try_parse_from(words).map_err(message)?;
    let mut client = args.server.client()?;
    let loaded = read_configuration(&args)?;
    let (_, draft, _) = prepare(&mut client, &args, &loaded)?;
    let name = draft.submission.spec.name.clone();
    submit(&mut client, draft.submission)?.map_err(|why| not_submitted(&name, &why))
}

/// The task of the file as a submission that the server refuses while a run of its name is active, and the nodes of the cluster.
fn prepare(
    client: &mut Client,
    args: &ApplyArgs,
    loaded: &Loaded,
) -> Result<(Task, Draft, Nodes), VerbError> {
    let (mut task, configuration) = task_of(loaded, args)?;
    if args.project != MAIN_PROJECT {
        // What the configuration says itself is an account of the same books.
        task.account.get_or_insert_with(|| args.project.clone());
    }
    resolve_dependencies(client, &mut task, args)?;
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
    let cluster = cluster(client)?;
    draft.keep_within(&cluster.partitions);
    for notice in &draft.notices {
        eprintln!("{}: {notice}", args.file);
    }
    Ok((task, draft, nodes_of(cluster)))
}

fn read_configuration(args: &ApplyArgs) -> Result<Loaded, VerbError> {
    let mut bytes = Vec::new();
    let read = match args.file.as_str() {
        "-" => stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes),
        path => File::open(path).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)),
    };
    read.map_err(VerbError::file(&args.file))?;
    let loaded = match profile(args.profile.as_deref())? {
        Some(profile) => load::parse_with_profile(&args.file, &bytes, &profile),
        None => configuration::parse(&args.file, &bytes),
    };
    let loaded = loaded.map_err(message)?;
    for notice in &loaded.notices {
        eprintln!("{}", notice.in_file(&args.file));
    }
    Ok(loaded)
}

fn applicable<'a>(loaded: &'a Loaded, args: &ApplyArgs) -> Result<&'a Configuration, VerbError> {
    loaded.applicable().map_err(|fault| message(fault.in_file(&args.file)))
}

/// The task, and the configuration in dstack's own form.
fn task_of(loaded: &Loaded, args: &ApplyArgs) -> Result<(Task, Value), VerbError> {
    let Some(mut task) = applicable(loaded, args)?.task() else {
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

/// The profile of this name, or the default one: of the `profiles.yml` of this folder, or else, where that has none, of the
/// user's home.
fn profile(name: Option<&str>) -> Result<Option<Value>, VerbError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut looked_in = Vec::new();
    let folders = [Some(PathBuf::new()), home].into_iter().flatten();
    for file in folders.map(|folder| folder.join(PROFILES)) {
        let mut bytes = Vec::new();
        match File::open(&file).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => {}
            // After `su`, the home may be another's: a file that cannot be seen is not there.
            Err(_) if file.metadata().is_err() => continue,
            Err(error) => return Err(VerbError::file(file)(error)),
        }
        let shown = file.display().to_string();
        let profiles = load::parse_profiles(&shown, &bytes).map_err(message)?;
        if let Some(found) = load::select_profile(&profiles, name) {
            return Ok(Some(found.clone()));
        }
        looked_in.push(shown);
    }
    match (name, &looked_in[..]) {
        (None, _) => Ok(None),
        (Some(name), []) => Err(VerbError::Message(format!(
            "profile {name}: there is no {PROFILES} here or in your home"
        ))),
        (Some(name), files) => {
            let files = files.join(", ");
            Err(VerbError::Message(format!("{files}: there is no profile {name}")))
        }
    }
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
    let active = active_run(client, name)?;
    let Some(first) = active.first().map(first_of) else {
        let yes = args.yes || confirm(&format!("Submit the run {name}?"))?;
        if !yes {
            print("Exiting...\n")?;
        }
        return Ok(yes);
    };
    let asked = stored_form(&draft.submission);
    let is_unchanged = is_same_run(active.iter().map(|job| &*job.spec), &asked);
    if is_unchanged && !args.force {
        print(&format!("Active run {name} already exists. Detected no changes.\n"))?;
        print("Use --force to apply anyway.\n")?;
        return Ok(false);
    }
    print(&format!("Active run {name} already exists and cannot be updated in place.\n"))?;
    if !args.yes && !confirm("Stop and override the run?")? {
        print("Exiting...\n")?;
        return Ok(false);
    }
    stop::end(client, first, false)?;
    for group in &active {
        attach::await_end(client, group.id)?;
    }
    Ok(true)
}

/// The active run of this name: its job, or all its groups. Jobs of `sbatch` are no runs.
fn active_run(client: &mut Client, name: &str) -> Result<Vec<JobView>, VerbError> {
    let names = vec![name.to_owned()];
    let filter = JobFilter { names, all_states: true, ..JobFilter::default() };
    let mut found = each_group(client, filter)?;
    found.retain(|job| job.spec.launch.kind == LaunchKind::Task);
    let active = found.iter().filter(|job| !job.state.is_ended()).max_by_key(|job| job.id);
    let run = active.map(first_of);
    found.retain(|job| Some(first_of(job)) == run);
    found.sort_by_key(|job| job.id);
    Ok(found)
}

/// The number that a run goes by: that of its first group.
fn first_of(job: &JobView) -> JobId {
    group_of(job.spec.launch.kind, job.het).map_or(job.id, |het| het.first)
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
    Err(not_submitted(name, why))
}

fn not_submitted(name: &str, why: &str) -> VerbError {
    VerbError::Message(format!("run {name} was not submitted: {why}"))
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
    let started = attach::whole(client, started)?;
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
