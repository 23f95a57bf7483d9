//! Reservations: created, changed and removed by operators.

mod expiry;
mod jobs;
mod nodes;

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, Reply};
use crate::event::Event;
use crate::state::State;
use crate::state::job::Job;
use model::partition::Access;
use model::reason::Refusal;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::reservation_request::{
    DurationEdit, MixedAccess, NamesEdit, ReservationRefusal as Why, ReservationRequest,
};
use model::time::Timestamp;
use std::time::Duration;

/// How far a start may lie in the past: a client's `now` arrives a little later.
const PAST_MAX: Duration = Duration::from_secs(60);

/// How long a reservation without an end lasts.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The most reservations: every plan considers each.
const RESERVATIONS_MAX: usize = 1_000;

const RECURRING: [Flag; 5] =
    [Flag::Hourly, Flag::Daily, Flag::Weekday, Flag::Weekend, Flag::Weekly];

pub(super) fn refused(why: Why) -> Refusal {
    Refusal::Reservation(why)
}

impl State {
    pub(super) fn decide_create_reservation(
        &self,
        ask: &ReservationRequest,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        if self.reservations.len() >= RESERVATIONS_MAX {
            let text = format!("there are {RESERVATIONS_MAX} reservations already");
            return Err(Refusal::Other(text));
        }
        let id = self.last_reservation + 1;
        let name = match &ask.name {
            Some(name) if self.reservations.contains_key(name) => {
                return Err(refused(Why::Duplicate(name.clone())));
            }
            Some(name) => name.clone(),
            None => self.generated_name(ask, id),
        };
        let utc_offset_s = self.config.parameters.priority.utc_offset_s;
        let blank = Reservation { name: name.clone(), id, utc_offset_s, ..Reservation::default() };
        let reservation = self.reservation_as_asked(blank, ask, true, context.now)?;
        let events = vec![Event::ReservationSet(Box::new(reservation))];
        Ok(Decision { events, reply: Reply::ReservationCreated { name } })
    }

    /// `alice_3`: the first user, account or group that is named, and the reservation's number.
    fn generated_name(&self, ask: &ReservationRequest, id: u32) -> String {
        let lists = [&ask.users, &ask.accounts, &ask.groups];
        let first = lists.into_iter().flatten().flat_map(NamesEdit::plain).next();
        let first = first.unwrap_or("reservation");
        // One of these names is free: there are more of them than reservations.
        let mut candidates = (id..).map(|number| format!("{first}_{number}"));
        let free = candidates.find(|name| !self.reservations.contains_key(name));
        free.unwrap_or_else(|| first.to_owned())
    }

    pub(super) fn decide_update_reservation(
        &self,
        name: &str,
        ask: &ReservationRequest,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        let known = self.reservations.get(name);
        let known = known.ok_or_else(|| Refusal::InvalidReservation(name.to_owned()))?;
        let mut changed = Reservation::clone(known);
        if ask.skip {
            let next = known.windows(context.now, 2).get(1).copied().filter(|_| known.recurs());
            let (start, end) = next.ok_or_else(|| refused(Why::NotRecurring))?;
            (changed.start, changed.end) = (start, end);
        }
        let changed = self.reservation_as_asked(changed, ask, false, context.now)?;
        if changed == **known {
            return Ok(Decision::default());
        }
        Ok(vec![Event::ReservationSet(Box::new(changed))].into())
    }

    pub(super) fn decide_remove_reservation(
        &self,
        name: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let known = self.reservations.get(name);
        let by_user = known.is_some_and(|known| {
            known.has(Flag::UserDelete) && known.admits(&context.by, &self.default_account(context))
        });
        if !by_user {
            authorise(self, &context.by, Act::Operate)?;
        }
        if known.is_none() {
            return Err(Refusal::InvalidReservation(name.to_owned()));
        }
        if self.jobs_of_reservation(name).next().is_some() {
            return Err(refused(Why::InUse));
        }
        Ok(vec![Event::ReservationRemoved { name: name.to_owned() }].into())
    }

