//! Volumes: making and deleting them, and the jobs that name them. Nodes make and remove the folders in between.

use super::activity;
use crate::authorise::{Act, authorise};
use crate::command::{Context, CreateVolume, Decision, Reply};
use crate::event::Event;
use crate::rights::is_project;
use crate::state::State;
use model::activity::{Activity, ActivityKind, ActivityTarget};
use model::bounds;
use model::cloud_volume::Disk;
use model::hostlist;
use model::id::JobId;
use model::project::ProjectRole;
use model::reason::Refusal;
use model::run::JobSpec;
use model::volume::{self, Volume, VolumeId, VolumeOwner, VolumePlace, VolumeState, VolumeUse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const VOLUME: &str = "volume";

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.into() }
}

fn refused(why: String) -> Refusal {
    Refusal::Other(why)
}

/// A volume as a job names it.
#[derive(Clone, Copy)]
struct JobUse<'s> {
    job: JobId,
    nodes: u32,
    used: &'s VolumeUse,
}

/// Which jobs name the volumes of a project.
pub struct VolumeUsers<'s> {
    /// By the name as it was asked for, which may hold a rank.
    of_names: BTreeMap<&'s str, Vec<JobUse<'s>>>,
}

impl<'s> VolumeUsers<'s> {
    pub fn of(&'s self, volume: &'s str) -> impl Iterator<Item = JobId> + 's {
        // A name without a rank is that of one volume.
        let is_meant = move |asked: &&str| *asked == volume || asked.contains("${{");
        let asked = self.of_names.iter().filter(move |(asked, _)| is_meant(asked));
        let uses = asked.flat_map(|(_, uses)| uses);
        uses.filter(move |one| one.used.has_name(volume, one.nodes)).map(|one| one.job)
    }
}

impl State {
    /// The volumes of a project by name.
    pub fn volumes_of(&self, project: &str) -> &BTreeMap<String, Volume> {
        static NONE: BTreeMap<String, Volume> = BTreeMap::new();
        self.volumes.get(project).unwrap_or(&NONE)
    }

    /// The nodes that have this place; `None` for all of them.
    pub fn nodes_with(&self, place: &VolumePlace) -> Option<Vec<String>> {
        match place {
            VolumePlace::Node(node) => Some(vec![node.clone()]),
            VolumePlace::Shared(folder) => match self.config.shared_folders.get(folder) {
                Some(nodes) => nodes.clone(),
                // The site shares it no more.
                None => Some(Vec::new()),
            },
            // It goes to the machine that its job gets.
            VolumePlace::Cloud(_) => None,
        }
    }

    /// The jobs that have not ended and name the volume.
    pub fn users_of_volume(&self, project: &str, name: &str) -> Vec<JobId> {
        let uses = self.uses_of_volumes(project).filter(|one| one.used.has_name(name, one.nodes));
        let jobs: BTreeSet<JobId> = uses.map(|one| one.job).collect();
        jobs.into_iter().collect()
    }

    /// The volumes of a project that jobs name which have not ended.
    fn uses_of_volumes<'s>(&'s self, project: &'s str) -> impl Iterator<Item = JobUse<'s>> {
        let jobs = self.jobs.values().filter(|job| job.ended().is_none());
        jobs.flat_map(move |job| {
            let nodes = job.spec.request().nodes;
            let nodes = nodes.max.unwrap_or(nodes.min);
            let is_meant =
                move |used: &&VolumeUse| !used.instance && used.project.as_deref() == Some(project);
            let used = job.spec.launch.volumes.iter().filter(is_meant);
            used.map(move |used| JobUse { job: job.id, nodes, used })
        })
    }

    /// All of them, for a list: the jobs are gone through once.
    pub fn users_of_volumes<'s>(&'s self, project: &'s str) -> VolumeUsers<'s> {
        let mut of_names: BTreeMap<&str, Vec<JobUse>> = BTreeMap::new();
        for one in self.uses_of_volumes(project) {
            of_names.entry(&one.used.name).or_default().push(one);
        }
        VolumeUsers { of_names }
    }

