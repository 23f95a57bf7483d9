//! Reservations as time passes: they expire or recur, replace failed nodes, and end jobs that overstay.

use crate::decide::end::ending;
use crate::event::Event;
use crate::state::State;
use crate::state::job::Job;
use model::reservation::{Reservation, ReservationFlag as Flag, split_names};
use model::run::{ExitStatus, Outcome};
use model::time::Timestamp;
use std::time::Duration;

impl State {
    /// The events that are due for reservations and the jobs in them.
    pub(in crate::decide) fn reservation_events(&self, now: Timestamp) -> Vec<Event> {
        if self.reservations.is_empty() {
            return Vec::new();
        }
        let mut events = self.overstaying(now);
        for reservation in self.reservations.values() {
            events.extend(self.reservation_event(reservation, now));
        }
        events
    }

    fn reservation_event(&self, r: &Reservation, now: Timestamp) -> Vec<Event> {
        let over = r.ahead_ms.is_none() && r.end <= now;
        if over && r.recurs() {
            let Some(&(start, end)) = r.windows(now, 1).first() else { return Vec::new() };
            return vec![set(Reservation { start, end, ..r.clone() })];
        }
        if over {
            let running = self.jobs_of_reservation(&r.name).any(|job| job.attempt().is_some());
            // An expired reservation stays until its jobs have ended, unless they may overstay.
            return if running && !self.may_overstay(r) { Vec::new() } else { self.removal(r) };
        }
        if let Some(event) = self.idleness(r, now) {
            return match event {
                Idleness::Changed(event) => vec![event],
                Idleness::TooLong => self.removal(r),
            };
        }
        if r.has(Flag::PartNodes)
            && let Some(partition) = r.partition.as_ref().and_then(|name| self.partition(name))
        {
            let in_order = self.nodes.keys().filter(|name| partition.nodes.contains(name));
            let nodes: Vec<String> = in_order.cloned().collect();
            let changed = nodes != r.nodes;
            return changed.then(|| set(Reservation { nodes, ..r.clone() })).into_iter().collect();
        }
        self.replenished(r, now).map(set).into_iter().collect()
    }

    /// Removes the reservation. Jobs that wait for it are held, or no longer ask for it.
    fn removal(&self, r: &Reservation) -> Vec<Event> {
        let waiting = self.jobs_of_reservation(&r.name).filter(|job| job.is_waiting());
        let mut events: Vec<Event> = waiting.map(|job| reservation_lost(job, r)).collect();
        events.push(Event::ReservationRemoved { name: r.name.clone() });
        events
    }

    fn may_overstay(&self, r: &Reservation) -> bool {
        r.has(Flag::Flex) || self.config.parameters.reservation_over_run_min.is_none()
    }

    /// Ends the jobs whose window is over, after the permitted overrun.
    fn overstaying(&self, now: Timestamp) -> Vec<Event> {
        let Some(minutes) = self.config.parameters.reservation_over_run_min else {
            return Vec::new();
        };
        let over_run = Duration::from_secs(60 * u64::from(minutes));
        let running = self.active.iter().filter_map(|id| self.job(*id));
        let late = running.filter(|job| {
            let attempt = job.attempt();
            let end = attempt.and_then(|attempt| {
                let r = self.reservations.get(attempt.reservation.as_ref()?)?;
                let bound = !r.has(Flag::Flex) && r.ahead_ms.is_none();
                bound.then(|| r.end_of_window_at(attempt.start))
            });
            end.is_some_and(|end| end + over_run <= now)
        });
        late.filter_map(|job| ending(job, Outcome::Timeout, ExitStatus::default(), now, None))
            .collect()
    }

    fn idleness(&self, r: &Reservation, now: Timestamp) -> Option<Idleness> {
        let after = Duration::from_secs(u64::from(r.purge_after_s?));
        let used = !r.is_active(now) || self.jobs_of_reservation(&r.name).next().is_some();
        match (used, r.idle_since) {
            (true, None) => None,
            (true, Some(_)) => {
                Some(Idleness::Changed(set(Reservation { idle_since: None, ..r.clone() })))
            }
            (false, None) => {
                Some(Idleness::Changed(set(Reservation { idle_since: Some(now), ..r.clone() })))
            }
            (false, Some(since)) => (since + after <= now).then_some(Idleness::TooLong),
        }
    }
}

enum Idleness {
    Changed(Event),
    TooLong,
}

fn set(reservation: Reservation) -> Event {
    Event::ReservationSet(Box::new(reservation))
}

/// What becomes of a job that waits for a removed reservation.
fn reservation_lost(job: &Job, r: &Reservation) -> Event {
    let asked = job.spec.request().reservation.as_deref().unwrap_or_default();
    let left: Vec<&str> = split_names(asked).filter(|name| *name != r.name).collect();
    let others = (!left.is_empty()).then(|| left.join(","));
    let hold = others.is_none() && !r.has(Flag::NoHoldJobsAfter) && job.hold.is_none();
    Event::ReservationLost { job: job.id, reservation: r.name.clone(), remaining: others, hold }
}
