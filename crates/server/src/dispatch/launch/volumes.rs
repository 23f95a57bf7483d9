//! The volumes of a job, as the node of its launch is told them.

use super::Facts;
use crate::error::ServerError;
use cluster::State;
use cluster::state::disk_use::is_attached;
use model::cloud_volume::AttachmentState;
use model::volume::{VolumeFolder, VolumePlace, VolumeState, VolumeUse};
use wire::volume::LaunchVolume;

/// The volumes that the job's processes find on this node. What has changed since the submit is found out here: a volume
/// may be gone when an ended job is requeued.
pub(super) fn of_node(
    state: &State,
    facts: &Facts,
    node: &str,
) -> Result<Vec<LaunchVolume>, ServerError> {
    let spec = &facts.job.spec;
    let rank = facts.task.first_rank + facts.node_index;
    let each = spec.launch.volumes.iter().map(|used| {
        let name = used.name_on(rank);
        let folder = if used.instance {
            Some(VolumeFolder::of_instance(&name, spec.owner.uid))
        } else {
            folder(state, used, &name, node).map_err(ServerError::Volume)?
        };
        let (path, read_only) = (used.path.clone(), used.read_only);
        Ok(folder.map(|folder| LaunchVolume { name, folder, path, read_only }))
    });
    each.filter_map(Result::transpose).collect()
}

/// The folder of a volume on its node; `None` where the node is a pod that has it from the beginning.
fn folder(
    state: &State,
    used: &VolumeUse,
    name: &str,
    node: &str,
) -> Result<Option<VolumeFolder>, String> {
    let known = state.volumes_of(used.project.as_deref().unwrap_or_default()).get(name);
    let volume = known.filter(|volume| volume.state == VolumeState::Ready);
    let volume = volume.ok_or_else(|| format!("volume {name} does not exist"))?;
    match &volume.place {
        VolumePlace::Node(home) if home != node => {
            Err(format!("volume {name} is on node {home} and not on {node}"))
        }
        VolumePlace::Cloud(place) if place.claim.is_some() => {
            if state.has_claim_at(node, volume, &used.path) {
                return Ok(None);
            }
            Err(format!("volume {name} is not in the pod {node}"))
        }
        VolumePlace::Cloud(_) if !is_attached(volume.disk.as_deref(), node) => {
            let attachment = volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
            let why = attachment.map_or("it is not attached", |of| match &of.state {
                AttachmentState::Failed(why) => why.as_str(),
                _ => "it is attached elsewhere",
            });
            Err(format!("volume {name}: {why}"))
        }
        _ => Ok(Some(VolumeFolder::of(name, volume))),
    }
}