    pub(super) fn decide_create_volume(
        &self,
        create: &CreateVolume,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let CreateVolume { project, name, place, size } = create;
        if !is_project(self, project) {
            return Err(unknown("project", project));
        }
        authorise(self, &context.by, Act::InProject(project, ProjectRole::User))?;
        if !volume::is_name(name) {
            return Err(Refusal::InvalidValue {
                what: "volume name".into(),
                value: name.clone(),
                expected: format!("expected {}", volume::NAME_RULE),
            });
        }
        let known = self.volumes_of(project);
        if known.contains_key(name) {
            return Err(Refusal::AlreadyExists { what: VOLUME.into(), name: name.clone() });
        }
        let own = known.values().filter(|volume| volume.owner.uid == context.by.uid).count();
        bounds::VOLUMES.hold(known.len() + 1)?;
        bounds::USER_VOLUMES.hold(own + 1)?;
        let place = match place {
            VolumePlace::Node(node) if !self.nodes.contains_key(node) => {
                return Err(Refusal::UnknownNode(node.clone()));
            }
            VolumePlace::Shared(folder) if !self.config.shared_folders.contains_key(folder) => {
                return Err(refused(self.not_shared(folder)));
            }
            VolumePlace::Cloud(wanted) => self.disk_place(project, wanted, *size)?,
            place => place.clone(),
        };
        let by = &context.by;
        let volume = Volume {
            id: VolumeId::from_random(context.random),
            owner: VolumeOwner { name: by.name.clone(), uid: by.uid, gid: by.gid },
            disk: matches!(place, VolumePlace::Cloud(_)).then(|| Box::new(Disk::default())),
            place,
            size: *size,
            created: context.now,
            state: VolumeState::Creating,
        };
        let target = target(project, name, &volume);
        let mut decision = changed(project, name, volume);
        decision.events.push(activity::noted(context, target, ActivityKind::Created));
        Ok(decision)
    }

