//! Whether the server has room for what a user asks it to hold: one user cannot fill its memory or its disk, and a part of
//! both is kept for root and operators.

use crate::authorise::{Act, authorise};
use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use crate::state::held_bytes::{Held, step_bytes};
use crate::state::job::Job;
use model::array::ArraySpec;
use model::bounds::{self, Bound};
use model::change::JobField;
use model::principal::Principal;
use model::reason::Refusal;
use model::run::{JobSpec, Step};

/// An eighth of what all jobs may hold is kept for root and operators.
const RESERVED_PART: u64 = 8;

/// What a range of an array's indices takes, in the job and in its run.
const RANGE_BYTES: u64 = 64;

impl State {
    pub(super) fn check_room_for_job(
        &self,
        spec: &JobSpec,
        array: Option<&ArraySpec>,
        context: &Context,
    ) -> Result<(), Refusal> {
        let mut more = self.held_bytes.added_by(spec);
        more.text += array.map_or(0, |array| RANGE_BYTES * array.indices.range_count() as u64);
        let tasks = array.map_or(0, |array| array.indices.len());
        more.lookups = spec.dependency.as_ref().map_or(0, |dependency| dependency.lookups(tasks));
        self.check_room(&spec.owner, more, context)
    }

    pub(super) fn check_room_for_changes(
        &self,
        job: &Job,
        events: &[Event],
        context: &Context,
    ) -> Result<(), Refusal> {
        let fields = events.iter().filter_map(|event| match event {
            Event::Changed { fields, .. } => Some(fields),
            _ => None,
        });
        let fields: Vec<&JobField> = fields.flatten().collect();
        let text: u64 = fields.iter().map(|field| field_bytes(field)).sum();
        let tasks = job.pending.as_ref().map_or(0, |pending| pending.indices.len());
        let lookups = fields.iter().map(|field| match field {
            JobField::Dependency(dependency) => {
                dependency.as_ref().map_or(0, |dependency| dependency.lookups(tasks))
            }
            _ => 0,
        });
        let more = Held { text, blobs: 0, lookups: lookups.sum() };
        self.check_room(&job.spec.owner, more, context)
    }

    pub(super) fn check_room_for_step(
        &self,
        job: &Job,
        step: &Step,
        context: &Context,
    ) -> Result<(), Refusal> {
        let more = Held { text: step_bytes(step), ..Held::default() };
        self.check_room(&job.spec.owner, more, context)
    }

    fn check_room(&self, owner: &Principal, more: Held, context: &Context) -> Result<(), Refusal> {
        let of_user = self.held_bytes.of_user(owner.uid);
        let of_all = self.held_bytes.of_all();
        let operates = authorise(self, &context.by, Act::Operate).is_ok();
        if !operates {
            let said = |bound: Bound| format!("user {}: {}", owner.name, bound.what);
            within(of_user.text + more.text, bounds::USER_TEXT_BYTES, 0, said)?;
            within(of_user.blobs + more.blobs, bounds::USER_BLOB_BYTES, 0, said)?;
            let (bound, more) = (bounds::USER_DEPENDENCIES, more.lookups);
            lookups_within(of_user.lookups, more, bound, 0, said)?;
        }
        let bound = bounds::ALL_DEPENDENCIES;
        let reserved = if operates { 0 } else { bound.most as u64 / RESERVED_PART };
        let said = |bound: Bound| bound.what.to_owned();
        lookups_within(of_all.lookups, more.lookups, bound, reserved, said)?;
        for (bytes, bound) in [
            (of_all.text + more.text, bounds::ALL_TEXT_BYTES),
            (of_all.blobs + more.blobs, bounds::ALL_BLOB_BYTES),
        ] {
            let reserved = if operates { 0 } else { bound.most as u64 / RESERVED_PART };
            within(bytes, bound, reserved, |bound| bound.what.to_owned())?;
        }
        Ok(())
    }
}

/// At least what a field adds to its job.
pub(super) fn field_bytes(field: &JobField) -> u64 {
    format!("{field:?}").len() as u64
}

/// What adds none is not refused for those that are there.
fn lookups_within(
    held: u64,
    more: u64,
    bound: Bound,
    reserved: u64,
    what: impl Fn(Bound) -> String,
) -> Result<(), Refusal> {
    let (wanted, most) = (held.saturating_add(more), bound.most as u64 - reserved);
    if more == 0 || wanted <= most {
        return Ok(());
    }
    Err(Refusal::Other(format!("{}: {wanted}: expected at most {most}", what(bound))))
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
