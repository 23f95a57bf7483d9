//! `sacctmgr show transactions` and `show event`: who changed what, and when nodes were out of service.

use super::fields::{Field, field};
use super::{Options, SacctmgrError, first_names, push};
use crate::output::text::node_text;
use jiff::tz::TimeZone;
use model::activity::{Activity, ActivityKind, ActivityTarget, SiteThing};
use model::outage::{Outage, OutageKind, outages};
use model::time::{Timestamp, format_elapsed_full, format_iso};
use model::tres::{Tres, TresKind};
use std::collections::BTreeMap;
use wire::view::NodeView;

pub struct TransactionRow {
    time: String,
    action: String,
    actor: String,
    place: String,
    info: String,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static TRANSACTIONS: &[Field<TransactionRow>] = &[
    field("Time", "Time", 19, |r, c| c.push_str(&r.time)),
    field("Action", "Action", 20, |r, c| c.push_str(&r.action)),
    field("Actor", "Actor", 10, |r, c| c.push_str(&r.actor)),
    field("Where", "Where", 20, |r, c| c.push_str(&r.place)),
    field("Info", "Info", 20, |r, c| c.push_str(&r.info)),
    // Another name of the first column.
    field("TimeStamp", "Time", 19, |r, c| c.push_str(&r.time)),
];

/// How many columns of [`TRANSACTIONS`] the default listing has.
const TRANSACTIONS_DEFAULT: usize = 5;

/// Which transactions are shown; an empty list leaves none out.
#[derive(Debug, Clone, Default)]
pub struct TransactionFilter {
    /// Only transactions whose action contains one of these words.
    pub actions: Vec<String>,
    /// Only transactions about one of these users.
    pub users: Vec<String>,
    /// Only transactions about one of these accounts.
    pub accounts: Vec<String>,
}

impl TransactionFilter {
    fn admits(&self, activity: &Activity) -> bool {
        let user = match (&activity.what, &activity.target) {
            (ActivityKind::MemberSet(user) | ActivityKind::MemberRemoved(user), _) => Some(user),
            (_, ActivityTarget::User(user)) => Some(user),
            _ => None,
        };
        let account = match &activity.target {
            ActivityTarget::Project(account) => Some(account),
            _ => None,
        };
        let is_named = |names: &[String], name: Option<&String>| {
            names.is_empty() || name.is_some_and(|name| names.contains(name))
        };
        is_named(&self.users, user) && is_named(&self.accounts, account)
    }
}

/// The table of what people changed.
pub fn transactions(
    activities: &[Activity],
    filter: &TransactionFilter,
    tz: &TimeZone,
    options: &Options,
) -> Result<String, SacctmgrError> {
    let activities = activities.iter().filter(|activity| filter.admits(activity));
    let rows = activities.filter_map(|activity| transaction(activity, tz));
    let actions = &filter.actions;
    let wanted = |row: &TransactionRow| {
        let action = row.action.to_ascii_lowercase();
        actions.is_empty() || actions.iter().any(|word| action.contains(&word.to_ascii_lowercase()))
    };
    let rows: Vec<TransactionRow> = rows.filter(wanted).collect();
    let mut text = String::new();
    let names = first_names(TRANSACTIONS, TRANSACTIONS_DEFAULT);
    push(&mut text, TRANSACTIONS, names, options, &rows)?;
    Ok(text)
}

/// What the cluster did by itself is no transaction.
fn transaction(activity: &Activity, tz: &TimeZone) -> Option<TransactionRow> {
    let actor = activity.actor.clone()?;
    let (things, place) = match &activity.target {
        ActivityTarget::Project(name) => ("Accounts", name.clone()),
        ActivityTarget::User(name) => ("Users", name.clone()),
        ActivityTarget::Node(name) => ("Nodes", name.clone()),
        ActivityTarget::Fleet { name, .. } => ("Fleets", name.clone()),
        ActivityTarget::Secret { project, name } => ("Secrets", format!("{project}/{name}")),
        ActivityTarget::Volume { project, name, .. } => ("Volumes", format!("{project}/{name}")),
        ActivityTarget::Run { name, .. } => ("Runs", name.clone()),
        ActivityTarget::Job { job, .. } => ("Jobs", job.to_string()),
        ActivityTarget::Site { kind, name } => (site_words(*kind), name.clone()),
    };
    let (verb, things, info) = match &activity.what {
        ActivityKind::Created => ("Add", things, activity.info.clone()),
        ActivityKind::Changed => ("Modify", things, activity.info.clone()),
        ActivityKind::Deleted => ("Remove", things, activity.info.clone()),
        ActivityKind::MemberSet(user) => ("Modify", "Associations", format!("user='{user}'")),
        ActivityKind::MemberRemoved(user) => ("Remove", "Associations", format!("user='{user}'")),
        ActivityKind::NodeUp | ActivityKind::NodeSilent => return None,
        ActivityKind::NodeDown => {
            ("Modify", things, format!("state=down reason='{}'", activity.info))
        }
        ActivityKind::NodeDrained(why) => ("Modify", things, format!("state=drain reason='{why}'")),
        ActivityKind::NodeSetDown(why) => ("Modify", things, format!("state=down reason='{why}'")),
        ActivityKind::NodeFailing(why) => ("Modify", things, format!("state=fail reason='{why}'")),
        ActivityKind::NodeReasonSet(why) => ("Modify", things, format!("reason='{why}'")),
        ActivityKind::NodeResumed => ("Modify", things, "state=resume".to_owned()),
    };
    let time = format_iso(activity.at, tz);
    Some(TransactionRow { time, action: format!("{verb} {things}"), actor, place, info })
}

fn site_words(kind: SiteThing) -> &'static str {
    match kind {
        SiteThing::Qos => "QOS",
        SiteThing::Reservation => "Reservations",
        SiteThing::Partition => "Partitions",
        SiteThing::Token => "Tokens",
        SiteThing::Configuration => "Configuration",
        SiteThing::Trigger => "Triggers",
        SiteThing::Backend => "Backends",
    }
}

