//! Reservations (EASY): the earliest time at which a job that cannot start now will, if nothing
//! runs over its limit.
//!
//! Jobs after it start now only where the profile leaves its place alone, so a backfilled job never
//! delays it.

use crate::place::demand::Demand;
use crate::place::{Candidates, Placement, place};
use crate::profile::Profile;
use model::id::JobId;
use model::time::Timestamp;
use std::time::Duration;

/// When and where, as if the job itself had no reservation; none if what is in the way has no end.
pub fn earliest(
    profile: &Profile<'_>,
    job: JobId,
    demand: &Demand<'_>,
    candidates: &Candidates,
    length: Option<Duration>,
) -> Option<(Timestamp, Placement)> {
    let moments = profile.moments();
    let place_in = |space: &_| place(demand, space, &mut candidates.afresh());
    let nodes = || candidates.nodes.iter().copied();

    // Without reservations a later moment has no less free than an earlier one, so the first that
    // holds the job can be searched for by halves; with them, none before it can.
    let first = moments.partition_point(|&time| place_in(&profile.at(time, nodes())).is_none());
    moments[first..].iter().find_map(|&start| {
        let mut space = profile.at(start, nodes());
        space.beside_reservations(job, start, length.map(|length| start + length));
        place_in(&space).map(|placement| (start, placement))
    })
}
