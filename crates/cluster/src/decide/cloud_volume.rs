//! Volumes that are disks of clouds: which source makes one, what is told of it, and when it goes by itself.

use super::activity;
use super::volume::target;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, DiskMade, VolumeReport};
use crate::event::Event;
use crate::state::State;
use crate::state::disk_use::DiskVolume;
use crate::volume_reconcile::VolumeWork;
use model::activity::ActivityKind;
use model::amount::Bytes;
use model::cloud_source::SourceKind;
use model::cloud_volume::{Attachment, AttachmentState, CloudPlace, Disk};
use model::machine::SourceConfig;
use model::machine_choice::{MachineChoice, MachinePlace, SpotChoice};
use model::reason::Refusal;
use model::request::Grant;
use model::run::JobSpec;
use model::time::Timestamp;
use model::volume::{Volume, VolumeId, VolumePlace, VolumeState, VolumeUse};
use std::sync::Arc;
use std::time::Duration;

/// The longest name of a region, a zone or a disk.
const NAME_BYTES_MAX: usize = 256;

fn refused(why: String) -> Refusal {
    Refusal::Other(why)
}

/// The region of a source by which it makes the disk. Google's sources name zones.
fn place_in(source: &SourceConfig, wanted: &CloudPlace) -> Option<CloudPlace> {
    let named = || CloudPlace { source: source.name.clone(), claim: None, ..wanted.clone() };
    match &source.kind {
        // A program says itself what it does not know.
        SourceKind::Program(_) => Some(named()),
        SourceKind::Aws(cloud) => cloud.regions.contains(&wanted.region).then(named),
        SourceKind::Gcp(cloud) => {
            let is_of_region = |zone: &&String| {
                let region = zone.rsplit_once('-').map_or(zone.as_str(), |(region, _)| region);
                let is_zone = wanted.zone.as_ref().is_none_or(|wanted| wanted == *zone);
                region == wanted.region && is_zone
            };
            let zone = cloud.regions.iter().find(is_of_region)?;
            Some(CloudPlace { zone: Some(zone.clone()), ..named() })
        }
        // A claim is in no zone that anybody could say.
        SourceKind::Kubernetes(_) => {
            let claim = wanted.claim.clone().unwrap_or_default();
            Some(CloudPlace { zone: None, claim: Some(claim), ..named() })
        }
        _ => None,
    }
}

