//! `sinfo`: partitions and nodes, with nodes that look the same on one line.

mod fields;
pub mod reservations;

use crate::output::Moment;
use crate::output::table::format::{Column, Format};
use crate::words::node::{NodeState, StateFilter};
use fields::{Group, Grouping, NODE_FIELDS, NodeField};
use model::hostlist;
use model::node::AdminState;
use model::partition::Partition;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io;
use wire::view::{ClusterView, NodeView};

const DEFAULT_FORMAT: &str = "%9#P %.5a %.10l %.6D %.6t %N";
const LONG_FORMAT: &str = "%9#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N";
const SUMMARY_FORMAT: &str = "%9#P %.5a %.10l %.16F %N";
const NODE_FORMAT: &str = "%9#N %.6D %.9#P %6t";
const NODE_LONG_FORMAT: &str = "%9#N %.6D %.9#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E";
const REASON_FORMAT: &str = "%20E %9u %19H %N";
const REASON_LONG_FORMAT: &str = "%20E %12U %19H %6t %N";

/// The options that shape the listing.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `-o`
    pub format: Option<String>,
    /// `-O`
    pub long_format: Option<String>,
    /// `-S`
    pub sort: Option<String>,
    pub no_header: bool,
    /// `-l`
    pub long: bool,
    /// `-N`: a line for each node.
    pub node_centric: bool,
    /// `-s`
    pub summarize: bool,
    /// `-R`
    pub reasons: bool,
    /// `-d`: only nodes that do not answer.
    pub dead: bool,
    /// `-r`: only nodes that answer.
    pub responding: bool,
    /// `-e`
    pub exact: bool,
    /// `-a`: hidden partitions too.
    pub all: bool,
    /// `-t`; empty takes any.
    pub states: Vec<StateFilter>,
    /// `-n`; empty takes any.
    pub nodes: Vec<String>,
    /// `-p`; empty takes any.
    pub partitions: Vec<String>,
}

impl Options {
    fn format(&self) -> Format<NodeField> {
        let text = match (&self.format, &self.long_format) {
            (_, Some(names)) => return Format::by_name(NODE_FIELDS, names),
            (Some(text), None) => text,
            (None, None) => self.default_format(),
        };
        Format::by_letter(NODE_FIELDS, text, "node")
    }

    fn default_format(&self) -> &'static str {
        match self {
            Options { reasons: true, long: true, .. } => REASON_LONG_FORMAT,
            Options { reasons: true, .. } => REASON_FORMAT,
            Options { summarize: true, .. } => SUMMARY_FORMAT,
            Options { node_centric: true, long: true, .. } => NODE_LONG_FORMAT,
            Options { node_centric: true, .. } => NODE_FORMAT,
            Options { long: true, .. } => LONG_FORMAT,
            _ => DEFAULT_FORMAT,
        }
    }

    fn admits_partition(&self, partition: &Partition) -> bool {
        let named = self.partitions.contains(&partition.name);
        if self.partitions.is_empty() { self.all || !partition.hidden } else { named }
    }

    fn admits(&self, node: &NodeView) -> bool {
        let state = NodeState::of(node);
        // A node that is not there yet is in no list.
        node.admin != Some(AdminState::Future)
            && (self.nodes.is_empty() || self.nodes.contains(&node.config.name))
            && (self.states.is_empty() || self.states.iter().any(|filter| filter.admits(state)))
            && (!self.dead || state.not_responding)
            && (!self.responding || !state.not_responding)
            && (!self.reasons || node.reason.is_some())
    }
}

/// Prints the listing. Returns the lines for standard error.
pub fn render(
    out: &mut impl io::Write,
    options: &Options,
    cluster: &ClusterView,
    moment: Moment<'_>,
) -> io::Result<Vec<String>> {
    let mut format = options.format();
    let mut groups = group(options, &format, cluster, moment);
    sort(&mut groups, options, cluster);
    format.fit(|column| groups.iter().map(|g| cell_width(column, g)).max().unwrap_or(0));
    let mut text = String::new();
    if options.long && !options.no_header {
        text.push_str(&moment.date_line());
        text.push('\n');
    }
    if !options.no_header {
        format.push_header(&mut text);
    }
    let mut cell = String::new();
    for group in &groups {
        format.push_line(&mut text, &mut cell, |field, cell| (field.render)(group, cell));
    }
    out.write_all(text.as_bytes())?;
    Ok(format.warnings)
}

fn cell_width(column: &NodeField, group: &Group<'_>) -> usize {
    let mut cell = String::new();
    (column.render)(group, &mut cell);
    cell.chars().count()
}