    fn not_shared(&self, folder: &str) -> String {
        let known: Vec<&str> = self.config.shared_folders.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "the administrator names them below [volumes.shared] in sluice.toml".to_owned()
        } else {
            format!("expected one of {}", known.join(", "))
        };
        format!("{folder} is no folder that nodes share: {known}")
    }

    pub(super) fn decide_delete_volume(
        &self,
        project: &str,
        name: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::InProject(project, ProjectRole::User))?;
        let volume = self.volumes_of(project).get(name).ok_or_else(|| unknown(VOLUME, name))?;
        authorise(self, &context.by, Act::DeleteVolume(project, volume))?;
        if let Some(job) = self.users_of_volume(project, name).first() {
            return Err(refused(format!(
                "volume {name} is used by job {job}, which has not ended"
            )));
        }
        let is_new = volume.state != VolumeState::Deleting;
        let volume = Volume { state: VolumeState::Deleting, ..volume.clone() };
        let target = target(project, name, &volume);
        let mut decision = changed(project, name, volume);
        // A deletion that is tried again is noted already.
        if is_new {
            decision.events.push(activity::noted(context, target, ActivityKind::Deleted));
        }
        Ok(decision)
    }

    /// What the server found out from the volume's node. One that was made anew meanwhile is another.
    pub(super) fn decide_settle_volume(
        &self,
        project: &str,
        name: &str,
        id: &VolumeId,
        is_there: bool,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let known = self.volumes_of(project).get(name).filter(|volume| volume.id == *id);
        let Some(volume) = known else { return Ok(Decision::default()) };
        if !is_there {
            let (project_name, volume_name) = (project.to_owned(), name.to_owned());
            let removed =
                Event::VolumeRemoved { project: project_name, name: volume_name, at: None };
            let mut events = vec![removed];
            // One that could not be made was noted as created.
            if volume.state == VolumeState::Creating {
                let (target, what) = (target(project, name, volume), ActivityKind::Deleted);
                let (at, actor, info) = (context.now, None, String::new());
                events.push(Event::Noted(Box::new(Activity {
                    number: 0,
                    at,
                    actor,
                    target,
                    what,
                    info,
                })));
            }
            return Ok(events.into());
        }
        // A deletion that was asked for meanwhile goes on.
        if volume.state != VolumeState::Creating {
            return Ok(Decision::default());
        }
        Ok(changed(project, name, Volume { state: VolumeState::Ready, ..volume.clone() }))
    }

    /// Refuses to give up a node whose files hold volumes.
    pub(super) fn check_no_volume_on(&self, node: &str) -> Result<(), Refusal> {
        let is_there = |volume: &Volume| volume.place == VolumePlace::Node(node.to_owned());
        let mut all = self.volumes.values().flatten();
        match all.find(|(_, volume)| is_there(volume)) {
            Some((name, _)) => {
                Err(refused(format!("volume {name} is on node {node}: delete it first")))
            }
            None => Ok(()),
        }
    }

    /// Checks the volumes that a job names, and narrows its nodes to those that have them.
    pub fn settle_volumes(&self, spec: &mut JobSpec, is_het: bool) -> Result<(), Refusal> {
        if spec.launch.volumes.is_empty() {
            return Ok(());
        }
        bounds::JOB_VOLUMES.hold(spec.launch.volumes.len())?;
        check_paths(&spec.launch.volumes)?;
        let project = spec.project().to_owned();
        for used in &mut Arc::make_mut(&mut spec.launch).volumes {
            used.project = Some(project.clone());
            self.choose_volume(used, &project);
        }
        let uses = spec.launch.volumes.clone();
        for used in &uses {
            if used.is_by_rank() && is_het {
                let why = "a rank in its name is not for several components or groups";
                return Err(refused(format!("volume {}: {why}", used.name)));
            }
            let range = spec.request().nodes;
            if used.is_by_rank() && range.max != Some(range.min) {
                let why = "a rank in its name needs a number of nodes and not a range";
                return Err(refused(format!("volume {}: {why}", used.name)));
            }
            if used.is_by_rank() {
                bounds::VOLUMES.hold(range.min as usize)?;
            }
            if used.instance {
                self.check_instance_names(used, range.min)?;
                continue;
            }
            let mut places = Vec::new();
            for name in used.names(range.min) {
                places.push(self.place_for(spec, &project, &name)?);
            }
            self.narrow(spec, used, &places)?;
        }
        Ok(())
    }

    /// Refuses a job none of whose partitions, or of the nodes that it names, has a volume of it: what the plan lacks then are
    /// nodes, and it does not know why.
    pub(super) fn check_volume_nodes(
        &self,
        spec: &JobSpec,
        partitions: &[u32],
    ) -> Result<(), Refusal> {
        let request = spec.request();
        let partitions = || partitions.iter().map(|position| &self.partitions[*position as usize]);
        // A misspelt node is refused as such.
        let known = request.node_list.iter().filter(|name| self.nodes.contains_key(*name));
        let named: Vec<&String> = known.collect();
        for used in spec.launch.volumes.iter().filter(|used| !used.instance) {
            let volumes = self.volumes_of(used.project.as_deref().unwrap_or_default());
            for name in used.names(request.nodes.min) {
                let place = volumes.get(&name).map(|volume| &volume.place);
                let Some(nodes) = place.and_then(|place| self.nodes_with(place)) else { continue };
                let where_it_is = || format!("volume {name} is on {}", hostlist::compress(&nodes));
                if !partitions().any(|of| of.nodes.iter().any(|node| nodes.contains(node))) {
                    let names: Vec<&str> = partitions().map(|of| of.name.as_str()).collect();
                    return Err(refused(format!(
                        "{}, which is not in {}: name a partition that has it",
                        where_it_is(),
                        names.join(", ")
                    )));
                }
                // Another rank may be on a node that is named.
                let is_named = named.is_empty() || named.iter().any(|node| nodes.contains(node));
                if !is_named && !used.is_by_rank() {
                    let named = hostlist::compress(&named);
                    return Err(refused(format!("{}, and the job names {named}", where_it_is())));
                }
            }
        }
        Ok(())
    }

    /// Chooses among the volumes that a job names for one path: the first that is there and that no job has now, else the first that
    /// is there.
    fn choose_volume(&self, used: &mut VolumeUse, project: &str) {
        let others = std::mem::take(&mut used.others);
        if others.is_empty() {
            return;
        }
        let known = self.volumes_of(project);
        let is_ready =
            |name: &&String| known.get(*name).is_some_and(|of| of.state == VolumeState::Ready);
        let ready: Vec<&String> =
            std::iter::once(&used.name).chain(&others).filter(is_ready).collect();
        let is_free = |name: &&&String| self.disk_holder(project, name).is_none();
        let chosen = ready.iter().find(is_free).or(ready.first());
        if let Some(chosen) = chosen.map(|name| (**name).clone()) {
            used.name = chosen;
        }
    }

    fn check_instance_names(&self, used: &VolumeUse, nodes: u32) -> Result<(), Refusal> {
        match used.names(nodes).find(|name| !volume::is_name(name)) {
            Some(name) => Err(unknown(VOLUME, &name)),
            None => Ok(()),
        }
    }

    /// Where a volume is that the job's owner may use.
    fn place_for(&self, spec: &JobSpec, project: &str, name: &str) -> Result<VolumePlace, Refusal> {
        let unknown = || unknown(VOLUME, name);
        authorise(self, &spec.owner, Act::InProject(project, ProjectRole::User))?;
        let volume = self.volumes_of(project).get(name).ok_or_else(unknown)?;
        let may_use = authorise(self, &spec.owner, Act::UseVolume(project, volume));
        may_use.map_err(|_| {
            refused(format!(
                "volume {name} belongs to {}: jobs of others cannot use it",
                volume.owner.name
            ))
        })?;
        match volume.state {
            VolumeState::Ready => Ok(volume.place.clone()),
            VolumeState::Creating => Err(refused(format!("volume {name} is not made yet"))),
            VolumeState::Deleting => Err(refused(format!("volume {name} is being deleted"))),
            VolumeState::Failed => {
                let why = volume.disk.as_ref().and_then(|disk| disk.failure.as_deref());
                Err(refused(format!("volume {name} has failed: {}", why.unwrap_or("no disk"))))
            }
        }
    }

    /// One place for all nodes, or one for each rank.
    fn narrow(
        &self,
        spec: &mut JobSpec,
        used: &VolumeUse,
        places: &[VolumePlace],
    ) -> Result<(), Refusal> {
        let nodes = spec.request().nodes.min;
        let name = &used.name;
        let one_place = match places {
            [VolumePlace::Node(node)] => Some(format!("is on node {node}")),
            // A claim's access modes decide whether several nodes may have it.
            [VolumePlace::Cloud(place)] if place.claim.is_none() => {
                Some("is a disk of one machine".to_owned())
            }
            _ => None,
        };
        if let (Some(where_it_is), 2..) = (one_place, nodes) {
            return Err(refused(format!(
                "volume {name} {where_it_is}, and the job on {nodes} nodes: name one for each, \
                 as in {name}-${{{{ dstack.node_rank }}}}"
            )));
        }
        self.narrow_to_disks(spec, used, places)?;
        let mut allowed: Option<BTreeSet<String>> = None;
        let mut of_ranks = Vec::new();
        for place in places {
            if let VolumePlace::Node(node) = place {
                of_ranks.push(node.clone());
            }
            let Some(nodes) = self.nodes_with(place) else { continue };
            let nodes = nodes.into_iter().filter(|node| self.nodes.contains_key(node));
            match place {
                VolumePlace::Node(_) => allowed.get_or_insert_default().extend(nodes),
                VolumePlace::Shared(_) | VolumePlace::Cloud(_) => {
                    narrow_to(&mut allowed, nodes.collect());
                }
            }
        }
        if !of_ranks.is_empty() && used.is_by_rank() {
            // Ranks follow the names of the nodes.
            if of_ranks.len() != places.len() || !of_ranks.is_sorted_by(|one, next| one < next) {
                return Err(refused(format!(
                    "volume {name}: ranks follow the names of the nodes, and these volumes are on {}",
                    of_ranks.join(", ")
                )));
            }
        }
        let Some(allowed) = allowed else { return Ok(()) };
        let request = Arc::make_mut(&mut Arc::make_mut(&mut spec.components)[0].request);
        let mut pool = (!request.node_pool.is_empty())
            .then(|| request.node_pool.drain(..).collect::<BTreeSet<_>>());
        narrow_to(&mut pool, allowed);
        let pool = pool.unwrap_or_default();
        if (pool.len() as u64) < u64::from(nodes) {
            return Err(refused(format!("volume {name}: too few of the nodes asked for have it")));
        }
        request.node_pool = pool.into_iter().collect();
        Ok(())
    }
}

