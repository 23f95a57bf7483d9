//! What the server shows of reservations and licences.

use model::reservation::Reservation;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `scontrol show reservation`, `sinfo -T`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationsView {
    pub now: Timestamp,
    /// In the order in which they were made.
    pub reservations: Vec<ReservationView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationView {
    /// With the times of the window that lasts or comes next.
    pub reservation: Reservation,
    pub cores: u32,
    pub cpus: u32,
    pub active: bool,
}

/// `scontrol show licenses`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseView {
    pub name: String,
    pub total: u64,
    /// By running jobs.
    pub used: u64,
    /// By reservations that last.
    pub reserved: u64,
}

/// What an active reservation of a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationPurpose {
    #[serde(rename = "somebody")]
    Users,
    Maintenance,
}
