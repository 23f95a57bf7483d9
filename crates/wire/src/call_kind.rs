//! Which kind of call `sdiag` counts a call as.

use crate::client::Call;
use crate::diagnostics::CallKind;
use model::run::LaunchKind;

impl Call {
    /// Whether a standby answers it from the state that it follows: it only looks, and at nothing that the leader alone has.
    pub fn is_answered_by_standby(&self) -> bool {
        match self {
            Self::Jobs(wanted) => wanted.estimates_ms == 0,
            Self::Ping
            | Self::QueueHead { .. }
            | Self::Cluster
            | Self::Config
            | Self::History(_)
            | Self::UsageReport(_)
            | Self::Activities
            | Self::ActivityHistory(_)
            | Self::Accounts
            | Self::Shares
            | Self::Priorities
            | Self::Volumes { .. }
            | Self::SubmitChoices
            | Self::Projects
            | Self::Reservations
            | Self::Licenses
            | Self::Triggers => true,
            _ => false,
        }
    }

    pub fn kind(&self) -> CallKind {
        match self {
            Self::Ping => CallKind::Ping,
            Self::Submit(submission) | Self::Resubmit(submission) => {
                match submission.spec.launch.kind {
                    LaunchKind::Interactive => CallKind::Allocate,
                    _ => CallKind::SubmitBatch,
                }
            }
            Self::TestSubmit(_) => CallKind::TestSubmit,
            Self::AwaitStart { .. } => CallKind::AwaitStart,
            Self::AwaitEnd { .. } => CallKind::AwaitEnd,
            Self::Jobs(wanted) if wanted.filter.jobs.len() == 1 => CallKind::OneJob,
            Self::Jobs(_) | Self::QueueHead { .. } => CallKind::Jobs,
            Self::Cluster => CallKind::Cluster,
            Self::Config => CallKind::Config,
            Self::Cancel(cancel) if cancel.step.is_some() => CallKind::CancelStep,
            Self::Cancel(_) => CallKind::Cancel,
            Self::UpdateJob { .. } => CallKind::UpdateJob,
            Self::UpdateNode { .. } => CallKind::UpdateNode,
            Self::UpdatePartition { .. } => CallKind::UpdatePartition,
            Self::Reconfigure { .. } => CallKind::Reconfigure,
            Self::History(_) | Self::UsageReport(_) => CallKind::History,
            Self::Script { .. } => CallKind::Script,
            Self::CreateStep(_) => CallKind::CreateStep,
            Self::LaunchStep { .. } => CallKind::LaunchStep,
            Self::SignalStep { .. } => CallKind::CancelStep,
            Self::Relinquish { .. } => CallKind::Relinquish,
            Self::Accounts => CallKind::Accounts,
            Self::SetAccount(_)
            | Self::RemoveAccount { .. }
            | Self::SetAssociation(_)
            | Self::RemoveAssociation(_)
            | Self::SetQos(_)
            | Self::RemoveQos { .. }
            | Self::SetRole { .. }
            | Self::CreateProject { .. }
            | Self::RemoveProject { .. }
            | Self::SetMembers { .. }
            | Self::SetDefaultGateway { .. }
            | Self::ForgetUsage(_) => CallKind::ChangeAccounts,
            Self::Shares => CallKind::Shares,
            Self::Priorities => CallKind::Priorities,
            Self::Diagnostics { .. } => CallKind::Diagnostics,
            Self::Explain(_) | Self::WhatIf(_) => CallKind::Explain,
            Self::NodeToken { .. }
            | Self::GroupToken { .. }
            | Self::UserToken { .. }
            | Self::RestToken { .. }
            | Self::Tokens
            | Self::RevokeToken { .. }
            | Self::RotateAdminToken { .. }
            | Self::Ssh { .. } => CallKind::Token,
            Self::Offers(_) => CallKind::Offers,
            _ => CallKind::Other,
        }
    }
}
