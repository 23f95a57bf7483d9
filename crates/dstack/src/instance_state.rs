//! A node of the cluster as an instance of a fleet: whether it is busy, reachable and well.

use crate::status::{HealthStatus, InstanceStatus};
use model::gpu_health::{self, Severity};
use model::node::SlotState;
use wire::view::NodeView;

const GPU: &str = "gpu";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceState {
    pub status: InstanceStatus,
    pub unreachable: bool,
    pub health: HealthStatus,
    /// What ails it.
    pub findings: Option<String>,
    /// GPUs where there are any, CPUs elsewhere.
    pub busy_blocks: u32,
    pub total_blocks: u32,
}

impl InstanceState {
    pub fn of(node: &NodeView) -> Self {
        let count = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let used = node.gres_used.iter().filter(|gres| gres.name == GPU);
        let (busy_blocks, total_blocks) = match node.config.gres_total(GPU) {
            0 => (node.cpus_allocated, node.config.cpus),
            gpus => (count(used.map(|gres| gres.count).sum()), count(gpus)),
        };
        let found = |severity| gpu_health::summary(&node.facts.gpus, severity);
        let (failure, warning) = (found(Severity::Failure), found(Severity::Warning));
        let health = match (&failure, &warning) {
            (Some(_), _) => HealthStatus::Failure,
            (None, Some(_)) => HealthStatus::Warning,
            (None, None) => HealthStatus::Healthy,
        };
        Self {
            status: if node.job_count > 0 { InstanceStatus::Busy } else { InstanceStatus::Idle },
            unreachable: node.slot != SlotState::Up,
            health,
            findings: failure.or(warning),
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
        } else if self.health != HealthStatus::Healthy {
            text.push_str(&format!(" ({})", self.health));
        }
        text
    }
}
