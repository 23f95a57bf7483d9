//! The calls about volumes: the state machine decides, a node's agent makes or removes the folder, and what became of it is
//! decided again. A deletion whose node does not answer leaves the volume as one that is being deleted, which may be
//! deleted again. Disks of clouds are made and deleted after the answer.

use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use crate::volume_order;
use cluster::authorise::{Act, authorise};
use cluster::command::CreateVolume;
use cluster::rights::is_project;
use cluster::visibility::Viewer;
use cluster::{Command, Reply, State};
use model::cloud_volume::{AttachmentState, Disk};
use model::id::JobId;
use model::principal::Principal;
use model::project::ProjectRole;
use model::reason::Refusal;
use model::volume::{Volume, VolumeFolder, VolumePlace};
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::volume::{DiskView, SHOWN_JOBS_MAX, VolumeAction, VolumeOrder, VolumeView};

/// How long a node may take to make a folder, and to remove one with all that is in it.
const MAKE_TIMEOUT: Duration = Duration::from_secs(30);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(300);

pub fn list(shared: &Shared, by: &Principal, project: &str) -> Result<Answer, Refusal> {
    let state = shared.read();
    if !is_project(&state, project) {
        return Err(Refusal::UnknownThing { what: "project".into(), name: project.into() });
    }
    authorise(&state, by, Act::InProject(project, ProjectRole::User))?;
    let viewer = Viewer::new(&state, by);
    let is_shown =
        |volume: &Volume| volume.owner.uid == by.uid || viewer.volume_of(&volume.owner.name);
    let shown = state.volumes_of(project).iter().filter(|(_, volume)| is_shown(volume));
    let users = state.users_of_volumes(project);
    let shown = shown.map(|(name, volume)| {
        let jobs = users.of(name).filter(|id| state.job(*id).is_some_and(|job| viewer.job(job)));
        let mut jobs: Vec<JobId> = jobs.take(SHOWN_JOBS_MAX).collect();
        jobs.dedup();
        let may_delete = authorise(&state, by, Act::DeleteVolume(project, volume)).is_ok();
        VolumeView { may_delete: Some(may_delete), ..view(project, name, volume, jobs) }
    });
    Ok(Answer::Volumes(shown.collect()))
}

fn view(project: &str, name: &str, volume: &Volume, jobs: Vec<JobId>) -> VolumeView {
    VolumeView {
        name: name.to_owned(),
        project: project.to_owned(),
        owner: volume.owner.name.clone(),
        place: volume.place.clone(),
        size: volume.size,
        created: volume.created,
        state: volume.state,
        jobs,
        may_delete: None,
        disk: volume.disk.as_deref().map(|disk| Box::new(disk_view(disk))),
    }
}

fn disk_view(disk: &Disk) -> DiskView {
    let attachment = disk.attachment.as_ref();
    let failed = attachment.and_then(|of| match &of.state {
        AttachmentState::Failed(why) => Some(why.clone()),
        _ => None,
    });
    DiskView {
        id: disk.id.clone(),
        node: attachment.map(|of| of.node.clone()),
        failure: disk.failure.clone().or(failed),
        price: disk.price,
        cost: disk.cost(clock::now()),
    }
}

pub async fn change(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    match call {
        Call::CreateVolume { project, name, place, size } => {
            create(shared, by, CreateVolume { project, name, place, size }).await
        }
        Call::DeleteVolume { project, name } => delete(shared, by, project, name).await,
        other => unreachable!("{other:?} is answered elsewhere"),
    }
}

async fn create(
    shared: &Arc<Shared>,
    by: Principal,
    wanted: CreateVolume,
) -> Result<Answer, Refusal> {
    let CreateVolume { project, name, size, .. } = wanted.clone();
    let volume = decided(shared, Command::CreateVolume(Box::new(wanted)), by).await?;
    // Its source makes the disk: `machines/disk_driver.rs`.
    if volume.cloud().is_some() {
        return Ok(Answer::Done);
    }
    let make = VolumeAction::Make { gid: volume.owner.gid, size };
    let made = carry_out(shared, &name, &volume, make, MAKE_TIMEOUT).await;
    // Where nobody knows whether the folder was made, the volume stays to be deleted.
    if !matches!(made, Err(Failure { is_known: false, .. })) {
        settle(shared, project, name, &volume, made.is_ok()).await?;
    }
    made.map(|()| Answer::Done).map_err(|failure| failure.why)
}