/// Groups the nodes of a partition that have the same text in every column of [`Grouping::Same`].
fn group<'a>(
    options: &Options,
    format: &Format<NodeField>,
    cluster: &'a ClusterView,
    moment: Moment<'a>,
) -> Vec<Group<'a>> {
    let by_name: HashMap<&str, &NodeView> =
        cluster.nodes.iter().map(|node| (node.config.name.as_str(), node)).collect();
    let keyed: Vec<&NodeField> = format
        .columns()
        .filter(|column| match column.grouping {
            Grouping::Same => true,
            Grouping::Least => options.exact,
            Grouping::Sum => false,
        })
        .collect();
    let shows_partitions =
        format.columns().any(|column| matches!(column.letter(), Some('P' | 'R')));
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut at_key: HashMap<String, usize> = HashMap::new();
    let mut taken: HashSet<(usize, &str)> = HashSet::new();
    for partition in cluster.partitions.iter().filter(|p| options.admits_partition(p)) {
        let nodes = partition.nodes.iter().filter_map(|name| by_name.get(name.as_str()).copied());
        let mut empty = true;
        for node in nodes.filter(|node| options.admits(node)) {
            empty = false;
            let alone = Group { partition, nodes: vec![node], moment };
            let key = key(options, &keyed, &alone);
            let place = *at_key.entry(key).or_insert_with(|| {
                groups.push(Group { partition, nodes: Vec::new(), moment });
                groups.len() - 1
            });
            // A node that is in several partitions is counted once where partitions are not shown.
            if taken.insert((place, &node.config.name)) {
                groups[place].nodes.push(node);
            }
        }
        if empty && shows_partitions && !options.node_centric && !options.reasons {
            groups.push(Group { partition, nodes: Vec::new(), moment });
        }
    }
    groups
}

fn key(options: &Options, columns: &[&NodeField], alone: &Group<'_>) -> String {
    let mut key = String::new();
    for column in columns {
        (column.render)(alone, &mut key);
        key.push('\0');
    }
    // As in Slurm, a node has a line in each of its partitions, whether the columns tell them apart or not.
    if options.node_centric {
        key.extend(alone.nodes.iter().map(|node| node.config.name.as_str()));
        key.push('\0');
        key.push_str(&alone.partition.name);
    }
    key
}

/// Without `-S`: partitions in the order of the configuration, in each the busiest state first; `-N` by name.
fn sort(groups: &mut [Group<'_>], options: &Options, cluster: &ClusterView) {
    let default = if options.node_centric { "N" } else { "#P,-t" };
    let order: HashMap<&str, usize> =
        cluster.partitions.iter().enumerate().map(|(at, p)| (p.name.as_str(), at)).collect();
    let place = |group: &Group<'_>| order.get(group.partition.name.as_str()).copied();
    let specification = options.sort.as_deref().unwrap_or(default);
    // The last key is sorted by first: the sort is stable.
    for word in specification.split(',').rev() {
        let word = word.trim();
        let descending = word.contains('-');
        let Some(letter) = word.chars().last() else { continue };
        let compare = |a: &Group<'_>, b: &Group<'_>| match letter {
            'P' if word.contains('#') => place(a).cmp(&place(b)),
            't' | 'T' => rank(a).cmp(&rank(b)),
            'N' | 'n' => hostlist::compare_names(first_name(a), first_name(b)),
            'D' => a.nodes.len().cmp(&b.nodes.len()),
            letter => by_text(letter, a, b),
        };
        groups.sort_by(|a, b| {
            let ordering = compare(a, b);
            if descending { ordering.reverse() } else { ordering }
        });
    }
}

fn rank(group: &Group<'_>) -> Option<impl Ord + use<>> {
    group.nodes.first().map(|node| NodeState::of(node).rank())
}

fn first_name<'a>(group: &Group<'a>) -> &'a str {
    group.nodes.first().map_or("", |node| &node.config.name)
}

fn by_text(letter: char, a: &Group<'_>, b: &Group<'_>) -> Ordering {
    let Some(field) = NODE_FIELDS.iter().find(|field| field.letter() == Some(letter)) else {
        return Ordering::Equal;
    };
    let text = |group: &Group<'_>| {
        let mut cell = String::new();
        (field.render)(group, &mut cell);
        cell
    };
    let (a, b) = (text(a), text(b));
    match (a.trim_end_matches('+').parse::<u64>(), b.trim_end_matches('+').parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        _ => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests;
