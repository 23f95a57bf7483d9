//! Many jobs in one answer: what jobs have in common travels once.
//!
//! A queue of ten thousand jobs holds a few dozen different requests. So a list is sent as those, and as rows that point
//! at them: `{"common":[…],"rows":[{"of":0,"id":12,…},…]}`. Both sides work with plain [`JobView`]s, which share what is
//! equal; neither holds all rows at once.

use crate::view::{ArrayView, JobExtras, JobView};
use foldhash::fast::RandomState;
use model::allocation::Allocation;
use model::id::{JobId, RunId};
use model::partition::DefaultMemory;
use model::range::Range;
use model::reason::Reason;
use model::run::{ExitStatus, HetComponent, Hold, JobSpec, JobState, Step, Usage};
use model::time::{TimeLimit, Timestamp};
use model::tres::Tres;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Jobs as they have come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobList(pub Vec<JobView>);

/// States once which fields of a [`JobView`] jobs share. It makes:
/// - `Common`, which holds those fields, and `Common::of` a job;
/// - `Key`, which tells one `Common` from another: by address where the value is shared memory, so that values that are
///   equal without being shared are sent twice, and nothing is lost by that; else by value;
/// - `whole`, which puts a job together again from its row and its `Common`.
///
/// The fields `of_first` are those of the first job that has the key; what `whole` does with them is said among its own.
macro_rules! shared_fields {
    (
        by_address { $($address:ident: $address_type:ty,)* }
        by_value { $($(#[$value_attr:meta])* $value:ident: $value_type:ty,)* }
        of_first { $($(#[$first_attr:meta])* $first:ident: $first_type:ty,)* }
        whole($row:ident, $common:ident) { $($own:ident: $own_value:expr,)* }
    ) => {
        #[derive(Serialize, Deserialize)]
        struct Common {
            $($address: $address_type,)*
            $($(#[$value_attr])* $value: $value_type,)*
            $($(#[$first_attr])* $first: $first_type,)*
        }

        #[derive(PartialEq, Eq, Hash)]
        struct Key {
            $($address: usize,)*
            $($value: $value_type,)*
        }

        impl Common {
            fn key(view: &JobView) -> Key {
                Key {
                    $($address: Arc::as_ptr(&view.$address).addr(),)*
                    $($value: view.$value,)*
                }
            }

            fn of(view: &JobView) -> Self {
                Self {
                    $($address: view.$address.clone(),)*
                    $($value: view.$value,)*
                    $($first: view.$first.clone(),)*
                }
            }
        }

        fn whole($row: Row<'_>, $common: &Common) -> JobView {
            JobView {
                $($address: $common.$address.clone(),)*
                $($value: $common.$value,)*
                $($own: $own_value,)*
            }
        }
    };
}

shared_fields! {
    by_address {
        spec: Arc<JobSpec>,
        partition: Arc<str>,
        account: Arc<str>,
        qos: Arc<str>,
        tres: Arc<Tres>,
    }
    by_value {
        time_limit: TimeLimit,
        nodes: Range<u32>,
        cpus: u32,
        tasks: u32,
        state: JobState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<Hold>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_memory: Option<DefaultMemory>,
    }
    of_first {
        reason: Reason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_planned: Option<Timestamp>,
    }
    whole(row, common) {
        id: row.id,
        run: row.run,
        name: row.name,
        array: row.array.map(|array| Box::new(array.into_owned())),
        het: row.het,
        reason: row.reason.map_or_else(|| common.reason.clone(), Cow::into_owned),
        priority: row.priority,
        submit: row.submit,
        eligible: row.eligible,
        start: row.start,
        end: row.end,
        restarts: row.restarts,
        exit: row.exit,
        derived_exit: row.derived_exit,
        allocation: row.allocation.map(|allocation| Box::new(allocation.into_owned())),
        steps: row.steps.map(Cow::into_owned).unwrap_or_default(),
        usage: row.usage,
        suspended_s: row.suspended_s,
        dependency: row.dependency.map(Cow::into_owned),
        last_planned: common.last_planned,
        cancelled_by: row.cancelled_by,
        extras: row.extras.map(|extras| Box::new(extras.into_owned())),
        sched_nodes: row.sched_nodes,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A job's fields that are not in its [`Common`]: borrowed while it is sent, owned when it has come.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    /// The index of its [`Common`].
    of: u32,
    id: JobId,
    name: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    array: Option<Cow<'a, ArrayView>>,
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    het: Option<HetComponent>,
    /// None: that of its [`Common`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, Reason>>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: u64,
    submit: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eligible: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    restarts: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    exit: ExitStatus,
    #[serde(default, skip_serializing_if = "is_default")]
    derived_exit: ExitStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocation: Option<Cow<'a, Allocation>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<Cow<'a, [Step]>>,
    #[serde(default, skip_serializing_if = "is_default")]
    usage: Usage,
    #[serde(default, skip_serializing_if = "is_default")]
    suspended_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dependency: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled_by: Option<u32>,
    #[serde(default, rename = "further", skip_serializing_if = "Option::is_none")]
    extras: Option<Cow<'a, JobExtras>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sched_nodes: Option<Arc<str>>,
}

fn row<'a>(view: &'a JobView, of: u32, common: &Common) -> Row<'a> {
    Row {
        of,
        id: view.id,
        name: view.name.clone(),
        run: view.run,
        array: view.array.as_deref().map(Cow::Borrowed),
        het: view.het,
        reason: (view.reason != common.reason).then_some(Cow::Borrowed(&view.reason)),
        priority: view.priority,
        submit: view.submit,
        eligible: view.eligible,
        start: view.start,
        end: view.end,
        restarts: view.restarts,
        exit: view.exit,
        derived_exit: view.derived_exit,
        allocation: view.allocation.as_deref().map(Cow::Borrowed),
        steps: (!view.steps.is_empty()).then_some(Cow::Borrowed(view.steps.as_slice())),
        usage: view.usage.clone(),
        suspended_s: view.suspended_s,
        dependency: view.dependency.as_deref().map(Cow::Borrowed),
        cancelled_by: view.cancelled_by,
        extras: view.extras.as_deref().map(Cow::Borrowed),
        sched_nodes: view.sched_nodes.clone(),
    }
}

/// Writes a list, job by job, as bytes of JSON.
#[derive(Default)]
pub struct ListWriter {
    index: HashMap<Key, u32, RandomState>,
    common: Vec<Common>,
    rows: Vec<u8>,
}

impl ListWriter {
    pub fn push(&mut self, view: &JobView) -> serde_json::Result<()> {
        let of = *self.index.entry(Common::key(view)).or_insert_with(|| {
            self.common.push(Common::of(view));
            self.common.len() as u32 - 1
        });
        self.rows.push(if self.rows.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut self.rows, &row(view, of, &self.common[of as usize]))
    }

    /// The bytes of all rows so far.
    pub fn row_bytes(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of `Answer::Jobs`.
    pub fn answer(self, now: Timestamp) -> serde_json::Result<Vec<u8>> {
        let common = serde_json::to_string(&self.common)?;
        let now = serde_json::to_string(&now)?;
        let head = format!(r#"{{"jobs":{{"now":{now},"jobs":{{"common":{common},"rows":"#);
        let rows = if self.rows.is_empty() { b"[" } else { self.rows.as_slice() };
        Ok([head.as_bytes(), rows, b"]}}}"].concat())
    }
}

/// The form that [`ListWriter`] writes too, which does not need the whole list at once. Nothing is shared here.
impl Serialize for JobList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct List<'a> {
            common: &'a [Common],
            rows: Vec<Row<'a>>,
        }
        let common: Vec<Common> = self.0.iter().map(Common::of).collect();
        let rows = self.0.iter().zip(&common).enumerate();
        let rows = rows.map(|(i, (view, common))| row(view, i as u32, common)).collect();
        List { common: &common, rows }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JobList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = JobList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("common parts and then rows of jobs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JobList, A::Error> {
        let mut common: Option<Vec<Common>> = None;
        let mut jobs = Vec::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match (&*key, &common) {
                ("common", _) => common = Some(map.next_value()?),
                ("rows", Some(common)) => jobs = map.next_value_seed(Rows { common })?,
                ("rows", None) => return Err(A::Error::custom("rows come before what they share")),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(JobList(jobs))
    }
}

/// Reads rows into whole views as they come.
struct Rows<'a> {
    common: &'a [Common],
}

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = Vec<JobView>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = Vec<JobView>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
        let mut jobs = Vec::new();
        while let Some(row) = rows.next_element::<Row<'_>>()? {
            let have = self.common.len();
            let common = self.common.get(row.of as usize).ok_or_else(|| {
                A::Error::custom(format!("a row points at {} of {have} common parts", row.of))
            })?;
            jobs.push(whole(row, common));
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests;
