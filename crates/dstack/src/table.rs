//! The tables that the commands print: `ps`, and what `apply` shows before it asks.

use crate::configuration::Configuration;
use crate::configuration::policy::SpotPolicy;
use crate::configuration::task::Task;
use crate::offer::{self, Offer};
use model::printable::printable;
use model::replica_group::GroupRole;
use model::run::Retry;
use model::service::Service;
use model::time::Timestamp;
use std::time::Duration;

/// Offers shown by `apply`; the rest is only counted.
pub const PLAN_OFFERS_SHOWN: usize = 3;
/// How long dstack keeps a machine that a run has left, where nothing else is said.
const IDLE_DURATION: Duration = Duration::from_secs(300);

/// One line of `ps`. What does not apply is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PsRow {
    pub name: String,
    pub backend: String,
    /// `gpu=H100:80GB:1`
    pub gpu: String,
    /// `cpu=8 mem=64GB disk=500GB gpu=H100:80GB:1`
    pub resources: String,
    pub instance_type: String,
    pub price: String,
    pub status: String,
    /// A sign for each probe of a replica.
    pub probes: String,
    /// [`ago`] for `ps`, the time of day while `apply` waits.
    pub submitted: String,
    pub error: String,
    /// What dstack's own table does not have: the number by which every command takes it, whose it is, and what it has cost.
    pub job: String,
    pub user: String,
    pub cost: String,
    /// Where a service is.
    pub url: String,
}

struct PsColumn {
    header: &'static str,
    shown: Shown,
    cell: fn(&PsRow) -> &str,
}

#[derive(PartialEq)]
enum Shown {
    Always,
    Brief,
    Verbose,
    /// With more of each run, where one of them has it.
    VerboseWhereSaid,
}

const fn column(header: &'static str, shown: Shown, cell: fn(&PsRow) -> &str) -> PsColumn {
    PsColumn { header, shown, cell }
}

/// A run without resources yet shows a dash for them.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

const PS_COLUMNS: &[PsColumn] = &[
    column("NAME", Shown::Always, |row| &row.name),
    column("BACKEND", Shown::Always, |row| &row.backend),
    column("GPU", Shown::Brief, |row| or_dash(&row.gpu)),
    column("RESOURCES", Shown::Verbose, |row| or_dash(&row.resources)),
    column("INSTANCE TYPE", Shown::Verbose, |row| &row.instance_type),
    column("PRICE", Shown::Always, |row| or_dash(&row.price)),
    column("STATUS", Shown::Always, |row| &row.status),
    column("PROBES", Shown::Verbose, |row| &row.probes),
    column("SUBMITTED", Shown::Always, |row| &row.submitted),
    column("ERROR", Shown::Verbose, |row| &row.error),
    column("JOB", Shown::Always, |row| &row.job),
    column("USER", Shown::Always, |row| &row.user),
    column("COST", Shown::Verbose, |row| or_dash(&row.cost)),
    column("SERVICE", Shown::VerboseWhereSaid, |row| &row.url),
];

pub fn ps(rows: &[PsRow], verbose: bool) -> String {
    let is_shown = |column: &&PsColumn| match column.shown {
        Shown::Always => true,
        Shown::Brief => !verbose,
        Shown::Verbose => verbose,
        Shown::VerboseWhereSaid => verbose && rows.iter().any(|row| !(column.cell)(row).is_empty()),
    };
    let columns: Vec<&PsColumn> = PS_COLUMNS.iter().filter(is_shown).collect();
    let header = columns.iter().map(|c| c.header.to_owned()).collect();
    let cells = |row| columns.iter().map(|c| (c.cell)(row).to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![header];
    lines.extend(rows.iter().map(cells));
    align(&lines)
}

/// Names and values of secrets.
pub fn secrets(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut lines = vec![vec!["NAME".to_owned(), "VALUE".to_owned()]];
    lines.extend(rows.into_iter().map(|(name, value)| vec![name, value]));
    align(&lines)
}

/// One line of `volume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    pub name: String,
    pub owner: String,
    /// `node node1`, `shared folder /mnt/data`
    pub place: String,
    pub size: String,
    pub status: String,
    /// The jobs that use it.
    pub attached: String,
    pub created: String,
}

