//! Commands about fleets over SSH. Keys come in encrypted; what happens on the hosts is reported by the server's installer.

use super::activity::noted;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, FleetHostReport, SetFleet};
use crate::event::Event;
use crate::rights::{Rights, is_project};
use crate::state::State;
use model::activity::{ActivityKind, ActivityTarget};
use model::bounds;
use model::cloud_fleet::CloudFleet;
use model::fleet::STATIC;
use model::node::NodeConfig;
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::Sealed;
use model::ssh_fleet::{FleetHost, SshFleet, node_name};
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl State {
    /// Makes a fleet, or changes it in place: hosts that it keeps keep their nodes, new ones get the lowest free numbers, and
    /// those that it no longer names leave.
    pub(super) fn decide_set_fleet(
        &self,
        set: &SetFleet,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::ManageFleets)?;
        if !is_project(self, &set.project) {
            return Err(unknown("project", &set.project));
        }
        let known = self.fleets.get(&set.name);
        self.check_fleet_name(set, known)?;
        bounds::FLEET_HOSTS.hold(set.hosts.len())?;
        self.check_hosts(set)?;
        self.check_cloud(set, known)?;
        let mut hosts = known.map(|fleet| fleet.hosts.clone()).unwrap_or_default();
        let staying = hosts.iter().filter(|(_, host)| host.leaving.is_none());
        let mut before: BTreeMap<String, u32> =
            staying.map(|(number, host)| (host.route(), *number)).collect();
        let mut added = Vec::new();
        for wanted in &set.hosts {
            let number = before.remove(&wanted.route());
            match number.and_then(|number| hosts.get_mut(&number)) {
                Some(host) => *host = taken_over(host, wanted),
                None => added.push(wanted.clone()),
            }
        }
        for number in before.into_values() {
            let node = node_name(&set.name, number);
            self.check_instance_idle(&node)?;
            self.check_no_volume_on(&node)?;
            if let Some(host) = hosts.get_mut(&number) {
                host.leaving = Some(context.now);
            }
        }
        let mut number = 0;
        for host in added {
            while hosts.contains_key(&number) {
                number += 1;
            }
            let node = node_name(&set.name, number);
            // An agent that is known by this name could speak for the host.
            if self.has_machine(&node) || self.agents.contains_key(&node) {
                return Err(Refusal::AlreadyExists { what: "node".into(), name: node });
            }
            hosts.insert(number, host);
        }
        let fleet = SshFleet {
            name: set.name.clone(),
            project: set.project.clone(),
            configuration: set.configuration.clone(),
            created_by: known.map_or(&context.by.name, |fleet| &fleet.created_by).clone(),
            created: known.map_or(context.now, |fleet| fleet.created),
            is_cluster: set.is_cluster,
            cloud: cloud_applied(set, known),
            hosts,
        };
        if known == Some(&fleet) {
            return Ok(Decision::default());
        }
        let what = known.map_or(ActivityKind::Created, |_| ActivityKind::Changed);
        let target = ActivityTarget::Fleet { project: set.project.clone(), name: set.name.clone() };
        Ok(vec![fleet_set(fleet, context.now), noted(context, target, what)].into())
    }

    /// A fleet is of hosts, or of machines that sources make, and stays so.
    fn check_cloud(&self, set: &SetFleet, known: Option<&SshFleet>) -> Result<(), Refusal> {
        let refused = |text: &str| Err(Refusal::Other(format!("fleet {}: {text}", set.name)));
        if known.is_some_and(|known| known.cloud.is_some() != set.cloud.is_some()) {
            return refused("it is of hosts or of machines of a cloud: delete it first");
        }
        if set.cloud.is_some() && !self.has_sources() {
            return refused("no source of machines is configured: `[[source]]` in sluice.toml");
        }
        if let Some(cloud) = &set.cloud {
            bounds::FLEET_INSTANCES.hold(cloud.target.max(cloud.min) as usize)?;
        }
        Ok(())
    }

    /// A fleet's name is that of its partition.
    fn check_fleet_name(&self, set: &SetFleet, known: Option<&SshFleet>) -> Result<(), Refusal> {
        let taken = match known {
            Some(fleet) => fleet.project != set.project,
            None => set.name == STATIC || self.partition(&set.name).is_some(),
        };
        if taken {
            let (what, name) = ("fleet or partition".into(), set.name.clone());
            return Err(Refusal::AlreadyExists { what, name });
        }
        if known.is_none() {
            bounds::FLEETS.hold(self.fleets.len() + 1)?;
        }
        Ok(())
    }

    /// A host is in one fleet, and there once.
    fn check_hosts(&self, set: &SetFleet) -> Result<(), Refusal> {
        let mut named = BTreeSet::new();
        for host in &set.hosts {
            if !named.insert(host.route()) {
                return Err(Refusal::Other(format!("host {}: it is named twice", host.route())));
            }
        }
        for fleet in self.fleets.values().filter(|fleet| fleet.name != set.name) {
            let staying = fleet.hosts.values().filter(|host| host.leaving.is_none());
            if let Some(route) = staying.map(FleetHost::route).find(|route| named.contains(route)) {
                // The name of a fleet of another project is not told.
                let of = if fleet.project == set.project {
                    format!("fleet {}", fleet.name)
                } else {
                    "a fleet of another project".to_owned()
                };
                return Err(Refusal::Other(format!("host {route}: it is in {of} already")));
            }
        }
        Ok(())
    }

    fn check_instance_idle(&self, node: &str) -> Result<(), Refusal> {
        let holder = self.nodes.get(node).and_then(|node| node.holders.first());
        match holder {
            Some(attempt) => Err(Refusal::Other(format!(
                "instance {node} is busy: job {} runs there",
                attempt.job
            ))),
            None => Ok(()),
        }
    }

    /// Removes hosts, or the whole fleet. Nothing of it may be busy.
    pub(super) fn decide_remove_fleet_hosts(
        &self,
        project: &str,
        name: &str,
        numbers: Option<&[u32]>,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::ManageFleets)?;
        let of_project = |fleet: &&SshFleet| fleet.project == project;
        let known = self.fleets.get(name).filter(of_project);
        let known = known.ok_or_else(|| self.no_fleet(name))?;
        if known.cloud.is_some() {
            return self.remove_cloud_fleet(known, numbers, context);
        }
        let mut fleet = known.clone();
        let leaving: Vec<u32> = match numbers {
            Some(numbers) => numbers.to_vec(),
            None => fleet.hosts.keys().copied().collect(),
        };
        for number in &leaving {
            let node = fleet.node_name(*number);
            let host = fleet.hosts.get_mut(number);
            let host = host.ok_or_else(|| unknown("instance", &node))?;
            self.check_instance_idle(&node)?;
            self.check_no_volume_on(&node)?;
            host.leaving.get_or_insert(context.now);
        }
        if fleet == *known {
            return Ok(Decision::default());
        }
        let what = numbers.map_or(ActivityKind::Deleted, |_| ActivityKind::Changed);
        let target = ActivityTarget::Fleet { project: project.into(), name: name.into() };
        Ok(vec![fleet_set(fleet, context.now), noted(context, target, what)].into())
    }

    /// Why nothing of this name is removed. Lists show the partitions of slurm.conf as fleets too.
    fn no_fleet(&self, name: &str) -> Refusal {
        if self.partition(name).is_some() && !self.fleets.contains_key(name) {
            let why = "it is a partition of the cluster's configuration, and is changed there";
            return Refusal::Other(format!("fleet {name}: {why}"));
        }
        unknown("fleet", name)
    }

    fn remove_cloud_fleet(
        &self,
        fleet: &SshFleet,
        numbers: Option<&[u32]>,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let mut events = self.fleet_leaves(&fleet.name, numbers, context.now)?;
        if numbers.is_none() {
            events.push(Event::FleetRemoved { name: fleet.name.clone() });
        }
        let what = numbers.map_or(ActivityKind::Deleted, |_| ActivityKind::Changed);
        let (project, name) = (fleet.project.clone(), fleet.name.clone());
        events.push(noted(context, ActivityTarget::Fleet { project, name }, what));
        Ok(events.into())
    }

    /// What was found out about a host. A host that has left meanwhile has nothing to be found out.
    pub(super) fn decide_fleet_host(
        &self,
        node: &str,
        id: &str,
        report: &FleetHostReport,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let Some((fleet, number, host)) =
            self.fleet_host(node).filter(|(_, _, host)| host.id == id)
        else {
            return Ok(Decision::default());
        };
        let mut next = host.clone();
        match report {
            FleetHostReport::KeySeen { of_jump, key } => {
                let login = if *of_jump { next.jump.as_mut() } else { Some(&mut next.login) };
                if let Some(login) = login {
                    login.host_key.get_or_insert_with(|| key.clone());
                }
            }
            FleetHostReport::Failed(why) => next.failure.clone_from(why),
            FleetHostReport::Found(machine) => {
                next.failure = None;
                let busy = self.nodes.get(node).is_some_and(|node| !node.holders.is_empty());
                // Under running jobs the node stays as large as it was; a machine that has less is drained for it.
                if !busy || next.machine.is_none() {
                    next.machine = Some(Box::new(NodeConfig::clone(machine)));
                }
            }
            FleetHostReport::Address { network, address } => {
                // Another network may be asked for meanwhile.
                if host.network == Some(*network) {
                    next.address = Some(*address);
                    next.failure = None;
                }
            }
            FleetHostReport::Removed => {
                if host.leaving.is_none() {
                    return Ok(Decision::default());
                }
                // A token that waits would make its holder the agent of whichever host has the name next.
                let mut events = self.void_join_tokens(node);
                events.push(Event::FleetHostRemoved { fleet: fleet.name.clone(), number });
                if fleet.hosts.len() == 1 {
                    events.push(Event::FleetRemoved { name: fleet.name.clone() });
                }
                return Ok(events.into());
            }
        }
        if next == *host {
            return Ok(Decision::default());
        }
        let (fleet, host) = (fleet.name.clone(), Box::new(next));
        Ok(vec![Event::FleetHostSet { fleet, number, host, at: context.now }].into())
    }

    /// The same keys in another form. Those that were changed since are left alone.
    pub(super) fn decide_reseal_fleet(
        &self,
        name: &str,
        forms: &HashMap<Sealed, Sealed>,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let Some(known) = self.fleets.get(name) else { return Ok(Decision::default()) };
        let mut fleet = known.clone();
        fleet.reseal(forms);
        if fleet == *known {
            return Ok(Decision::default());
        }
        Ok(vec![fleet_set(fleet, context.now)].into())
    }

    /// The host of a fleet that is, or was, this node.
    pub fn fleet_host(&self, node: &str) -> Option<(&SshFleet, u32, &FleetHost)> {
        let (fleet, number) = node.rsplit_once('-')?;
        let (fleet, number) = (self.fleets.get(fleet)?, number.parse().ok()?);
        let host = fleet.hosts.get(&number)?;
        (fleet.node_name(number) == node).then_some((fleet, number, host))
    }

    /// Whether the fleet that the partition is, if it is one, is there for the job: for its project's members alone, whatever
    /// account the job names, and for runs on several nodes only where these lie together.
    pub(super) fn check_fleet_use(&self, partition: &str, spec: &JobSpec) -> Result<(), Refusal> {
        let Some(fleet) = self.fleets.get(partition) else { return Ok(()) };
        if Rights::of(self, &spec.owner).project_role(&fleet.project).is_none() {
            return Err(Refusal::UnknownPartition(partition.to_owned()));
        }
        if spec.is_distributed_run() && !fleet.is_cluster {
            return Err(Refusal::Other(format!(
                "fleet {partition}: a run on several nodes needs a fleet with `placement: cluster`"
            )));
        }
        Ok(())
    }

    /// Refuses a configuration that gives the name of a fleet, or of its node, to something else.
    pub(super) fn check_beside_fleets(&self, config: &crate::ClusterConfig) -> Result<(), Refusal> {
        let partition = config.partitions.iter().find(|p| self.fleets.contains_key(&p.name));
        let node = config.nodes.iter().find(|node| self.fleet_host(&node.name).is_some());
        let login = config.login_nodes.iter().find(|name| self.fleet_host(name).is_some());
        let partition = partition.map(|p| ("slurm.conf", "partition", &p.name));
        let node = node.map(|node| ("slurm.conf", "node", &node.name));
        let login = login.map(|name| ("sluice.toml", "login node", name));
        match partition.or(node).or(login) {
            Some((file, what, name)) => Err(Refusal::Other(format!(
                "{file}: {what} {name}: a fleet has this name: delete the fleet first, or name the {what} otherwise"
            ))),
            None => Ok(()),
        }
    }
}

