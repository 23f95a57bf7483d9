//! One line of the log for each committed event that an on-call engineer would ask about. Texts of users are escaped where the
//! line is written (`command/daemon/log.rs`); values of secrets, tokens and environments are in no line.

use crate::shared::Shared;
use cluster::{EndRecord, Event};
use dstack::occurrence::{self, Occurrence, Target};
use model::activity::Activity;
use model::hostlist::compress;
use model::id::JobId;
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::reason::Reason;
use model::run::Outcome;
use slurm::words;

pub(super) fn log(shared: &Shared, event: &Event) {
    match event {
        Event::TermStarted { term, .. } => tracing::info!(term, "a term starts"),
        Event::RestoreWaitEnded { nodes } => tracing::warn!(
            nodes = compress(nodes.iter().map(String::as_str)),
            "jobs of before the restore wait for these nodes no longer"
        ),
        Event::Configured { config, .. } => tracing::info!(
            cluster = config.name,
            nodes = config.nodes.len(),
            partitions = config.partitions.len(),
            "configuration changed"
        ),
        Event::Noted(activity) => {
            let actor = activity.actor.as_deref().unwrap_or("server");
            let (what, changed, project) = told(activity);
            tracing::info!(actor, what, changed, project, "administration");
        }
        Event::UserTokenSet(token) => {
            tracing::info!(user = token.name, token = token.token_name, "token set");
        }
        Event::TokenUsed { nodes, .. } => {
            tracing::info!(nodes = compress(nodes.iter().map(String::as_str)), "agent joined");
        }
        Event::TriggerSet(trigger) => {
            let event = trigger.request.event.word();
            tracing::info!(trigger = trigger.id, event, owner = trigger.owner, "trigger set");
        }
        Event::TriggerRemoved { id } => tracing::info!(trigger = id, "trigger removed"),
        Event::MachineSet(machine) => tracing::info!(
            machine = machine.token,
            source = machine.source,
            offer = machine.offer.id,
            node = machine.node,
            price = %machine.offer.price,
            failure = machine.failure.as_ref().map_or("", |failure| failure.text.as_str()),
            "machine {}",
            machine.phase
        ),
        Event::QosSet(qos) => tracing::info!(qos = qos.name, "QOS set"),
        Event::QosRemoved { name } => tracing::info!(qos = name, "QOS removed"),
        Event::ReservationSet(reservation) => {
            tracing::info!(reservation = reservation.name, "reservation set");
        }
        Event::ReservationRemoved { name } => {
            tracing::info!(reservation = name, "reservation removed");
        }
        Event::PartitionSet { partition, change } => {
            tracing::info!(partition, ?change, "partition changed");
        }
        Event::PartitionCreated(partition) => {
            let nodes = compress(partition.nodes.iter().map(String::as_str));
            tracing::info!(partition = partition.name, nodes, "partition created");
        }
        Event::PartitionRemoved { name } => tracing::info!(partition = name, "partition removed"),
        Event::NodeUp { .. }
        | Event::NodeSilent { .. }
        | Event::NodeDown { .. }
        | Event::NodeAdmin { .. }
        | Event::NodeHealth { .. } => log_node(event),
        _ => log_job(shared, event),
    }
}

/// What was done, the name of what it was done to, and the project that has it.
fn told(activity: &Activity) -> (String, String, Option<String>) {
    let Occurrence { message, targets, .. } = occurrence::of_activity(activity);
    let target = targets.first();
    let name = target.map(|target| target.name().to_owned()).unwrap_or_default();
    (message, name, target.and_then(Target::account).map(str::to_owned))
}

fn log_node(event: &Event) {
    match event {
        Event::NodeUp { node, stale, .. } => {
            tracing::info!(node, stale_attempts = stale.len(), "node up");
        }
        Event::NodeSilent { node, .. } => tracing::warn!(node, "node lost its connection"),
        Event::NodeDown { node, reason, .. } => {
            let (reason, by) = words_of(reason);
            tracing::warn!(node, reason, by, "node down");
        }
        Event::NodeAdmin { node, admin, reason } => {
            let (reason, by) = reason.as_ref().map(words_of).unwrap_or_default();
            match admin {
                Some(admin) => tracing::warn!(node, state = ?admin, reason, by, "node taken out"),
                None => tracing::info!(node, reason, by, "node resumed"),
            }
        }
        Event::NodeHealth { node, source, failure: Some(failure) } => {
            tracing::warn!(node, ?source, failure, "node unhealthy");
        }
        Event::NodeHealth { node, source, failure: None } => {
            tracing::info!(node, ?source, "node healthy again");
        }
        _ => {}
    }
}

fn words_of(reason: &NodeReason) -> (&str, &str) {
    let text = match &reason.cause {
        NodeCause::NotResponding => "Not responding",
        NodeCause::Text(text) | NodeCause::Unhealthy { text, .. } => text,
    };
    let by = match &reason.author {
        ReasonAuthor::System => "server",
        ReasonAuthor::User { name, .. } => name,
    };
    (text, by)
}