    /// The caller's default account.
    fn default_account(&self, context: &Context) -> String {
        let of_user =
            |a: &&model::account::Association| a.user.as_deref() == Some(context.by.name.as_str());
        let mut own = self.associations.iter().filter(of_user);
        let default = own.clone().find(|a| a.default).or_else(|| own.next());
        default.map(|a| a.account.clone()).unwrap_or_default()
    }

    /// Jobs that have not ended and run in the reservation, or ask for it.
    pub(super) fn jobs_of_reservation<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Job> {
        let jobs = self.jobs.values().map(AsRef::as_ref);
        jobs.filter(move |job: &&Job| {
            !job.has_ended() && job.reservation_names().any(|own| own == name)
        })
    }

    /// The reservation with all that was asked; refused if part of it cannot be.
    fn reservation_as_asked(
        &self,
        mut r: Reservation,
        ask: &ReservationRequest,
        is_new: bool,
        now: Timestamp,
    ) -> Result<Reservation, Refusal> {
        set_flags(&mut r, ask, is_new)?;
        set_times(&mut r, ask, is_new, now)?;
        self.set_users(&mut r, ask)?;
        if let Some(name) = &ask.partition {
            self.partition(name).ok_or_else(|| Refusal::UnknownPartition(name.clone()))?;
            r.partition = Some(name.clone());
        }
        if let Some(delay) = ask.max_start_delay_s {
            r.max_start_delay_s = Some(delay).filter(|delay| *delay > 0);
        }
        if let Some(features) = &ask.features {
            // Other features would mean other nodes.
            if !is_new && !features.is_empty() {
                return Err(refused(Why::Flags));
            }
            r.features = Some(features.clone()).filter(|features| !features.is_empty());
        }
        self.set_licenses(&mut r, ask, now)?;
        self.set_nodes(&mut r, ask, is_new, now)?;
        Ok(r)
    }

    fn set_users(&self, r: &mut Reservation, ask: &ReservationRequest) -> Result<(), Refusal> {
        if let Some(users) = &ask.users {
            let first = || users.names.first().cloned().unwrap_or_default();
            let edited = users.edited(r.users.as_ref());
            r.users = edited.map_err(|MixedAccess| refused(Why::User(first())))?;
        }
        if let Some(accounts) = &ask.accounts {
            let unknown = accounts.plain().find(|name| !self.accounts.contains_key(*name));
            if let Some(name) = unknown {
                return Err(Refusal::InvalidAccount(Some(name.to_owned())));
            }
            let edited = accounts.edited(r.accounts.as_ref());
            r.accounts = edited.map_err(|MixedAccess| Refusal::InvalidAccount(None))?;
        }
        if let Some(groups) = &ask.groups {
            let before = r.groups.iter().map(|(name, _)| name.clone()).collect();
            let before = Some(Access::Only(before)).filter(|_| !r.groups.is_empty());
            let kept = match groups.edited(before.as_ref()) {
                Ok(None) => Vec::new(),
                Ok(Some(Access::Only(names))) => names,
                // Groups can be admitted, and not excluded.
                _ => return Err(refused(Why::Group(groups.names.join(",")))),
            };
            let number = |name: &String| {
                let known = r.groups.iter().chain(&ask.group_ids).find(|(known, _)| known == name);
                known.cloned().ok_or_else(|| refused(Why::Group(name.clone())))
            };
            r.groups = kept.iter().map(number).collect::<Result<_, _>>()?;
        }
        if r.users.is_some() && !r.groups.is_empty() {
            return Err(refused(Why::UsersAndGroups));
        }
        if r.users.is_none() && r.groups.is_empty() && r.accounts.is_none() {
            Err(refused(Why::Nobody))
        } else {
            Ok(())
        }
    }

