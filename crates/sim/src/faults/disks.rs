//! The server's disks: the journal's folder and that of the snapshots, both in memory and both faulty.

use crate::chance::Chance;
use store::FaultyDisk;

#[derive(Default)]
pub struct Disks {
    pub journal: FaultyDisk,
    pub snapshots: FaultyDisk,
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
    Crash { write: u64 },
    CrashInSnapshot { write: u64 },
    /// This sync fails, and what it should have kept is lost at the next power cut.
    FailedSync { sync: u64 },
    /// This write fails half-way.
    FailedWrite { write: u64 },
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
    pub fn arm(&mut self, fault: DiskFault) {
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
        self.crash_is_due || self.failures_due > 0 || self.is_full
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
        for disk in [&self.journal, &self.snapshots] {
            match power_cut {
                Some(seed) => disk.restart(seed),
                None => disk.restart_program(),
            }
        }
    }
}
