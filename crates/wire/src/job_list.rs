//! Many jobs in one answer: what jobs have in common travels once.
//!
//! A queue of ten thousand is a few dozen different requests ten thousand times. So a list is sent
//! as those, and rows that point at them: `{"common":[…],"rows":[{"of":0,"id":12,…},…]}`. Both sides
//! work with plain [`JobView`]s, which share what is equal.

use crate::view::{ArrayView, JobView};
use model::allocation::Allocation;
use model::id::{JobId, RunId};
use model::partition::DefaultMemory;
use model::range::Range;
use model::reason::Reason;
use model::run::{ExitStatus, Hold, JobSpec, JobState, Step, Usage};
use model::time::{TimeLimit, Timestamp};
use model::tres::Tres;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobList(pub Vec<JobView>);

#[derive(Clone, Serialize, Deserialize)]
struct Common {
    spec: Arc<JobSpec>,
    partition: Arc<str>,
    account: Arc<str>,
    qos: Arc<str>,
    time_limit: TimeLimit,
    nodes: Range<u32>,
    cpus: u32,
    tasks: u32,
    tres: Arc<Tres>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_memory: Option<DefaultMemory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_planned: Option<Timestamp>,
}

/// What tells one `Common` from another, by identity and not by content: what happens to be equal
/// without being shared is sent twice, and nothing is lost by that.
type Key = ([usize; 5], TimeLimit, Range<u32>, [u32; 2], Option<DefaultMemory>);

impl Common {
    fn key(view: &JobView) -> Key {
        let address = |text: &Arc<str>| Arc::as_ptr(text).addr();
        let shared = [
            Arc::as_ptr(&view.spec).addr(),
            Arc::as_ptr(&view.tres).addr(),
            address(&view.partition),
            address(&view.account),
            address(&view.qos),
        ];
        (shared, view.time_limit, view.nodes, [view.cpus, view.tasks], view.default_memory)
    }

    fn of(view: &JobView) -> Self {
        Self {
            spec: view.spec.clone(),
            partition: view.partition.clone(),
            account: view.account.clone(),
            qos: view.qos.clone(),
            time_limit: view.time_limit,
            nodes: view.nodes,
            cpus: view.cpus,
            tasks: view.tasks,
            tres: view.tres.clone(),
            default_memory: view.default_memory,
            last_planned: view.last_planned,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One job apart from what it has in common: borrowed while it is sent, owned when it has come.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    /// Its place among the common parts.
    of: u32,
    id: JobId,
    name: Arc<str>,
    state: JobState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    array: Option<Cow<'a, ArrayView>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, Reason>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold: Option<Hold>,
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
}

fn sent(view: &JobView, of: u32) -> Row<'_> {
    Row {
        of,
        id: view.id,
        name: view.name.clone(),
        state: view.state,
        run: view.run,
        array: view.array.as_ref().map(Cow::Borrowed),
        reason: (view.reason != Reason::None).then_some(Cow::Borrowed(&view.reason)),
        hold: view.hold,
        priority: view.priority,
        submit: view.submit,
        eligible: view.eligible,
        start: view.start,
        end: view.end,
        restarts: view.restarts,
        exit: view.exit,
        derived_exit: view.derived_exit,
        allocation: view.allocation.as_ref().map(Cow::Borrowed),
        steps: (!view.steps.is_empty()).then_some(Cow::Borrowed(view.steps.as_slice())),
        usage: view.usage,
        suspended_s: view.suspended_s,
        dependency: view.dependency.as_deref().map(Cow::Borrowed),
        cancelled_by: view.cancelled_by,
    }
}

fn received(row: Row<'_>, common: &Common) -> JobView {
    let Common { spec, partition, account, qos, tres, .. } = common.clone();
    JobView {
        id: row.id,
        run: row.run,
        name: row.name,
        array: row.array.map(Cow::into_owned),
        spec,
        state: row.state,
        reason: row.reason.map_or(Reason::None, Cow::into_owned),
        hold: row.hold,
        partition,
        account,
        qos,
        priority: row.priority,
        submit: row.submit,
        eligible: row.eligible,
        start: row.start,
        end: row.end,
        time_limit: common.time_limit,
        restarts: row.restarts,
        exit: row.exit,
        derived_exit: row.derived_exit,
        allocation: row.allocation.map(Cow::into_owned),
        nodes: common.nodes,
        cpus: common.cpus,
        tasks: common.tasks,
        tres,
        steps: row.steps.map(Cow::into_owned).unwrap_or_default(),
        usage: row.usage,
        suspended_s: row.suspended_s,
        dependency: row.dependency.map(Cow::into_owned),
        last_planned: common.last_planned,
        default_memory: common.default_memory,
        cancelled_by: row.cancelled_by,
    }
}

#[derive(Serialize)]
struct SentList<'a> {
    common: Vec<Common>,
    rows: Vec<Row<'a>>,
}

#[derive(Deserialize)]
struct ReceivedList {
    common: Vec<Common>,
    rows: Vec<Row<'static>>,
}

impl Serialize for JobList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut known: HashMap<Key, u32> = HashMap::new();
        let mut common = Vec::new();
        let rows = self.0.iter().map(|view| {
            let of = *known.entry(Common::key(view)).or_insert_with(|| {
                common.push(Common::of(view));
                common.len() as u32 - 1
            });
            sent(view, of)
        });
        let rows = rows.collect();
        SentList { common, rows }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JobList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = ReceivedList::deserialize(deserializer)?;
        let unknown = |of: u32| {
            let have = list.common.len();
            serde::de::Error::custom(format!("a row points at {of} of {have} common parts"))
        };
        let whole = |row: Row<'static>| match list.common.get(row.of as usize) {
            Some(common) => Ok(received(row, common)),
            None => Err(unknown(row.of)),
        };
        list.rows.into_iter().map(whole).collect::<Result<_, _>>().map(Self)
    }
}