    fn set_licenses(
        &self,
        r: &mut Reservation,
        ask: &ReservationRequest,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if let Some(licenses) = &ask.licenses {
            r.licenses.clone_from(licenses);
        }
        for (name, count) in &r.licenses {
            let total = self.config.parameters.licenses.get(name).copied().unwrap_or(0);
            let others = self.reservations.values().filter(|other| other.name != r.name);
            let meeting = others.filter(|other| overlap_in_time(other, r, now));
            let kept: u64 = meeting.map(|other| licenses_named(&other.licenses, name)).sum();
            if u64::from(*count) + kept > total {
                return Err(Refusal::UnknownLicense(name.clone()));
            }
        }
        Ok(())
    }
}

/// How many of this license a list names.
pub(crate) fn licenses_named(list: &[(String, u32)], name: &str) -> u64 {
    list.iter().filter(|(own, _)| own == name).map(|(_, count)| u64::from(*count)).sum()
}

/// The most windows of a recurring reservation that are compared with another's.
const WINDOWS_MAX: usize = 64;

/// Whether a window of one reservation overlaps one of the other.
pub(super) fn overlap_in_time(a: &Reservation, b: &Reservation, now: Timestamp) -> bool {
    let (a, b) = (a.windows(now, WINDOWS_MAX), b.windows(now, WINDOWS_MAX));
    a.iter().any(|(start, end)| b.iter().any(|(from, to)| start < to && from < end))
}

fn set_flags(r: &mut Reservation, ask: &ReservationRequest, is_new: bool) -> Result<(), Refusal> {
    let floated = r.has(Flag::TimeFloat);
    if let Some(flags) = &ask.flags {
        r.flags = flags.edited(&r.flags);
    }
    if r.has(Flag::PurgeComp) {
        r.purge_after_s = ask.purge_after_s.or(r.purge_after_s).or(Some(300));
    } else {
        (r.purge_after_s, r.idle_since) = (None, None);
    }
    let recurring = RECURRING.iter().filter(|flag| r.has(**flag)).count();
    let floats = r.has(Flag::TimeFloat);
    let changed = !is_new && floats != floated;
    if (floats && recurring > 0) || recurring > 1 || changed {
        Err(refused(Why::Flags))
    } else {
        Ok(())
    }
}

fn set_times(
    r: &mut Reservation,
    ask: &ReservationRequest,
    is_new: bool,
    now: Timestamp,
) -> Result<(), Refusal> {
    if ask.start.is_none() && ask.end.is_none() && ask.duration.is_none() && !is_new {
        return Ok(());
    }
    let wrong = || refused(Why::Time);
    let length = r.end.since(r.start);
    if let Some(start) = ask.start {
        if !is_new && r.is_active(now) && start != r.start {
            return Err(refused(Why::Started));
        }
        if start + PAST_MAX < now {
            return Err(wrong());
        }
        // A moved start keeps the duration.
        (r.start, r.end) = (start, start + length);
    }
    let minutes = |count: u32| Duration::from_secs(60 * u64::from(count));
    match (ask.end, ask.duration) {
        (Some(end), _) => r.end = end,
        (None, Some(DurationEdit::Set(limit))) => {
            let limit = limit.zero_is_unlimited();
            r.end = r.start + limit.duration().unwrap_or(UNLIMITED);
        }
        (None, Some(DurationEdit::AddMin(count))) => r.end = r.end + minutes(count),
        (None, Some(DurationEdit::SubtractMin(count))) => {
            r.end = Timestamp(r.end.0.saturating_sub(minutes(count).as_millis() as i64));
        }
        (None, None) if is_new => return Err(wrong()),
        (None, None) => {}
    }
    if is_new && ask.start.is_none() || r.end <= r.start || r.end <= now {
        return Err(wrong());
    }
    r.ahead_ms = r.has(Flag::TimeFloat).then(|| (r.start.0 - now.0).max(0));
    Ok(())
}