pub fn volumes(rows: &[VolumeRow], verbose: bool) -> String {
    type Cell = fn(&VolumeRow) -> &String;
    const COLUMNS: [(&str, bool, Cell); 7] = [
        ("NAME", false, |row| &row.name),
        ("OWNER", true, |row| &row.owner),
        ("PLACE", false, |row| &row.place),
        ("SIZE", true, |row| &row.size),
        ("STATUS", false, |row| &row.status),
        ("ATTACHED", true, |row| &row.attached),
        ("CREATED", false, |row| &row.created),
    ];
    let shown = || COLUMNS.iter().filter(|(_, is_verbose, _)| verbose || !is_verbose);
    let mut lines: Vec<Vec<String>> = vec![shown().map(|column| column.0.to_owned()).collect()];
    let cells = |row| shown().map(|column| or_dash((column.2)(row)).to_owned()).collect();
    lines.extend(rows.iter().map(cells));
    align(&lines)
}

/// The plan that `apply` shows before it asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<'a> {
    pub project: &'a str,
    pub user: &'a str,
    pub task: &'a Task,
    pub kind: RunKind,
    /// For each of the groups that differ in what they ask for, or for all nodes; the best ones first.
    pub offers: &'a [Vec<Offer>],
    /// After what time the cluster ends the run, whatever it says itself.
    pub cluster_limit: Option<Duration>,
}

/// The type of a configuration that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    Task,
    DevEnvironment,
    Service,
}

impl RunKind {
    pub fn of(configuration: &Configuration) -> Self {
        match configuration {
            Configuration::DevEnvironment(_) => Self::DevEnvironment,
            Configuration::Service(_) => Self::Service,
            _ => Self::Task,
        }
    }

    fn text(self, task: &Task) -> String {
        match self {
            Self::Task => format!("task (nodes={})", task.nodes),
            Self::DevEnvironment => "dev-environment".to_owned(),
            Self::Service if !task.replica_groups.is_empty() => {
                format!("service ({} groups)", task.replica_groups.len())
            }
            Self::Service => match &task.service {
                Some(Service { replicas, scaling: Some(scaling), .. }) => {
                    format!("service (replicas={}..{replicas})", scaling.min)
                }
                Some(Service { replicas, .. }) if *replicas > 1 => {
                    format!("service (replicas={replicas})")
                }
                _ => "service".to_owned(),
            },
        }
    }
}

pub fn plan(plan: &Plan<'_>) -> String {
    let mut text = align(&plan_properties(plan));
    let groups = plan.task.different_groups();
    for (found, index) in plan.offers.iter().zip(0..) {
        text.push('\n');
        if let Some(group) = groups.get(index) {
            let name = group.name.clone().unwrap_or_else(|| index.to_string());
            text.push_str(&align(&[vec![
                format!("Group {name}"),
                format!("nodes={}", group.nodes),
                group.resources.to_string(),
            ]]));
        }
        if let Some(group) = plan.task.replica_groups.get(index) {
            text.push_str(&align(&[replica_group_row(group)]));
        }
        text.push_str(&offers(found, PLAN_OFFERS_SHOWN));
    }
    text
}

/// A group of replicas of a service, with how many there are and what each asks for.
fn replica_group_row(group: &Task) -> Vec<String> {
    let Some(service) = &group.service else { return Vec::new() };
    let name = service.group.as_ref().map_or("", |place| place.name.as_str());
    let count = match &service.scaling {
        Some(scaling) => format!("{}..{}", scaling.min, service.replicas),
        None => service.replicas.to_string(),
    };
    let router = match service.role() {
        GroupRole::Router(_) => ", router",
        GroupRole::Serves | GroupRole::Worker => "",
    };
    vec![format!("Group {name}"), format!("replicas={count}{router}"), group.resources.to_string()]
}

/// The first offers; the rest is only counted.
pub fn offers(offers: &[Offer], most: usize) -> String {
    if offers.is_empty() {
        return "No matching instance offers available.\n".to_owned();
    }
    let header = ["#", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE", ""];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (i, offer) in offers.iter().take(most).enumerate() {
        lines.push(vec![
            (i + 1).to_string(),
            offer.backend.clone(),
            offer.resources.to_string(),
            offer.instance_text(),
            offer.price_text(),
            offer.availability.word().to_owned(),
        ]);
    }
    let mut text = align(&lines);
    let total = offers.len();
    if total > most {
        text.push_str(&format!(" Shown {most} of {total} offers\n"));
    }
    text
}

/// A fleet, or an instance of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetRow {
    pub name: String,
    pub nodes: String,
    /// `gpu=H100:80GB:8`, or with `verbose` all of `cpu=64 mem=512GB disk=500GB gpu=H100:80GB:8`.
    pub resources: String,
    pub backend: String,
    /// The price of an instance; a fleet has none, and an empty text.
    pub price: String,
    pub status: String,
    pub error: String,
}

