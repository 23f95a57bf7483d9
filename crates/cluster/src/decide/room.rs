//! Whether the server has room for what a user asks it to hold: one user cannot fill its memory or its disk, and a part of
//! both is kept for root and operators.

use crate::authorise::{Act, authorise};
use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use crate::state::held_bytes::{Bytes, json_bytes, step_bytes};
use crate::state::job::Job;
use model::array::ArraySpec;
use model::bounds::{self, Bound};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::{JobSpec, Step};

/// An eighth of what all jobs may hold is kept for root and operators.
const RESERVED_PART: u64 = 8;

impl State {
    pub(super) fn check_room_for_job(
        &self,
        spec: &JobSpec,
        array: Option<&ArraySpec>,
        context: &Context,
    ) -> Result<(), Refusal> {
        let (of_user, of_all) = self.held_bytes.new_blobs(spec);
        let with = |text| (Bytes { text, blobs: of_user }, Bytes { text, blobs: of_all });
        // A request has a bound of its own: far from the other bounds nothing need be measured.
        let most = bounds::REQUEST_BYTES.most as u64;
        self.check_room(&spec.owner, with(most), context).or_else(|_| {
            let ranges = array.map_or(0, |array| json_bytes(&array.indices));
            self.check_room(&spec.owner, with(json_bytes(spec) + ranges), context)
        })
    }

    /// Each changed job gets a specification of its own.
    pub(super) fn check_room_for_changes(
        &self,
        job: &Job,
        events: &[Event],
        context: &Context,
    ) -> Result<(), Refusal> {
        let added = |event: &Event| match event {
            Event::Changed { fields, .. } => Some(json_bytes(fields)),
            _ => None,
        };
        let fields: Vec<u64> = events.iter().filter_map(added).collect();
        if fields.is_empty() {
            return Ok(());
        }
        let shared = if fields.len() > 1 { json_bytes(&*job.spec) } else { 0 };
        let text = fields.iter().map(|bytes| bytes + shared).sum();
        self.check_room_for_text(job, text, context)
    }

    pub(super) fn check_room_for_step(
        &self,
        job: &Job,
        step: &Step,
        context: &Context,
    ) -> Result<(), Refusal> {
        self.check_room_for_text(job, step_bytes(step), context)
    }

    fn check_room_for_text(&self, job: &Job, text: u64, context: &Context) -> Result<(), Refusal> {
        let more = Bytes { text, blobs: 0 };
        self.check_room(&job.spec.owner, (more, more), context)
    }

    /// `more` is what the user would hold besides, and what all would.
    fn check_room(
        &self,
        owner: &Principal,
        (more_of_user, more): (Bytes, Bytes),
        context: &Context,
    ) -> Result<(), Refusal> {
        let operates = authorise(self, &context.by, Act::Operate).is_ok();
        let of_user = self.held_bytes.of_user(owner.uid);
        let of_all = self.held_bytes.of_all();
        let user = &owner.name;
        if !operates {
            let said = |bound: Bound| format!("user {user}: {}", bound.what);
            within(of_user.text + more_of_user.text, bounds::USER_TEXT_BYTES, 0, said)?;
            within(of_user.blobs + more_of_user.blobs, bounds::USER_BLOB_BYTES, 0, said)?;
        }
        let reserved = |bound: Bound| if operates { 0 } else { bound.most as u64 / RESERVED_PART };
        for (bytes, bound) in [
            (of_all.text + more.text, bounds::ALL_TEXT_BYTES),
            (of_all.blobs + more.blobs, bounds::ALL_BLOB_BYTES),
        ] {
            within(bytes, bound, reserved(bound), |bound| bound.what.to_owned())?;
        }
        Ok(())
    }
}

fn within(
    bytes: u64,
    bound: Bound,
    reserved: u64,
    what: impl Fn(Bound) -> String,
) -> Result<(), Refusal> {
    let most = bound.most as u64 - reserved;
    if bytes <= most {
        return Ok(());
    }
    let kept = if reserved > 0 { ", the rest is kept for root and operators" } else { "" };
    Err(Refusal::Other(format!("{}: {bytes} bytes: expected at most {most}{kept}", what(bound))))
}
