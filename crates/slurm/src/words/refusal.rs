//! What a client of Slurm prints when the server refuses.

use crate::words::reason;
use model::id::JobId;
use model::reason::{NeverFits, Reason, Refusal, UnmetConstraint};
use model::reservation_request::ReservationRefusal;

/// Slurm's error: its number, whose low byte is the exit code of `scancel`, and its sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlurmError {
    pub number: u32,
    pub text: &'static str,
}

const fn error(number: u32, text: &'static str) -> SlurmError {
    SlurmError { number, text }
}

pub const ACCESS_DENIED: SlurmError = error(2002, "Access/permission denied");
pub const INVALID_JOB_ID: SlurmError = error(2017, "Invalid job id specified");
pub const INVALID_NODE_COUNT: SlurmError = error(2006, "Node count specification invalid");
pub const INVALID_NODE_NAME: SlurmError = error(2018, "Invalid node name specified");
pub const INVALID_FEATURE: SlurmError = error(2035, "Invalid feature specification");
pub const INVALID_DEPENDENCY: SlurmError = error(2039, "Job dependency problem");
pub const INVALID_LICENSES: SlurmError = error(2048, "Invalid license specification");
pub const INVALID_GRES: SlurmError = error(2072, "Invalid generic resource (gres) specification");
pub const INVALID_ARRAY: SlurmError = error(2090, "Invalid job array specification");
pub(super) const NODES_BUSY: SlurmError = error(2016, "Requested nodes are busy");
const NOT_SUPPORTED: SlurmError = error(2036, "Requested operation not supported on this system");
const INVALID_TIME: SlurmError = error(2054, "Invalid time specified");
/// What `scontrol` says where `scancel` says that access is denied: updates of jobs and nodes, `reconfigure`.
pub const INVALID_USER: SlurmError = error(2010, "Invalid user id");

/// Slurm's error for a refusal; `None` if Slurm has no sentence for it.
pub fn slurm_error(refusal: &Refusal) -> Option<SlurmError> {
    let error = match refusal {
        Refusal::UnknownPartition(_) => error(2000, "Invalid partition name specified"),
        Refusal::NoDefaultPartition => {
            error(2001, "No partition specified or system default partition")
        }
        Refusal::AccessDenied => ACCESS_DENIED,
        Refusal::PartitionAccess(_) => {
            error(2003, "User's group not permitted to use this partition")
        }
        Refusal::RootJobsDisabled(_) => INVALID_USER,
        Refusal::ReservationRequired(_) => ACCESS_DENIED,
        Refusal::NodeCount(_) => INVALID_NODE_COUNT,
        Refusal::NodeConfiguration(_) => {
            error(2014, "Requested node configuration is not available")
        }
        Refusal::NoCapacityNow => NODES_BUSY,
        Refusal::UnknownJob(_) | Refusal::UnknownStep(_) => INVALID_JOB_ID,
        Refusal::UnknownNode(_) => INVALID_NODE_NAME,
        Refusal::JobEnded(_) => error(2021, "Job/step already completing or completed"),
        Refusal::JobNotRunning(_) => error(2024, "Job is pending execution"),
        Refusal::JobNotPending(_) => error(2030, "Job is no longer pending execution"),
        Refusal::UnknownFeature(_) => INVALID_FEATURE,
        Refusal::UnknownPreference(_) => error(2133, "Invalid preferred feature specification"),
        Refusal::InvalidDependency => INVALID_DEPENDENCY,
        Refusal::RequeueDisabled(_) => error(2037, "Requested operation is presently disabled"),
        Refusal::NotSupported(_) => NOT_SUPPORTED,
        Refusal::HetPendingComponent(_) => {
            error(2108, "Operation not permitted on individual component of heterogeneous job")
        }
        Refusal::NotHetLeader(_) => error(2107, "Job not heterogeneous job leader"),
        Refusal::JobHeld(_) => error(2042, "Job is in held state, pending scheduler release"),
        Refusal::UnknownLicense(_) => INVALID_LICENSES,
        Refusal::TimePassed => INVALID_TIME,
        Refusal::CpuCount => error(2069, "CPU count specification invalid"),
        Refusal::TaskCount => error(2025, "Task count specification invalid"),
        Refusal::CircularDependency => error(2071, "Circular job dependency"),
        Refusal::JobFinished(_) => error(2084, "Job has already finished"),
        Refusal::JobNotStarted(_) => error(2085, "Job is not running"),
        Refusal::JobNotSuspended(_) => error(2087, "Job is not suspended"),
        Refusal::PriorityNotKept => {
            error(2095, "Changes to job priority are not persistent, change nice instead")
        }
        Refusal::TimeMin => {
            error(2124, "Invalid time-min specification (exceeds job's time or other limits)")
        }
        Refusal::OperatorsOnly => ACCESS_DENIED,
        Refusal::Nice => error(2123, "Invalid --nice value"),
        Refusal::NotRequeueable(_) => error(2040, "Only batch jobs are accepted or processed"),
        Refusal::InvalidAccount(_) => {
            error(2045, "Invalid account or account/partition combination specified")
        }
        Refusal::TimeLimit(_) | Refusal::DeadlineImpossible => {
            error(2051, "Requested time limit is invalid (missing or exceeds some limit)")
        }
        Refusal::InvalidReservation(_) => error(2053, "Requested reservation is invalid"),
        Refusal::Reservation(why) => reservation_error(why),
        Refusal::InvalidQos(_) => error(2066, "Invalid qos specification"),
        Refusal::UnknownGres(_) => INVALID_GRES,
        Refusal::PartitionNotAvailable(_) => {
            error(2078, "Required partition not available (inactive or drain)")
        }
        Refusal::InvalidArray | Refusal::ArrayIndex { .. } | Refusal::ArrayTasks { .. } => {
            INVALID_ARRAY
        }
        Refusal::SubmitLimit(_) => error(
            2050,
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        ),
        _ => return None,
    };
    Some(error)
}

