//! The figures of a replay as tables.

use crate::command::verb::in_columns;
use ::sim::estimate_error::EstimateError;
use ::sim::kinds::KindWaits;
use ::sim::{BeyondLimits, Summary};

pub fn figures(nodes: usize, policy: &str, beyond: &BeyondLimits, figures: &Summary) -> String {
    let Summary { jobs, utilisation, mean_wait_s, max_wait_s, mean_bounded_slowdown, .. } = figures;
    let jobs = match figures.records_left_out {
        0 => jobs.to_string(),
        1 => format!("{jobs}, and 1 record without a run time or processors"),
        left_out => format!("{jobs}, and {left_out} records without a run time or processors"),
    };
    let left_out = match beyond.jobs {
        1 => format!("1 job that could never start, {}", beyond.first),
        many => format!("{many} jobs that could never start; the first, {}", beyond.first),
    };
    let left_out = Some(("left out", left_out)).filter(|_| beyond.jobs > 0);
    let rows = [
        ("jobs", jobs),
        ("nodes", nodes.to_string()),
        ("policy", policy.to_owned()),
        ("utilisation", format!("{:.1} %", 100.0 * utilisation)),
        ("mean wait", format!("{:.1} min", mean_wait_s / 60.0)),
        ("maximum wait", format!("{:.1} h", max_wait_s / 3600.0)),
        ("mean bounded slowdown", format!("{mean_bounded_slowdown:.1}")),
    ];
    let [jobs, others @ ..] = rows;
    let rows = std::iter::once(jobs).chain(left_out).chain(others);
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    in_columns(&rows.collect::<Vec<_>>())
}

/// The errors of start estimates, a line for each size of jobs.
pub fn estimates(errors: &[EstimateError]) -> String {
    let head = ["processors", "jobs that waited", "median error, min", "nine of ten within, min"];
    let row = |error: &EstimateError| {
        let EstimateError { processors_min, processors_max, jobs, .. } = error;
        let processors = match processors_max {
            Some(most) if most == processors_min => most.to_string(),
            Some(most) => format!("{processors_min}-{most}"),
            None => format!("{processors_min} or more"),
        };
        let minutes = |seconds: f64| format!("{:.1}", seconds / 60.0);
        let (median, most) = (error.median_s, error.ninetieth_percentile_s);
        [processors, jobs.to_string(), minutes(median), minutes(most)]
    };
    let rows = errors.iter().map(row);
    in_columns(&std::iter::once(head.map(str::to_owned)).chain(rows).collect::<Vec<_>>())
}

/// The waits of each kind of jobs, a line for each.
pub fn kinds(kinds: &[KindWaits]) -> String {
    let head = ["run time", "processors", "jobs", "mean wait, min", "slowdown", "maximum wait, h"];
    let time = |seconds: u32| match seconds {
        0..3_600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    };
    let row = |kind: &KindWaits| {
        let run = match (kind.run_s_min, kind.run_s_below) {
            (0, Some(below)) => format!("below {}", time(below)),
            (least, Some(below)) => format!("{} to {}", time(least), time(below)),
            (least, None) => format!("{} or more", time(least)),
        };
        let processors = match kind.processors_max {
            Some(most) => format!("{}-{most}", kind.processors_min),
            None => format!("{} or more", kind.processors_min),
        };
        [
            run,
            processors,
            kind.jobs.to_string(),
            format!("{:.1}", kind.mean_wait_s / 60.0),
            format!("{:.1}", kind.mean_bounded_slowdown),
            format!("{:.1}", kind.max_wait_s / 3600.0),
        ]
    };
    let rows = kinds.iter().map(row);
    in_columns(&std::iter::once(head.map(str::to_owned)).chain(rows).collect::<Vec<_>>())
}