pub struct EventRow {
    outage: Outage,
    cluster: String,
    start: String,
    end: String,
    /// How long it lasted, or has lasted.
    duration_s: u64,
    /// What the node has; nothing for a node that is no more.
    tres: Tres,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static EVENTS: &[Field<EventRow>] = &[
    field("Cluster", "Cluster", 10, |r, c| c.push_str(&r.cluster)),
    field("NodeName", "NodeName", 15, |r, c| c.push_str(&r.outage.node)),
    field("TimeStart", "TimeStart", 19, |r, c| c.push_str(&r.start)),
    field("TimeEnd", "TimeEnd", 19, |r, c| c.push_str(&r.end)),
    field("State", "State", 6, |r, c| c.push_str(r.outage.kind.word())),
    field("Reason", "Reason", 30, |r, c| c.push_str(&r.outage.reason)),
    field("User", "User", 10, |r, c| c.push_str(by(&r.outage))),
    // Columns that are not in the default listing.
    field("Start", "TimeStart", 19, |r, c| c.push_str(&r.start)),
    field("End", "TimeEnd", 19, |r, c| c.push_str(&r.end)),
    field("Duration", "Duration", 13, |r, c| c.push_str(&format_elapsed_full(r.duration_s))),
    field("Event", "Event", 7, |_, c| c.push_str(NODE_EVENT)),
    field("TRES", "TRES", 20, |r, c| c.push_str(&r.tres.to_string())),
    // The nodes of an event of the whole cluster: there are events of nodes alone.
    field("ClusterNodes", "Cluster Nodes", 20, |_, _| {}),
];

/// How many columns of [`EVENTS`] the default listing has.
const EVENTS_DEFAULT: usize = 7;

/// The kind of every event.
pub const NODE_EVENT: &str = "Node";

/// Which events of nodes are shown.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub nodes: Vec<String>,
    pub users: Vec<String>,
    pub reasons: Vec<String>,
    pub states: Vec<OutageKind>,
    /// Only events of nodes with at least so many CPUs.
    pub min_cpus: Option<u64>,
    pub max_cpus: Option<u64>,
    /// Only events that last still.
    pub only_open: bool,
    /// Only events that had not ended by then.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// A node that is no more has no CPUs that are known: it is left out where they are asked for.
    fn admits_cpus(&self, cpus: Option<u64>) -> bool {
        if self.min_cpus.is_none() && self.max_cpus.is_none() {
            return true;
        }
        cpus.is_some_and(|cpus| {
            self.min_cpus.is_none_or(|min| min <= cpus)
                && self.max_cpus.is_none_or(|max| cpus <= max)
        })
    }
}

