//! Has the disks of volumes made, attached, detached and deleted as the state says, and compares them with what sources have.
//!
//! As with machines, what is due follows from the state, and each call may be made again. A disk is attached by the cloud and
//! then mounted by the agent of its node; it is let go by the agent before the cloud detaches it.

use super::driver::stranger_alarm;
use super::open_source::OpenSources;
use super::source::{AttachOrder, DiskOrder, DiskSource, MachineSource, SourceDisk, SourceError};
use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use crate::vital_task;
use crate::volume_order;
use cluster::command::VolumeReport;
use cluster::machine_reconcile::CONSISTENCY_DELAY;
use cluster::volume_reconcile::VolumeWork;
use cluster::{Command, State};
use model::cloud_volume::Attachment;
use model::machine::{FailureKind, SourceConfig};
use model::volume::{Volume, VolumeFolder};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use wire::volume::{VolumeAction, VolumeOrder};

/// Disks that are worked on at the same time.
const CALLS_MAX: usize = 16;

/// How often the state is looked through where nothing is committed, and how often a source is asked for its disks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const DESCRIBE_INTERVAL: Duration = Duration::from_secs(60);

/// Commits within this time are looked at together: each look goes through all disks and all jobs that run.
const COMMITS_PAUSE: Duration = Duration::from_millis(50);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// In how many answers one after the other a disk is missing until it counts as lost.
const MISSING_MAX: u32 = 3;

/// How long a node may take to mount a disk, with the time to make a file system, and to let go of it.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(300);
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// By project and name.
    Disk(String, String),
    /// The list of a source.
    List(String),
}

struct Progress {
    is_running: bool,
    failures: u32,
    next: Instant,
}

enum Outcome {
    Done,
    Listed(Vec<SourceDisk>, model::time::Timestamp),
}

/// What one disk needs now.
struct DiskTask {
    project: String,
    name: String,
    volume: Volume,
    work: VolumeWork,
}

/// How often each disk was missing, by source and by project and name: one source's answer says nothing of another's disks.
#[derive(Default)]
struct Missing(HashMap<String, HashMap<(String, String), u32>>);

impl Missing {
    /// Counts the disks that an answer of the source has not; those that have been missing often enough.
    fn note(&mut self, source: &str, lost: Vec<(String, String)>) -> Vec<(String, String)> {
        let counts = self.0.entry(source.to_owned()).or_default();
        counts.retain(|name, _| lost.contains(name));
        let is_given_up = |name: &(String, String)| {
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            *count >= MISSING_MAX
        };
        lost.into_iter().filter(is_given_up).collect()
    }
}

struct DiskDriver {
    shared: Arc<Shared>,
    sources: OpenSources,
    progress: HashMap<Key, Progress>,
    missing: Missing,
    /// What an alarm was raised for, by source and id.
    strangers: HashSet<(String, String)>,
    ended: mpsc::Sender<(Key, Result<Outcome, SourceError>)>,
}

