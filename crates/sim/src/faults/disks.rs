//! The server's disks: the journal's folder and that of the snapshots, both in memory and both faulty.

use super::chance::Chance;
use store::FaultyDisk;

#[derive(Default)]
pub struct Disks {
    pub journal: FaultyDisk,
    pub snapshots: FaultyDisk,
    /// A fault was asked for that may not have come yet.
    armed: bool,
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
        self.armed = true;
        match fault {
            DiskFault::Crash { write } => self.journal.crash_at(write),
            DiskFault::CrashInSnapshot { write } => self.snapshots.crash_at(write),
            DiskFault::FailedSync { sync } => self.journal.fail_sync_at(sync),
            DiskFault::FailedWrite { write } => self.journal.fail_write_at(write),
        }
    }

    /// Whether the next commit may fail.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Nothing more grows, until the next start of the server or until there is room again.
    pub fn fill(&mut self) {
        self.armed = true;
        for disk in [&self.journal, &self.snapshots] {
            disk.set_capacity(Some(disk.used_bytes()));
        }
    }

    pub fn make_room(&self) {
        self.journal.set_capacity(None);
        self.snapshots.set_capacity(None);
    }

    pub fn has_crashed(&self) -> bool {
        self.journal.crashed() || self.snapshots.crashed()
    }

    /// What a restarted server finds: after a power cut, what `seed` leaves of what was not synced.
    pub fn restart(&mut self, power_cut: Option<u64>) {
        self.armed = false;
        for disk in [&self.journal, &self.snapshots] {
            match power_cut {
                Some(seed) => disk.restart(seed),
                None => disk.restart_program(),
            }
        }
    }
}