impl State {
    /// Where the disk that is asked for will be: the first source of its backend that is there for the project and has the region
    /// makes it.
    pub(super) fn disk_place(
        &self,
        project: &str,
        wanted: &CloudPlace,
        size: Option<Bytes>,
    ) -> Result<VolumePlace, Refusal> {
        let texts = [Some(&wanted.region), wanted.zone.as_ref(), wanted.existing.as_ref()];
        let is_plain = |text: &&String| {
            text.len() <= NAME_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(text) = texts.into_iter().flatten().find(|text| !is_plain(text)) {
            return Err(Refusal::InvalidValue {
                what: "region, availability_zone and volume_id".into(),
                value: text.chars().take(80).collect(),
                expected: "expected at most 256 printable characters".into(),
            });
        }
        if wanted.existing.is_none() && size.is_none_or(|size| size == Bytes(0)) {
            let (of, name) = match wanted.claim {
                Some(_) => ("Kubernetes", "claim_name"),
                None => ("a cloud", "volume_id"),
            };
            return Err(refused(format!("a volume of {of} needs a `size` or a `{name}`")));
        }
        let of_backend = |source: &&SourceConfig| {
            let reference = self.source_ref(&source.name);
            reference.backend == wanted.backend && reference.serves(project)
        };
        let mut sources = self.making_sources().filter(of_backend).peekable();
        if sources.peek().is_none() {
            return Err(refused(format!(
                "no source of the cluster is of the backend {}: the administrator names sources in \
                 sluice.toml, or makes backends",
                wanted.backend
            )));
        }
        let place = sources.find_map(|source| place_in(source, wanted));
        let mut place = place.ok_or_else(|| {
            let zone = wanted.zone.as_ref().map(|zone| format!(", zone {zone}"));
            refused(format!(
                "no source of the backend {} makes volumes in region {}{}",
                wanted.backend,
                wanted.region,
                zone.unwrap_or_default()
            ))
        })?;
        self.settle_claim(&mut place)?;
        if let Some(id) = place.existing.as_ref().filter(|id| self.has_disk(&place, id)) {
            return Err(refused(format!("disk {id} is a volume of the cluster already")));
        }
        Ok(VolumePlace::Cloud(Box::new(place)))
    }

    /// Whether a volume is this disk already, made or registered, in any project: a second one would show its files to others.
    /// Google names disks anew in each zone; elsewhere the zone that is asked for may be a wrong one.
    fn has_disk(&self, place: &CloudPlace, id: &str) -> bool {
        let source = self.source(&place.source).map(|source| &source.kind);
        let is_named_by_zone = matches!(source, Some(SourceKind::Gcp(_)));
        self.disk_volumes().any(|of| {
            let Some(known) = of.volume.cloud() else { return false };
            let own = of.volume.disk.as_ref().and_then(|disk| disk.id.as_deref());
            let is_other_zone = is_named_by_zone && known.zone != place.zone;
            let is_it = own == Some(id) || known.existing.as_deref() == Some(id);
            known.backend == place.backend && is_it && !is_other_zone
        })
    }

    /// Narrows the machines of a job to those that are where its disks are.
    pub(super) fn narrow_to_disks(
        &self,
        spec: &mut JobSpec,
        used: &VolumeUse,
        places: &[VolumePlace],
    ) -> Result<(), Refusal> {
        let name = &used.name;
        let mut clouds = places.iter().filter_map(|place| match place {
            VolumePlace::Cloud(place) => Some(&**place),
            VolumePlace::Node(_) | VolumePlace::Shared(_) => None,
        });
        let mut places = clouds.clone().map(|place| MachinePlace {
            source: place.source.clone(),
            region: place.region.clone(),
            zone: place.zone.clone(),
        });
        let Some(place) = places.next() else { return Ok(()) };
        let request = Arc::make_mut(&mut Arc::make_mut(&mut spec.components)[0].request);
        let chosen = request.machines.as_ref().map_or(&[][..], |choice| &choice.backends[..]);
        let is_chosen = |of: &&CloudPlace| {
            chosen.is_empty() || chosen.iter().any(|one| one.eq_ignore_ascii_case(&of.backend))
        };
        if let Some(other) = clouds.find(|of| !is_chosen(of)) {
            return Err(refused(format!(
                "volume {name} is of the backend {}, and the job is to be on {}",
                other.backend,
                chosen.join(", ")
            )));
        }
        let known = request.machines.as_ref().and_then(|choice| choice.place.as_ref());
        if known.is_some_and(|known| *known != place) || places.any(|other| other != place) {
            return Err(refused(format!("volume {name}: volumes of one job are in one zone")));
        }
        // A batch job takes spot machines too where it says nothing.
        let spot = match request.grant {
            Grant::Offer => SpotChoice::Never,
            Grant::Asked => SpotChoice::Any,
        };
        let usual = || Box::new(MachineChoice { spot, ..MachineChoice::default() });
        request.machines.get_or_insert_with(usual).place = Some(place);
        Ok(())
    }

    /// What the server found out about a disk. One of a volume that was made anew meanwhile is another.
    pub(super) fn decide_volume_report(
        &self,
        project: &str,
        name: &str,
        id: &VolumeId,
        report: &VolumeReport,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let known = self.volumes_of(project).get(name).filter(|volume| volume.id == *id);
        let Some(known) = known.filter(|volume| volume.cloud().is_some()) else {
            return Ok(Decision::default());
        };
        if *report == VolumeReport::Deleted && known.state == VolumeState::Deleting {
            let (project, name) = (project.to_owned(), name.to_owned());
            let at = Some(context.now);
            return Ok(vec![Event::VolumeRemoved { project, name, at }].into());
        }
        // A job may have started with the disk since its detaching was found due: it would lose it.
        let of = DiskVolume { project, name, volume: known };
        let due = VolumeWork::Report(VolumeReport::Detach);
        if *report == VolumeReport::Detach && self.volume_work(of, context.now) != Some(due) {
            return Ok(Decision::default());
        }
        let next = reported(known, report, context.now);
        if next == *known {
            return Ok(Decision::default());
        }
        let (project, name) = (project.to_owned(), name.to_owned());
        Ok(vec![Event::VolumeSet { project, name, volume: Box::new(next) }].into())
    }

    /// Disks that no job has used for as long as they are to be kept.
    pub(super) fn volume_cleanup_events(&self, context: &Context) -> Vec<Event> {
        let is_due = |of: &DiskVolume<'_>| {
            let disk = of.volume.disk.as_ref().filter(|disk| disk.attachment.is_none());
            let since = disk.and_then(|disk| disk.made.max(disk.idle_since));
            let length = of.volume.cloud().and_then(|place| place.cleanup_s);
            let due = since.zip(length).map(|(since, s)| since + Duration::from_secs(s.into()));
            of.volume.state == VolumeState::Ready
                && due.is_some_and(|due| due <= context.now)
                && self.users_of_volume(of.project, of.name).is_empty()
        };
        let due = self.disk_volumes().filter(is_due);
        due.flat_map(|of| {
            let volume = Volume { state: VolumeState::Deleting, ..of.volume.clone() };
            let target = target(of.project, of.name, &volume);
            let (project, name) = (of.project.to_owned(), of.name.to_owned());
            let set = Event::VolumeSet { project, name, volume: Box::new(volume) };
            [set, activity::noted(context, target, ActivityKind::Deleted)]
        })
        .collect()
    }

