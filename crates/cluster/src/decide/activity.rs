//! What a command of an administrator or a user is noted as, for the list of events.

use super::partition_change;
use crate::command::{Command, Context, Decision, JoinAttempt, Reply};
use crate::event::Event;
use crate::state::State;
use crate::token::JoinToken;
use model::activity::{Activity, ActivityKind, ActivityTarget, SiteThing};
use model::change::{JobChange, NodeChange};
use model::hostlist;
use model::id::JobId;
use model::machine::{FailureKind, Machine, MachineFailure, MachinePhase};
use model::power::{PowerDownMode, PowerRequest};
use std::collections::BTreeSet;

/// The event that notes what the caller did.
pub(super) fn noted(context: &Context, target: ActivityTarget, what: ActivityKind) -> Event {
    noted_with(context, target, what, String::new())
}

fn noted_with(
    context: &Context,
    target: ActivityTarget,
    what: ActivityKind,
    info: String,
) -> Event {
    let actor = Some(context.by.name.clone());
    Event::Noted(Box::new(Activity { number: 0, at: context.now, actor, target, what, info }))
}

/// The most characters of a name, and of the details, that a note keeps: the command's own events hold the whole.
const NOTED_CHARS_MAX: usize = 1024;

/// Jobs of others that one command is noted for; of more of them the last note says how many.
const NOTED_JOBS_MAX: usize = 100;

impl State {
    /// How a command that changes the site, or jobs of others, is noted. What changes accounts, users, projects, secrets,
    /// volumes and fleets is noted where that is decided.
    pub(super) fn site_activity(
        &self,
        command: &Command,
        decision: &Decision,
        context: &Context,
    ) -> Vec<Event> {
        let site = |kind, name: &str, what, info: String| {
            let name = name.chars().take(NOTED_CHARS_MAX).collect();
            let target = ActivityTarget::Site { kind, name };
            vec![noted_with(context, target, what, info.chars().take(NOTED_CHARS_MAX).collect())]
        };
        let none = String::new;
        let nodes = |names: Vec<String>, what, info: String| {
            let name = hostlist::compress_sorted(&names).chars().take(NOTED_CHARS_MAX).collect();
            let target = ActivityTarget::Node(name);
            vec![noted_with(context, target, what, info.chars().take(NOTED_CHARS_MAX).collect())]
        };
        let set = |known: bool| if known { ActivityKind::Changed } else { ActivityKind::Created };
        match command {
            Command::Cancel(cancel) => {
                let info =
                    cancel.signal.map_or("cancel".into(), |signal| format!("signal {signal}"));
                self.job_activities(decision, context, &info)
            }
            Command::ChangeJob { change, .. } => {
                self.job_activities(decision, context, &change_words(change))
            }
            _ if decision.events.is_empty() => Vec::new(),
            Command::SetQos(qos) => {
                site(SiteThing::Qos, &qos.name, set(self.qos.contains_key(&qos.name)), none())
            }
            Command::RemoveQos { name } => {
                site(SiteThing::Qos, name, ActivityKind::Deleted, none())
            }
            Command::CreateReservation(_) => match &decision.reply {
                Reply::ReservationCreated { name } => {
                    site(SiteThing::Reservation, name, ActivityKind::Created, none())
                }
                _ => Vec::new(),
            },
            Command::UpdateReservation { name, .. } => {
                site(SiteThing::Reservation, name, ActivityKind::Changed, none())
            }
            Command::RemoveReservation { name } => {
                site(SiteThing::Reservation, name, ActivityKind::Deleted, none())
            }
            Command::SetBackend(backend) => {
                let name = &backend.source.name;
                site(SiteThing::Backend, name, set(self.backends.contains_key(name)), none())
            }
            Command::RemoveBackends { project, names } => {
                let name = format!("{project}/{}", names.join(","));
                site(SiteThing::Backend, &name, ActivityKind::Deleted, none())
            }
            Command::RetainFileBackends { .. } => {
                let removed = decision.events.iter().filter_map(|event| match event {
                    Event::BackendRemoved { source } => Some(source),
                    _ => None,
                });
                let noted =
                    |name: &String| site(SiteThing::Backend, name, ActivityKind::Deleted, none());
                removed.flat_map(noted).collect()
            }
            // Nodes that get a reason are noted with it.
            Command::ChangeNode { change: NodeChange::Resume | NodeChange::Undrain, .. } => {
                let resumed = |event: &Event| match event {
                    Event::NodeAdmin { node, admin: None, reason: None } => {
                        let target = ActivityTarget::Node(node.clone());
                        Some(noted_with(context, target, ActivityKind::NodeResumed, none()))
                    }
                    _ => None,
                };
                decision.events.iter().filter_map(resumed).collect()
            }
            Command::ChangeNode { change, .. } => match node_change_words(change) {
                Some(info) => nodes(changed_nodes(decision), ActivityKind::Changed, info),
                None => Vec::new(),
            },
            Command::CreateNodes(created) => {
                let names = created.iter().map(|node| node.name.clone()).collect();
                nodes(names, ActivityKind::Created, none())
            }
            Command::DeleteNodes { nodes: deleted } => {
                nodes(deleted.clone(), ActivityKind::Deleted, none())
            }
            Command::DeleteMachine { node } => {
                nodes(vec![node.clone()], ActivityKind::Deleted, "its machine".into())
            }
            Command::RejoinNode { node } => {
                nodes(vec![node.clone()], ActivityKind::Changed, "may join again".into())
            }
            Command::RemoveAgent { node } => {
                nodes(vec![node.clone()], ActivityKind::Changed, "certificate void".into())
            }
            Command::UseToken(join) => joined(decision, join, context),
            Command::IssueToken { hash, nodes, .. } => {
                let info = format!("for {}", hostlist::compress(nodes));
                site(SiteThing::Token, &JoinToken::shown_name(hash), ActivityKind::Created, info)
            }
            Command::IssueGroupToken { hash, pattern, .. } => {
                let name = JoinToken::shown_name(hash);
                site(SiteThing::Token, &name, ActivityKind::Created, format!("for {pattern}"))
            }
            Command::ChangePartition { name, change } => {
                let info = partition_change::words(change);
                site(SiteThing::Partition, name, ActivityKind::Changed, info)
            }
            Command::CreatePartition(new) => {
                site(SiteThing::Partition, &new.name, ActivityKind::Created, none())
            }
            Command::RemovePartition { name } => {
                site(SiteThing::Partition, name, ActivityKind::Deleted, none())
            }
            Command::SetUserToken(token) => {
                let name = format!("{}/{}", token.name, token.token_name);
                site(SiteThing::Token, &name, ActivityKind::Created, none())
            }
            Command::RevokeToken { name, user } => {
                let of = user.as_ref().map(|user| format!("{user}/")).unwrap_or_default();
                site(SiteThing::Token, &format!("{of}{name}"), ActivityKind::Deleted, none())
            }
            Command::Configure(config) => {
                let changed = |event: &Event| matches!(event, Event::Configured { .. });
                if !decision.events.iter().any(changed) {
                    return Vec::new();
                }
                site(SiteThing::Configuration, &config.name, ActivityKind::Changed, none())
            }
            _ => Vec::new(),
        }
    }

