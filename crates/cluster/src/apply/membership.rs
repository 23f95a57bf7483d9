//! The events of nodes that join and leave.

use crate::event::Event;
use crate::membership::{JOIN_REPEAT_LIFE, JoinMethod, JoinRecord, RecentJoin};
use crate::state::State;
use crate::state::job::Job;
use model::id::AttemptId;

impl State {
    pub(super) fn apply_membership(&mut self, event: &Event) {
        match event {
            Event::TokenUsed { hash, nodes, fingerprint, record, request, repeated } => {
                match self.tokens.get_mut(hash).and_then(|token| token.group.as_mut()) {
                    Some(_) if *repeated => {}
                    Some(group) => group.used += 1,
                    None => drop(self.tokens.remove(hash)),
                }
                if let Some(record) = record.as_ref().filter(|_| !request.is_empty()) {
                    let (token, fingerprint) = (hash.clone(), fingerprint.clone());
                    let join = RecentJoin {
                        token,
                        nodes: nodes.clone(),
                        fingerprint,
                        at: record.at,
                        repeats: 0,
                    };
                    self.keep_recent_join(request, join, *repeated);
                }
                for node in nodes {
                    self.forget_agent(node);
                    self.shut_out.remove(node);
                    self.agents.insert(node.clone(), fingerprint.clone());
                    if let Some(record) = record.clone() {
                        let former_attempts = self.launched_attempts(node);
                        self.joins.insert(node.clone(), JoinRecord { former_attempts, ..record });
                    }
                }
            }
            Event::CertificateRenewed { nodes, former, fingerprint, end, at } => {
                for node in nodes {
                    self.agents.insert(node.clone(), fingerprint.clone());
                    // A node that joined before joins were recorded has no record: its way of joining is taken to be a join file.
                    let record = self.joins.entry(node.clone()).or_insert_with(|| JoinRecord {
                        at: *at,
                        method: JoinMethod::File,
                        token: String::new(),
                        certificate_end: *end,
                        former: None,
                        future: false,
                        former_attempts: Vec::new(),
                    });
                    record.certificate_end = *end;
                    record.former = Some(former.clone());
                }
            }
            Event::RejoinAllowed { node, until } => {
                self.rejoins.insert(node.clone(), *until);
            }
            Event::AgentRemoved { node } => {
                self.forget_agent(node);
                if self.has_machine(node) {
                    self.shut_out.insert(node.clone());
                }
            }
            other => unreachable!("{other:?} is applied elsewhere"),
        }
    }

    /// The attempts that the node's agent may have been told to start: all that the node has, but those for which it boots.
    fn launched_attempts(&self, node: &str) -> Vec<AttemptId> {
        let Some(known) = self.nodes.get(node) else { return Vec::new() };
        let boots_for = |attempt: &AttemptId| {
            let active = self.job(attempt.job).and_then(Job::attempt);
            active.is_some_and(|active| active.booting_nodes.iter().any(|name| name == node))
        };
        known.holders.iter().filter(|attempt| !boots_for(attempt)).copied().collect()
    }

    /// Remembers a join, and forgets those that can no longer be repeated. One that is repeated counts from its first time.
    fn keep_recent_join(&mut self, request: &str, join: RecentJoin, repeated: bool) {
        let now = join.at;
        self.recent_joins.retain(|_, recent| recent.at + JOIN_REPEAT_LIFE > now);
        let known = self.recent_joins.remove(request).filter(|_| repeated);
        let join = match known {
            Some(known) => RecentJoin { at: known.at, repeats: known.repeats + 1, ..join },
            None => join,
        };
        self.recent_joins.insert(request.to_owned(), join);
    }

    /// No certificate speaks for the node any more.
    pub(super) fn forget_agent(&mut self, node: &str) {
        self.agents.remove(node);
        self.joins.remove(node);
        self.rejoins.remove(node);
    }
}
