//! Commands about machines on demand: they are asked for, reported on, and go when they are not needed.

use crate::ClusterConfig;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, MachineReport};
use crate::event::Event;
use crate::state::State;
use model::cloud_fleet::CloudFleet;
use model::hostlist;
use model::machine::{
    FailureKind, Machine, MachineFailure, MachinePhase, MachineTerms, OFFERS_MAX, Offer,
    SourceConfig,
};
use model::machine_choice::MachineChoice;
use model::node::SlotState;
use model::reason::Refusal;
use model::time::Timestamp;
use sched::machines::{MachineOrder, MachineView};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl State {
    /// The machine is in the journal when this is applied, and the source is called after that.
    pub(super) fn decide_ask_machine(
        &self,
        order: &MachineOrder,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let Some(source) = self.source(&order.source) else {
            return Err(unknown("source", &order.source));
        };
        let live = self.live_machines_of(&source.name).count();
        if live >= source.machines_max as usize {
            let text = format!("source {} has {live} machines, as many as it may", source.name);
            return Err(Refusal::Other(text));
        }
        let job = order.job.map(|job| self.job(job).filter(|job| job.is_waiting()));
        let is_fleet_gone =
            order.fleet.as_ref().is_some_and(|fleet| !self.fleets.contains_key(fleet));
        // Its job has started, or has ended; or `config.yml` has dropped the source since the plan was made.
        if is_fleet_gone || matches!(job, Some(None)) || self.is_dropped(&source.name) {
            return Ok(Decision::default());
        }
        let request = job.flatten().map(|job| job.spec.request());
        let choice = request.and_then(|request| request.machines.as_deref());
        let reference = source.reference();
        let pod = request.and_then(|request| request.pod.clone());
        let pod = pod.filter(|_| reference.makes_pods);
        // The site may have changed its mind since the plan was made.
        let is_job_user = pod.as_ref().is_none_or(|pod| pod.user.is_job_user());
        if !is_job_user && !reference.makes_root_pods {
            return Ok(Decision::default());
        }
        let rank = pod.as_deref().map(|pod| self.free_rank(&source.name, pod));
        // A claim is free when the pod that has it is gone.
        if rank == Some(None) {
            return Ok(Decision::default());
        }
        let terms = MachineTerms {
            idle_s: choice.and_then(|choice| choice.idle_s),
            fleet: order.fleet.clone(),
            rank: rank.flatten().filter(|_| pod.as_ref().is_some_and(|pod| pod.is_by_rank())),
            pod,
            zone: choice
                .and_then(|choice| choice.place.as_ref()?.zone.clone())
                .or_else(|| self.zone_chosen(order, choice)),
        };
        let machine = self.machine_asked(source, order, terms, self.last_machine, context)?;
        Ok(vec![Event::MachineSet(Box::new(machine))].into())
    }

    /// The zone that its job or its fleet has chosen, where the offer is of a whole region.
    fn zone_chosen(&self, order: &MachineOrder, job: Option<&MachineChoice>) -> Option<String> {
        let fleet = order.fleet.as_ref().and_then(|fleet| self.fleets.get(fleet));
        let fleet = fleet.and_then(|fleet| fleet.cloud.as_ref()).map(|cloud| &cloud.choice);
        let has_zone = order.offer.zone().is_some() || order.offer.region.is_empty();
        let choices = [job, fleet].into_iter().flatten().filter(|_| !has_zone);
        let mut zones = choices.flat_map(|choice| &choice.zones);
        zones.find(|zone| zone.starts_with(&order.offer.region)).cloned()
    }

    /// The machine of an order, numbered after `last`. An instance of a fleet has its name from the fleet, as dstack's has.
    fn machine_asked(
        &self,
        source: &SourceConfig,
        order: &MachineOrder,
        terms: MachineTerms,
        last: u32,
        context: &Context,
    ) -> Result<Machine, Refusal> {
        let begin = order.fleet.as_deref().unwrap_or(&source.name);
        let rank = terms.rank;
        // The nodes of a job are ranked in the order of their names. Each rank has a volume of its own: four digits are enough for as
        // many as a project may have.
        let name = |number: u32| match rank {
            Some(rank) => format!("{begin}-{rank:04}-{number}"),
            None => format!("{begin}-{number}"),
        };
        let Some(number) = (last.saturating_add(1)..=u32::MAX)
            .find(|number| self.is_machine_name_free(&name(*number)))
        else {
            return Err(Refusal::Other(format!("source {}: no number is free", source.name)));
        };
        Ok(new_machine(order, name(number), number, terms, context))
    }

    /// Instances that fleets are to have also where nothing runs, of the cheapest offers that they may be.
    pub(super) fn fleet_machine_events(&self, context: &Context) -> Vec<Event> {
        let clouds = self.fleets.values().filter_map(|fleet| Some((fleet, fleet.cloud.as_ref()?)));
        let short: Vec<(&str, u32)> = clouds
            .map(|(fleet, cloud)| (&*fleet.name, cloud.wanted()))
            .filter(|(name, wanted)| self.serving_instances(name) < *wanted)
            .collect();
        if short.is_empty() {
            return Vec::new();
        }
        let there = self.machine_view(context.now);
        let to = |(name, wanted): &(&str, u32)| self.instances_to(name, *wanted, &there, context);
        // One fleet at a time: machines are numbered from the last one on.
        short.iter().map(to).find(|events| !events.is_empty()).unwrap_or_default()
    }

    /// Fleets that have reached their targets, or have had instances for long enough without more of them (`left`): from now on
    /// they are kept at their least. The machines that are gone do not tell it: only the newest are kept.
    fn fleets_at_target(&self, left: &BTreeSet<String>, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for fleet in self.fleets.values() {
            let Some(cloud) = &fleet.cloud else { continue };
            let is_there = |machine: &&Machine| {
                matches!(machine.phase, MachinePhase::Made | MachinePhase::Joined)
                    && machine.terms.fleet.as_deref() == Some(fleet.name.as_str())
            };
            let there = || self.machines.values().filter(is_there).count();
            let is_open = !cloud.target_reached && cloud.target > cloud.min;
            if is_open && (left.contains(&fleet.name) || there() >= cloud.target as usize) {
                let mut fleet = fleet.clone();
                if let Some(cloud) = &mut fleet.cloud {
                    cloud.target_reached = true;
                }
                events.push(Event::FleetSet { fleet: Box::new(fleet), at: now });
            }
        }
        events
    }

    /// Brings a fleet to so many instances, as far as the limits of sources let it.
    fn instances_to(
        &self,
        fleet: &str,
        wanted: u32,
        there: &MachineView,
        context: &Context,
    ) -> Vec<Event> {
        // Instances that are being deleted are replaced, and count against the fleet's `max` until they are gone.
        let missing = wanted.saturating_sub(self.serving_instances(fleet));
        let most = self.fleets.get(fleet).and_then(|fleet| fleet.cloud.as_ref()?.max);
        let room = most.map(|most| most.saturating_sub(self.instances_of(fleet)));
        let missing = missing.min(room.unwrap_or(missing));
        let orders = sched::machines::fleet_orders(there, fleet, missing);
        let mut last = self.last_machine;
        let mut events = Vec::new();
        for order in orders {
            let Some(source) = self.source(&order.source) else { continue };
            let zone = self.zone_chosen(&order, None);
            let terms =
                MachineTerms { fleet: order.fleet.clone(), zone, ..MachineTerms::default() };
            let asked = self.machine_asked(source, &order, terms, last, context);
            if let Ok(machine) = asked {
                last = machine.number;
                events.push(Event::MachineSet(Box::new(machine)));
            }
        }
        events
    }

    /// How many instances a fleet of machines has, or may have.
    pub(crate) fn instances_of(&self, fleet: &str) -> u32 {
        let of_fleet =
            |machine: &&Machine| machine.is_live() && machine.terms.fleet.as_deref() == Some(fleet);
        self.machines.values().filter(of_fleet).count() as u32
    }

    /// How many instances a fleet has, without those that are on their way out.
    fn serving_instances(&self, fleet: &str) -> u32 {
        let serving = self.machines.values().filter(|machine| is_serving(machine));
        serving.filter(|machine| machine.terms.fleet.as_deref() == Some(fleet)).count() as u32
    }

    /// The machines of a fleet leave with it; none of them may be busy.
    pub(super) fn fleet_leaves(
        &self,
        fleet: &str,
        numbers: Option<&[u32]>,
        now: Timestamp,
    ) -> Result<Vec<Event>, Refusal> {
        let of_fleet = self.machines.values().filter(|machine| {
            let is_there = !matches!(machine.phase, MachinePhase::Deleting | MachinePhase::Gone);
            let is_meant = numbers.is_none_or(|numbers| numbers.contains(&machine.number));
            is_there && is_meant && machine.terms.fleet.as_deref() == Some(fleet)
        });
        let mut events = Vec::new();
        for machine in of_fleet {
            let holder = self.nodes.get(&machine.node).and_then(|node| node.holders.first());
            if let Some(attempt) = holder {
                let text =
                    format!("instance {} is busy: job {} runs there", machine.node, attempt.job);
                return Err(Refusal::Other(text));
            }
            events.extend(self.machine_leaves(machine.clone(), "its fleet is deleted", now));
        }
        Ok(events)
    }

    /// Whether a new machine may be this node. Otherwise its agent could not join, or would speak for another node.
    fn is_machine_name_free(&self, node: &str) -> bool {
        !self.has_machine(node)
            && !self.agents.contains_key(node)
            && self.fleet_host(node).is_none()
            && !self.machines.values().any(|machine| machine.node == node)
    }

    pub(super) fn decide_machine_report(
        &self,
        token: &str,
        report: &MachineReport,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let Some(known) = self.machines.get(token) else { return Ok(Decision::default()) };
        let (now, mut next) = (context.now, known.clone());
        let is_coming = matches!(known.phase, MachinePhase::Asked | MachinePhase::Made);
        match report {
            MachineReport::Made { id, since } => {
                // It is paid for since the source had it, though a server that was started again heard of it later.
                let since = since.unwrap_or(now).min(now).max(known.asked);
                next.made = Some(known.made.map_or(since, |made| made.min(since)));
                next.id = Some(id.clone());
                next.phase = match known.phase {
                    MachinePhase::Asked => MachinePhase::Made,
                    // It is there after all, and is paid for.
                    MachinePhase::Gone => {
                        next.gone = None;
                        MachinePhase::Deleting
                    }
                    phase => phase,
                };
            }
            MachineReport::NotMade { kind, text } if known.phase == MachinePhase::Asked => {
                next.failure = Some(MachineFailure::new(*kind, text, now));
                // A call before this one made it all the same, and its agent has joined.
                if self.dynamic_nodes.contains_key(&known.node) {
                    return Ok(self.machine_leaves(next, "its source did not make it", now).into());
                }
                // Nor does it join later: it would be a node that is known as nobody's machine, and open to every job.
                let mut events = self.void_machine_tokens(&known.node);
                let gone = Some(now);
                let next = Machine { phase: MachinePhase::Gone, gone, ..next };
                events.push(Event::MachineSet(Box::new(next)));
                return Ok(events.into());
            }
            MachineReport::Joined if is_coming => {
                next.phase = MachinePhase::Joined;
                next.made.get_or_insert(now);
                next.joined = Some(now);
            }
            MachineReport::Late { text } if is_coming => {
                next.failure = Some(MachineFailure::new(FailureKind::Unknown, text, now));
                return Ok(self.machine_leaves(next, "its machine was late", now).into());
            }
            MachineReport::Vanished if known.phase == MachinePhase::Joined || is_coming => {
                // A source whose machines vanish before they join is left alone for a while, as one whose machines are late.
                if is_coming {
                    let text = "the source does not have it any more";
                    next.failure = Some(MachineFailure::new(FailureKind::Unknown, text, now));
                }
                return Ok(self.machine_vanishes(next, now).into());
            }
            // Its agent has fallen silent since.
            MachineReport::Vanished if self.is_vanished(known, true) => {
                return Ok(self.machine_vanishes(next, now).into());
            }
            MachineReport::Failed { kind, text } if is_coming => {
                next.failure = Some(MachineFailure::new(*kind, text, now));
                // Its agent may have joined before its source told that it is made.
                return Ok(self.machine_is_lost(next, text, now).into());
            }
            MachineReport::Failed { text, .. }
                if matches!(known.phase, MachinePhase::Joined | MachinePhase::Leaving) =>
            {
                return Ok(self.machine_is_lost(next, text, now).into());
            }
            MachineReport::Deleted if known.phase == MachinePhase::Deleting => {
                next.phase = MachinePhase::Gone;
                next.gone = Some(now);
            }
            _ => {}
        }
        let changed = (next != *known).then(|| Event::MachineSet(Box::new(next)));
        Ok(changed.into_iter().collect::<Vec<_>>().into())
    }

    pub(super) fn decide_set_offers(
        &self,
        source: &str,
        offers: &[Offer],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        if self.source(source).is_none() || offers.len() > OFFERS_MAX {
            return Err(unknown("source", source));
        }
        if self.offers.get(source).map(|known| &known[..]).unwrap_or_default() == offers {
            return Ok(Decision::default());
        }
        let (source, offers) = (source.to_owned(), offers.to_vec());
        Ok(vec![Event::OffersSet { source, offers }].into())
    }

    pub(super) fn decide_delete_machine(
        &self,
        node: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let machine = self
            .machines
            .values()
            .find(|machine| is_serving(machine) && (machine.node == node || machine.token == node));
        let machine = machine.ok_or_else(|| unknown("machine", node))?.clone();
        if self.backing(&machine.node).is_some() {
            let text = "it is a node of slurm.conf: scontrol update state=power_down_force";
            return Err(Refusal::Other(format!("machine {}: {text}", machine.node)));
        }
        let why = format!("its machine is deleted by {}", context.by.name);
        Ok(self.machine_leaves(machine, &why, context.now).into())
    }

    /// Machines whose time is over: those that have had nothing to do for long enough, and those whose last job has ended.
    pub(super) fn machine_events(&self, now: Timestamp) -> Vec<Event> {
        // How many instances each fleet has when those that were chosen here are gone.
        let mut serving: BTreeMap<&str, u32> = BTreeMap::new();
        let due = self.machines.values().filter(|&machine| match machine.phase {
            MachinePhase::Joined => {
                self.is_machine_idle(machine, now) && self.is_beyond_least(machine, &mut serving)
            }
            MachinePhase::Leaving => {
                let node = self.nodes.get(&machine.node);
                node.is_none_or(|node| node.holders.is_empty())
                    && self.check_machine_free(&machine.node).is_ok()
            }
            _ => false,
        });
        let due: Vec<&Machine> = due.collect();
        let leave = |machine: &Machine| {
            let mut next = machine.clone();
            // The next machine for this job would stand idle as well, and be paid for.
            if machine.phase == MachinePhase::Joined && self.is_unserved(machine, now) {
                let text = "its job did not start on it";
                next.failure = Some(MachineFailure::new(FailureKind::Unknown, text, now));
            }
            self.machine_leaves(next, "idle", now)
        };
        let left = due.iter().filter_map(|machine| machine.terms.fleet.clone()).collect();
        let events = due.into_iter().flat_map(leave);
        events.chain(self.fleets_at_target(&left, now)).collect()
    }

    /// Whether the machine's fleet keeps its least without it, where it is of one; then it counts no more.
    fn is_beyond_least<'s>(
        &'s self,
        machine: &'s Machine,
        serving: &mut BTreeMap<&'s str, u32>,
    ) -> bool {
        let cloud = self.cloud_of(machine);
        let (Some(cloud), Some(fleet)) = (cloud, machine.terms.fleet.as_deref()) else {
            return true;
        };
        let count = serving.entry(fleet).or_insert_with(|| self.serving_instances(fleet));
        // A machine whose node was deleted is of no use to the fleet.
        let is_beyond = *count > cloud.min || !self.nodes.contains_key(&machine.node);
        if is_beyond {
            *count = count.saturating_sub(1);
        }
        is_beyond
    }

    /// Whether the job that the machine was made for waits, and neither a hold nor the time of its start keeps it.
    fn is_unserved(&self, machine: &Machine, now: Timestamp) -> bool {
        let job = machine.job.and_then(|job| self.job(job));
        job.filter(|job| job.is_waiting() && job.hold.is_none())
            .is_some_and(|job| job.begin.is_none_or(|begin| begin <= now))
    }

    /// Whether the machine was idle for as long as its source allows, and has lived as long as it is to. A reservation or a
    /// volume keeps it, and so does its job while it waits for others of its machines. Where its node was deleted, it is of no
    /// use.
    fn is_machine_idle(&self, machine: &Machine, now: Timestamp) -> bool {
        let Some(node) = self.nodes.get(&machine.node) else { return true };
        // It is powered down as any node of a cloud.
        if self.backing(&machine.node).is_some() {
            return false;
        }
        let cloud = self.cloud_of(machine);
        let (Some(source), Some(joined)) = (self.source(&machine.source), machine.joined) else {
            return false;
        };
        let seconds = |count: u32| Duration::from_secs(count.into());
        let beside = || self.machines.values().filter(|of| of.job == machine.job);
        let is_coming = |of: &Machine| matches!(of.phase, MachinePhase::Asked | MachinePhase::Made);
        let is_unserved = self.is_unserved(machine, now);
        if is_unserved && beside().any(is_coming) {
            return false;
        }
        // A job of several nodes could start when the last of its machines had joined, and not before.
        let joined_last = beside().filter(|_| is_unserved).filter_map(|of| of.joined).max();
        // A run's `idle_duration` shortens the idle time of its source or fleet and never extends it: the site pays for it.
        let most = cloud.and_then(|cloud| cloud.choice.idle_s).unwrap_or(source.idle_s);
        let idle_s = machine.terms.idle_s.map_or(most, |of_run| of_run.min(most));
        let idle_since = node.last_busy.max(joined_last).map_or(joined, |at| at.max(joined));
        node.holders.is_empty()
            && idle_since + seconds(idle_s) <= now
            && joined + seconds(source.life_min_s) <= now
            && self.check_machine_free(&machine.node).is_ok()
    }

    /// The fleet that the machine is an instance of.
    fn cloud_of(&self, machine: &Machine) -> Option<&CloudFleet> {
        self.fleets.get(machine.terms.fleet.as_ref()?)?.cloud.as_deref()
    }

    /// Whether nothing keeps the node of a machine, or it is gone already.
    fn check_machine_free(&self, node: &str) -> Result<(), Refusal> {
        if self.dynamic_nodes.contains_key(node) { self.check_deletable(node) } else { Ok(()) }
    }

    /// The node of a machine goes, and then the machine. Where something is on the node it is drained first.
    pub(super) fn machine_leaves(&self, machine: Machine, why: &str, now: Timestamp) -> Vec<Event> {
        let node = machine.node.clone();
        let set = |phase| Event::MachineSet(Box::new(Machine { phase, ..machine.clone() }));
        if self.check_machine_free(&node).is_err() {
            let drained = self.drained(&node, why, now);
            return drained.into_iter().chain([set(MachinePhase::Leaving)]).collect();
        }
        let mut events = self.void_machine_tokens(&node);
        events.push(set(MachinePhase::Deleting));
        if self.dynamic_nodes.contains_key(&node) {
            events.push(Event::DynamicNodesRemoved { nodes: vec![node] });
        }
        events
    }

    /// Takes the join tokens of a machine back.
    fn void_machine_tokens(&self, node: &str) -> Vec<Event> {
        let is_for = |pattern: &str| hostlist::contains(pattern, node);
        let mut events: Vec<Event> = self
            .tokens
            .iter()
            .filter(|(_, token)| token.group.as_ref().is_some_and(|group| is_for(&group.pattern)))
            .filter(|(_, token)| token.group.as_ref().is_some_and(|group| group.count == 1))
            .map(|(hash, _)| Event::JoinTokenRemoved { hash: hash.clone() })
            .collect();
        events.extend(self.void_join_tokens(node));
        events
    }

    /// A machine that served is gone, and nothing that is on it ends there: its jobs end as those of a node that failed, and
    /// begin again where they may.
    fn machine_is_lost(&self, machine: Machine, why: &str, now: Timestamp) -> Vec<Event> {
        let node = machine.node.clone();
        let is_there = self.nodes.get(&node).is_some_and(|node| node.slot != SlotState::Down);
        if self.check_machine_free(&node).is_ok() || !is_there {
            return self.machine_leaves(machine, why, now);
        }
        let leaving = Machine { phase: MachinePhase::Leaving, ..machine };
        let mut events = vec![Event::MachineSet(Box::new(leaving))];
        events.extend(self.drained(&node, why, now));
        events.extend(self.node_fails(&node, why, now));
        events
    }

    /// The source tells of the machine no more. Where its agent speaks the source may be wrong, and jobs end there by themselves.
    fn machine_vanishes(&self, machine: Machine, now: Timestamp) -> Vec<Event> {
        let why = "its machine is gone";
        if self.is_silent(&machine.node) {
            self.machine_is_lost(machine, why, now)
        } else {
            self.machine_leaves(machine, why, now)
        }
    }

    /// Refuses a configuration without a source that has machines or disks, or with one that would not find them: nobody could
    /// delete them.
    pub(super) fn check_beside_machines(&self, config: &ClusterConfig) -> Result<(), Refusal> {
        let is_backend = |source: &&SourceConfig| self.backends.contains_key(&source.name);
        if let Some(SourceConfig { name, .. }) = config.sources.iter().find(is_backend) {
            return Err(Refusal::Other(format!(
                "sluice.toml: source {name}: a backend of a project has this name: expected another"
            )));
        }
        for Machine { source, node, .. } in self.machines.values().filter(|of| of.is_live()) {
            let Some(what) = self.source_loss(source, &config.sources) else { continue };
            return Err(Refusal::Other(format!(
                "sluice.toml: source {source} {what} and has machine {node}: sluice machine delete {node} first"
            )));
        }
        self.check_beside_disks(&config.sources)
    }

    /// What keeps the source of this name among those that are to come from finding what it has made.
    pub(super) fn source_loss(&self, name: &str, next: &[SourceConfig]) -> Option<String> {
        // A backend is not of the configuration, and stays as it is.
        if self.backends.contains_key(name) {
            return None;
        }
        let Some(next) = next.iter().find(|of| of.name == name) else {
            return Some("is missing".to_owned());
        };
        let key = self.source(name)?.kind.other_owner(&next.kind)?;
        Some(format!("has another {key}"))
    }
}

/// Whether the machine is a node or becomes one, and is not on its way out.
pub(super) fn is_serving(machine: &Machine) -> bool {
    matches!(machine.phase, MachinePhase::Asked | MachinePhase::Made | MachinePhase::Joined)
}

/// A machine as it is when it is asked for.
pub(super) fn new_machine(
    order: &MachineOrder,
    node: String,
    number: u32,
    terms: MachineTerms,
    context: &Context,
) -> Machine {
    Machine {
        token: format!("{number}-{:032x}", context.random),
        number,
        source: order.source.clone(),
        offer: order.offer.clone(),
        node,
        job: order.job,
        asked: context.now,
        made: None,
        joined: None,
        gone: None,
        id: None,
        phase: MachinePhase::Asked,
        failure: None,
        terms,
    }
}

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.to_owned() }
}
