//! The order of `squeue`'s lines: `-S P,t,-p`.

use super::format::Column;
use super::squeue_fields::{JOB_FIELDS, JobField, JobRow};
use crate::words;
use model::time::TimeLimit;
use std::borrow::Cow;
use std::cmp::Reverse;

/// Partition, then state by its compact word, then the highest priority first.
pub const DEFAULT: &str = "P,t,-p";
/// `--start`: whoever starts first.
pub const BY_START: &str = "S";

/// A letter that no column has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid sort specification: {0}")]
pub struct BadSort(pub String);

/// What lines are compared by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
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

/// Letters with an optional `+` or `-` before each; commas may stand between.
pub fn parse(text: &str) -> Result<Vec<SortBy>, BadSort> {
    let mut keys = Vec::new();
    let mut descending = false;
    for letter in text.chars().filter(|c| *c != ',' && !c.is_whitespace()) {
        match letter {
            '+' => descending = false,
            '-' => descending = true,
            letter => {
                let field = JOB_FIELDS.iter().find(|field| field.letter() == Some(letter));
                let field = field.ok_or_else(|| BadSort(letter.to_string()))?;
                keys.push(SortBy { field, letter, descending });
                descending = false;
            }
        }
    }
    Ok(keys)
}

/// Sorts by the keys in turn; what is still equal is in the order of the ids.
pub fn sort(rows: &mut Vec<JobRow<'_>>, keys: &[SortBy]) {
    let mut decorated: Vec<_> = rows
        .drain(..)
        .map(|row| (keys.iter().map(|by| key(&row, *by)).collect::<Vec<_>>(), row))
        .collect();
    decorated.sort_by(|(a_keys, a), (b_keys, b)| {
        let mut by_keys = keys
            .iter()
            .zip(a_keys.iter().zip(b_keys))
            .map(|(by, (a, b))| if by.descending { b.cmp(a) } else { a.cmp(b) });
        by_keys.find(|ordering| ordering.is_ne()).unwrap_or_else(|| id(a).cmp(&id(b)))
    });
    rows.extend(decorated.into_iter().map(|(_, row)| row));
}

/// An array's tasks are beside each other; what still waits stands before what has its own record.
fn id(row: &JobRow<'_>) -> (u32, u32) {
    let array = row.job.array.as_ref();
    let task = row.task.or(array.and_then(|array| array.index));
    (array.map_or(row.job.id, |array| array.array).0, task.unwrap_or(0))
}

fn key<'a>(row: &JobRow<'a>, by: SortBy) -> Key<'a> {
    let job = row.job;
    let request = job.spec.request();
    // A time that is not known is after all that are.
    let time = |t: Option<model::time::Timestamp>| t.map_or(i64::MAX, |t| t.millis());
    let limit = match job.time_limit {
        TimeLimit::Minutes(minutes) => i64::from(minutes) * 60,
        TimeLimit::Unlimited => i64::MAX,
    };
    let used = job.elapsed_s(row.moment.now) as i64;
    let number = match by.letter {
        'A' => i64::from(job.id.0),
        'i' | 'F' | 'K' => {
            let (array, task) = id(row);
            i64::from(array) << 32 | i64::from(task)
        }
        'C' => i64::from(job.cpus),
        'D' => i64::from(super::job_text::node_count(job)),
        'd' => request.disk.map_or(0, |disk| disk.mib() as i64),
        'G' => i64::from(job.spec.owner.gid),
        'l' => limit,
        'L' => limit.saturating_sub(used),
        'M' => used,
        'p' | 'Q' => i64::try_from(job.priority).unwrap_or(i64::MAX),
        'S' => time(job.start),
        'e' => time(job.end),
        'V' => time(Some(job.submit)),
        'U' => i64::from(job.spec.owner.uid),
        'y' => i64::from(job.spec.nice),
        'P' => return Key::Text(Cow::Borrowed(&job.partition)),
        't' => return Key::Text(Cow::Borrowed(words::job::compact(job.state))),
        'T' => return Key::Text(Cow::Borrowed(words::job::long(job.state))),
        'u' => return Key::Text(Cow::Borrowed(&job.spec.owner.name)),
        _ => {
            let mut text = String::new();
            (by.field.render)(row, &mut text);
            return Key::Text(Cow::Owned(text));
        }
    };
    Key::Number(number)
}

/// Highest first, for listings that have no specification: `--priority`.
pub fn by_priority(rows: &mut [JobRow<'_>]) {
    rows.sort_by_key(|row| (Reverse(row.job.priority), id(row)));
}