    /// Refuses a configuration without a source that has disks, or with one that would not find them.
    pub(super) fn check_beside_disks(&self, sources: &[SourceConfig]) -> Result<(), Refusal> {
        for DiskVolume { name, volume, .. } in self.disk_volumes() {
            let Some(place) = volume.cloud() else { continue };
            let Some(what) = self.source_loss(&place.source, sources) else { continue };
            return Err(refused(format!(
                "sluice.toml: source {} {what} and has volume {name}: delete that one first",
                place.source
            )));
        }
        Ok(())
    }
}

/// The volume as it is with what is told.
fn reported(known: &Volume, report: &VolumeReport, now: Timestamp) -> Volume {
    let mut next = known.clone();
    let mut disk = known.disk.as_deref().cloned().unwrap_or_default();
    let state = disk.attachment.as_ref().map(|of| of.state.clone());
    let is_claim = known.is_claim();
    let enter = |disk: &mut Disk, state: AttachmentState| {
        if let Some(attachment) = &mut disk.attachment {
            (attachment.state, attachment.since) = (state, now);
        }
    };
    match (report, state) {
        (VolumeReport::Made(made), _) => {
            let DiskMade { id, zone, size, price, access_modes } = made.clone();
            disk.made.get_or_insert(now);
            (disk.id, disk.price) = (Some(id), price);
            if let VolumePlace::Cloud(place) = &mut next.place {
                place.zone = zone.or(place.zone.take());
                disk.price = disk.price.filter(|_| place.existing.is_none());
                if let Some(claim) = place.claim.as_mut().filter(|_| !access_modes.is_empty()) {
                    claim.access_modes = access_modes;
                }
            }
            next.size = size.or(next.size);
            // A deletion that was asked for meanwhile goes on.
            if known.state == VolumeState::Creating {
                next.state = VolumeState::Ready;
            }
        }
        (VolumeReport::Failed { text }, _) if known.state != VolumeState::Deleting => {
            disk.failure = Some(text.clone());
            next.state = VolumeState::Failed;
        }
        (VolumeReport::Attach { node, machine }, None) => {
            let (node, machine) = (node.clone(), machine.clone());
            // A pod has its claims from the beginning.
            let state =
                if is_claim { AttachmentState::Attached } else { AttachmentState::Attaching };
            disk.attachment = Some(Attachment { node, machine, state, since: now });
        }
        (VolumeReport::Attached, Some(AttachmentState::Attaching)) => {
            enter(&mut disk, AttachmentState::Attached);
        }
        (VolumeReport::AttachFailed { text }, Some(AttachmentState::Attaching)) => {
            enter(&mut disk, AttachmentState::Failed(text.clone()));
        }
        (VolumeReport::Detach, Some(_)) if is_claim => {
            disk.attachment = None;
            disk.idle_since = Some(now);
        }
        (VolumeReport::Detach, Some(state)) if state != AttachmentState::Detaching => {
            enter(&mut disk, AttachmentState::Detaching);
        }
        (VolumeReport::Detached, Some(AttachmentState::Detaching)) => {
            disk.attachment = None;
            disk.idle_since = Some(now);
        }
        _ => {}
    }
    next.disk = Some(Box::new(disk));
    next
}
