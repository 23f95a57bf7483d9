//! The events of nodes, partitions, accounts, tokens, secrets and volumes: all that is not a job.

use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use crate::token::JoinToken;
use model::account::Association;
use model::activity::{Activity, ActivityKind, ActivityTarget};
use model::change::{JobField, PartitionChange};
use model::health::HealthFailure;
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::reason::Reason;
use model::run::Hold;
use model::time::Timestamp;
use std::sync::Arc;

/// Whether values that are derived from accounts, users and QOS have to be computed anew.
fn is_of_accounts(event: &Event) -> bool {
    matches!(
        event,
        Event::AccountSet(_)
            | Event::AccountRemoved { .. }
            | Event::AssociationSet(_)
            | Event::AssociationRemoved { .. }
            | Event::QosSet(_)
            | Event::QosRemoved { .. }
    )
}

impl State {
    pub(super) fn apply_node_or_account(&mut self, event: &Event) {
        if is_of_accounts(event) {
            self.tree.invalidate();
            self.accounting.invalidate();
            self.fair_share_ranks.invalidate();
            self.priority_totals.invalidate();
        }
        match event {
            Event::ProjectSet { name, project } => {
                self.projects.insert(name.clone(), project.clone());
            }
            Event::DefaultGatewaySet { project, gateway } => match gateway {
                Some(gateway) => {
                    self.default_gateways.insert(project.clone(), gateway.clone());
                }
                None => {
                    self.default_gateways.remove(project);
                }
            },
            Event::UserSet { name, user } => {
                self.users.insert(name.clone(), user.clone());
            }
            Event::UserRemoved { name } => {
                self.users.remove(name);
                self.roles.remove(name);
            }
            Event::Noted(activity) => self.activities.note((**activity).clone()),
            Event::NodeUp { node, facts, stale, at } => {
                let power = &self.config.parameters.power;
                let (saves_power, reported) = (power.is_enabled(), power.reported_addresses);
                let was_up = self.nodes.get(node).is_some_and(|node| node.slot == SlotState::Up);
                if !was_up {
                    self.note_node(node, None, *at, ActivityKind::NodeUp);
                }
                let node = self.node_mut(node);
                node.slot = SlotState::Up;
                node.facts = (**facts).clone();
                if reported {
                    node.take_address();
                }
                if saves_power {
                    node.last_busy.get_or_insert(*at);
                }
                let is_new = node.take_architecture();
                node.silent_since = None;
                node.stale.clone_from(stale);
                if is_new {
                    self.hardware.invalidate();
                }
            }
            Event::NodeSilent { node, at } => {
                self.note_node(node, None, *at, ActivityKind::NodeSilent);
                let node = self.node_mut(node);
                node.slot = SlotState::Silent;
                node.silent_since = Some(*at);
            }
            Event::NodeDown { node, reason, at } => {
                self.note_node(node, Some(reason), *at, ActivityKind::NodeDown);
                let node = self.node_mut(node);
                node.slot = SlotState::Down;
                node.reason = Some(reason.clone());
            }
            Event::StaleAttemptGone { node, attempt } => {
                self.node_mut(node).stale.retain(|a| a != attempt);
            }
            Event::NodeAdmin { node, admin, reason } => {
                if let Some(reason) = reason {
                    let text = match &reason.cause {
                        NodeCause::Text(text) => text.clone(),
                        _ => String::new(),
                    };
                    let what = match admin {
                        admin if *admin == self.nodes.get(node).and_then(|node| node.admin) => {
                            ActivityKind::NodeReasonSet(text)
                        }
                        Some(AdminState::Drain) => ActivityKind::NodeDrained(text),
                        Some(AdminState::Down | AdminState::Future) => {
                            ActivityKind::NodeSetDown(text)
                        }
                        Some(AdminState::Fail) => ActivityKind::NodeFailing(text),
                        None => ActivityKind::NodeResumed,
                    };
                    self.note_node(node, Some(reason), reason.at, what);
                }
                let node = self.node_mut(node);
                node.admin = *admin;
                node.reason.clone_from(reason);
                if admin.is_none() && node.power.excuses_silence() && node.slot == SlotState::Down {
                    node.slot = SlotState::Joining;
                }
                if admin.is_none() {
                    node.failures.values_mut().for_each(|failure| failure.acknowledged = true);
                }
            }
            Event::NodePower { node, power, at, reason } => {
                self.apply_power(node, *power, *at, reason.as_ref());
            }
            Event::NodeHealth { node, source, failure } => {
                let failures = &mut self.node_mut(node).failures;
                match failure.clone() {
                    Some(text) => {
                        let failure = HealthFailure { text, acknowledged: false };
                        failures.insert(*source, failure);
                    }
                    None => {
                        failures.remove(source);
                    }
                }
            }
            Event::NodeSet { node, weight, features } => {
                let config = Arc::make_mut(&mut self.node_mut(node).config);
                config.weight = weight.unwrap_or(config.weight);
                if let Some(features) = features {
                    config.features.clone_from(features);
                }
                self.keep_dynamic_change(node, *weight, features.as_deref());
            }
            Event::PartitionSet { partition, change } => self.apply_partition(partition, change),
            Event::PartitionCreated(partition) => {
                if partition.default {
                    let others = self.partitions.iter_mut().filter(|known| known.default);
                    others.for_each(|known| Arc::make_mut(known).default = false);
                }
                self.partitions.push(Arc::new((**partition).clone()));
                self.settle_dynamic_members();
                self.invalidate_configuration();
                // A job may run in it from before it left the configuration.
                self.count_node_use();
            }
            Event::PartitionRemoved { name } => {
                self.partitions.retain(|partition| partition.name != *name);
                self.invalidate_configuration();
                self.count_node_use();
            }
            Event::AccountSet(account) => {
                self.deleted.restore_account(&account.name);
                self.accounts.insert(account.name.clone(), account.clone());
            }
            Event::AccountRemoved { name } => {
                if let Some(account) = self.accounts.remove(name) {
                    self.deleted.add_account(account);
                }
                self.projects.remove(name);
                self.default_gateways.remove(name);
                self.secrets.remove(name);
                self.remove_associations(|a| a.account == *name);
                self.charged_usage.associations.retain(|key, _| key.account != *name);
            }
            Event::AssociationSet(set) => {
                let key = set.key();
                self.deleted.restore_association(set);
                match self.associations.iter_mut().find(|a| a.key() == key) {
                    Some(known) => *known = (**set).clone(),
                    None => self.associations.push((**set).clone()),
                }
            }
            Event::AssociationRemoved { account, user, partition } => {
                self.remove_associations(|a| {
                    a.account == *account && a.user == *user && a.partition == *partition
                });
                self.charged_usage.associations.retain(|key, _| {
                    key.account != *account || key.user != *user || key.partition != *partition
                });
                if let Some(user) = user {
                    self.dismiss_coordinator(user);
                }
            }
            Event::UsagePeriodEnded { at, reset } => self.end_usage_period(*at, *reset),
            Event::QosSet(qos) => {
                self.deleted.restore_qos(&qos.name);
                self.qos.insert(qos.name.clone(), Arc::new((**qos).clone()));
            }
            Event::QosRemoved { name } => self.remove_qos(name),
            Event::UsageForgotten(of) => self.forget_usage(of),
            Event::RoleSet { name, role } => {
                self.roles.insert(name.clone(), *role);
            }
            Event::TokenIssued { hash, nodes, expires, made, group } => {
                let (nodes, group) = (nodes.clone(), group.clone());
                let token = JoinToken { nodes, expires: *expires, made: *made, group };
                self.tokens.insert(hash.clone(), token);
            }
            Event::TokenUsed { .. }
            | Event::CertificateRenewed { .. }
            | Event::RejoinAllowed { .. }
            | Event::AgentRemoved { .. } => self.apply_membership(event),
            Event::ReservationSet(reservation) => {
                self.last_reservation = self.last_reservation.max(reservation.id);
                let reservation = Arc::new((**reservation).clone());
                self.reservations.insert(reservation.name.clone(), reservation);
            }
            Event::ReservationRemoved { name } => {
                self.reservations.remove(name);
            }
            Event::ReservationLost { job, reservation, remaining, hold } => {
                let job = self.job_mut(*job);
                super::field::set(job, &JobField::Reservation(remaining.clone()));
                if *hold {
                    job.hold = Some(Hold::Admin);
                    let reason = Reason::ReservationGone(reservation.as_str().into());
                    job.fixed_reason = Some(Box::new(reason));
                }
            }
            Event::SecretSet { project, name, sealed, .. } => {
                let of_project = self.secrets.entry(project.clone()).or_default();
                of_project.insert(name.clone(), sealed.clone());
            }
            Event::SecretRemoved { project, name, .. } => {
                if let Some(of_project) = self.secrets.get_mut(project) {
                    of_project.remove(name);
                }
                self.secrets.retain(|_, of_project| !of_project.is_empty());
            }
            Event::TriggerSet(trigger) => {
                self.last_trigger = trigger.id;
                self.triggers.insert(trigger.id, (**trigger).clone());
            }
            Event::TriggerRemoved { id } => {
                self.triggers.remove(id);
            }
            Event::VolumeSet { project, name, volume } => {
                let of_project = self.volumes.entry(project.clone()).or_default();
                of_project.insert(name.clone(), (**volume).clone());
                self.disk_settled(volume);
            }
            Event::VolumeRemoved { project, name, at } => {
                let of_project = self.volumes.get_mut(project);
                let removed = of_project.and_then(|of_project| of_project.remove(name));
                self.volumes.retain(|_, of_project| !of_project.is_empty());
                if let (Some(volume), Some(at)) = (removed, at) {
                    self.keep_disk_costs(&volume, *at);
                }
            }
            Event::JoinTokenRemoved { hash } => {
                self.tokens.remove(hash);
            }
            Event::UserTokenSet(token) => {
                self.user_tokens.insert(token.hash.clone(), (**token).clone());
            }
            Event::UserTokenRevoked { hash, at } => {
                let token = self.user_tokens.get_mut(hash).expect("a revoked token is known");
                token.revoked = Some(*at);
            }
            Event::UserTokenRemoved { hash } => {
                self.user_tokens.remove(hash);
            }
            Event::WebSessionOpened(session) => {
                self.web_sessions.insert(session.hash.clone(), (**session).clone());
            }
            Event::WebSessionClosed { hash } => {
                self.web_sessions.remove(hash);
            }
            other => unreachable!("{other:?} is applied above"),
        }
    }

