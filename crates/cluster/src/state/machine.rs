//! What the state knows of machines on demand: the nodes that they are or could be, their costs, and what holds their sources
//! back.

use crate::state::State;
use model::backend::Backend;
use model::cloud_fleet::CloudFleet;
use model::gres::GPU;
use model::machine::{
    FailureKind, Machine, MachineFailure, MachinePhase, Offer, SourceConfig, SourcePause,
    fleet_feature,
};
use model::machine_choice::SourceRef;
use model::month::{month_of, month_start};
use model::node::{NodeConfig, SlotState};
use model::partition::Partition;
use model::price::Cost;
use model::time::Timestamp;
use sched::machines::{Coming, FleetPool, MachineView, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// How long a source, or one of its offers, is left alone after a failure; twice as long after each further one within an hour.
const FAILURE_PAUSE: Duration = Duration::from_secs(30);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(900);

/// How many offers may be without capacity at once until their whole source is left alone.
const SOLD_OUT_MAX: usize = 20;

/// Nodes that could be, for what is checked at submit.
const OFFERED_NODES_MAX: usize = 4_096;

/// Whether the machine failed for what its job asks for, as an image that there is none of: others of its source are not held
/// back.
fn is_for_its_job(machine: &Machine) -> bool {
    let is_refused = |failure: &MachineFailure| failure.kind == FailureKind::Refused;
    machine.terms.pod.is_some()
        && machine.made.is_some()
        && machine.failure.as_ref().is_some_and(is_refused)
}

impl State {
    /// The sources of machines: those of sluice.toml, and the backends that calls have made.
    pub fn sources(&self) -> impl Iterator<Item = &SourceConfig> {
        self.config.sources.iter().chain(self.backends.values().map(|backend| &backend.source))
    }

    pub fn has_sources(&self) -> bool {
        self.sources().next().is_some()
    }

    pub fn source(&self, name: &str) -> Option<&SourceConfig> {
        self.sources().find(|source| source.name == name)
    }

    /// The project that a source makes machines for alone, and whose jobs alone they take; `None` for everybody.
    pub fn project_of_source(&self, name: &str) -> Option<&str> {
        self.backends.get(name)?.only_for()
    }

    /// A source as machines know it, also one that is not configured any more.
    pub fn source_ref<'s>(&'s self, name: &'s str) -> SourceRef<'s> {
        let source = self.source(name);
        let reference = source.map_or_else(|| SourceRef::named(name), SourceConfig::reference);
        SourceRef { project: self.project_of_source(name), ..reference }
    }

    /// Whether the node is a pod of Kubernetes.
    pub fn is_pod(&self, node: &str) -> bool {
        let machine = self.nodes.get(node).and_then(|node| node.config.machine.as_ref());
        machine.is_some_and(|kind| !kind.pod.is_none())
    }

    /// The source that makes the machine of a node of slurm.conf.
    pub fn backing(&self, node: &str) -> Option<&SourceConfig> {
        // Most nodes and machines are told by this, and no list of names is looked through.
        self.nodes.get(node).filter(|node| node.config.cloud)?;
        let mut sources = self.config.sources.iter();
        sources.find(|source| source.nodes.iter().any(|name| name == node))
    }

    /// Whether the source is a backend that `config.yml` has dropped: it makes nothing new.
    pub(crate) fn is_dropped(&self, source: &str) -> bool {
        self.backends.get(source).is_some_and(Backend::is_dropped)
    }

    /// The sources that may make something.
    pub(crate) fn making_sources(&self) -> impl Iterator<Item = &SourceConfig> {
        self.sources().filter(move |source| !self.is_dropped(&source.name))
    }

    /// The sources whose machines are dynamic nodes.
    fn open_sources(&self) -> impl Iterator<Item = &SourceConfig> {
        self.making_sources().filter(|source| source.nodes.is_empty())
    }

    /// Whether a source may make machines that would be in the partition: it has more nodes then than it has now.
    pub fn may_grow(&self, partition: &Partition) -> bool {
        self.open_sources().any(|source| self.takes_in(partition, source))
    }

    /// Whether machines of the source would be in the partition.
    fn takes_in(&self, partition: &Partition, source: &SourceConfig) -> bool {
        let fleet = self.fleets.get(&partition.name);
        let is_of_machines = fleet.is_some_and(|fleet| fleet.cloud.is_some());
        is_of_machines || partition.dynamic_members.admits(&source.features)
    }

    /// The sources that have told no offers, and may make machines for jobs of this account in these partitions.
    pub(crate) fn silent_sources(&self, account: &str, partitions: &[u32]) -> Vec<String> {
        let partitions = || partitions.iter().filter_map(|at| self.partitions.get(*at as usize));
        let is_silent = |source: &&SourceConfig| {
            !self.offers.contains_key(&source.name)
                && self.source_ref(&source.name).serves(account)
                && partitions().any(|partition| self.takes_in(partition, source))
        };
        self.open_sources().filter(is_silent).map(|source| source.name.clone()).collect()
    }

    /// The cheapest offer that has what a node of slurm.conf has, and is as its features say where they name a type, a region,
    /// `spot` or `on-demand`.
    pub(crate) fn fitting_offer(
        &self,
        source: &SourceConfig,
        node: &NodeConfig,
        failed: &[SourcePause],
    ) -> Option<&Offer> {
        let offers = self.offers.get(&source.name)?;
        let is_word = |word: &&String| offers.iter().any(|offer| offer.is_called(word));
        let words: Vec<&String> = node.features.iter().filter(is_word).collect();
        let gpus = node.gres_total(GPU);
        let kinds = node.gres.iter().filter(|line| line.name == GPU);
        let kinds: Vec<&String> = kinds.filter_map(|line| line.kind.as_ref()).collect();
        let fits = |offer: &&Offer| {
            let has = offer.gpus.as_ref();
            let is_kind = |kind: &&String| has.is_some_and(|has| has.kind == **kind);
            offer.cpus >= node.cpus
                && offer.memory >= node.memory
                && has.map_or(0, |has| u64::from(has.count)) >= gpus
                && kinds.iter().all(is_kind)
                && words.iter().all(|word| offer.is_called(word))
                && !failed.iter().any(|pause| pause.is_of(&offer.id))
        };
        offers.iter().filter(fits).min_by_key(|offer| offer.price)
    }

    pub fn live_machines_of<'s>(&'s self, source: &'s str) -> impl Iterator<Item = &'s Machine> {
        self.machines.values().filter(move |of| of.is_live() && of.source == source)
    }

    /// Whether the machine's agent is a node that is as its agent says.
    pub fn has_joined(&self, machine: &Machine) -> bool {
        let is_up = self.nodes.get(&machine.node).is_some_and(|node| node.slot == SlotState::Up);
        if self.backing(&machine.node).is_some() {
            return is_up && self.nodes.get(&machine.node).is_some_and(|node| node.power.is_on());
        }
        let node = self.dynamic_nodes.get(&machine.node);
        is_up && node.is_some_and(|node| node.said.is_some())
    }

    /// Whether the node's agent does not speak, and it is not down for that yet.
    pub(crate) fn is_silent(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.slot == SlotState::Silent)
    }

    /// What the machines and disks of a source have cost in the month of `now`. What one that is there for longer cost before is of the
    /// months before.
    pub fn machine_costs(&self, source: &str, now: Timestamp) -> Cost {
        let (month, start) = (month_of(now), month_start(now));
        let of_source = self.machines.values().filter(|machine| machine.source == source);
        let kept: Cost = of_source.map(|machine| machine.cost_since(start, now)).sum();
        let disks = self.disk_costs_since(source, start, now);
        let former = self.former_machine_costs.get(source).and_then(|months| months.get(&month));
        kept + disks + former.copied().unwrap_or_default()
    }

    /// What the scheduler is shown of machines.
    pub fn machine_view(&self, now: Timestamp) -> MachineView {
        let coming = self.machines.values().filter(|machine| {
            let is_coming = matches!(machine.phase, MachinePhase::Asked | MachinePhase::Made);
            // A node of slurm.conf is there while its machine is made.
            is_coming && !self.has_joined(machine) && self.backing(&machine.node).is_none()
        });
        let mut coming: Vec<&Machine> = coming.collect();
        coming.sort_unstable_by_key(|machine| machine.number);
        let coming: Vec<Coming> = coming
            .into_iter()
            .map(|machine| {
                let features = self.source(&machine.source).map(|of| machine.own_features(of));
                let source = self.source_ref(&machine.source);
                let features = features.unwrap_or_default();
                let node = NodeConfig {
                    machine: Some(Box::new(machine.kind(source))),
                    ..machine.offer.node(&machine.node, &features)
                };
                Coming { node, job: machine.job, fleet: machine.terms.fleet.clone() }
            })
            .collect();
        let is_idle =
            |name: &String| self.nodes.get(name).is_some_and(|node| node.holders.is_empty());
        let joined = self.machines.values().filter(|machine| self.has_joined(machine));
        let idle = joined.filter(|machine| is_idle(&machine.node));
        // A job that did not start on its machine gets no other one at once: it would not start there either.
        let in_vain = self.machines.values().filter(|machine| {
            let is_its_own = machine.joined.is_some() || is_for_its_job(machine);
            let failure = machine.failure.as_ref().filter(|_| is_its_own);
            failure.is_some_and(|failure| failure.at + FAILURE_PAUSE_MAX > now)
        });
        let served = idle.chain(in_vain).filter_map(|machine| machine.job);
        let joining =
            coming.iter().filter(|of| !self.dynamic_nodes.contains_key(&of.node.name)).count();
        let there = self.config.nodes.len() + self.dynamic_nodes.len() + joining;
        let most = self.config.parameters.max_node_count as usize;
        let plain: Vec<Source> =
            self.open_sources().map(|source| self.source_view(source, now)).collect();
        let of_fleets = self.fleets.values().filter_map(|fleet| {
            let cloud = CloudFleet::clone(fleet.cloud.as_ref()?);
            let machines = self.instances_of(&fleet.name);
            let pool = FleetPool { name: fleet.name.clone(), machines, cloud };
            Some((fleet.project.as_str(), Arc::new(pool)))
        });
        let of_fleets: Vec<Source> = of_fleets
            .flat_map(|(project, fleet)| {
                let features = vec![fleet_feature(&fleet.name)];
                let one = move |source: &Source| Source {
                    features: features.clone(),
                    fleet: Some(fleet.clone()),
                    ..source.clone()
                };
                let serving = plain.iter().filter(|source| source.serves(project));
                serving.map(one).collect::<Vec<_>>()
            })
            .collect();
        MachineView {
            sources: plain.into_iter().chain(of_fleets).collect(),
            served: served.collect(),
            room: most.saturating_sub(there) as u32,
            budgets: self.budget_view(now),
            coming,
        }
    }

    pub(crate) fn source_view(&self, source: &SourceConfig, now: Timestamp) -> Source {
        let live = || self.live_machines_of(&source.name);
        let hour: Cost = live().map(|machine| machine.offer.price.for_time(HOUR)).sum();
        let spent = || self.machine_costs(&source.name, now) + hour;
        let reference = self.source_ref(&source.name);
        Source {
            name: source.name.clone(),
            backend: reference.backend.to_owned(),
            makes_pods: reference.makes_pods,
            makes_root_pods: reference.makes_root_pods,
            features: source.features.clone(),
            offers: self.offers.get(&source.name).cloned().unwrap_or_default(),
            failed: self.source_pauses(&source.name, now),
            machines: live().count() as u32,
            price_hour: live().map(|machine| machine.offer.price).sum(),
            machines_max: source.machines_max,
            price_hour_max: source.price_hour_max,
            budget_left: source.budget_month.map(|budget| budget.less(spent())),
            boot: Duration::from_secs(source.boot_s.into()),
            own_first: source.own_first,
            project: reference.project.map(str::to_owned),
            fleet: None,
        }
    }

    /// Offers that are left alone after failures, or the whole source. A machine that has joined is no failure of its source,
    /// though its job did not start there.
    pub fn source_pauses(&self, source: &str, now: Timestamp) -> Vec<SourcePause> {
        let of_source = self.machines.values().filter(|machine| machine.source == source);
        let counted = of_source.filter(|of| of.joined.is_none() && !is_for_its_job(of));
        let mut failed: Vec<(&Machine, &MachineFailure)> = counted
            .filter_map(|machine| {
                let failure = machine.failure.as_ref()?;
                (failure.at + HOUR > now && !failure.settled).then_some((machine, failure))
            })
            .collect();
        failed.sort_unstable_by_key(|(machine, failure)| (failure.at, machine.number));
        // How many failures count, when the last of these was, and the last of all.
        let mut last: BTreeMap<Option<&str>, (u32, Timestamp, &MachineFailure)> = BTreeMap::new();
        for (machine, failure) in failed {
            let offer = failure.kind.is_of_offer().then_some(machine.offer.id.as_str());
            let (count, counted, known) = last.entry(offer).or_insert((0, failure.at, failure));
            // What was asked for before the source had failed is of the same failure.
            if *count == 0 || machine.asked > *counted {
                (*count, *counted) = (*count + 1, failure.at);
            }
            *known = failure;
        }
        let pauses = last.into_iter().map(|(offer, (count, _, failure))| {
            let pause = FAILURE_PAUSE * 2_u32.pow((count - 1).min(10));
            let until = failure.at + pause.min(FAILURE_PAUSE_MAX);
            let (kind, text) = (failure.kind, failure.text.clone());
            SourcePause { offer: offer.map(str::to_owned), kind, text, until }
        });
        let pauses: Vec<SourcePause> = pauses.filter(|pause| now < pause.until).collect();
        // Each of thousands of offers would be tried in turn, with a call and two entries of the journal.
        let of_offers = pauses.iter().filter(|pause| pause.offer.is_some());
        let mut ends: Vec<Timestamp> = of_offers.map(|pause| pause.until).collect();
        ends.sort_unstable();
        // When only so many are left.
        let Some(first) = ends.len().checked_sub(SOLD_OUT_MAX + 1) else { return pauses };
        let text = format!("{} of its offers have no capacity", ends.len());
        let (kind, until) = (FailureKind::NoCapacity, ends[first]);
        vec![SourcePause { offer: None, kind, text, until }]
    }

    /// The features of the source, and of the fleets that may have such a machine.
    fn features_for(&self, source: &SourceConfig, offer: &Offer) -> Vec<String> {
        let fleets = self.fleets.values().filter(|fleet| {
            fleet.cloud.as_ref().is_some_and(|cloud| cloud.allows(source.reference(), offer))
        });
        let of_fleets = fleets.map(|fleet| fleet_feature(&fleet.name));
        source.features.iter().cloned().chain(of_fleets).collect()
    }

    /// The nodes that machines could be, as many of each kind as may count.
    pub(crate) fn offered_nodes(&self) -> Vec<NodeConfig> {
        let mut nodes = Vec::new();
        for source in self.open_sources() {
            let offers = self.offers.get(&source.name).map(|offers| &offers[..]);
            let offers = offers.unwrap_or_default();
            let share = (OFFERED_NODES_MAX / offers.len().max(1)).max(1);
            let each = share.min(source.machines_max as usize);
            let reference = self.source_ref(&source.name);
            for offer in offers {
                let name = |number| format!("{}:{}:{number}", source.name, offer.id);
                let features = self.features_for(source, offer);
                let node = |at| offer.node_of(reference, &name(at), &features);
                nodes.extend((0..each).map(node));
            }
        }
        nodes
    }
}
