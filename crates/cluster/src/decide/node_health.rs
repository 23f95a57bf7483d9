//! The health of nodes: an unhealthy node is drained, and resumed when what drained it has passed.

use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use model::health::HealthSource;
use model::node::AdminState;
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::time::Timestamp;

impl State {
    pub(super) fn decide_node_health(
        &self,
        name: &str,
        source: HealthSource,
        failure: Option<&str>,
        context: &Context,
    ) -> Vec<Event> {
        let Some(node) = self.nodes.get(name) else { return Vec::new() };
        let known = node.failures.get(&source).map(|known| known.text.as_str());
        let mut events = Vec::new();
        if known != failure {
            let failure = failure.map(str::to_owned);
            events.push(Event::NodeHealth { node: name.into(), source, failure });
        }
        let admin = match failure {
            Some(text) => failed(node, source, text, known != failure, context.now),
            None => passed(node, source, context.now),
        };
        events.extend(admin.map(|(admin, reason)| Event::NodeAdmin {
            node: name.into(),
            admin,
            reason,
        }));
        if source == HealthSource::Interruption && failure.is_some() {
            events.extend(self.interrupted_machine(name, context.now));
        }
        events
    }
}

type AdminChange = (Option<AdminState>, Option<NodeReason>);

/// Drains a node in service, and keeps the reason of an unhealthy one up to date. What an administrator set stays. Counters
/// of GPUs do not go back: a failure of theirs that did not change since the node was resumed does not drain it again.
fn failed(
    node: &Node,
    source: HealthSource,
    text: &str,
    changed: bool,
    at: Timestamp,
) -> Option<AdminChange> {
    let drains = match (node.admin, drained_by(node)) {
        (None, _) => changed || source == HealthSource::Check,
        (Some(AdminState::Drain), Some(by)) => by == source && changed,
        _ => false,
    };
    drains.then(|| unhealthy(source, text, at))
}

/// Resumes a node that this source had drained, unless another source has found a failure since.
fn passed(node: &Node, source: HealthSource, at: Timestamp) -> Option<AdminChange> {
    if node.admin != Some(AdminState::Drain) || drained_by(node) != Some(source) {
        return None;
    }
    let mut others = node.failures.iter().filter(|(other, _)| **other != source);
    let other = others.find(|(_, failure)| !failure.acknowledged);
    Some(match other {
        Some((other, failure)) => unhealthy(*other, &failure.text, at),
        None => (None, None),
    })
}

fn drained_by(node: &Node) -> Option<HealthSource> {
    match node.reason.as_ref()?.cause {
        NodeCause::Unhealthy { source, .. } => Some(source),
        NodeCause::NotResponding | NodeCause::Text(_) => None,
    }
}

fn unhealthy(source: HealthSource, text: &str, at: Timestamp) -> AdminChange {
    let cause = NodeCause::Unhealthy { source, text: text.to_owned() };
    let reason = NodeReason { cause, author: ReasonAuthor::System, at };
    (Some(AdminState::Drain), Some(reason))
}
