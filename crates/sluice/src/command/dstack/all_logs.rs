//! `sluice logs --all`: the logs of the tasks of an array and of the nodes of a run, one after another, or as they come with
//! `--follow`, each line after where it is from.

use super::log_output::LogOutput;
use super::log_source::{Log, file, kept};
use super::{attach, each_group};
use crate::client::{Client, ServerLocation};
use crate::command::program_name::program_name;
use crate::command::verb::VerbError;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::run::LaunchKind;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::view::JobView;

/// How many logs are shown, and followed at once: each that is followed is a connection to the server.
pub const SOURCES_MAX: usize = 64;

/// How often tasks that have started meanwhile are looked for.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub struct Wanted {
    pub follow: bool,
    pub since: Option<Timestamp>,
    pub json: bool,
}

/// How many logs there were.
pub struct AllLogs {
    pub shown: usize,
    pub left_out: usize,
}

/// One log: a job, and which of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LogId {
    job: JobId,
    node: usize,
}

struct Source {
    id: LogId,
    /// The index of an array's task.
    task: Option<u32>,
    job: JobView,
    prefix: String,
}

impl Source {
    fn output(&self, json: bool) -> LogOutput {
        if json {
            LogOutput::json(self.id.job, self.id.node)
        } else {
            LogOutput::prefixed(format!("{} | ", self.prefix))
        }
    }
}

/// Prints the logs of everything that the job is a part of.
pub fn print(client: &mut Client, job: &JobView, wanted: &Wanted) -> Result<AllLogs, VerbError> {
    if job.spec.launch.kind == LaunchKind::Interactive {
        let text =
            format!("job {} writes to the terminal of its srun or salloc: no log is kept", job.id);
        return Err(VerbError::Message(text));
    }
    let whole = job.array.as_ref().map_or(job.id, |array| array.array);
    if wanted.follow {
        return follow(client, whole, wanted.json);
    }
    let sources = sources(&parts(client, whole)?);
    let left_out = sources.len().saturating_sub(SOURCES_MAX);
    for source in sources.iter().take(SOURCES_MAX) {
        let log = Log { job: source.id.job, node: source.id.node, since: wanted.since };
        let output = &mut source.output(wanted.json);
        let printed = match source.job.spec.launch.kind {
            LaunchKind::Batch => file(client, &source.job, log, output),
            _ => kept(client, &log, output),
        };
        // One that cannot be read does not hide the others.
        if let Err(error) = printed {
            eprintln!("{}: {}: {error}", program_name(), source.prefix);
        }
    }
    Ok(AllLogs { shown: sources.len() - left_out, left_out })
}

/// The tasks of an array, the groups of a run, or the job alone.
fn parts(client: &mut Client, whole: JobId) -> Result<Vec<JobView>, VerbError> {
    let jobs = vec![JobRef::whole(whole)];
    each_group(client, JobFilter { jobs, all_states: true, ..JobFilter::default() })
}

/// The logs of what has started, in order.
fn sources(parts: &[JobView]) -> Vec<Source> {
    let mut found: Vec<Source> = parts.iter().flat_map(sources_of).collect();
    // The last task of an array has the array's own number.
    found.sort_by(|a, b| (a.task, &a.id).cmp(&(b.task, &b.id)));
    found
}

fn sources_of(job: &JobView) -> Vec<Source> {
    let Some(allocation) = &job.allocation else { return Vec::new() };
    let task = job.array.as_ref().and_then(|array| Some((array.array, array.index?)));
    let name = match task {
        Some((array, index)) => format!("{array}_{index}"),
        None => job.id.to_string(),
    };
    // The script of a batch job writes one file, wherever its steps run.
    let is_batch = job.spec.launch.kind == LaunchKind::Batch;
    let count = if is_batch { 1 } else { allocation.nodes.len() };
    let source = |(node, share): (usize, &model::allocation::NodeShare)| Source {
        id: LogId { job: job.id, node },
        task: task.map(|(_, index)| index),
        job: job.clone(),
        prefix: if count > 1 { format!("{name} {}", share.node) } else { name.clone() },
    };
    allocation.nodes.iter().take(count).enumerate().map(source).collect()
}

/// Follows every log until all have ended. What starts later is followed from its start; beyond the bound it waits for another
/// to end. That everything still waits is said once, with the reason.
pub(super) fn follow(client: &mut Client, whole: JobId, json: bool) -> Result<AllLogs, VerbError> {
    let (ended, ends): (Sender<()>, Receiver<()>) = channel();
    let mut seen: BTreeSet<LogId> = BTreeSet::new();
    let mut running = 0;
    let (mut looks, mut is_told) = (0_u32, false);
    loop {
        let parts = parts(client, whole)?;
        let is_over = parts.iter().all(|job| job.state.is_ended());
        let mut waits = false;
        for source in sources(&parts) {
            if seen.contains(&source.id) {
                continue;
            }
            if running == SOURCES_MAX {
                waits = true;
                break;
            }
            seen.insert(source.id.clone());
            follow_one(client.location().clone(), source, json, ended.clone())?;
            running += 1;
        }
        looks = looks.saturating_add(1);
        // The first look is right after the submit.
        if let Some(first) = parts.first().filter(|_| seen.is_empty() && !is_over && looks > 1)
            && !std::mem::replace(&mut is_told, true)
        {
            eprintln!("{}: note: {}", program_name(), attach::waits(first));
        }
        if is_over && running == 0 && !waits {
            return Ok(AllLogs { shown: seen.len(), left_out: 0 });
        }
        if ends.recv_timeout(LOOK_PAUSE).is_ok() {
            running -= 1;
        }
        running -= ends.try_iter().count();
    }
}

fn follow_one(
    location: ServerLocation,
    source: Source,
    json: bool,
    ended: Sender<()>,
) -> Result<(), VerbError> {
    let follow = move || {
        let mut client = Client::at(location);
        let LogId { job, node } = source.id;
        let output = &mut source.output(json);
        if let Err(error) = attach::follow(&mut client, job, node, output, &mut ()) {
            eprintln!("{}: {}: {error}", program_name(), source.prefix);
        }
        // The other end lives as long as there is something to follow.
        let _ = ended.send(());
    };
    let spawned = std::thread::Builder::new().name("follow".into()).spawn(follow);
    spawned.map(drop).map_err(VerbError::file("a thread for a log"))
}