/// Runs until the server stops.
pub async fn run(shared: Arc<Shared>) {
    let mut commits = shared.commits.subscribe_beyond_submits();
    let (ended, mut ends) = mpsc::channel(64);
    let mut timer = interval(LOOK_INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut driver = DiskDriver {
        shared,
        sources: OpenSources::default(),
        progress: HashMap::new(),
        missing: Missing::default(),
        strangers: HashSet::new(),
        ended,
    };
    loop {
        driver.begin_due();
        tokio::select! {
            changed = commits.changed() => {
                if changed.is_err() {
                    return;
                }
                sleep(COMMITS_PAUSE).await;
            }
            Some((key, outcome)) = ends.recv() => driver.end(key, outcome).await,
            _ = timer.tick() => {}
        }
    }
}

impl DiskDriver {
    fn begin_due(&mut self) {
        let (disks, lists) = {
            let state = self.shared.read();
            if !state.has_sources() || state.volumes.is_empty() {
                return;
            }
            self.due(&state)
        };
        for (source, task) in disks {
            let key = Key::Disk(task.project.clone(), task.name.clone());
            let shared = self.shared.clone();
            let opened = self.open(&source);
            self.begin(key, async move {
                carry_out(&shared, opened?, task).await.map(|()| Outcome::Done)
            });
        }
        for source in lists {
            let key = Key::List(source.name.clone());
            let opened = self.open(&source);
            self.begin(key, async move {
                let begun = clock::now();
                let told = call(opened?, |disks| disks.describe_disks()).await;
                let told = told.map_err(|e| e.of("describe disks"))?;
                Ok(Outcome::Listed(told, begun))
            });
        }
    }

    fn open(&mut self, source: &SourceConfig) -> Result<Arc<dyn MachineSource>, SourceError> {
        self.sources.open(&self.shared, source)
    }

    /// The disks that something is to be done about, and the sources whose lists are to be compared.
    fn due(&self, state: &State) -> (Vec<(SourceConfig, DiskTask)>, Vec<SourceConfig>) {
        let (now, instant) = (clock::now(), Instant::now());
        let is_due = |key: &Key| {
            let known = self.progress.get(key);
            known.is_none_or(|progress| !progress.is_running && progress.next <= instant)
        };
        let running = self.progress.values().filter(|progress| progress.is_running).count();
        let due = state.disk_volumes().filter_map(|of| {
            let source = state.source(&of.volume.cloud()?.source)?;
            let key = Key::Disk(of.project.to_owned(), of.name.to_owned());
            let work = is_due(&key).then(|| state.volume_work(of, now)).flatten()?;
            let (project, name, volume) =
                (of.project.to_owned(), of.name.to_owned(), of.volume.clone());
            Some((source.clone(), DiskTask { project, name, volume, work }))
        });
        let disks = due.take(CALLS_MAX.saturating_sub(running)).collect();
        let has_disks = |source: &&SourceConfig| {
            let of_source = |place: &model::cloud_volume::CloudPlace| place.source == source.name;
            state.disk_volumes().any(|of| of.volume.cloud().is_some_and(of_source))
        };
        let is_listed = |source: &&SourceConfig| is_due(&Key::List(source.name.clone()));
        let lists = state.sources().filter(has_disks).filter(is_listed);
        (disks, lists.cloned().collect())
    }

    fn begin(
        &mut self,
        key: Key,
        work: impl Future<Output = Result<Outcome, SourceError>> + Send + 'static,
    ) {
        let progress = self.progress.entry(key.clone()).or_insert_with(|| Progress {
            is_running: false,
            failures: 0,
            next: Instant::now(),
        });
        progress.is_running = true;
        let ended = self.ended.clone();
        vital_task::spawn("a call about a disk", async move {
            let outcome = work.await;
            // The receiver lives as long as this task's loop.
            let _ = ended.send((key, outcome)).await;
        });
    }

    async fn end(&mut self, key: Key, outcome: Result<Outcome, SourceError>) {
        let Some(progress) = self.progress.get_mut(&key) else { return };
        progress.is_running = false;
        match (&key, outcome) {
            (_, Err(why)) => {
                let pause = FIRST_PAUSE * 2_u32.pow(progress.failures.min(10));
                progress.next = Instant::now() + pause.min(LONGEST_PAUSE);
                progress.failures += 1;
                match &key {
                    Key::Disk(_, name) => tracing::warn!("volume {name}: {why}"),
                    Key::List(source) => tracing::warn!("source {source}: {why}"),
                }
            }
            (Key::List(source), Ok(Outcome::Listed(told, begun))) => {
                (progress.failures, progress.next) = (0, Instant::now() + DESCRIBE_INTERVAL);
                let source = source.clone();
                self.compare(&source, &told, begun).await;
            }
            // The next thing to be done follows from the state.
            _ => drop(self.progress.remove(&key)),
        }
    }

    /// Raises an alarm for disks that nobody asked for, and gives up those that their source has lost.
    async fn compare(&mut self, source: &str, told: &[SourceDisk], begun: model::time::Timestamp) {
        let (lost, strangers) = self.shared.read().disk_differences(source, told, begun);
        for SourceDisk { token, id } in strangers {
            if self.strangers.insert((source.to_owned(), id.clone())) {
                tracing::error!("{}", stranger_alarm(source, "disk", &id, &token));
            }
        }
        for (project, name) in self.missing.note(source, lost) {
            let id = self.shared.read().volumes_of(&project).get(&name).map(|of| of.id.clone());
            let Some(id) = id else { continue };
            let text = "the source does not have it any more".to_owned();
            let report = VolumeReport::Failed { text };
            let command = Command::VolumeReport { project, name, id, report };
            if let Err(why) = execute(&self.shared, command).await {
                tracing::warn!("source {source}: {why}");
            }
        }
    }
}

/// Does what a disk needs, and reports what came of it.
async fn carry_out(
    shared: &Arc<Shared>,
    source: Arc<dyn MachineSource>,
    task: DiskTask,
) -> Result<(), SourceError> {
    let order = disk_order(&task);
    let report = match &task.work {
        VolumeWork::Report(report) => report.clone(),
        VolumeWork::Create => match call(source, move |disks| disks.create_disk(&order)).await {
            Ok(made) => VolumeReport::Made(made),
            Err(error) => VolumeReport::Failed { text: settled(error, "create")?.text },
        },
        VolumeWork::Attach { attachment, machine } => {
            let order = AttachOrder { disk: order, machine: machine.clone() };
            attach(shared, source, &task, attachment, order).await?
        }
        VolumeWork::Detach { attachment, machine } => {
            if let Some(machine) = machine {
                let order = AttachOrder { disk: order, machine: machine.clone() };
                detach(shared, source, &task, attachment, order).await?;
            }
            VolumeReport::Detached
        }
        VolumeWork::Delete => {
            let deleted = call(source, move |disks| disks.delete_disk(&order)).await;
            // A disk that was asked for a moment ago may be there and not be seen yet.
            let is_settled = task.volume.created + CONSISTENCY_DELAY <= clock::now();
            match deleted {
                Err(error) if error.kind == FailureKind::NotFound && is_settled => {}
                deleted => deleted.map_err(|e| e.of("delete"))?,
            }
            VolumeReport::Deleted
        }
    };
    let DiskTask { project, name, volume, .. } = task;
    execute(shared, Command::VolumeReport { project, name, id: volume.id, report }).await
}

/// The error of a source that will not do it. Any other is of a call that is made again.
fn settled(error: SourceError, what: &str) -> Result<SourceError, SourceError> {
    match error.kind {
        FailureKind::NoCapacity | FailureKind::Quota | FailureKind::Refused => Ok(error),
        FailureKind::Throttled | FailureKind::NotFound | FailureKind::Unknown => {
            Err(error.of(what))
        }
    }
}

fn disk_order(task: &DiskTask) -> DiskOrder {
    let volume = &task.volume;
    DiskOrder {
        token: volume.id.as_str().to_owned(),
        name: task.name.clone(),
        project: task.project.clone(),
        place: volume.cloud().cloned().unwrap_or_default(),
        size_gb: volume.size.map_or(0, |size| size.0.div_ceil(1 << 30)),
        id: volume.disk.as_ref().and_then(|disk| disk.id.clone()),
    }
}

/// Has the cloud attach the disk, and the node mount it.
async fn attach(
    shared: &Arc<Shared>,
    source: Arc<dyn MachineSource>,
    task: &DiskTask,
    attachment: &Attachment,
    order: AttachOrder,
) -> Result<VolumeReport, SourceError> {
    let devices = match call(source, move |disks| disks.attach_disk(&order)).await {
        Ok(devices) => devices,
        Err(error) => {
            let text = settled(error, "attach")?.text;
            return Ok(VolumeReport::AttachFailed { text });
        }
    };
    let action = VolumeAction::Mount { gid: task.volume.owner.gid, devices };
    let done = order_of(shared, task, &attachment.node, action, MOUNT_TIMEOUT).await;
    match done {
        Ok(()) => Ok(VolumeReport::Attached),
        Err(failure) if failure.is_known => Ok(VolumeReport::AttachFailed { text: failure.why }),
        Err(failure) => Err(SourceError::unknown(failure.why)),
    }
}

/// Has the node let go of the disk, where its agent answers, and the cloud detach it.
async fn detach(
    shared: &Arc<Shared>,
    source: Arc<dyn MachineSource>,
    task: &DiskTask,
    attachment: &Attachment,
    order: AttachOrder,
) -> Result<(), SourceError> {
    if shared.agents.is_connected(&attachment.node) {
        let action = VolumeAction::Unmount;
        let done = order_of(shared, task, &attachment.node, action, UNMOUNT_TIMEOUT).await;
        done.map_err(|failure| SourceError::unknown(failure.why))?;
    }
    match call(source, move |disks| disks.detach_disk(&order)).await {
        // The machine, or the disk, is gone.
        Err(error) if error.kind == FailureKind::NotFound => Ok(()),
        detached => detached.map_err(|e| e.of("detach")),
    }
}

async fn order_of(
    shared: &Arc<Shared>,
    task: &DiskTask,
    node: &str,
    action: VolumeAction,
    limit: Duration,
) -> Result<(), volume_order::Failure> {
    let order = VolumeOrder { folder: VolumeFolder::of(&task.name, &task.volume), action };
    volume_order::carry_out(shared, node, task.volume.owner.uid, order, limit).await
}

/// Calls the disks of a source off the runtime's threads.
async fn call<T: Send + 'static>(
    source: Arc<dyn MachineSource>,
    what: impl FnOnce(&dyn DiskSource) -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let ended = tokio::task::spawn_blocking(move || match source.disks() {
        Some(disks) => what(disks),
        None => Err(SourceError::refused("this source makes no volumes")),
    });
    let ended = ended.await;
    ended.unwrap_or_else(|error| Err(SourceError::unknown(error.to_string())))
}

