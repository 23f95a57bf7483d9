//! The order of `squeue`'s lines: `-S P,t,-p`.

use super::fields::{JOB_FIELDS, JobField, JobRow};
use crate::output::table::sort_keys::{self, BadSort};
use crate::output::text::job_text;
use crate::words;
use model::time::TimeLimit;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Partition, then state by its compact word, then the highest priority first.
pub const DEFAULT: &str = "P,t,-p";
/// `--start`: the job that starts first comes first.
pub const BY_START: &str = "S";
/// `--priority`: the highest first.
pub const BY_PRIORITY: &str = "-p";

/// The value that lines are compared by.
enum SortValue<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

/// One letter of a sort specification.
#[derive(Clone, Copy)]
pub struct SortBy {
    pub field: &'static JobField,
    letter: char,
    descending: bool,
}

/// Reads `-S`. A letter that is named again is ignored.
pub fn parse(text: &str) -> Result<Vec<SortBy>, BadSort> {
    let mut keys: Vec<SortBy> = Vec::new();
    for (field, letter, descending) in sort_keys::parse(JOB_FIELDS, text)? {
        if keys.iter().all(|by| by.letter != letter) {
            keys.push(SortBy { field, letter, descending });
        }
    }
    Ok(keys)
}

/// The order of lines that come one by one: by the keys in turn, and then by job id.
///
/// All keys are numbers. A text is numbered when it is first seen. [`JobOrder::finish`] replaces that number with its rank.
pub struct JobOrder {
    by: Vec<SortBy>,
    /// The texts of each key, with their numbers.
    texts: Vec<BTreeMap<Box<str>, i64>>,
    /// The keys of the first line, then those of the second, and so on.
    keys: Vec<i64>,
    ids: Vec<(u32, u32)>,
}

impl JobOrder {
    pub fn new(by: &[SortBy]) -> Self {
        let texts = vec![BTreeMap::new(); by.len()];
        Self { by: by.to_vec(), texts, keys: Vec::new(), ids: Vec::new() }
    }

    pub fn expect(&mut self, lines: usize) {
        self.keys.reserve(lines * self.by.len());
        self.ids.reserve(lines);
    }

    pub fn push(&mut self, row: &JobRow<'_>) {
        for (by, texts) in self.by.iter().zip(&mut self.texts) {
            self.keys.push(match key(row, *by) {
                SortValue::Number(number) => number,
                SortValue::Text(text) => match texts.get(&*text) {
                    Some(number) => *number,
                    None => {
                        let number = texts.len() as i64;
                        texts.insert(text.into(), number);
                        number
                    }
                },
            });
        }
        self.ids.push(id(row));
    }

    /// The lines in their order; `None` if they came in it.
    pub fn finish(mut self) -> Option<Vec<usize>> {
        let width = self.by.len();
        for (at, (by, texts)) in self.by.iter().zip(&self.texts).enumerate() {
            let mut ranks = vec![0; texts.len()];
            for (rank, number) in texts.values().enumerate() {
                ranks[*number as usize] = rank as i64;
            }
            for key in self.keys.iter_mut().skip(at).step_by(width) {
                let ranked = if texts.is_empty() { *key } else { ranks[*key as usize] };
                *key = if by.descending { !ranked } else { ranked };
            }
        }
        let of = |line: usize| (&self.keys[line * width..][..width], self.ids[line]);
        if (1..self.ids.len()).all(|line| of(line - 1) <= of(line)) {
            return None;
        }
        let mut lines: Vec<usize> = (0..self.ids.len()).collect();
        lines.sort_by(|a, b| of(*a).cmp(&of(*b)));
        Some(lines)
    }
}

/// The sort key of last resort. It keeps the tasks of an array together, with the pending tasks after those that have their
/// own record.
fn id(row: &JobRow<'_>) -> (u32, u32) {
    let Some(array) = &row.job.array else { return (row.job.id.0, 0) };
    (array.array.0, row.task.or(array.index).unwrap_or(u32::MAX))
}

fn key<'a>(row: &JobRow<'a>, by: SortBy) -> SortValue<'a> {
    let job = row.job;
    let request = job.spec.request();
    // An unknown time sorts after all known ones.
    let time = |t: Option<model::time::Timestamp>| t.map_or(i64::MAX, |t| t.millis());
    let limit = match job.time_limit {
        TimeLimit::Minutes(minutes) => i64::from(minutes) * 60,
        TimeLimit::Unlimited => i64::MAX,
    };
    let used = || job.elapsed_s(row.moment.now) as i64;
    let number = match by.letter {
        'A' => i64::from(job.id.0),
        'i' | 'F' | 'K' => {
            let (array, task) = id(row);
            i64::from(array) << 32 | i64::from(task)
        }
        'C' => i64::from(job.cpus),
        'D' => i64::from(job_text::node_count(job)),
        'd' => request.disk.map_or(0, |disk| disk.mib() as i64),
        'G' => i64::from(job.spec.owner.gid),
        'l' => limit,
        'L' => limit.saturating_sub(used()),
        'M' => used(),
        'p' | 'Q' => i64::try_from(job.priority).unwrap_or(i64::MAX),
        'S' => time(job.start),
        'e' => time(job.end),
        'V' => time(Some(job.submit)),
        'U' => i64::from(job.spec.owner.uid),
        'y' => i64::from(job.spec.nice),
        'P' => return SortValue::Text(Cow::Borrowed(&job.partition)),
        't' => return SortValue::Text(Cow::Borrowed(words::job::compact(job.state))),
        'T' => return SortValue::Text(Cow::Borrowed(words::job::long(job.state))),
        'u' => return SortValue::Text(Cow::Borrowed(&job.spec.owner.name)),
        _ => {
            let mut text = String::new();
            (by.field.render)(row, &mut text);
            return SortValue::Text(Cow::Owned(text));
        }
    };
    SortValue::Number(number)
}
