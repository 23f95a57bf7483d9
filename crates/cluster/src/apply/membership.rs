//! The events of nodes that join and leave.

use crate::event::Event;
use crate::membership::{JoinMethod, JoinRecord};
use crate::state::State;

impl State {
    pub(super) fn apply_membership(&mut self, event: &Event) {
        match event {
            Event::TokenUsed { hash, nodes, fingerprint, record } => {
                match self.tokens.get_mut(hash).and_then(|token| token.group.as_mut()) {
                    Some(group) => group.used += 1,
                    None => drop(self.tokens.remove(hash)),
                }
                for node in nodes {
                    self.forget_agent(node);
                    self.shut_out.remove(node);
                    self.agents.insert(node.clone(), fingerprint.clone());
                    self.joins.extend(record.clone().map(|record| (node.clone(), record)));
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

    /// No certificate speaks for the node any more.
    pub(super) fn forget_agent(&mut self, node: &str) {
        self.agents.remove(node);
        self.joins.remove(node);
        self.rejoins.remove(node);
    }
}