    fn remove_associations(&mut self, is_removed: impl Fn(&Association) -> bool) {
        for association in self.associations.extract_if(.., |a| is_removed(a)) {
            self.deleted.add_association(association);
        }
    }

    /// Removes a QOS, and its name from associations and from the QOS that preempt it.
    fn remove_qos(&mut self, name: &str) {
        if let Some(qos) = self.qos.remove(name) {
            self.deleted.add_qos(Arc::unwrap_or_clone(qos));
        }
        self.charged_usage.qos.remove(name);
        for association in &mut self.associations {
            association.qos.retain(|known| known != name);
            association.default_qos.take_if(|known| known == name);
        }
        for qos in self.qos.values_mut().filter(|qos| qos.preempt.iter().any(|low| low == name)) {
            Arc::make_mut(qos).preempt.retain(|low| low != name);
        }
    }

    /// A user who is in no account any more coordinates none.
    fn dismiss_coordinator(&mut self, user: &str) {
        if self.associations.iter().any(|a| a.user.as_deref() == Some(user)) {
            return;
        }
        self.accounts.values_mut().for_each(|account| account.coordinators.retain(|c| c != user));
    }

    fn apply_partition(&mut self, name: &str, change: &PartitionChange) {
        self.hardware.invalidate();
        if matches!(change, PartitionChange::PriorityJobFactor(_)) {
            self.priority_totals.invalidate();
        }
        for partition in &mut self.partitions {
            let chosen = partition.name == name;
            let changes_others = matches!(change, PartitionChange::Default(true));
            if !chosen && !changes_others {
                continue;
            }
            let partition = Arc::make_mut(partition);
            match change {
                PartitionChange::State(state) => partition.state = *state,
                PartitionChange::MaxTime(limit) => partition.max_time = *limit,
                PartitionChange::Default(default) => partition.default = chosen && *default,
                PartitionChange::DefaultTime(limit) => partition.default_time = *limit,
                PartitionChange::MaxNodes(count) => partition.max_nodes = *count,
                PartitionChange::MinNodes(count) => partition.min_nodes = *count,
                PartitionChange::MaxCpusPerNode(count) => partition.max_cpus_per_node = *count,
                PartitionChange::PriorityTier(tier) => partition.priority_tier = *tier,
                PartitionChange::PriorityJobFactor(factor) => {
                    partition.priority_job_factor = *factor;
                }
                PartitionChange::AllowAccounts(who) => partition.allow_accounts = who.clone(),
                PartitionChange::AllowQos(which) => partition.allow_qos = which.clone(),
                PartitionChange::GraceTime(seconds) => partition.grace_time_s = *seconds,
                PartitionChange::Hidden(hidden) => partition.hidden = *hidden,
                PartitionChange::RootOnly(only) => partition.root_only = *only,
                PartitionChange::DisableRootJobs(disable) => partition.disable_root_jobs = *disable,
                PartitionChange::RequireReservation(needed) => {
                    partition.require_reservation = *needed;
                }
                PartitionChange::LeastLoaded(first) => partition.least_loaded = *first,
            }
        }
    }

    fn note_node(
        &mut self,
        node: &str,
        reason: Option<&NodeReason>,
        at: Timestamp,
        what: ActivityKind,
    ) {
        let actor = match reason.map(|reason| &reason.author) {
            Some(ReasonAuthor::User { name, .. }) => Some(name.clone()),
            Some(ReasonAuthor::System) | None => None,
        };
        let target = ActivityTarget::Node(node.to_owned());
        let info = match reason.map(|reason| &reason.cause) {
            Some(NodeCause::NotResponding) => "Not responding".to_owned(),
            Some(NodeCause::Text(text) | NodeCause::Unhealthy { text, .. }) => text.clone(),
            None => String::new(),
        };
        self.activities.note(Activity { number: 0, at, actor, target, what, info });
    }

    pub(super) fn node_mut(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("an event names unknown node {name}"))
    }
}
