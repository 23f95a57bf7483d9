//! `sprio`: what the priorities of pending jobs are made of.

use crate::output::table::format::{Column, Format};
use crate::output::table::sort_keys::{self, BadSort};
use crate::output::text::push;
use model::priority::Weights;
use std::cmp::Ordering;
use std::fmt::Write;
use std::io;
use wire::view::{PrioritiesView, PriorityView};

/// The highest priority, which a normalized priority of 1 stands for.
const PRIORITY_MAX: f64 = u32::MAX as f64;

/// The options that shape the table.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub format: Option<String>,
    pub sort: Option<String>,
    pub no_header: bool,
    pub long: bool,
    /// `-n`: factors between 0 and 1.
    pub normalized: bool,
    /// `-w`: the weights and no jobs.
    pub weights: bool,
    /// Users were named, so the column of users is shown.
    pub users: bool,
}

/// A column, for jobs and for the line of weights.
pub struct Field {
    letter: char,
    header: &'static str,
    job: fn(&PriorityView, &Weights, &mut String),
    weight: fn(&Weights, &mut String),
    /// The sort key.
    key: fn(&PriorityView, &Weights) -> SortValue,
}

#[derive(Debug, PartialEq, PartialOrd)]
pub enum SortValue {
    Number(f64),
    Text(String),
}

impl Column for Field {
    fn letter(&self) -> Option<char> {
        Some(self.letter)
    }
    fn name(&self) -> &'static str {
        self.header
    }
    fn header(&self) -> &'static str {
        self.header
    }
}

fn nothing(_: &Weights, _: &mut String) {}

fn tres(job: &PriorityView, weights: &Weights, digits: usize, cell: &mut String) {
    let mut comma = "";
    for (kind, factor) in &job.factors.tres {
        let weight = weights.tres.iter().find(|(of, _)| of == kind).map_or(0.0, |(_, w)| *w);
        let value = if digits == 0 { factor * weight } else { *factor };
        if value > 0.0 {
            push!(cell, "{comma}{kind}={value:.digits$}");
            comma = ",";
        }
    }
}

fn tres_weights(weights: &Weights, cell: &mut String) {
    let each = weights.tres.iter().map(|(kind, weight)| format!("{kind}={weight:.0}"));
    cell.push_str(&each.collect::<Vec<_>>().join(","));
}

/// The site factor, with dstack's priority in it, which has no column of its own.
fn site(job: &PriorityView, weights: &Weights) -> f64 {
    job.factors.site as f64 + job.factors.dstack * f64::from(weights.dstack)
}

fn normal(job: &PriorityView) -> f64 {
    if job.set { job.sum } else { job.sum / PRIORITY_MAX }
}

/// The column of a factor times its weight.
macro_rules! weighted {
    ($letter:literal, $header:literal, $name:ident) => {
        Field {
            letter: $letter,
            header: $header,
            job: |j, w, c| push!(c, "{:.0}", j.factors.$name * f64::from(w.$name)),
            weight: |w, c| push!(c, "{}", w.$name),
            key: |j, w| SortValue::Number(j.factors.$name * f64::from(w.$name)),
        }
    };
}