/// The states that events have, with the words that choose them.
pub const EVENT_STATES: &[(&str, OutageKind)] = &[
    ("DOWN", OutageKind::Down),
    ("DRAIN", OutageKind::Drain),
    ("DRAINED", OutageKind::Drain),
    ("DRAINING", OutageKind::Drain),
    ("FAIL", OutageKind::Fail),
    ("FAILING", OutageKind::Fail),
];

/// The cluster whose events they are.
#[derive(Debug, Clone, Copy)]
pub struct EventCluster<'a> {
    pub name: &'a str,
    pub nodes: &'a [NodeView],
    pub now: Timestamp,
}

pub fn events(
    activities: &[Activity],
    cluster: EventCluster<'_>,
    filter: &EventFilter,
    tz: &TimeZone,
    options: &Options,
) -> Result<String, SacctmgrError> {
    let of_node =
        |node: &NodeView| (node.config.name.clone(), node_text::configured_tres(&node.config));
    let tres: BTreeMap<String, Tres> = cluster.nodes.iter().map(of_node).collect();
    let wanted = |event: &Outage| {
        let cpus = tres.get(&event.node).and_then(|tres| tres.get(&TresKind::Cpu));
        let listed =
            |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
        listed(&filter.nodes, &event.node)
            && listed(&filter.users, by(event))
            && listed(&filter.reasons, &event.reason)
            && (filter.states.is_empty() || filter.states.contains(&event.kind))
            && filter.admits_cpus(cpus)
            && (!filter.only_open || event.end.is_none())
            && event.end.is_none_or(|end| filter.from.is_none_or(|from| end >= from))
            && filter.until.is_none_or(|until| event.start <= until)
    };
    let row = |outage: Outage| EventRow {
        start: format_iso(outage.start, tz),
        end: outage.end.map_or_else(|| "Unknown".to_owned(), |end| format_iso(end, tz)),
        cluster: cluster.name.to_owned(),
        duration_s: outage.end.unwrap_or(cluster.now).since(outage.start).as_secs(),
        tres: tres.get(&outage.node).cloned().unwrap_or_default(),
        outage,
    };
    let rows: Vec<EventRow> = outages(activities).into_iter().filter(wanted).map(row).collect();
    let mut text = String::new();
    push(&mut text, EVENTS, first_names(EVENTS, EVENTS_DEFAULT), options, &rows)?;
    Ok(text)
}