fn reservation_error(why: &ReservationRefusal) -> SlurmError {
    match why {
        ReservationRefusal::User(_) => INVALID_USER,
        ReservationRefusal::Group(_) => error(2113, "Invalid group id"),
        ReservationRefusal::UsersAndGroups => {
            error(2129, "Reservations can't have users and groups specified, only one or the other")
        }
        ReservationRefusal::Nobody => {
            error(2080, "Reservation request lacks users, groups or accounts")
        }
        ReservationRefusal::Time => INVALID_TIME,
        ReservationRefusal::Started => error(2104, "Reservation already started"),
        ReservationRefusal::Overlap(_) => {
            error(2058, "Requested reservation overlaps with another reservation")
        }
        ReservationRefusal::InUse => error(2055, "Requested reservation is in use"),
        ReservationRefusal::Duplicate(_) => error(2082, "Duplicate reservation name"),
        ReservationRefusal::Busy => NODES_BUSY,
        ReservationRefusal::Cores => {
            error(2111, "Core count for reservation node list is not consistent!")
        }
        ReservationRefusal::CoresChange => error(2109, "Core-based reservation can not be updated"),
        ReservationRefusal::NotRecurring => {
            error(2128, "Reservation given is not skipable, try deleting instead")
        }
        ReservationRefusal::Flags => NOT_SUPPORTED,
        ReservationRefusal::Nothing => INVALID_NODE_NAME,
        ReservationRefusal::Access(_) => error(2052, "Access denied to requested reservation"),
    }
}

/// The sentence that a command prints after its own prefix.
pub fn text(refusal: &Refusal) -> String {
    match (slurm_error(refusal), refusal) {
        (Some(error), _) => error.text.to_owned(),
        (None, Refusal::UpdateNotSupported { key }) => {
            format!("Update of this parameter is not supported: {key}")
        }
        (None, Refusal::JobsActive(jobs)) => jobs_active(jobs),
        (None, other) => other.to_string(),
    }
}

/// The most jobs that a refusal names.
const JOBS_NAMED_MAX: usize = 20;