/// The column of a factor between 0 and 1.
macro_rules! plain {
    ($letter:literal, $header:literal, $name:ident) => {
        Field {
            letter: $letter,
            header: $header,
            job: |j, _, c| push!(c, "{:.7}", j.factors.$name),
            weight: |w, c| push!(c, "{}", w.$name),
            key: |j, _| SortValue::Number(j.factors.$name),
        }
    };
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static FIELDS: [Field; 22] = [
    Field { letter: 'i', header: "JOBID", job: |j, _, c| push!(c, "{}", j.job), weight: |_, c| c.push_str("Weights"), key: |j, _| SortValue::Number(f64::from(j.job.0)) },
    Field { letter: 'r', header: "PARTITION", job: |j, _, c| c.push_str(&j.partition), weight: nothing, key: |j, _| SortValue::Text(j.partition.clone()) },
    Field { letter: 'u', header: "USER", job: |j, _, c| c.push_str(&j.user), weight: nothing, key: |j, _| SortValue::Text(j.user.clone()) },
    Field { letter: 'c', header: "CLUSTER", job: |_, _, c| c.push_str("(null)"), weight: nothing, key: |_, _| SortValue::Number(0.0) },
    Field { letter: 'Y', header: "PRIORITY", job: |j, _, c| push!(c, "{}", j.priority), weight: nothing, key: |j, _| SortValue::Number(j.priority as f64) },
    Field { letter: 'y', header: "PRIORITY", job: |j, _, c| push!(c, "{:.14}", normal(j)), weight: nothing, key: |j, _| SortValue::Number(j.priority as f64) },
    Field { letter: 'S', header: "SITE", job: |j, w, c| push!(c, "{:.0}", site(j, w)), weight: |_, c| c.push('1'), key: |j, w| SortValue::Number(site(j, w)) },
    weighted!('A', "AGE", age), plain!('a', "AGE", age),
    weighted!('B', "ASSOC", association), plain!('b', "ASSOC", association),
    weighted!('F', "FAIRSHARE", fair_share), plain!('f', "FAIRSHARE", fair_share),
    weighted!('J', "JOBSIZE", job_size), plain!('j', "JOBSIZE", job_size),
    weighted!('P', "PARTITION", partition), plain!('p', "PARTITION", partition),
    weighted!('Q', "QOS", qos), plain!('q', "QOS", qos),
    Field { letter: 'N', header: "NICE", job: |j, _, c| push!(c, "{}", j.factors.nice), weight: nothing, key: |j, _| SortValue::Number(j.factors.nice as f64) },
    Field { letter: 'T', header: "TRES", job: |j, w, c| tres(j, w, 0, c), weight: tres_weights, key: |_, _| SortValue::Number(0.0) },
    Field { letter: 't', header: "TRES", job: |j, w, c| tres(j, w, 2, c), weight: nothing, key: |_, _| SortValue::Number(0.0) },
];

/// The default columns. Only the long listing shows a factor that has no weight.
fn default_format(options: &Options, weights: &Weights) -> String {
    let tres = weights.tres.iter().any(|(_, weight)| *weight > 0.0);
    let user = options.long || options.users;
    let mut format = "%.15i %9r".to_owned();
    if user {
        format.push_str(" %.8u");
    }
    if options.normalized {
        format.push_str(" %10y");
    } else {
        format.push_str(" %.10Y %.10S");
    }
    let factors = [
        ('A', weights.age),
        ('B', weights.association),
        ('F', weights.fair_share),
        ('J', weights.job_size),
        ('P', weights.partition),
        ('Q', weights.qos),
    ];
    for (letter, weight) in factors {
        if weight > 0 || options.long {
            if options.normalized {
                push!(format, " %10{}", letter.to_ascii_lowercase());
            } else {
                push!(format, " %.10{letter}");
            }
        }
    }
    if options.long && !options.normalized {
        format.push_str(" %.11N");
    }
    if tres || options.long {
        format.push_str(if options.normalized { " %20t" } else { " %.20T" });
    }
    format
}

/// Sorts by the letters of `text`. Jobs with equal keys keep their order.
fn sort(jobs: &mut [&PriorityView], text: &str, weights: &Weights) -> Result<(), BadSort> {
    let keys = sort_keys::parse(&FIELDS, text)?;
    jobs.sort_by(|a, b| {
        let one = |(field, _, descending): &(&Field, char, bool)| {
            let order = (field.key)(a, weights).partial_cmp(&(field.key)(b, weights));
            let order = order.unwrap_or(Ordering::Equal);
            if *descending { order.reverse() } else { order }
        };
        keys.iter().map(one).find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
    });
    Ok(())
}

/// Prints the table. Returns the lines for standard error about unknown columns.
pub fn show(
    out: &mut impl io::Write,
    view: &PrioritiesView,
    jobs: &[&PriorityView],
    options: &Options,
) -> Result<Vec<String>, SprioError> {
    let weights = &view.weights;
    let text = options.format.clone().unwrap_or_else(|| default_format(options, weights));
    let mut format = Format::by_letter(&FIELDS, &text, "job");
    // Slurm drops the text after a letter that it does not know.
    for cell_format in format.cells.iter_mut().filter(|cell_format| cell_format.column.is_none()) {
        cell_format.suffix.clear();
    }
    let mut jobs = jobs.to_vec();
    sort(&mut jobs, options.sort.as_deref().unwrap_or("i"), weights)?;
    let (mut text, mut cell) = (String::new(), String::new());
    if !options.no_header {
        format.push_header(&mut text);
    }
    if options.weights {
        format.push_line(&mut text, &mut cell, |field, cell| (field.weight)(weights, cell));
    } else {
        for job in jobs {
            format.push_line(&mut text, &mut cell, |field, cell| (field.job)(job, weights, cell));
        }
    }
    out.write_all(text.as_bytes())?;
    Ok(format.warnings)
}

#[derive(Debug, thiserror::Error)]
pub enum SprioError {
    #[error(transparent)]
    Sort(#[from] BadSort),
    #[error(transparent)]
    Write(#[from] io::Error),
}

#[cfg(test)]
mod tests;