/// The event that makes or changes a fleet. It leaves out what agents found out about the machines, which stays as it is
/// where the event is applied: of ten thousand hosts that would be more than a commit holds.
fn fleet_set(mut fleet: SshFleet, at: Timestamp) -> Event {
    for host in fleet.hosts.values_mut() {
        host.machine = None;
    }
    Event::FleetSet { fleet: Box::new(fleet), at }
}

/// The machines of a fleet as they are asked for. The same once more does not bring it to its target again.
fn cloud_applied(set: &SetFleet, known: Option<&SshFleet>) -> Option<Box<CloudFleet>> {
    let mut cloud = set.cloud.clone()?;
    cloud.target_reached = true;
    let is_same = known.is_some_and(|known| known.cloud.as_ref() == Some(&cloud));
    cloud.target_reached = is_same;
    Some(cloud)
}

/// What is asked for now, with what is known of the host.
fn taken_over(known: &FleetHost, wanted: &FleetHost) -> FleetHost {
    let (id, machine) = (known.id.clone(), known.machine.clone());
    let mut next = FleetHost { id, machine, ..wanted.clone() };
    next.login.host_key.clone_from(&known.login.host_key);
    next.address = known.address.filter(|_| known.network == wanted.network);
    if let (Some(jump), Some(known)) = (&mut next.jump, &known.jump) {
        jump.host_key.clone_from(&known.host_key);
    }
    // Whoever applies it again has it tried again.
    next.failure = None;
    next
}

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.into() }
}