fn jobs_active(jobs: &[(JobId, String, String)]) -> String {
    let mut text = "Job(s) active, cancel job(s) before remove".to_owned();
    for (job, account, user) in jobs.iter().take(JOBS_NAMED_MAX) {
        text.push_str(&format!("\n  JobID = {:<10} A = {account:<10} U = {user:<9}", job.0));
    }
    text
}

/// The line that Slurm's clients print before the refusal; `None` if they print none.
pub fn hint(refusal: &Refusal) -> Option<String> {
    let line = match refusal {
        Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Cpus { .. }, .. }) => {
            "CPU count per node can not be satisfied"
        }
        Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Memory { .. }, .. }) => {
            "Memory specification can not be satisfied"
        }
        Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Disk { .. }, .. }) => {
            "Temporary disk specification can not be satisfied"
        }
        Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Layout(_), .. }) => {
            "Socket, core and/or thread specification can not be satisfied"
        }
        Refusal::UnknownPartition(name) => {
            return Some(format!("invalid partition specified: {name}"));
        }
        Refusal::NodeConfiguration(UnmetConstraint {
            why: NeverFits::Reservation { named: true, .. },
            ..
        }) => "Problem using reservation",
        Refusal::SubmitLimit(limit) => {
            return Some(reason::text(&Reason::Limit(Box::new(limit.clone()))).into_owned());
        }
        _ => return None,
    };
    Some(line.to_owned())
}

/// `scancel`'s exit code for a refusal: the low byte of Slurm's number.
pub fn scancel_code(refusal: &Refusal) -> i32 {
    slurm_error(refusal).map_or(1, |error| (error.number & 0xff) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_captured_words() {
        let cpus = NeverFits::Cpus { asked: 64, most: 32 };
        let memory = NeverFits::Memory { asked_mib: 921_600, most_mib: 128_000 };
        let gpus = NeverFits::Gres {
            name: "gpu".into(),
            asked: 16,
            most: 8,
            larger_memory: false,
            kinds_there: Vec::new(),
        };
        let not_available = "Requested node configuration is not available";
        let table = [
            (
                Refusal::NodeConfiguration(cpus.into()),
                Some("CPU count per node can not be satisfied"),
                not_available,
            ),
            (
                Refusal::NodeConfiguration(memory.into()),
                Some("Memory specification can not be satisfied"),
                not_available,
            ),
            (Refusal::NodeConfiguration(gpus.into()), None, not_available),
            (Refusal::UnknownFeature("a100".into()), None, "Invalid feature specification"),
            (Refusal::UnknownNode("node9".into()), None, "Invalid node name specified"),
            (Refusal::InvalidQos("nosuch".into()), None, "Invalid qos specification"),
            (Refusal::InvalidArray, None, "Invalid job array specification"),
            (Refusal::InvalidDependency, None, "Job dependency problem"),
            (
                Refusal::InvalidAccount(None),
                None,
                "Invalid account or account/partition combination specified",
            ),
            (Refusal::InvalidReservation("x".into()), None, "Requested reservation is invalid"),
            (
                Refusal::PartitionNotAvailable("debug".into()),
                None,
                "Required partition not available (inactive or drain)",
            ),
            (Refusal::RootJobsDisabled("gpu".into()), None, "Invalid user id"),
            (Refusal::ReservationRequired("gpu".into()), None, "Access/permission denied"),
            (Refusal::NotRequeueable(JobId(2)), None, "Only batch jobs are accepted or processed"),
        ];
        for (refusal, line_before, sentence) in table {
            assert_eq!(hint(&refusal).as_deref(), line_before);
            assert_eq!(text(&refusal), sentence);
        }
    }

    #[test]
    fn scancel_exits_with_the_captured_codes() {
        assert_eq!(scancel_code(&Refusal::AccessDenied), 210);
        assert_eq!(scancel_code(&Refusal::JobEnded(JobId(1))), 229);
        assert_eq!(scancel_code(&Refusal::Other("?".into())), 1);
    }

    #[test]
    fn a_refusal_that_slurm_does_not_know_prints_its_own_text() {
        let refusal = Refusal::DiskFull("no space".into());
        assert_eq!(text(&refusal), "the server's disk is full: no space");
    }
}
