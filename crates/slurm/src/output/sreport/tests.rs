//! Reports of a small lab: `root` with `physics` (and `theory` below it) and `chemistry`.

use super::report::Report;
use super::time_format::TimeFormat;
use super::{Answer, Options, render};
use crate::output::table::field_table::Layout;
use jiff::tz::TimeZone;
use model::account::Account;
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use model::usage_report::{ClusterUsage, UsageReport, UsageRow, held};
use std::collections::BTreeMap;
use wire::view::AccountsView;

fn account(name: &str, parent: Option<&str>) -> Account {
    let text = serde_json::json!({"name": name, "parent": parent});
    serde_json::from_value(text).expect("an account")
}

fn row(account: &str, user: &str, cpus: u32, jobs: u64, minutes: f64) -> UsageRow {
    let tres = Tres::parse(&format!("cpu={cpus},mem=1024")).expect("a list");
    UsageRow {
        account: account.into(),
        user: user.into(),
        wckey: None,
        cpus,
        jobs,
        used: held(&tres, minutes * 60.0),
    }
}

fn shown(report: Report, options: &Options) -> String {
    let accounts = AccountsView {
        cluster: "lab".into(),
        accounts: vec![
            account("root", None),
            account("physics", Some("root")),
            account("theory", Some("physics")),
            account("chemistry", Some("root")),
        ],
        associations: Vec::new(),
        qos: Vec::new(),
        roles: BTreeMap::new(),
        only_user: None,
        deleted: Default::default(),
    };
    let usage = UsageReport {
        cluster: "lab".into(),
        until: Timestamp(86_400_000),
        rows: vec![
            row("physics", "ann", 1, 2, 100.0),
            row("theory", "ann", 64, 1, 10.0),
            row("chemistry", "bob", 4, 3, 50.0),
        ],
        whole: Some(ClusterUsage {
            reported: held(&Tres::parse("cpu=2").expect("a list"), 86_400.0),
            allocated: held(&Tres::parse("cpu=1").expect("a list"), 56_400.0),
            down: held(&Tres::parse("cpu=1").expect("a list"), 6_000.0),
            planned: held(&Tres::parse("cpu=1").expect("a list"), 600.0),
        }),
    };
    let names = BTreeMap::from([("ann".to_owned(), "Ann Smith".to_owned())]);
    let answer =
        Answer { from: Timestamp(0), usage: &usage, accounts: &accounts, proper_names: &names };
    render(report, &answer, options, &TimeZone::UTC).expect("a report")
}

/// Without the title.
fn rows(report: Report, options: Options) -> Vec<String> {
    let layout = Layout::Separated("|".into());
    let options = Options { layout, no_header: true, ..options };
    shown(report, &options).lines().map(str::to_owned).collect()
}

#[test]
fn title_says_period_and_unit() {
    let text = shown(Report::TopUsage, &Options::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "-".repeat(80));
    assert_eq!(lines[1], "Top 10 Users 1970-01-01T00:00:00 - 1970-01-01T23:59:59 (86400 secs)");
    assert_eq!(lines[2], "Usage reported in CPU Minutes");
    assert_eq!(
        lines[4],
        "  Cluster     Login     Proper Name         Account       Used   Energy "
    );
    assert_eq!(
        lines[6],
        "      lab       ann       Ann Smith          theory        640        0 "
    );
    let percent = Options { time_format: TimeFormat::Percent, ..Options::default() };
    assert!(shown(Report::TopUsage, &percent).contains("Usage reported in Percentage of Total"));
}

#[test]
fn top_users_come_by_what_they_used() {
    let all = rows(Report::TopUsage, Options::default());
    assert_eq!(
        all,
        [
            "lab|ann|Ann Smith|theory|640|0",
            "lab|bob||chemistry|200|0",
            "lab|ann|Ann Smith|physics|100|0"
        ]
    );
    let grouped =
        rows(Report::TopUsage, Options { group: true, top: Some(1), ..Options::default() });
    assert_eq!(grouped, ["lab|ann|Ann Smith||740|0"]);
}

#[test]
fn accounts_have_the_sums_of_those_below_them() {
    let tree = rows(Report::AccountUtilizationByUser, Options { tree: true, ..Options::default() });
    assert_eq!(
        tree,
        [
            "lab|root|||940|0",
            "lab| chemistry|||200|0",
            "lab| chemistry|bob||200|0",
            "lab| physics|||740|0",
            "lab| physics|ann|Ann Smith|100|0",
            "lab|  theory|||640|0",
            "lab|  theory|ann|Ann Smith|640|0",
        ]
    );
    let accounts = vec!["theory".to_owned()];
    let one = rows(Report::AccountUtilizationByUser, Options { accounts, ..Options::default() });
    assert_eq!(one, ["lab|theory|||640|0", "lab|theory|ann|Ann Smith|640|0"]);
}

#[test]
fn utilization_adds_up_to_what_the_cluster_had() {
    let options = Options { time_format: TimeFormat::MinutesAndPercent, ..Options::default() };
    let lines = rows(Report::ClusterUtilization, options);
    assert_eq!(lines, ["lab|940(32.64%)|100(3.47%)|0(0.00%)|1830(63.54%)|10(0.35%)|2880(100.00%)"]);
}

#[test]
fn each_resource_has_a_row() {
    let tres = vec![TresKind::Cpu, TresKind::Mem];
    let options = Options { tres, accounts: Vec::new(), group: true, ..Options::default() };
    let lines = rows(Report::TopUsage, options);
    assert_eq!(lines[0], "lab|ann|Ann Smith||cpu|740");
    assert_eq!(lines[1], "lab|ann|Ann Smith||mem|112640");
}

#[test]
fn sizes_are_grouped_as_asked() {
    let usual = rows(Report::SizesByAccount, Options::default());
    assert_eq!(usual, ["lab|root|300|640|0|0|0|100.00%"]);
    let options = Options { flat: true, grouping: vec![4], count_jobs: true, ..Options::default() };
    let flat = rows(Report::SizesByAccount, options);
    assert_eq!(
        flat,
        ["lab|chemistry|0|3|21.28%", "lab|physics|2|0|10.64%", "lab|theory|0|1|68.09%"]
    );
    let parents = Options { as_parents: true, individual: true, ..Options::default() };
    let lines = rows(Report::SizesByAccount, parents);
    assert_eq!(lines, ["lab|chemistry|0|200|0|21.28%", "lab|physics|100|0|640|78.72%"]);
    let text = shown(Report::SizesByAccount, &Options::default());
    let header = "  Cluster   Account     0-49 CPUs   50-249 CPUs  250-499 CPUs  500-999 CPUs  >= 1000 CPUs % of cluster ";
    assert!(text.lines().any(|line| line == header), "{text}");
}

#[test]
fn unknown_field_is_named() {
    let options = Options { format: Some("Colour".into()), ..Options::default() };
    let accounts = AccountsView {
        cluster: String::new(),
        accounts: Vec::new(),
        associations: Vec::new(),
        qos: Vec::new(),
        roles: BTreeMap::new(),
        only_user: None,
        deleted: Default::default(),
    };
    let answer = Answer {
        from: Timestamp(0),
        usage: &UsageReport::default(),
        accounts: &accounts,
        proper_names: &BTreeMap::new(),
    };
    let error = render(Report::TopUsage, &answer, &options, &TimeZone::UTC).expect_err("no field");
    assert!(error.to_string().contains("Colour"), "{error}");
}
