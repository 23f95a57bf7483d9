//! `squeue -s`: the steps that run, one a line.

use crate::output::Moment;
use crate::output::table::format::{Format, column};
use crate::output::text::{job_text, push};
use model::run::Step;
use model::time::push_elapsed;
use std::fmt::Write;
use wire::view::JobView;

pub const DEFAULT_FORMAT: &str = "%.15i %.8j %.9P %.8u %.9M %N";

struct StepRow<'a> {
    job: &'a JobView,
    step: &'a Step,
    moment: Moment<'a>,
}

pub struct StepField {
    letter: Option<char>,
    name: &'static str,
    header: &'static str,
    render: fn(&StepRow<'_>, &mut String),
}

column!(StepField);

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    render: fn(&StepRow<'_>, &mut String),
) -> StepField {
    StepField { letter: Some(letter), name, header, render }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static STEP_FIELDS: &[StepField] = &[
    field('A', "NumTasks", "NTASKS", |r, c| push!(c, "{}", r.step.tasks)),
    field('b', "tres-per-node", "TRES_PER_NODE", |_, c| c.push_str("N/A")),
    field('C', "NumCPUs", "CPUS", |r, c| push!(c, "{}", r.step.cpus)),
    field('i', "StepID", "STEPID", |r, c| { job_text::push_id(c, r.job, None); push!(c, ".{}", r.step.id) }),
    field('j', "StepName", "NAME", |r, c| c.push_str(&r.step.name)),
    field('l', "TimeLimit", "TIME_LIMIT", |_, c| c.push_str("UNLIMITED")),
    field('M', "TimeUsed", "TIME", |r, c| push_elapsed(c, elapsed_s(r))),
    field('N', "Nodes", "NODELIST", |r, c| c.push_str(&model::hostlist::compress(&r.step.nodes))),
    field('P', "Partition", "PARTITION", |r, c| c.push_str(&r.job.partition)),
    field('S', "StartTime", "START_TIME", |r, c| c.push_str(&r.moment.iso(r.step.start))),
    field('t', "StepState", "STATE", |_, c| c.push_str("RUNNING")),
    field('u', "UserName", "USER", |r, c| c.push_str(&r.job.spec.owner.name)),
    field('U', "UserID", "USER", |r, c| push!(c, "{}", r.job.spec.owner.uid)),
];

fn elapsed_s(row: &StepRow<'_>) -> u64 {
    row.moment.now.since(row.step.start).as_secs()
}

/// Writes the line of one step, which breaks off once all is longer than `most`.
pub fn push(
    most: usize,
    out: &mut String,
    cell: &mut String,
    format: &Format<StepField>,
    job: &JobView,
    step: &Step,
    moment: Moment<'_>,
) {
    let row = StepRow { job, step, moment };
    format.push_within(most, out, cell, |field, cell| (field.render)(&row, cell));
}