    fn job_activities(&self, decision: &Decision, context: &Context, info: &str) -> Vec<Event> {
        let signalled = match &decision.reply {
            Reply::Signals { signals, .. } => signals.as_slice(),
            _ => &[],
        };
        let jobs = decision.events.iter().filter_map(changed_job);
        let jobs: BTreeSet<JobId> = jobs.chain(signalled.iter().map(|s| s.attempt.job)).collect();
        let others = jobs.iter().filter_map(|id| self.jobs.get(id));
        let others: Vec<_> = others.filter(|job| job.spec.owner.uid != context.by.uid).collect();
        let more = others.len().saturating_sub(NOTED_JOBS_MAX);
        let noted = others.iter().take(NOTED_JOBS_MAX).enumerate().map(|(at, job)| {
            let is_last = more > 0 && at + 1 == NOTED_JOBS_MAX;
            let info = if is_last { format!("{info}, and {more} more") } else { info.to_owned() };
            let target = ActivityTarget::Job {
                job: job.id,
                owner: job.spec.owner.uid,
                account: job.account.to_string(),
            };
            noted_with(context, target, ActivityKind::Changed, info)
        });
        noted.collect()
    }

    /// How a change of accounts is noted; a change of nothing else is.
    pub(super) fn account_activity(&self, event: &Event, context: &Context) -> Option<Event> {
        let project = |name: &String| ActivityTarget::Project(name.clone());
        let (target, what) = match event {
            Event::AccountSet(account) if self.accounts.contains_key(&account.name) => {
                (project(&account.name), ActivityKind::Changed)
            }
            Event::AccountSet(account) => (project(&account.name), ActivityKind::Created),
            Event::AccountRemoved { name } => (project(name), ActivityKind::Deleted),
            Event::AssociationSet(set) => {
                (project(&set.account), ActivityKind::MemberSet(set.user.clone()?))
            }
            Event::AssociationRemoved { account, user, .. } => {
                (project(account), ActivityKind::MemberRemoved(user.clone()?))
            }
            Event::RoleSet { name, .. } => {
                (ActivityTarget::User(name.clone()), ActivityKind::Changed)
            }
            _ => return None,
        };
        Some(noted(context, target, what))
    }
}

