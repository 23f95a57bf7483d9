//! A partition's line outside slurm.conf: `scontrol create PartitionName=…`.

use std::collections::BTreeMap;

use super::error::Findings;
use super::node_line::{first_error, pair};
use super::slurm_conf::partition_conf::PartitionLines;
use super::text::lines::Pair;
use model::hostlist;
use model::partition::Partition;

/// The partition that the words describe, from `PartitionName=` on, and what there is to say of keys without effect. `nodes` are
/// those of the cluster, and `values` its configuration, which counts where the words say nothing. The error is one line.
pub fn created(
    words: &[String],
    nodes: &[String],
    values: &BTreeMap<String, String>,
) -> Result<(Partition, Vec<String>), String> {
    let pairs: Result<Vec<Pair>, String> = words.iter().map(|word| pair(word)).collect();
    let mut findings = Findings::default();
    let mut lines = PartitionLines::default();
    lines.add(&pairs?, &mut findings);
    first_error(&findings)?;
    let conf = lines.partitions.pop().ok_or("PartitionName: expected one name, not DEFAULT")?;
    let mut partition = conf.partition;
    let usual = |key: &str| values.get(key).map(String::as_str).unwrap_or_default();
    let is_yes = |text: &str| ["YES", "TRUE", "1"].iter().any(|yes| yes.eq_ignore_ascii_case(text));
    partition.disable_root_jobs =
        conf.disable_root_jobs.unwrap_or_else(|| is_yes(usual("DisableRootJobs")));
    if partition.preempt_mode.is_none() {
        let mode = Some(usual("PreemptMode")).filter(|mode| !["", "OFF"].contains(mode));
        partition.preempt_mode = mode.map(str::to_owned);
    }
    set_nodes(&mut partition, conf.nodes_text.as_deref().unwrap_or_default(), nodes)?;
    // A place in a file is said of none of them: there is no file.
    let told = findings.notices.iter().map(ToString::to_string);
    let told = told.map(|line| line.split_once(": ").map_or(line.clone(), |(_, text)| text.into()));
    Ok((partition, told.collect()))
}

fn set_nodes(partition: &mut Partition, text: &str, all: &[String]) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let listed = hostlist::expand(text)
        .map_err(|error| format!("Nodes: {text:?}: expected {}", error.expected))?;
    for name in listed {
        if name.eq_ignore_ascii_case("ALL") {
            partition.dynamic_members.all = true;
            partition.nodes = all.to_vec();
        } else if !all.contains(&name) {
            return Err(format!("Nodes: {name:?}: expected ALL or nodes of the cluster"));
        } else if !partition.nodes.contains(&name) {
            partition.nodes.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::TimeLimit;

    fn create(line: &str) -> Result<(Partition, Vec<String>), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let nodes: Vec<String> = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let values = BTreeMap::from([("PreemptMode".to_owned(), "REQUEUE".to_owned())]);
        created(&words, &nodes, &values)
    }

    #[test]
    fn line_is_read_as_one_of_slurm_conf() {
        let (partition, told) =
            create("PartitionName=new Nodes=n[2-3] MaxTime=1:00:00 Alternate=x").expect("one");
        assert_eq!((partition.name.as_str(), partition.nodes.join(",")), ("new", "n2,n3".into()));
        assert_eq!(partition.max_time, TimeLimit::Minutes(60));
        assert_eq!(partition.preempt_mode.as_deref(), Some("REQUEUE"));
        assert_eq!(told, ["Alternate: accepted; it has no effect here"]);
        let (all, _) = create("PartitionName=new Nodes=ALL DisableRootJobs=YES").expect("one");
        assert!(all.nodes.len() == 3 && all.dynamic_members.all && all.disable_root_jobs);
        let (empty, _) = create("PartitionName=new").expect("one");
        assert!(empty.nodes.is_empty());
    }

    #[test]
    fn wrong_lines_are_refused_in_one_line() {
        for (line, words) in [
            ("PartitionName=DEFAULT MaxTime=1", "PartitionName"),
            ("PartitionName=new Nodes=n9", "Nodes: \"n9\""),
            ("PartitionName=new Nodes=n[1-", "Nodes"),
            ("PartitionName=new MaxTime=soon", "MaxTime: \"soon\""),
            ("PartitionName=new Colour=red", "Colour: not a key of a PartitionName line"),
            ("PartitionName=new AllocNodes=n1", "AllocNodes"),
            ("PartitionName=new MinNodes=3 MaxNodes=2", "MinNodes"),
        ] {
            let said = create(line).expect_err(line);
            assert!(said.contains(words) && said.lines().count() == 1, "{line}: {said}");
        }
    }
}
