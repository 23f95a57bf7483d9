//! Disks of clouds in jobs: on which nodes they are wanted, who waits for them, and what they have cost.

use crate::state::State;
use crate::state::job::Job;
use model::allocation::Allocation;
use model::cloud_volume::{AttachmentState, Disk};
use model::id::JobId;
use model::machine::Machine;
use model::price::Cost;
use model::run::JobSpec;
use model::time::Timestamp;
use model::volume::{Volume, VolumeUse};

/// A volume that is a disk of a cloud, by its project and its name.
#[derive(Debug, Clone, Copy)]
pub struct DiskVolume<'s> {
    pub project: &'s str,
    pub name: &'s str,
    pub volume: &'s Volume,
}

impl State {
    /// All volumes that are disks of clouds.
    pub fn disk_volumes(&self) -> impl Iterator<Item = DiskVolume<'_>> {
        self.volumes.iter().flat_map(|(project, all)| {
            let disks = all.iter().filter(|(_, volume)| volume.cloud().is_some());
            disks.map(move |(name, volume)| DiskVolume { project, name, volume })
        })
    }

    /// The disk that the job has on its node of this rank under this use.
    fn disk_of(&self, used: &VolumeUse, rank: usize) -> Option<DiskVolume<'_>> {
        let of_project = self.volumes.get_key_value(used.project.as_deref()?);
        let (project, all) = of_project.filter(|_| !used.instance)?;
        let (name, volume) = all.get_key_value(&used.name_on(u32::try_from(rank).ok()?))?;
        volume.cloud().is_some().then_some(DiskVolume { project, name, volume })
    }

    /// The volumes of this use on so many nodes, one for each rank where its name says so; `None` where they are not all claims of
    /// Kubernetes.
    pub(crate) fn claim_volumes(
        &self,
        used: &VolumeUse,
        nodes: u32,
    ) -> Option<Vec<DiskVolume<'_>>> {
        let ranks = if used.is_by_rank() { nodes as usize } else { 1 };
        let claim = |rank| self.disk_of(used, rank).filter(|of| of.volume.is_claim());
        (0..ranks).map(claim).collect()
    }

    /// The pods of a source that have the claim, or will have it.
    pub(crate) fn pods_with_claim<'s>(
        &'s self,
        source: &'s str,
        claim_name: &'s str,
    ) -> impl Iterator<Item = &'s Machine> {
        self.machines.values().filter(move |machine| {
            machine.is_live() && machine.source == source && machine.terms.mounts(claim_name)
        })
    }

    /// The pods that have a volume that is a claim.
    pub(crate) fn pods_with<'s>(&'s self, volume: &'s Volume) -> impl Iterator<Item = &'s Machine> {
        let place = volume.cloud().filter(|place| place.claim.is_some());
        let id = volume.disk.as_ref().and_then(|disk| disk.id.as_deref());
        let both = place.zip(id).into_iter();
        both.flat_map(move |(place, id)| self.pods_with_claim(&place.source, id))
    }

    /// Whether the node is a pod that has the volume at this path.
    pub fn has_claim_at(&self, node: &str, volume: &Volume, path: &str) -> bool {
        let id = volume.disk.as_ref().and_then(|disk| disk.id.as_deref());
        self.pods_with(volume).filter(|machine| machine.node == node).any(|machine| {
            let rank = machine.terms.rank.unwrap_or_default();
            let mut claims = machine.terms.pod.iter().flat_map(|pod| &pod.claims);
            claims.any(|claim| Some(claim.name_on(rank)) == id && claim.path == path)
        })
    }

    /// Whether a pod that is not for this job has the claim, which is one pod's at a time.
    fn is_in_pod_of_others(&self, volume: &Volume, job: &Job) -> bool {
        let own = job.spec.request().pod.as_deref();
        self.pods_with(volume).any(|machine| {
            let is_alike = machine.terms.pod.as_deref() == own;
            let first = machine.job.filter(|id| *id != job.id).and_then(|id| self.job(id));
            !is_alike || first.is_some_and(Job::is_waiting)
        })
    }

    /// The disks of a job on each node of its allocation, in the order of the nodes.
    fn disks_on<'s>(
        &'s self,
        spec: &'s JobSpec,
        allocation: &'s Allocation,
    ) -> impl Iterator<Item = (&'s str, DiskVolume<'s>)> {
        allocation.node_names().enumerate().flat_map(move |(rank, node)| {
            let uses = spec.launch.volumes.iter();
            uses.filter_map(move |used| Some((node, self.disk_of(used, rank)?)))
        })
    }

    /// Whether a job of this allocation cannot be launched on the node yet: a disk of its own is not mounted there.
    fn awaits_disk_on(&self, spec: &JobSpec, allocation: &Allocation, node: &str) -> bool {
        let mut own = self.disks_on(spec, allocation).filter(|(on, _)| *on == node);
        own.any(|(_, of)| {
            let attachment = of.volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
            // A pod that has begun has its claims.
            let is_there = attachment.is_some_and(|of| of.node == node && of.state.is_settled());
            !is_there && !of.volume.is_claim()
        })
    }

    /// Whether a running job waits on the node for a disk of its own.
    pub(crate) fn awaits_disk(&self, job: JobId, node: &str) -> bool {
        let Some(job) = self.job(job).filter(|job| !job.spec.launch.volumes.is_empty()) else {
            return false;
        };
        let attempt = job.attempt();
        attempt.is_some_and(|attempt| self.awaits_disk_on(&job.spec, &attempt.allocation, node))
    }

    /// The nodes on which a job that starts waits for disks.
    pub(crate) fn nodes_without_disks(
        &self,
        spec: &JobSpec,
        allocation: &Allocation,
    ) -> Vec<String> {
        if spec.launch.volumes.is_empty() {
            return Vec::new();
        }
        let nodes = allocation.node_names();
        let waiting = nodes.filter(|node| self.awaits_disk_on(spec, allocation, node));
        waiting.map(str::to_owned).collect()
    }

    /// The job that holds the disk, and its node. A disk is one job's at a time.
    pub fn disk_holder(&self, project: &str, name: &str) -> Option<(JobId, &str)> {
        self.active.iter().find_map(|id| {
            let job = self.jobs.get(id).filter(|job| !job.spec.launch.volumes.is_empty())?;
            let attempt = job.attempt()?;
            let is_held = |node: &str| attempt.held_nodes.iter().any(|held| held == node);
            let mut disks = self.disks_on(&job.spec, &attempt.allocation);
            let found =
                disks.find(|(node, of)| of.project == project && of.name == name && is_held(node));
            found.map(|(node, _)| (*id, node))
        })
    }

    /// Whether a disk that the job names is another job's now, or could not be used where it is attached: it is detached first.
    pub(crate) fn awaits_disk_of_others(&self, job: &Job) -> bool {
        let nodes = job.spec.request().nodes.min.max(1) as usize;
        let mut disks = job.spec.launch.volumes.iter().flat_map(|used| {
            let is_by_rank = used.is_by_rank();
            let ranks = if is_by_rank { nodes } else { 1 };
            (0..ranks).filter_map(move |rank| Some((is_by_rank, self.disk_of(used, rank)?)))
        });
        disks.any(|(is_by_rank, of)| {
            let claim = of.volume.cloud().and_then(|place| place.claim.as_ref());
            // Claims of ranks are one job's at a time: one set of pods has them.
            if !is_by_rank && claim.is_some_and(|claim| claim.is_shared()) {
                return false;
            }
            let attachment = of.volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
            let has_failed =
                attachment.is_some_and(|of| matches!(of.state, AttachmentState::Failed(_)));
            let holder = self.disk_holder(of.project, of.name);
            has_failed
                || holder.is_some_and(|(id, _)| id != job.id)
                || self.is_in_pod_of_others(of.volume, job)
        })
    }

    /// What the disks of a source have cost from then until now, of those that are there.
    pub(super) fn disk_costs_since(&self, source: &str, from: Timestamp, now: Timestamp) -> Cost {
        let of_source = |of: &DiskVolume<'_>| of.volume.cloud().is_some_and(|c| c.source == source);
        let disks = self.disk_volumes().filter(of_source);
        disks.filter_map(|of| Some(of.volume.disk.as_ref()?.cost_since(from, now))).sum()
    }
}

/// Whether the disk is mounted on this node.
pub fn is_attached(disk: Option<&Disk>, node: &str) -> bool {
    let attachment = disk.and_then(|disk| disk.attachment.as_ref());
    attachment.is_some_and(|of| of.node == node && of.state == AttachmentState::Attached)
}