impl State {
    /// How machines that are asked for, come and go are noted. Nobody is named: the cluster does it by itself.
    pub(super) fn machine_activities(&self, events: &[Event], context: &Context) -> Vec<Event> {
        let noted = events.iter().filter_map(|event| {
            let Event::MachineSet(machine) = event else { return None };
            let (what, info) = machine_change(self.machines.get(&machine.token), machine)?;
            let activity = Activity {
                number: 0,
                at: context.now,
                actor: None,
                target: ActivityTarget::Node(machine.node.clone()),
                what,
                info: info.chars().take(NOTED_CHARS_MAX).collect(),
            };
            Some(Event::Noted(Box::new(activity)))
        });
        noted.collect()
    }
}

/// What became of a machine; its joining is noted of its node.
fn machine_change(known: Option<&Machine>, next: &Machine) -> Option<(ActivityKind, String)> {
    let Some(known) = known else {
        let Machine { source, offer, .. } = next;
        let (id, price) = (&offer.id, offer.price);
        let info = format!("machine asked of source {source}: {id}, {price} an hour");
        return Some((ActivityKind::Changed, info));
    };
    if known.phase == next.phase {
        return None;
    }
    let failure = next.failure.as_ref();
    match next.phase {
        MachinePhase::Made | MachinePhase::Joined if known.made.is_none() => {
            Some((ActivityKind::Created, String::new()))
        }
        MachinePhase::Gone if next.made.is_none() => {
            Some((ActivityKind::Changed, with_kind("no machine was made", failure)))
        }
        MachinePhase::Gone => Some((ActivityKind::Deleted, String::new())),
        MachinePhase::Leaving | MachinePhase::Deleting if known.failure != next.failure => {
            Some((ActivityKind::Changed, with_kind("machine is deleted", failure)))
        }
        _ => None,
    }
}

/// What happened, with the kind of its failure where one is known. What a cloud or a provider program says may name accounts and
/// files of the site, and everybody reads events.
fn with_kind(what: &str, failure: Option<&MachineFailure>) -> String {
    match failure.map(|failure| failure.kind) {
        None | Some(FailureKind::Unknown) => what.to_owned(),
        Some(kind) => format!("{what}: {kind}"),
    }
}

/// The nodes that a change of nodes is about.
fn changed_nodes(decision: &Decision) -> Vec<String> {
    let changed = decision.events.iter().filter_map(|event| match event {
        Event::NodePower { node, .. } | Event::NodeSet { node, .. } => Some(node.clone()),
        _ => None,
    });
    changed.collect()
}

/// What was changed of nodes, where no reason says it: `power down asap`.
fn node_change_words(change: &NodeChange) -> Option<String> {
    match change {
        NodeChange::Power(PowerRequest::Up) => Some("power up".into()),
        NodeChange::Power(PowerRequest::Down(mode)) => Some(match mode {
            PowerDownMode::WhenIdle => "power down".into(),
            PowerDownMode::Asap => "power down asap".into(),
            PowerDownMode::Force => "power down force".into(),
        }),
        NodeChange::Power(PowerRequest::Reboot { drains, .. }) => {
            Some(if *drains { "reboot asap" } else { "reboot" }.into())
        }
        NodeChange::Power(PowerRequest::CancelReboot) => Some("cancel_reboot".into()),
        NodeChange::Weight(weight) => Some(format!("Weight={weight}")),
        // Without the texts that it brings.
        NodeChange::Features(_) => Some("update Features".into()),
        _ => None,
    }
}

/// A machine that joined did so by its token: no person is named but the token.
fn joined(decision: &Decision, join: &JoinAttempt, context: &Context) -> Vec<Event> {
    let Reply::TokenNodes(nodes) = &decision.reply else { return Vec::new() };
    let name = hostlist::compress(nodes).chars().take(NOTED_CHARS_MAX).collect();
    let activity = Activity {
        number: 0,
        at: context.now,
        actor: Some(JoinToken::shown_name(&join.hash)),
        target: ActivityTarget::Node(name),
        what: ActivityKind::Changed,
        info: "joined".into(),
    };
    vec![Event::Noted(Box::new(activity))]
}

/// The job that an event of a cancel or a change is about.
fn changed_job(event: &Event) -> Option<JobId> {
    match event {
        Event::Ended { job, .. }
        | Event::Ending { job, .. }
        | Event::Changed { job, .. }
        | Event::Held { job, .. }
        | Event::Released { job }
        | Event::Requeued { job, .. }
        | Event::EndedJobRequeued { job, .. }
        | Event::Suspended { job, .. }
        | Event::Resumed { job, .. }
        | Event::ResumeRequested { job }
        | Event::TasksCancelled { array: job, .. } => Some(*job),
        _ => None,
    }
}

/// A change without the texts that it brings: `update TimeLimit,Comment`.
fn change_words(change: &JobChange) -> String {
    let first_word = |text: String| {
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        text[..end].to_owned()
    };
    match change {
        JobChange::Fields(fields) => {
            let names: Vec<String> =
                fields.iter().map(|field| first_word(format!("{field:?}"))).collect();
            format!("update {}", names.join(","))
        }
        change => first_word(format!("{change:?}")).to_lowercase(),
    }
}