/// Who began it: Slurm's own user for what nobody did.
fn by(outage: &Outage) -> &str {
    outage.actor.as_deref().unwrap_or("slurm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;
    use crate::output::table::field_table::Layout;

    fn activity(
        second: i64,
        actor: Option<&str>,
        target: ActivityTarget,
        what: ActivityKind,
    ) -> Activity {
        Activity {
            number: second as u64,
            at: Timestamp(second * 1000),
            actor: actor.map(str::to_owned),
            target,
            what,
            info: String::new(),
        }
    }

    #[test]
    fn transactions_have_slurms_columns_and_leave_out_what_nobody_did() {
        let qos = ActivityTarget::Site { kind: SiteThing::Qos, name: "high".into() };
        let node = ActivityTarget::Node("n1".into());
        let list = [
            activity(1, Some("root"), qos, ActivityKind::Created),
            activity(2, None, node.clone(), ActivityKind::NodeDown),
            activity(3, Some("ann"), node, ActivityKind::NodeDrained("bad disk".into())),
        ];
        let shown = |filter: &TransactionFilter| {
            transactions(&list, filter, &TimeZone::UTC, &Options::default()).expect("a table")
        };
        let text = shown(&TransactionFilter::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "               Time               Action      Actor                Where                 Info "
        );
        assert_eq!(
            lines[2],
            "1970-01-01T00:00:01              Add QOS       root                 high                      "
        );
        assert!(
            lines[3].contains("Modify Nodes        ann                   n1 state=drain reason="),
            "{text}"
        );
        assert_eq!(lines.len(), 4);
        let actions = vec!["add".to_owned()];
        let text = shown(&TransactionFilter { actions, ..TransactionFilter::default() });
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn events_are_chosen_by_reason_state_cpus_and_by_whether_they_last() {
        let mut nodes = ["n1", "n2"].map(samples::node);
        (nodes[0].config.cpus, nodes[1].config.cpus) = (4, 8);
        let node = |name: &str| ActivityTarget::Node(name.into());
        let list = [
            activity(1, Some("ann"), node("n1"), ActivityKind::NodeDrained("disk".into())),
            activity(2, Some("ann"), node("n1"), ActivityKind::NodeResumed),
            activity(3, Some("ann"), node("n2"), ActivityKind::NodeSetDown("fan".into())),
        ];
        let options = Options { no_header: true, ..Options::default() };
        let count = |filter: EventFilter| {
            let cluster = EventCluster { name: "lab", nodes: &nodes, now: Timestamp(9000) };
            let text = events(&list, cluster, &filter, &TimeZone::UTC, &options).expect("a table");
            text.lines().count()
        };
        let all = EventFilter::default;
        assert_eq!(count(all()), 2);
        assert_eq!(count(EventFilter { reasons: vec!["disk".into()], ..all() }), 1);
        assert_eq!(count(EventFilter { states: vec![OutageKind::Down], ..all() }), 1);
        assert_eq!(count(EventFilter { states: vec![OutageKind::Fail], ..all() }), 0);
        assert_eq!(count(EventFilter { only_open: true, ..all() }), 1);
        assert_eq!(count(EventFilter { min_cpus: Some(5), ..all() }), 1);
        assert_eq!(count(EventFilter { max_cpus: Some(3), ..all() }), 0);
        let (min_cpus, max_cpus) = (Some(4), Some(8));
        assert_eq!(count(EventFilter { min_cpus, max_cpus, ..all() }), 2);
        let cluster = EventCluster { name: "lab", nodes: &nodes[..1], now: Timestamp(9000) };
        let format = Some("nodename,duration,event,tres".to_owned());
        let options = Options {
            format,
            layout: Layout::Separated("|".into()),
            no_header: true,
            ..Options::default()
        };
        let text = events(&list, cluster, &all(), &TimeZone::UTC, &options).expect("a table");
        let (first, second) = text.split_once('\n').expect("two lines");
        assert!(first.starts_with("n1|00:00:01|Node|cpu=4,mem="), "{text}");
        assert_eq!(second, "n2|00:00:06|Node|\n", "a node that is no more");
    }

    #[test]
    fn transactions_are_chosen_by_the_users_and_accounts_that_they_are_about() {
        let physics = || ActivityTarget::Project("physics".into());
        let list = [
            activity(1, Some("root"), physics(), ActivityKind::Created),
            activity(2, Some("root"), physics(), ActivityKind::MemberSet("ann".into())),
            activity(3, Some("root"), ActivityTarget::User("ann".into()), ActivityKind::Changed),
            activity(4, Some("ann"), ActivityTarget::User("bob".into()), ActivityKind::Changed),
        ];
        let options = Options { no_header: true, ..Options::default() };
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (users, accounts, count) in [
            (&[][..], &[][..], 4),
            (&["ann"], &[], 2),
            (&["ann", "bob"], &[], 3),
            (&[], &["physics"], 2),
            (&["ann"], &["physics"], 1),
            (&["root"], &[], 0),
        ] {
            let (users, accounts) = (named(users), named(accounts));
            let filter = TransactionFilter { users, accounts, ..TransactionFilter::default() };
            let text = transactions(&list, &filter, &TimeZone::UTC, &options).expect("a table");
            assert_eq!(text.lines().count(), count, "{filter:?}: {text}");
        }
    }
}
