//! What is to be done about the disks of volumes: by the state itself, and by what a source tells of its disks, compared with
//! those that were asked of it.

use crate::command::VolumeReport;
use crate::machine_reconcile::CONSISTENCY_DELAY;
use crate::state::State;
use crate::state::disk_use::DiskVolume;
use model::cloud_volume::{Attachment, AttachmentState};
use model::machine::{Machine, MachinePhase};
use model::time::Timestamp;
use model::volume::VolumeState;
use std::collections::HashSet;
use std::time::Duration;

/// How long a disk may take until it is mounted on its node: a job waits for it on a machine that is paid for.
pub const ATTACH_LIMIT: Duration = Duration::from_secs(600);

/// A disk as its source tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDisk {
    /// Ours, by which it was asked for; empty for a disk that was there before.
    pub token: String,
    pub id: String,
}

/// What is to be done about a disk. Each may be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeWork {
    /// The source is to make it, or to say that it is there.
    Create,
    /// The source is to attach it to the machine of this id, and the node to mount it.
    Attach { attachment: Attachment, machine: String },
    /// The node is to let go of it, and the source to detach it. `None`: its machine is gone.
    Detach { attachment: Attachment, machine: Option<String> },
    /// The source is to delete it.
    Delete,
    /// What is known of it without a call of the source.
    Report(VolumeReport),
}

impl State {
    /// What is to be done about the disk of a volume now.
    pub fn volume_work(&self, of: DiskVolume<'_>, now: Timestamp) -> Option<VolumeWork> {
        let place = of.volume.cloud()?;
        let attachment = of.volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
        let wanted = self.disk_holder(of.project, of.name).map(|(_, node)| node);
        match (of.volume.state, attachment) {
            (VolumeState::Creating, _) => Some(VolumeWork::Create),
            // No pod may have it: idle ones go by themselves.
            (VolumeState::Deleting, None) if self.pods_with(of.volume).next().is_some() => None,
            (VolumeState::Deleting, None) if place.existing.is_some() => {
                Some(VolumeWork::Report(VolumeReport::Deleted))
            }
            (VolumeState::Deleting, None) => Some(VolumeWork::Delete),
            (VolumeState::Ready | VolumeState::Failed, None) => {
                let machine = wanted.and_then(|node| self.live_machine(node))?;
                machine.id.as_ref()?;
                let (node, machine) = (machine.node.clone(), machine.token.clone());
                Some(VolumeWork::Report(VolumeReport::Attach { node, machine }))
            }
            (_, Some(attachment)) => self.attachment_work(attachment, wanted, now),
        }
    }

    fn attachment_work(
        &self,
        attachment: &Attachment,
        wanted: Option<&str>,
        now: Timestamp,
    ) -> Option<VolumeWork> {
        let machine = self.machines.get(&attachment.machine);
        let id = machine.filter(|of| of.phase != MachinePhase::Gone).and_then(|of| of.id.clone());
        let is_wanted = wanted == Some(attachment.node.as_str()) && id.is_some();
        let attachment = attachment.clone();
        match attachment.state.clone() {
            AttachmentState::Detaching => Some(VolumeWork::Detach { attachment, machine: id }),
            _ if !is_wanted => Some(VolumeWork::Report(VolumeReport::Detach)),
            AttachmentState::Attaching if attachment.since + ATTACH_LIMIT <= now => {
                let text = "it was not attached in time".to_owned();
                Some(VolumeWork::Report(VolumeReport::AttachFailed { text }))
            }
            AttachmentState::Attaching => {
                id.map(|machine| VolumeWork::Attach { attachment, machine })
            }
            AttachmentState::Attached | AttachmentState::Failed(_) => None,
        }
    }

    fn live_machine(&self, node: &str) -> Option<&Machine> {
        self.machines.values().find(|machine| machine.is_live() && machine.node == node)
    }

    /// Compares the disks of one source with what it told in a call that was begun then: those that it has lost, by project and
    /// name, and those with the cluster's tag that nobody asked for.
    pub fn disk_differences(
        &self,
        source: &str,
        told: &[SourceDisk],
        begun: Timestamp,
    ) -> (Vec<(String, String)>, Vec<SourceDisk>) {
        let tokens: HashSet<&str> = told.iter().map(|disk| disk.token.as_str()).collect();
        let lost = self.disk_volumes().filter(|of| {
            let is_own = of
                .volume
                .cloud()
                .is_some_and(|place| place.source == source && place.existing.is_none());
            let made = of.volume.disk.as_ref().and_then(|disk| disk.made);
            let is_old = made.is_some_and(|made| made + CONSISTENCY_DELAY <= begun);
            let is_there = tokens.contains(of.volume.id.as_str());
            of.volume.state == VolumeState::Ready && is_own && is_old && !is_there
        });
        let lost = lost.map(|of| (of.project.to_owned(), of.name.to_owned())).collect();
        // Two sources in one account of a cloud are told of each other's disks.
        let known: HashSet<&str> = self.disk_volumes().map(|of| of.volume.id.as_str()).collect();
        let strangers = told.iter().filter(|disk| !known.contains(disk.token.as_str())).cloned();
        (lost, strangers.collect())
    }
}
