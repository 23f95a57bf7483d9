//! dstack's words for the status of a run and of its jobs, and for why they ended.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Makes an enum whose members each have one word, the same in the API, the CLI and here.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($member:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($member,)* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$member,)*];

            pub fn word(self) -> &'static str {
                match self { $($name::$member => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|member| member.word() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                Self::from_word(&word).ok_or_else(|| {
                    D::Error::custom(format_args!("{word:?} is none of its words"))
                })
            }
        }
    };
}

words! {
    RunStatus {
        Pending = "pending",
        Submitted = "submitted",
        Provisioning = "provisioning",
        Running = "running",
        Terminating = "terminating",
        Terminated = "terminated",
        Failed = "failed",
        Done = "done",
    }
}

words! {
    /// The status of one node of a run, in one attempt.
    JobStatus {
        Submitted = "submitted",
        Provisioning = "provisioning",
        Pulling = "pulling",
        Running = "running",
        Terminating = "terminating",
        Terminated = "terminated",
        Aborted = "aborted",
        Failed = "failed",
        Done = "done",
    }
}

words! {
    RunEnd {
        AllJobsDone = "all_jobs_done",
        JobFailed = "job_failed",
        RetryLimitExceeded = "retry_limit_exceeded",
        StoppedByUser = "stopped_by_user",
        AbortedByUser = "aborted_by_user",
        ServerError = "server_error",
        GatewayError = "gateway_error",
    }
}

words! {
    JobEnd {
        FailedToStartDueToNoCapacity = "failed_to_start_due_to_no_capacity",
        InterruptedByNoCapacity = "interrupted_by_no_capacity",
        InstanceUnreachable = "instance_unreachable",
        InstanceAccessRevoked = "instance_access_revoked",
        WaitingInstanceLimitExceeded = "waiting_instance_limit_exceeded",
        WaitingRunnerLimitExceeded = "waiting_runner_limit_exceeded",
        TerminatedByUser = "terminated_by_user",
        VolumeError = "volume_error",
        GatewayError = "gateway_error",
        ScaledDown = "scaled_down",
        DoneByRunner = "done_by_runner",
        AbortedByUser = "aborted_by_user",
        TerminatedByServer = "terminated_by_server",
        InactivityDurationExceeded = "inactivity_duration_exceeded",
        TerminatedDueToUtilizationPolicy = "terminated_due_to_utilization_policy",
        ContainerExitedWithError = "container_exited_with_error",
        PortsBindingFailed = "ports_binding_failed",
        CreatingContainerError = "creating_container_error",
        ExecutorError = "executor_error",
        MaxDurationExceeded = "max_duration_exceeded",
        LogQuotaExceeded = "log_quota_exceeded",
    }
}

words! {
    InstanceStatus {
        Pending = "pending",
        Provisioning = "provisioning",
        Idle = "idle",
        Busy = "busy",
        Terminating = "terminating",
        Terminated = "terminated",
    }
}

words! {
    HealthStatus {
        Healthy = "healthy",
        Warning = "warning",
        Failure = "failure",
    }
}

words! {
    FleetStatus {
        Submitted = "submitted",
        Active = "active",
        Terminating = "terminating",
        Terminated = "terminated",
        Failed = "failed",
    }
}

words! {
    VolumeStatus {
        Submitted = "submitted",
        Provisioning = "provisioning",
        Active = "active",
        Failed = "failed",
    }
}

words! {
    /// Whether an offer can be had now.
    OfferStatus {
        Unknown = "unknown",
        Available = "available",
        NotAvailable = "not_available",
        NoQuota = "no_quota",
        NoBalance = "no_balance",
        Idle = "idle",
        Busy = "busy",
    }
}

words! {
    ApplyAction {
        Create = "create",
        Update = "update",
    }
}

words! {
    GlobalRole {
        Admin = "admin",
        User = "user",
    }
}

words! {
    ProjectRole {
        Admin = "admin",
        Manager = "manager",
        User = "user",
    }
}

impl RunStatus {
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Failed | Self::Done)
    }
}

impl JobStatus {
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Aborted | Self::Failed | Self::Done)
    }
}

impl RunEnd {
    /// The status of a run that ended so.
    pub fn status(self) -> RunStatus {
        match self {
            Self::AllJobsDone => RunStatus::Done,
            Self::StoppedByUser | Self::AbortedByUser => RunStatus::Terminated,
            Self::JobFailed | Self::RetryLimitExceeded | Self::ServerError | Self::GatewayError => {
                RunStatus::Failed
            }
        }
    }
}