async fn delete(
    shared: &Arc<Shared>,
    by: Principal,
    project: String,
    name: String,
) -> Result<Answer, Refusal> {
    check_reachable(shared, &by, &project, &name)?;
    let command = Command::DeleteVolume { project: project.clone(), name: name.clone() };
    let volume = decided(shared, command, by).await?;
    if volume.cloud().is_some() {
        return Ok(Answer::Done);
    }
    // What was on a node that left the cluster is not reached any more.
    let is_in_cluster = nodes_with(&shared.read(), &volume.place).next().is_some();
    if is_in_cluster {
        let removed = carry_out(shared, &name, &volume, VolumeAction::Remove, REMOVE_TIMEOUT).await;
        removed.map_err(|failure| failure.why)?;
    }
    settle(shared, project, name, &volume, false).await?;
    Ok(Answer::Done)
}

/// Refuses to begin a deletion that no node could carry out now.
fn check_reachable(
    shared: &Shared,
    by: &Principal,
    project: &str,
    name: &str,
) -> Result<(), Refusal> {
    let state = shared.read();
    let Some(volume) = state.volumes_of(project).get(name) else { return Ok(()) };
    authorise(&state, by, Act::DeleteVolume(project, volume))?;
    if volume.cloud().is_some() {
        return Ok(());
    }
    let mut nodes = nodes_with(&state, &volume.place).peekable();
    let is_in_cluster = nodes.peek().is_some();
    if is_in_cluster && !nodes.any(|node| shared.agents.is_connected(&node)) {
        return Err(away(name, volume));
    }
    Ok(())
}

fn away(name: &str, volume: &Volume) -> Refusal {
    let place = &volume.place;
    Refusal::Other(format!("volume {name}: no agent answers for {place}: try again when one does"))
}

async fn decided(shared: &Arc<Shared>, command: Command, by: Principal) -> Result<Volume, Refusal> {
    match shared.writer.run(command, by).await? {
        Reply::Volume(volume) => Ok(*volume),
        other => Err(Refusal::Other(format!("a volume was answered with {other:?}"))),
    }
}

async fn settle(
    shared: &Arc<Shared>,
    project: String,
    name: String,
    volume: &Volume,
    is_there: bool,
) -> Result<(), Refusal> {
    let command = Command::SettleVolume { project, name, id: volume.id.clone(), is_there };
    shared.writer.run(command, server_principal()).await.map(drop)
}

/// The nodes of the cluster that have the place.
fn nodes_with(state: &State, place: &VolumePlace) -> std::vec::IntoIter<String> {
    let of_place = state.nodes_with(place);
    let all = || state.nodes.keys().cloned().collect();
    let mut nodes: Vec<String> = of_place.unwrap_or_else(all);
    nodes.retain(|node| state.nodes.contains_key(node));
    nodes.into_iter()
}

/// Why a folder was not made or removed.
struct Failure {
    why: Refusal,
    /// The node said so, or was never asked.
    is_known: bool,
}

/// Has a node that is connected make or remove the folder.
async fn carry_out(
    shared: &Arc<Shared>,
    name: &str,
    volume: &Volume,
    action: VolumeAction,
    limit: Duration,
) -> Result<(), Failure> {
    let mut nodes = nodes_with(&shared.read(), &volume.place);
    let Some(node) = nodes.find(|node| shared.agents.is_connected(node)) else {
        return Err(Failure { why: away(name, volume), is_known: true });
    };
    let order = VolumeOrder { folder: VolumeFolder::of(name, volume), action };
    let done = volume_order::carry_out(shared, &node, volume.owner.uid, order, limit).await;
    done.map_err(|failure| Failure {
        why: Refusal::Other(format!("volume {name}: {}", failure.why)),
        is_known: failure.is_known,
    })
}