fn narrow_to(allowed: &mut Option<BTreeSet<String>>, nodes: BTreeSet<String>) {
    *allowed = Some(match allowed.take() {
        Some(before) => before.intersection(&nodes).cloned().collect(),
        None => nodes,
    });
}

/// The names of a path.
fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).collect()
}

/// Whether the path is the other one, or leads through it.
pub(super) fn is_same_or_below(path: &str, other: &str) -> bool {
    parts(path).starts_with(&parts(other))
}

/// Refuses two volumes at one path, or one below another's: the second would hide or need the first.
fn check_paths(volumes: &[VolumeUse]) -> Result<(), Refusal> {
    for (at, one) in volumes.iter().enumerate() {
        for other in &volumes[..at] {
            let (one, other) = (one.path.as_str(), other.path.as_str());
            if is_same_or_below(one, other) || is_same_or_below(other, one) {
                let why = format!("two volumes at or below /{}", parts(one).join("/"));
                return Err(refused(why));
            }
        }
    }
    Ok(())
}

/// The volume as the list of events names it.
pub(super) fn target(project: &str, name: &str, volume: &Volume) -> ActivityTarget {
    ActivityTarget::Volume {
        project: project.to_owned(),
        name: name.to_owned(),
        created: volume.created,
        owner: volume.owner.name.clone(),
    }
}

fn changed(project: &str, name: &str, volume: Volume) -> Decision {
    let reply = Reply::Volume(Box::new(volume.clone()));
    let (project, name) = (project.to_owned(), name.to_owned());
    Decision { events: vec![Event::VolumeSet { project, name, volume: Box::new(volume) }], reply }
}