fn log_job(shared: &Shared, event: &Event) {
    match event {
        Event::Submitted(submitted) => tracing::info!(
            job = %submitted.job,
            user = submitted.spec.owner.name,
            name = &*submitted.spec.name,
            account = &*submitted.account,
            qos = &*submitted.qos,
            tasks = submitted.tasks.as_ref().map(|tasks| tasks.len()),
            held = submitted.hold.is_some(),
            call = submitted.spec.call.as_ref().map(|call| call.as_str()),
            "job submitted"
        ),
        Event::Started(started) => tracing::info!(
            job = %started.attempt.job,
            attempt = started.attempt.number,
            array_task = started.task.map(|(array, index)| format!("{array}_{index}")),
            nodes = compress(started.allocation.node_names()),
            cpus = started.allocation.cpu_count(),
            "job started"
        ),
        Event::Ended { job, ended } => log_end(shared, *job, ended, "job ended"),
        Event::TasksCancelled { array, indices, ended } => tracing::info!(
            job = %array,
            tasks = indices.len(),
            state = words::job::long(ended.outcome.state()),
            reason = %words::reason::text(&ended.reason),
            "waiting tasks ended"
        ),
        Event::Requeued { job, ended, hold, .. } => {
            let text = if hold.is_some() { "job requeued and held" } else { "job requeued" };
            log_end(shared, *job, ended, text);
        }
        Event::EndedJobRequeued { job, hold, by: by_uid, .. } => {
            tracing::info!(job = %job, held = hold.is_some(), by_uid, "ended job requeued");
        }
        Event::Held { job, by } => tracing::info!(job = %job, ?by, "job held"),
        Event::Released { job } => tracing::info!(job = %job, "job released"),
        Event::Suspended { job, for_preemption, .. } => {
            tracing::info!(job = %job, for_preemption, "job suspended");
        }
        Event::Resumed { job, .. } => tracing::info!(job = %job, "job resumed"),
        Event::PreemptionGraceStarted { job, leaving } => {
            tracing::info!(job = %job, by = %leaving.by, requeue = leaving.requeue, "job preempted");
        }
        Event::AttemptAbandonedOnNode { attempt, node } => {
            tracing::warn!(attempt = %attempt, node, "attempt given up: the node does not answer");
        }
        _ => {}
    }
}

fn log_end(shared: &Shared, job: JobId, ended: &EndRecord, text: &str) {
    let state = shared.read();
    let user = state.job(job).map(|job| job.spec.owner.name.clone()).unwrap_or_default();
    drop(state);
    let nodes = ended.allocation.as_ref().map(|a| compress(a.node_names()));
    let by_uid = match (&ended.outcome, &ended.reason) {
        (Outcome::Cancelled { by }, _) | (_, Reason::RequeuedBy(by)) => Some(*by),
        _ => None,
    };
    tracing::info!(
        job = %job,
        user,
        by_uid,
        state = words::job::long(ended.outcome.state()),
        exit = %ended.exit,
        reason = %words::reason::text(&ended.reason),
        run_s = ended.start.map(|start| ended.end.since(start).as_secs()),
        nodes,
        "{text}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged;
    use model::activity::{ActivityKind, ActivityTarget, SiteThing};
    use model::health::HealthSource;
    use model::time::Timestamp;

    #[test]
    fn node_that_is_found_unhealthy_is_logged_with_who_found_what() {
        let lines = |failure: Option<&str>| {
            let (node, source) = ("gpu1".to_owned(), HealthSource::Gpu);
            let failure = failure.map(str::to_owned);
            logged(|| log_node(&Event::NodeHealth { node, source, failure }))
        };
        let expected = r#"WARN node unhealthy node="gpu1" source=Gpu failure="GPU 1 fails""#;
        assert_eq!(lines(Some("GPU 1 fails")), [expected]);
        assert_eq!(lines(None), [r#"INFO node healthy again node="gpu1" source=Gpu"#]);
    }

    #[test]
    fn administration_is_told_in_plain_words() {
        let told = |target: ActivityTarget, what: ActivityKind| {
            let (at, actor, info) = (Timestamp::from_secs(1), None, String::new());
            told(&Activity { number: 1, at, actor, target, what, info })
        };
        let trigger = ActivityTarget::Site { kind: SiteThing::Trigger, name: "7".into() };
        let expected = ("Trigger created".to_owned(), "7".to_owned(), None);
        assert_eq!(told(trigger, ActivityKind::Created), expected);
        let secret = ActivityTarget::Secret { project: "main".into(), name: "key".into() };
        let expected = ("Secret deleted".to_owned(), "key".to_owned(), Some("main".to_owned()));
        assert_eq!(told(secret, ActivityKind::Deleted), expected);
    }
}
