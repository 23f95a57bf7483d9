//! The reports on clusters, accounts and users: one row for each resource that is reported on.

use super::report::Report;
use super::{Answer, Options};
use crate::output::table::field_table::{
    self, ChosenColumn, NamedColumn, Table, UnknownField, default_columns,
};
use model::account::ROOT_ACCOUNT;
use model::raw_usage::RawUsage;
use model::tres::TresKind;
use model::usage_report::{ClusterUsage, UsageRow};
use std::collections::BTreeMap;
use wire::view::AccountsView;

/// The users that `TopUsage` shows.
pub const TOP: usize = 10;

#[derive(Debug, Clone, Default)]
struct Row {
    cluster: String,
    account: String,
    login: String,
    proper: String,
    wckey: String,
    tres: String,
    used: String,
    energy: String,
    allocated: String,
    down: String,
    planned_down: String,
    idle: String,
    planned: String,
    reported: String,
}

struct Column {
    name: &'static str,
    header: &'static str,
    width: i16,
    text: fn(&Row) -> &str,
}

impl NamedColumn for Column {
    fn name(&self) -> &'static str {
        self.name
    }
    fn header(&self) -> &'static str {
        self.header
    }
    fn width(&self) -> i16 {
        self.width
    }
}

const fn column(
    name: &'static str,
    header: &'static str,
    width: i16,
    text: fn(&Row) -> &str,
) -> Column {
    Column { name, header, width, text }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static USAGE: &[Column] = &[
    column("Accounts", "Account", 15, |r| &r.account),
    column("Cluster", "Cluster", 9, |r| &r.cluster),
    column("Login", "Login", 9, |r| &r.login),
    column("Proper", "Proper Name", 15, |r| &r.proper),
    column("TresName", "TRES Name", 14, |r| &r.tres),
    column("Used", "Used", 10, |r| &r.used),
    column("Energy", "Energy", 8, |r| &r.energy),
    column("WCKey", "WCKey", 15, |r| &r.wckey),
];

#[rustfmt::skip]
static UTILIZATION: &[Column] = &[
    column("Cluster", "Cluster", 9, |r| &r.cluster),
    column("TresName", "TRES Name", 14, |r| &r.tres),
    column("Allocated", "Allocated", 12, |r| &r.allocated),
    column("Down", "Down", 12, |r| &r.down),
    column("PlannedDown", "PLND Down", 12, |r| &r.planned_down),
    column("Idle", "Idle", 12, |r| &r.idle),
    column("Planned", "Planned", 12, |r| &r.planned),
    column("Reported", "Reported", 12, |r| &r.reported),
];

pub fn push(
    out: &mut String,
    report: Report,
    answer: &Answer<'_>,
    options: &Options,
) -> Result<(), UnknownField> {
    let several = options.tres.len() > 1;
    let mut names: Vec<&str> = match report {
        Report::ClusterUtilization => {
            vec!["Cluster", "Allocated", "Down", "PlannedDown", "Idle", "Planned", "Reported"]
        }
        Report::AccountUtilizationByUser => vec!["Cluster", "Accounts", "Login", "Proper", "Used"],
        Report::UserUtilizationByWckey => vec!["Cluster", "Login", "Proper", "WCKey", "Used"],
        Report::WckeyUtilizationByUser => vec!["Cluster", "WCKey", "Login", "Proper", "Used"],
        _ => vec!["Cluster", "Login", "Proper", "Accounts", "Used"],
    };
    if report != Report::ClusterUtilization && !several {
        names.push("Energy");
    }
    if several {
        let at = if report == Report::ClusterUtilization { 1 } else { names.len() - 1 };
        names.insert(at, "TresName");
    }
    let known = if report == Report::ClusterUtilization { UTILIZATION } else { USAGE };
    let columns: Vec<ChosenColumn<Column>> = match &options.format {
        Some(format) => field_table::parse(known, format)?,
        None => default_columns(known, &names),
    };
    let table = Table { columns: &columns, layout: &options.layout };
    if !options.no_header {
        table.push_header(out);
    }
    for row in rows(report, answer, options) {
        table.push_line(out, |column, cell| cell.push_str((column.text)(&row)));
    }
    Ok(())
}

fn rows(report: Report, answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    match report {
        Report::ClusterUtilization => cluster_rows(answer, options),
        Report::AccountUtilizationByUser => account_rows(answer, options),
        Report::UserUtilizationByWckey | Report::WckeyUtilizationByUser => {
            let sums = sums(answer, |row| {
                (row.user.clone(), String::new(), row.wckey.clone().unwrap_or_default())
            });
            by_usage(sums, answer, options)
        }
        Report::TopUsage => {
            let account = |row: &UsageRow| {
                if options.group { String::new() } else { row.account.clone() }
            };
            let sums = sums(answer, |row| (row.user.clone(), account(row), String::new()));
            let mut sums = ordered(sums);
            sums.truncate(options.top.unwrap_or(TOP));
            rows_of(sums, answer, options)
        }
        _ => {
            let sums = sums(answer, |row| (row.user.clone(), row.account.clone(), String::new()));
            by_usage(sums, answer, options)
        }
    }
}

/// User, account, workload key.
type Key = (String, String, String);

fn sums(answer: &Answer<'_>, key: impl Fn(&UsageRow) -> Key) -> BTreeMap<Key, RawUsage> {
    let mut sums: BTreeMap<Key, RawUsage> = BTreeMap::new();
    for row in &answer.usage.rows {
        sums.entry(key(row)).or_default().add(&row.used);
    }
    sums
}

/// Orders the sums by CPU time, the largest first; equal ones by name.
fn ordered(sums: BTreeMap<Key, RawUsage>) -> Vec<(Key, RawUsage)> {
    let mut sums: Vec<(Key, RawUsage)> = sums.into_iter().collect();
    let cpus = |used: &RawUsage| used.seconds(&TresKind::Cpu);
    sums.sort_by(|a, b| cpus(&b.1).total_cmp(&cpus(&a.1)).then_with(|| a.0.cmp(&b.0)));
    sums
}

fn by_usage(sums: BTreeMap<Key, RawUsage>, answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    rows_of(ordered(sums), answer, options)
}

fn rows_of(sums: Vec<(Key, RawUsage)>, answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    let of = |((login, account, wckey), used): (Key, RawUsage)| {
        let row = Row {
            proper: answer.proper_names.get(&login).cloned().unwrap_or_default(),
            login,
            account,
            wckey,
            ..Row::default()
        };
        by_tres(&row, &used, answer, options)
    };
    sums.into_iter().flat_map(of).collect()
}

/// The row once for each resource that is reported on.
fn by_tres(row: &Row, used: &RawUsage, answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    let whole = answer.usage.whole.as_ref();
    let text = |kind: &TresKind| {
        let whole = whole.map_or(0.0, |whole| whole.reported.seconds(kind));
        options.time_format.text_of(kind, used.seconds(kind), whole)
    };
    let kinds = reported_on(options);
    let one = |kind: &TresKind| Row {
        cluster: answer.usage.cluster.clone(),
        tres: kind.to_string(),
        used: text(kind),
        energy: format!("{:.0}", used.seconds(&TresKind::Energy)),
        ..row.clone()
    };
    kinds.iter().map(one).collect()
}

fn reported_on(options: &Options) -> Vec<TresKind> {
    if options.tres.is_empty() { vec![TresKind::Cpu] } else { options.tres.clone() }
}

fn cluster_rows(answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    let Some(whole) = &answer.usage.whole else { return Vec::new() };
    let one = |kind: &TresKind| {
        let of = |used: &RawUsage| used.seconds(kind);
        let ClusterUsage { reported, allocated, down, planned } = whole;
        let idle = of(reported) - of(allocated) - of(down) - of(planned);
        let text = |seconds: f64| options.time_format.text_of(kind, seconds, of(reported));
        Row {
            cluster: answer.usage.cluster.clone(),
            tres: kind.to_string(),
            allocated: text(of(allocated)),
            down: text(of(down)),
            planned_down: text(0.0),
            idle: text(idle.max(0.0)),
            planned: text(of(planned)),
            reported: text(of(reported)),
            ..Row::default()
        }
    };
    reported_on(options).iter().map(one).collect()
}

/// Each account with all below it, and then its users, down the tree. What nobody used is left out.
fn account_rows(answer: &Answer<'_>, options: &Options) -> Vec<Row> {
    let view = answer.accounts;
    let mut users: BTreeMap<&str, BTreeMap<&str, RawUsage>> = BTreeMap::new();
    for row in &answer.usage.rows {
        let of_account = users.entry(&row.account).or_default();
        of_account.entry(&row.user).or_default().add(&row.used);
    }
    // An account that was removed, or is not shown, stands beside the others.
    let known = |name: &str| view.accounts.iter().any(|account| account.name == name);
    let strangers: Vec<&str> = users.keys().copied().filter(|name| !known(name)).collect();
    let named = |name: &str| options.accounts.iter().any(|wanted| wanted == name);
    let tops: Vec<&str> = if options.accounts.is_empty() {
        let roots = view.accounts.iter().filter(|a| a.parent.as_deref().is_none_or(|p| !known(p)));
        roots.map(|account| account.name.as_str()).chain(strangers).collect()
    } else {
        let below_named = |name: &str| ancestors(answer, name).any(named);
        let all = view.accounts.iter().map(|account| account.name.as_str()).chain(strangers);
        all.filter(|name| named(name) && !below_named(name)).collect()
    };
    let mut rows = Vec::new();
    let mut stack: Vec<(usize, &str)> = tops.into_iter().rev().map(|name| (0, name)).collect();
    while let Some((depth, name)) = stack.pop() {
        let below = children(answer, name);
        stack.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
        let mut whole = RawUsage::default();
        for (account, of_account) in &users {
            if *account == name || ancestors(answer, account).any(|above| above == name) {
                of_account.values().for_each(|used| whole.add(used));
            }
        }
        if whole.is_empty() {
            continue;
        }
        let indent = if options.tree { depth } else { 0 };
        let account = format!("{:indent$}{name}", "");
        let row = Row { account: account.clone(), ..Row::default() };
        rows.extend(by_tres(&row, &whole, answer, options));
        for (user, used) in users.get(name).into_iter().flatten() {
            let row = Row {
                account: account.clone(),
                login: (*user).to_owned(),
                proper: answer.proper_names.get(*user).cloned().unwrap_or_default(),
                ..Row::default()
            };
            rows.extend(by_tres(&row, used, answer, options));
        }
    }
    rows
}

/// The accounts right below this one, by name.
pub(super) fn children<'a>(answer: &Answer<'a>, parent: &str) -> Vec<&'a str> {
    let below = answer.accounts.accounts.iter().filter(|a| a.parent.as_deref() == Some(parent));
    let mut names: Vec<&str> = below.map(|account| account.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// The accounts above this one, the nearest first.
pub(super) fn ancestors<'a>(answer: &Answer<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    let view: &'a AccountsView = answer.accounts;
    let accounts = &view.accounts;
    let parent = move |name: &str| {
        let account = accounts.iter().find(|account| account.name == name)?;
        account.parent.as_deref()
    };
    // A circle cannot be made; the bound keeps a broken answer from running for ever.
    std::iter::successors(parent(name), move |above| parent(above)).take(accounts.len())
}

/// The account whose level is shown where none is named.
pub(super) const TOP_ACCOUNT: &str = ROOT_ACCOUNT;