impl RunEnd {
    /// The text of the ERROR column that is the run's and no job's.
    pub fn error(self) -> Option<String> {
        matches!(self, Self::RetryLimitExceeded | Self::ServerError)
            .then(|| self.word().replace('_', " "))
    }
}

impl JobEnd {
    /// The status of a job that ended so.
    pub fn status(self) -> JobStatus {
        match self {
            Self::DoneByRunner => JobStatus::Done,
            Self::AbortedByUser => JobStatus::Aborted,
            Self::TerminatedByUser
            | Self::TerminatedByServer
            | Self::ScaledDown
            | Self::InactivityDurationExceeded
            | Self::TerminatedDueToUtilizationPolicy
            | Self::MaxDurationExceeded => JobStatus::Terminated,
            _ => JobStatus::Failed,
        }
    }

    /// The text of the STATUS column, where it is not the status itself.
    fn shown(self) -> Option<&'static str> {
        match self {
            Self::FailedToStartDueToNoCapacity => Some("no capacity"),
            Self::InterruptedByNoCapacity => Some("interrupted"),
            Self::TerminatedByUser => Some("stopped"),
            Self::AbortedByUser => Some("aborted"),
            _ => None,
        }
    }

    /// The text of the ERROR column: the reason in plain words, where the status does not say it already.
    pub fn error(self) -> Option<String> {
        let said_by_status = self.shown().is_some()
            || matches!(self, Self::DoneByRunner | Self::ContainerExitedWithError);
        (!said_by_status).then(|| self.word().replace('_', " "))
    }
}

/// The STATUS column of one job. `exit` is the exit code of its commands, where they ended by themselves.
pub fn job_message(status: JobStatus, end: Option<JobEnd>, exit: Option<i32>) -> String {
    let Some(end) = end.filter(|_| status.is_finished()) else {
        return status.word().to_owned();
    };
    match (end, exit) {
        (JobEnd::DoneByRunner | JobEnd::ContainerExitedWithError, Some(code)) => {
            format!("exited ({code})")
        }
        _ => end.shown().unwrap_or(status.word()).to_owned(),
    }
}

/// The STATUS column of a run: the message of its only job, or the status that several have in common.
/// A run that waits for another attempt is `retrying`, and `pending` if it never had one.
pub fn run_message(status: RunStatus, attempts: u32, only_job: Option<&str>) -> String {
    match (status, only_job) {
        (RunStatus::Pending, _) if attempts > 0 => "retrying".to_owned(),
        (RunStatus::Pending, _) | (_, None) => status.word().to_owned(),
        (_, Some(message)) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_leads_back_to_its_member() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::from_word(status.word()), Some(*status));
        }
        for end in JobEnd::ALL {
            assert_eq!(JobEnd::from_word(end.word()), Some(*end));
            assert!(end.status().is_finished());
        }
        for end in RunEnd::ALL {
            assert!(end.status().is_finished());
        }
        assert_eq!(JobEnd::ALL.len(), 21);
        assert_eq!(JobStatus::from_word("RUNNING"), None);
    }

    #[test]
    fn jobs_are_described_as_the_client_prints_them() {
        use JobEnd::*;
        use JobStatus::*;
        let cases = [
            (Submitted, None, None, "submitted", None),
            (Pulling, None, None, "pulling", None),
            (Terminating, Some(TerminatedByUser), None, "terminating", None),
            (Done, Some(DoneByRunner), Some(0), "exited (0)", None),
            (Failed, Some(ContainerExitedWithError), Some(1), "exited (1)", None),
            (Failed, Some(FailedToStartDueToNoCapacity), None, "no capacity", None),
            (Terminated, Some(TerminatedByUser), Some(143), "stopped", None),
            (Aborted, Some(AbortedByUser), None, "aborted", None),
            (
                Terminated,
                Some(MaxDurationExceeded),
                None,
                "terminated",
                Some("max duration exceeded"),
            ),
            (Failed, Some(InstanceUnreachable), None, "failed", Some("instance unreachable")),
        ];
        for (status, end, exit, message, error) in cases {
            assert_eq!(job_message(status, end, exit), message);
            if status.is_finished() {
                let end = end.unwrap();
                assert_eq!(end.status(), status);
                assert_eq!(end.error().as_deref(), error);
            }
        }
    }

    #[test]
    fn runs_are_described_by_their_only_job() {
        let cases = [
            (RunStatus::Pending, 0, None, "pending"),
            (RunStatus::Pending, 2, Some("no capacity"), "retrying"),
            (RunStatus::Failed, 1, Some("exited (1)"), "exited (1)"),
            (RunStatus::Failed, 1, None, "failed"),
        ];
        for (status, attempts, only_job, expected) in cases {
            assert_eq!(run_message(status, attempts, only_job), expected);
        }
    }
}
