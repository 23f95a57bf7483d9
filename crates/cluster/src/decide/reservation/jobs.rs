//! Jobs and reservations: who may use one, which one a start uses, and which nodes are reserved for others.

use super::refused;
use crate::state::State;
use crate::state::job::Job;
use crate::visibility::Viewer;
use model::bounds;
use model::principal::Principal;
use model::reason::{NeverFits, Refusal};
use model::request::Request;
use model::reservation::{Reservation, ReservationFlag as Flag, split_names};
use model::reservation_request::ReservationRefusal as Why;
use model::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

impl State {
    /// Whether a job of this owner and account may ask for these reservations.
    pub(in crate::decide) fn check_reservations(
        &self,
        asked: &str,
        owner: &Principal,
        account: &str,
    ) -> Result<(), Refusal> {
        let invalid = |name: &str| Refusal::InvalidReservation(name.to_owned());
        let viewer = Viewer::new(self, owner);
        // A plan looks at each for each node.
        match split_names(asked).count() {
            0 => return Err(invalid(asked)),
            named => bounds::REQUEST_KINDS.hold(named)?,
        }
        for name in split_names(asked) {
            let known = self.reservations.get(name).filter(|r| viewer.reservation(r));
            let known = known.ok_or_else(|| invalid(name))?;
            if !known.admits(owner, account) {
                return Err(refused(Why::Access(name.to_owned())));
            }
        }
        Ok(())
    }

    /// Whether one of the reservations that a job asks for has the nodes that it needs.
    pub(in crate::decide) fn check_fits_reservation(
        &self,
        request: &Request,
    ) -> Result<(), Refusal> {
        let asked = request.reservation.as_deref().unwrap_or_default();
        // Each once, and looked up: a list may name as many as there are, again and again.
        let listed: HashSet<&str> = request.node_list.iter().map(String::as_str).collect();
        let mut why = None;
        for r in split_names(asked).filter_map(|name| self.reservations.get(name)) {
            let there = r.nodes.iter().filter(|node| listed.contains(node.as_str())).count();
            let named = there < listed.len();
            let few = r.nodes.len() < request.nodes.min as usize;
            if r.has(Flag::Flex) || !r.has_nodes() || !(named || few) {
                return Ok(());
            }
            let (asked, most) = if named {
                (listed.len() as u64, there as u64)
            } else {
                (u64::from(request.nodes.min), r.nodes.len() as u64)
            };
            why = Some(NeverFits::Reservation { name: r.name.clone(), asked, most, named });
        }
        why.map_or(Ok(()), |why| Err(Refusal::NodeConfiguration(why.into())))
    }

    /// The reservation that a job starting now on these nodes runs in: one that it asked for, else a magnetic one.
    pub(in crate::decide) fn reservation_used(
        &self,
        job: &Job,
        nodes: &[&str],
        now: Timestamp,
    ) -> Result<Option<String>, Refusal> {
        let open = |r: &Reservation| {
            let begun = r.has(Flag::Flex) || r.is_active(now);
            begun && r.admits(&job.spec.owner, &job.account)
        };
        if let Some(asked) = job.spec.request().reservation.as_deref() {
            let mut usable = split_names(asked).filter_map(|name| self.reservations.get(name));
            let used = usable.find(|r| {
                let inside = |node: &&str| r.nodes.iter().any(|own| own == node);
                let anywhere = r.has(Flag::Flex) || !r.has_nodes();
                open(r) && (anywhere || nodes.first().is_some_and(inside))
            });
            return match used {
                Some(r) => Ok(Some(r.name.clone())),
                None => Err(Refusal::InvalidReservation(asked.to_owned())),
            };
        }
        let drawn = self.reservations.values().find(|r| {
            let inside = |node: &&str| r.nodes.iter().any(|own| own == node);
            r.has(Flag::Magnetic) && open(r) && nodes.iter().all(inside)
        });
        Ok(drawn.map(|r| r.name.clone()))
    }

    /// When a job that runs into a reservation must end, by the reservation's maximum start delay.
    pub(in crate::decide) fn must_end_by(
        &self,
        job: &Job,
        nodes: &[&str],
        now: Timestamp,
    ) -> Option<Timestamp> {
        job.spec.signal.filter(|signal| signal.overlaps)?;
        let of = |r: &Arc<Reservation>| {
            let delay = Duration::from_secs(u64::from(r.max_start_delay_s?));
            Some(next_window(r, now)? + delay)
        };
        self.whole_reservations_of_others(job, nodes).filter_map(of).min()
    }

    /// When the first of these nodes is reserved for others.
    pub(in crate::decide) fn reserved_for_others_from(
        &self,
        job: &Job,
        nodes: &[&str],
        now: Timestamp,
    ) -> Option<Timestamp> {
        let others = self.whole_reservations_of_others(job, nodes);
        others.filter_map(|r| next_window(r, now)).min()
    }

    /// Reservations of whole nodes among these that the job has no part in.
    fn whole_reservations_of_others<'s>(
        &'s self,
        job: &'s Job,
        nodes: &'s [&'s str],
    ) -> impl Iterator<Item = &'s Arc<Reservation>> {
        let asked = job.spec.request().reservation.as_deref().unwrap_or_default();
        self.reservations.values().filter(move |r| {
            let here = || r.nodes.iter().any(|node| nodes.contains(&node.as_str()));
            let own = split_names(asked).any(|name| name == r.name);
            let drawn = r.has(Flag::Magnetic) && r.admits(&job.spec.owner, &job.account);
            r.has_nodes() && r.cores.is_empty() && !own && !drawn && here()
        })
    }

    /// Refuses nodes that are reserved for others now: a reservation may be newer than the plan.
    pub(in crate::decide) fn check_not_reserved(
        &self,
        job: &Job,
        nodes: &[&str],
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let asked = job.spec.request().reservation.as_deref().unwrap_or_default();
        let others = self.reservations.values().filter(|r| {
            let whole = r.has_nodes() && r.cores.is_empty();
            let own = split_names(asked).any(|name| name == r.name);
            let drawn = r.has(Flag::Magnetic) && r.admits(&job.spec.owner, &job.account);
            whole && !own && !drawn && r.is_active(now)
        });
        // A node that several reservations share is open to the users of each.
        let of_own = |node: &str| {
            let mut own = split_names(asked).filter_map(|name| self.reservations.get(name));
            own.any(|r| r.nodes.iter().any(|n| n == node))
        };
        let mut kept = others.flat_map(|r| &r.nodes);
        if kept.any(|node| nodes.contains(&node.as_str()) && !of_own(node)) {
            Err(Refusal::NoCapacityNow)
        } else {
            Ok(())
        }
    }
}

/// The beginning of a reservation's next window; the present one has admitted who runs in it.
fn next_window(reservation: &Reservation, now: Timestamp) -> Option<Timestamp> {
    let windows = reservation.windows(now, 2);
    windows.into_iter().map(|(start, _)| start).find(|start| *start > now)
}
