//! A node of the cluster as an instance of a fleet: whether it is busy, reachable and well.

use crate::status::{HealthStatus, InstanceStatus};
use model::gpu_health::{self, Severity};
use model::gres::GPU;
use model::node::SlotState;
use model::node_reason::NodeCause;
use wire::view::NodeView;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceState {
    pub status: InstanceStatus,
    pub unreachable: bool,
    pub health: HealthStatus,
    /// What ails it.
    pub findings: Option<String>,
    /// As the fleet says, else GPUs where there are any, CPUs elsewhere.
    pub busy_blocks: u32,
    pub total_blocks: u32,
    /// It takes no new jobs, by an administrator or a check.
    pub out_of_service: bool,
}

impl InstanceState {
    pub fn of(node: &NodeView) -> Self {
        let used = node.gres_used.iter().filter(|gres| gres.name == GPU);
        let gpus = used.map(|gres| gres.count).sum();
        let (busy_blocks, total_blocks) = node.config.blocks_of(node.cpus_allocated, gpus);
        let found = |severity| gpu_health::summary(&node.facts.gpus, severity);
        let (failure, warning) = (found(Severity::Failure), found(Severity::Warning));
        let health = match (&failure, &warning) {
            (Some(_), _) => HealthStatus::Failure,
            (None, Some(_)) => HealthStatus::Warning,
            (None, None) => HealthStatus::Healthy,
        };
        let reason = node.reason.as_ref().and_then(|reason| match &reason.cause {
            NodeCause::Text(text) | NodeCause::Unhealthy { text, .. } => Some(text.clone()),
            NodeCause::NotResponding => None,
        });
        Self {
            status: if node.job_count > 0 { InstanceStatus::Busy } else { InstanceStatus::Idle },
            unreachable: node.slot != SlotState::Up && !node.power.excuses_silence(),
            health,
            findings: failure.or(warning).or(reason),
            out_of_service: node.admin.is_some(),
            busy_blocks,
            total_blocks,
        }
    }

    /// `idle`, `1/8 busy (warning)`.
    pub fn words(&self) -> String {
        let mut text = match self.total_blocks {
            0 | 1 => self.status.to_string(),
            total => format!("{}/{total} busy", self.busy_blocks),
        };
        if self.unreachable {
            text.push_str(" (unreachable)");
        } else if self.out_of_service {
            text.push_str(" (drained)");
        } else if self.health != HealthStatus::Healthy {
            text.push_str(&format!(" ({})", self.health));
        }
        text
    }
}