pub fn fleets(rows: &[FleetRow], verbose: bool) -> String {
    let resources = if verbose { "RESOURCES" } else { "GPU" };
    let header = ["NAME", "NODES", resources, "BACKEND", "PRICE", "STATUS"];
    let error = || verbose.then(|| "ERROR".to_owned());
    let mut lines = vec![header.map(str::to_owned).into_iter().chain(error()).collect()];
    for row in rows {
        let cells = [&row.name, &row.nodes, &row.resources, &row.backend, &row.price, &row.status];
        let mut cells: Vec<String> = cells.map(|cell| cell.to_owned()).into();
        cells.extend(verbose.then(|| row.error.clone()));
        lines.push(cells);
    }
    align(&lines)
}

fn plan_properties(plan: &Plan<'_>) -> Vec<Vec<String>> {
    let task = plan.task;
    let profile = &task.profile;
    let spot_policy = match profile.spot_policy {
        Some(SpotPolicy::Spot) => "spot",
        Some(SpotPolicy::Auto) => "auto",
        Some(SpotPolicy::OnDemand) | None => "on-demand",
    };
    let rows = [
        ("Project", plan.project.to_owned()),
        ("User", plan.user.to_owned()),
        ("Type", plan.kind.text(task)),
        (
            "Resources",
            match (task.different_groups().len(), task.replica_groups.len()) {
                (0, 0) => task.resources.to_string(),
                (nodes, replicas) => format!("of {} groups, below", nodes.max(replicas)),
            },
        ),
        ("Spot policy", spot_policy.to_owned()),
        ("Max price", profile.max_price.map_or("off".to_owned(), offer::price)),
        ("Retry policy", task.retry.as_ref().map_or("off".to_owned(), retry_text)),
        ("Idle duration", duration(profile.idle_duration.unwrap_or(Some(IDLE_DURATION)))),
        (
            "Max duration",
            match (task.max_duration, plan.cluster_limit) {
                (None, Some(limit)) => format!("{} (the cluster's limit)", duration(Some(limit))),
                (own, _) => duration(own),
            },
        ),
    ];
    rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec()
}

/// `2h[no-capacity, error]`
fn retry_text(retry: &Retry) -> String {
    let events = [
        (retry.on_no_capacity, "no-capacity"),
        (retry.on_interruption, "interruption"),
        (retry.on_error, "error"),
    ];
    let named: Vec<&str> = events.iter().filter(|e| e.0).map(|e| e.1).collect();
    let length = duration(retry.duration_s.map(Duration::from_secs));
    let most = retry.attempts_max.map(|most| format!(" x{most}")).unwrap_or_default();
    format!("{length}[{}]{most}", named.join(", "))
}

/// In the largest unit that is exact: `5m`, `90m`, `2h`; None is `off`.
pub fn duration(length: Option<Duration>) -> String {
    const UNITS: [(u64, char); 4] = [(604_800, 'w'), (86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let Some(secs) = length.map(|length| length.as_secs()) else {
        return "off".to_owned();
    };
    let exact = |(unit, _): &&(u64, char)| secs > 0 && secs % unit == 0;
    match UNITS.iter().find(exact) {
        Some((unit, letter)) => format!("{}{letter}", secs / unit),
        None => format!("{secs}s"),
    }
}

/// How long ago, as `ps` says it.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    /// From this many seconds on: this unit, with its name for one and for several.
    const STEPS: [(u64, u64, &str, &str); 7] = [
        (365 * DAY, 365 * DAY, "year", "years"),
        (31 * DAY, 30 * DAY, "month", "months"),
        (7 * DAY, 7 * DAY, "week", "weeks"),
        (DAY, DAY, "day", "days"),
        (HOUR, HOUR, "hour", "hours"),
        (MINUTE, MINUTE, "min", "mins"),
        (10, 1, "sec", "sec"),
    ];
    let secs = now.since(then).as_secs();
    let Some((_, unit, one, several)) = STEPS.iter().find(|step| secs >= step.0) else {
        return "now".to_owned();
    };
    match secs / unit {
        1 if *unit == DAY => "yesterday".to_owned(),
        1 => format!("1 {one} ago"),
        count => format!("{count} {several} ago"),
    }
}

/// Columns of equal width, a space on either side of each.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let safe = |cell: &String| printable(cell).into_owned();
    let lines: Vec<Vec<String>> = lines.iter().map(|l| l.iter().map(safe).collect()).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &lines {
        for (width, cell) in widths.iter().zip(line) {
            text.push_str(&format!(" {cell:width$} "));
        }
        text.push('\n');
    }
    text
}
