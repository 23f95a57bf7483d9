//! What an earlier agent left on the nodes: living supervisors, unreported ends, and groups of no known attempt.

use super::energy::CpuPart;
use super::supervisor_connection::{SupervisorSearch, find_supervisor};
use super::{Agent, AttemptEntry};
use crate::attempt_key::AttemptKey;
use crate::cpu_frequency::SetFrequency;
use crate::error::AgentError;
use crate::node::Node;

impl Agent {
    /// Takes over what an earlier agent left: living supervisors, unreported ends, and groups of no known attempt.
    pub async fn adopt(&mut self) -> Result<(), AgentError> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        if let Some(state) = self.nodes.values().next().and_then(Node::state) {
            SetFrequency::release_of_other_nodes(state, &|node| self.nodes.contains_key(node));
        }
        let groups = self.host.existing_groups()?;
        for name in names {
            let node = &self.nodes[&name];
            let mut attempts = node.spool.attempts()?;
            if node.has_group(&groups) {
                node.clear_leftover_groups(&attempts)?;
            }
            node.clear_leftover_files(&attempts);
            // A folder without its record was never passed to the launcher.
            for unstarted in attempts.extract_if(.., |a| !node.spool.has_record(*a)) {
                node.spool.remove(unstarted)?;
            }
            if let Some(guard) = self.gate.replay_guard(&name) {
                guard.release_unstarted(&attempts)?;
            }
            for attempt in attempts {
                self.adopt_one(AttemptKey { node: name.clone(), attempt }).await?;
            }
        }
        Ok(())
    }

    async fn adopt_one(&mut self, key: AttemptKey) -> Result<(), AgentError> {
        let dir = self.nodes[&key.node].spool.open_attempt(key.attempt)?;
        let entry = match dir.read_launch() {
            Ok(record) => {
                let (share, call) = (record.launch.share, record.launch.call);
                let entry = self.entry(&key.node, record.launch.user.uid, &share);
                let limits = record.limits.devices.unwrap_or_default();
                let divided = self.adopted_gpus(&limits);
                AttemptEntry { share: Some(share), call, divided, ..entry }
            }
            Err(error) => {
                tracing::warn!(%error, "an attempt's record is damaged; it is taken for lost");
                AttemptEntry::new(None, CpuPart::default(), self.energy.mark(&[]), Vec::new())
            }
        };
        match find_supervisor(&dir).await {
            // A written end counts even if no supervisor's claim is found.
            SupervisorSearch::NeverStarted if matches!(dir.read_status(), Ok(None)) => {
                tracing::info!(node = key.node, attempt = %key.attempt, "found a launch that was never carried out");
                self.nodes[&key.node].spool.remove(key.attempt)?;
                if let Some(guard) = self.gate.replay_guard(&key.node) {
                    guard.release(key.attempt)?;
                }
            }
            SupervisorSearch::Alive(stream) => {
                tracing::info!(node = key.node, attempt = %key.attempt, "found a running attempt");
                self.attempts.insert(key.clone(), entry);
                self.connect_supervisor(key, stream);
            }
            SupervisorSearch::NeverStarted | SupervisorSearch::Gone => {
                self.attempts.insert(key.clone(), entry);
                self.on_closed(&key);
            }
        }
        Ok(())
    }
}