async fn execute(shared: &Shared, command: Command) -> Result<(), SourceError> {
    let kept = shared.writer.run(command, server_principal()).await;
    kept.map(drop).map_err(|why| SourceError::unknown(format!("it could not be kept: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_lost_when_its_own_source_has_missed_it_three_times_in_a_row() {
        let mut missing = Missing::default();
        let disk = || vec![("main".to_owned(), "data".to_owned())];
        assert!(missing.note("aws", disk()).is_empty());
        assert!(missing.note("aws", Vec::new()).is_empty(), "it is there again");
        for _ in 0..2 {
            assert!(missing.note("aws", disk()).is_empty());
            assert!(missing.note("gcp", Vec::new()).is_empty(), "another source has not seen it");
        }
        assert_eq!(missing.note("aws", disk()), disk());
    }

    #[test]
    fn refusals_settle_what_becomes_of_a_disk_and_other_errors_are_tried_again() {
        let of = |kind| SourceError { kind, text: "so".into() };
        for kind in [FailureKind::Refused, FailureKind::Quota, FailureKind::NoCapacity] {
            assert_eq!(settled(of(kind), "create"), Ok(of(kind)));
        }
        for kind in [FailureKind::Throttled, FailureKind::Unknown, FailureKind::NotFound] {
            let error = settled(of(kind), "create").expect_err("it is tried again");
            assert_eq!((error.kind, error.text.as_str()), (kind, "create: so"));
        }
    }
}
