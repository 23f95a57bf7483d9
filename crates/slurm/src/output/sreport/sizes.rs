//! The reports of jobs by their sizes: a column for each group of sizes, which the caller may choose.

use super::report::Report;
use super::usage::{TOP_ACCOUNT, ancestors, children};
use super::{Answer, Options};
use model::raw_usage::RawUsage;
use model::tres::TresKind;
use model::usage_report::UsageRow;
use std::collections::{BTreeMap, BTreeSet};

/// Where the usual groups but the first begin.
const GROUPS: [u32; 4] = [50, 250, 500, 1000];

const NAME_WIDTH: i16 = 9;
const GROUP_WIDTH: i16 = 13;
const PERCENT_WIDTH: i16 = 12;

/// The jobs of one line: by where their group begins, how many they are and what they used.
type Line = BTreeMap<u32, (u64, RawUsage)>;

pub fn push(out: &mut String, report: Report, answer: &Answer<'_>, options: &Options) {
    let starts = starts(answer, options);
    let mut headers: Vec<(String, i16)> = vec![("Cluster".to_owned(), NAME_WIDTH)];
    match report {
        Report::SizesByWckey => headers.push(("Wckey".to_owned(), NAME_WIDTH)),
        _ => headers.push(("Account".to_owned(), NAME_WIDTH)),
    }
    headers.extend(group_names(&starts, options.individual).map(|name| (name, GROUP_WIDTH)));
    headers.push(("% of cluster".to_owned(), PERCENT_WIDTH));
    if !options.no_header {
        let names = headers.iter().map(|(name, _)| name.as_str());
        push_line(out, names, &headers, options);
        options.layout.push_rule(out, headers.iter().map(|(_, width)| *width));
    }
    let whole: f64 = answer.usage.rows.iter().map(|row| row.used.seconds(&TresKind::Cpu)).sum();
    for (name, line) in lines(report, answer, options, &starts) {
        let mut cells = vec![answer.usage.cluster.clone(), name];
        let mut used = 0.0;
        for start in &starts {
            let (jobs, of_group) = line.get(start).cloned().unwrap_or_default();
            let seconds = of_group.seconds(&TresKind::Cpu);
            used += seconds;
            cells.push(if options.count_jobs {
                jobs.to_string()
            } else {
                options.time_format.text(seconds, whole)
            });
        }
        let part = if whole > 0.0 { 100.0 * used / whole } else { 0.0 };
        cells.push(format!("{part:.2}%"));
        push_line(out, cells.iter().map(String::as_str), &headers, options);
    }
}

fn push_line<'a>(
    out: &mut String,
    cells: impl Iterator<Item = &'a str>,
    headers: &[(String, i16)],
    options: &Options,
) {
    for ((at, text), (_, width)) in cells.enumerate().zip(headers) {
        options.layout.push_cell(out, at, text, *width);
    }
    out.push('\n');
}

/// Where each group begins, the first at zero.
fn starts(answer: &Answer<'_>, options: &Options) -> Vec<u32> {
    if options.individual {
        let sizes: BTreeSet<u32> = answer.usage.rows.iter().map(|row| row.cpus).collect();
        return sizes.into_iter().collect();
    }
    let chosen = if options.grouping.is_empty() { &GROUPS[..] } else { &options.grouping };
    let all: BTreeSet<u32> = chosen.iter().copied().chain([0]).collect();
    all.into_iter().collect()
}

fn group_names(starts: &[u32], individual: bool) -> impl Iterator<Item = String> {
    starts.iter().enumerate().map(move |(at, start)| match starts.get(at + 1) {
        _ if individual => format!("{start} CPUs"),
        Some(next) => format!("{start}-{} CPUs", next - 1),
        None => format!(">= {start} CPUs"),
    })
}

fn lines(
    report: Report,
    answer: &Answer<'_>,
    options: &Options,
    starts: &[u32],
) -> Vec<(String, Line)> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for row in &answer.usage.rows {
        let name = match report {
            Report::SizesByWckey => row.wckey.clone().unwrap_or_default(),
            _ => match shown_account(answer, options, &row.account) {
                Some(account) => with_wckey(report, account, row),
                None => continue,
            },
        };
        let start = starts.iter().rev().find(|start| **start <= row.cpus).copied().unwrap_or(0);
        let (jobs, used) = lines.entry(name).or_default().entry(start).or_default();
        *jobs += row.jobs;
        used.add(&row.used);
    }
    lines.into_iter().collect()
}

fn with_wckey(report: Report, account: String, row: &UsageRow) -> String {
    match (report, &row.wckey) {
        (Report::SizesByAccountAndWckey, Some(wckey)) => format!("{account}:{wckey}"),
        (Report::SizesByAccountAndWckey, None) => format!("{account}:*"),
        _ => account,
    }
}

/// The line in which an account's jobs are counted: one level of the tree is shown.
fn shown_account(answer: &Answer<'_>, options: &Options, account: &str) -> Option<String> {
    let named = |name: &&str| options.accounts.iter().any(|wanted| wanted == name);
    if options.flat {
        let shown = options.accounts.is_empty() || named(&account);
        return shown.then(|| account.to_owned());
    }
    let mut upward = std::iter::once(account).chain(ancestors(answer, account));
    if options.accounts.is_empty() && !options.as_parents {
        return Some(TOP_ACCOUNT.to_owned());
    }
    if !options.as_parents {
        return upward.find(named).map(str::to_owned);
    }
    let parents: Vec<&str> = if options.accounts.is_empty() {
        vec![TOP_ACCOUNT]
    } else {
        options.accounts.iter().map(String::as_str).collect()
    };
    let next: Vec<&str> = parents.iter().flat_map(|parent| children(answer, parent)).collect();
    upward.find(|name| next.contains(name)).map(str::to_owned)
}
