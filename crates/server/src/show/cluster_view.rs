//! The nodes and partitions, the configuration, and the accounts as clients see them.

use crate::shared::Shared;
use crate::show::reservations;
use cluster::State;
use cluster::visibility::Viewer;
use model::account::Account;
use model::allocation::GresShare;
use model::deleted::DeletedEntries;
use model::gpu_health::{self, Severity};
use model::health::HealthSource;
use model::node::NodeFacts;
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::principal::Principal;
use model::private_data::PrivateKind;
use model::run::JobState;
use model::time::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use wire::view::{AccountsView, ClusterView, ConfigView, NodeView, SubmitChoices};

pub fn cluster(shared: &Shared, by: &Principal, now: Timestamp) -> ClusterView {
    let state = shared.read();
    let facts = shared.volatile.facts.read().expect("no panic while writing facts");
    ClusterView { notices: notices(shared), ..cluster_of(&state, &facts, by, now) }
}

/// What everybody should know of the server itself. The log has the errors: a file's lines are not for everybody.
fn notices(shared: &Shared) -> Vec<String> {
    let is_remembered = shared.volatile.config_is_remembered.load(Ordering::Relaxed);
    let text = "the configuration files cannot be used, and the last configuration that was accepted is in force: \
                mend them (the server's log says where), then `scontrol reconfigure`";
    is_remembered.then(|| text.to_owned()).into_iter().collect()
}

/// As [`cluster`], of a state that is held already.
pub fn cluster_of(
    state: &State,
    facts: &HashMap<String, NodeFacts>,
    by: &Principal,
    now: Timestamp,
) -> ClusterView {
    let viewer = Viewer::new(state, by);
    let shown = |fleet: &str| viewer.partitions() && viewer.fleet(fleet);
    let partitions = || state.partitions.iter().filter(|partition| shown(&partition.name));
    let mut partitions_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for partition in partitions() {
        for node in &partition.nodes {
            partitions_of.entry(node).or_default().push(partition.name.clone());
        }
    }
    let kept = reservations::reserved_nodes(state, now);
    let is_shown = |node: &cluster::Node| viewer.nodes() && viewer.fleet(&node.config.fleet);
    let nodes = state.nodes.iter().filter(|(_, node)| is_shown(node)).map(|(name, node)| {
        let completing = node
            .holders
            .iter()
            .any(|a| state.jobs.get(&a.job).is_some_and(|j| j.state() == JobState::Completing));
        NodeView {
            config: (*node.config).clone(),
            slot: node.slot,
            power: node.power,
            admin: node.admin,
            reason: node.reason.clone().or_else(|| warning(facts.get(name)?, now)),
            facts: facts.get(name).cloned().unwrap_or_else(|| node.facts.clone()),
            cpus_allocated: node.used.cpus.len(),
            memory_allocated: node.used.memory,
            gres_used: gres_used(node),
            job_count: node.used.jobs,
            completing: completing || !node.stale.is_empty(),
            partitions: partitions_of.get(name.as_str()).cloned().unwrap_or_default(),
            last_busy: node.last_busy,
            reserved_for: kept.get(name.as_str()).copied(),
            dynamic_future: state.is_dynamic_future(name),
        }
    });
    ClusterView {
        name: state.config.name.clone(),
        now,
        nodes: nodes.collect(),
        partitions: partitions().map(|p| (**p).clone()).collect(),
        topology: state.topology().filter(|_| viewer.nodes()),
        notices: Vec::new(),
        proxy_url: None,
    }
}

/// What the GPUs of a node in service warn of.
fn warning(facts: &NodeFacts, at: Timestamp) -> Option<NodeReason> {
    let text = gpu_health::summary(&facts.gpus, Severity::Warning)?;
    let cause =
        NodeCause::Unhealthy { source: HealthSource::Gpu, text: format!("warning: {text}") };
    Some(NodeReason { cause, author: ReasonAuthor::System, at })
}

/// The share of each generic resource of the node that jobs hold, by name and kind.
fn gres_used(node: &cluster::Node) -> Vec<GresShare> {
    let mut used: Vec<GresShare> = Vec::new();
    for share in &node.used.gres {
        match used.iter_mut().find(|u| u.name == share.name && u.kind == share.kind) {
            Some(known) => {
                known.count += share.count;
                known.indices.extend(&share.indices);
            }
            None => used.push(share.clone()),
        }
    }
    for share in &mut used {
        share.indices.sort_unstable();
        share.indices.dedup();
    }
    used
}

pub fn config(shared: &Shared, now: Timestamp) -> ConfigView {
    let state = shared.read();
    let mut values = state.config.shown.clone();
    values.insert("ClusterName".into(), state.config.name.clone());
    values.insert("NEXT_JOB_ID".into(), state.next_job.to_string());
    let zone = timezone::local();
    let started = model::time::format_iso(shared.setup.started, &zone);
    values.insert("BOOT_TIME".into(), started);
    ConfigView { now, values }
}

pub fn submit_choices(shared: &Shared, by: &Principal) -> SubmitChoices {
    let state = shared.read();
    SubmitChoices {
        partitions: state.partition_choices(by),
        accounts: state.account_choices(by),
        qos: state.qos_choices(by),
    }
}

pub fn accounts(shared: &Shared, by: &Principal) -> AccountsView {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let shown = |account: &Account| {
        let mut coordinators = account.coordinators.clone();
        coordinators.retain(|name| viewer.coordinator(account, name));
        Account { coordinators, ..account.clone() }
    };
    let is_shown = |account: &&Account| viewer.account(&account.name);
    let deleted = DeletedEntries {
        accounts: state.deleted.accounts.iter().filter(is_shown).map(shown).collect(),
        associations: {
            let associations = state.deleted.associations.iter();
            associations.filter(|a| viewer.association(a)).cloned().collect()
        },
        qos: state.deleted.qos.clone(),
    };
    let associations = state.associations.iter().filter(|a| viewer.association(a));
    let roles = state.roles.iter().filter(|(name, _)| viewer.user(name));
    AccountsView {
        cluster: state.config.name.clone(),
        accounts: state.accounts.values().filter(is_shown).map(shown).collect(),
        associations: associations.cloned().collect(),
        qos: state.qos.values().map(|q| (**q).clone()).collect(),
        roles: roles.map(|(name, role)| (name.clone(), *role)).collect(),
        only_user: viewer.is_denied(PrivateKind::Users).then(|| by.name.clone()),
        deleted,
    }
}
