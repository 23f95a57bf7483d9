//! Where the server's state is: the journal's folder, or a database that several servers share, and the folder of the
//! snapshots. All of it is in memory, and all of it is faulty.

use super::shared_log::{SessionFault, SharedLog};
use crate::chance::Chance;
use store::FaultyDisk;

#[derive(Default)]
pub struct Disks {
    pub journal: FaultyDisk,
    pub snapshots: FaultyDisk,
    /// The journal is there, and not in its folder.
    pub database: Option<SharedLog>,
    /// A crash was asked for that has not come yet.
    crash_is_due: bool,
    /// Failed writes and syncs that were asked for and may not have come yet: at least as many as there are.
    failures_due: u32,
    is_full: bool,
}

/// What the next writes meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The program is killed, or the power is cut, in the middle of this write from now on.
    Crash {
        write: u64,
    },
    CrashInSnapshot {
        write: u64,
    },
    /// This sync fails, and what it should have kept is lost at the next power cut.
    FailedSync {
        sync: u64,
    },
    /// This write fails half-way.
    FailedWrite {
        write: u64,
    },
}

impl DiskFault {
    pub fn any(chance: &mut Chance) -> Self {
        let count = 1 + chance.below(6);
        match chance.below(6) {
            0 => Self::FailedSync { sync: 1 + count / 3 },
            1 => Self::FailedWrite { write: 1 + count / 3 },
            2 => Self::CrashInSnapshot { write: count },
            _ => Self::Crash { write: count },
        }
    }
}

impl Disks {
    pub fn new(database: Option<SharedLog>) -> Self {
        Self { database, ..Self::default() }
    }

    pub fn arm(&mut self, fault: DiskFault) {
        if let Some(database) = &self.database {
            let is_kept = matches!(fault, DiskFault::Crash { .. } | DiskFault::FailedSync { .. });
            let fault =
                if is_kept { SessionFault::AfterCommit } else { SessionFault::BeforeCommit };
            return database.arm(fault);
        }
        match fault {
            DiskFault::Crash { write } => {
                self.crash_is_due = true;
                self.journal.crash_at(write);
            }
            DiskFault::CrashInSnapshot { write } => self.snapshots.crash_at(write),
            DiskFault::FailedSync { sync } => {
                self.failures_due += 1;
                self.journal.fail_sync_at(sync);
            }
            DiskFault::FailedWrite { write } => {
                self.failures_due += 1;
                self.journal.fail_write_at(write);
            }
        }
    }

    /// Whether the next commit may fail.
    pub fn is_armed(&self) -> bool {
        let database_is_armed = self.database.as_ref().is_some_and(SharedLog::is_armed);
        self.crash_is_due || self.failures_due > 0 || self.is_full || database_is_armed
    }

    /// A commit has failed: by a fault that was asked for, or for want of room.
    pub fn note_failure(&mut self) {
        if !self.is_full {
            self.failures_due = self.failures_due.saturating_sub(1);
        }
    }

    /// Nothing more grows, until the next start of the server or until there is room again.
    pub fn fill(&mut self) {
        self.is_full = true;
        for disk in [&self.journal, &self.snapshots] {
            disk.set_capacity(Some(disk.used_bytes()));
        }
    }

    pub fn make_room(&mut self) {
        self.is_full = false;
        self.journal.set_capacity(None);
        self.snapshots.set_capacity(None);
    }

    pub fn has_crashed(&self) -> bool {
        self.journal.crashed() || self.snapshots.crashed()
    }

    /// What a restarted server finds: after a power cut, what `seed` leaves of what was not synced.
    pub fn restart(&mut self, power_cut: Option<u64>) {
        (self.crash_is_due, self.failures_due) = (false, 0);
        self.database.iter().for_each(SharedLog::disarm);
        for disk in [&self.journal, &self.snapshots] {
            match power_cut {
                Some(seed) => disk.restart(seed),
                None => disk.restart_program(),
            }
        }
    }
}
