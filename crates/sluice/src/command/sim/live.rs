//! `sluice sim --live`: what would change for the jobs that wait on the running cluster if nodes came or went.

use super::SimArgs;
use crate::command::configuration_files;
use crate::command::verb::{VerbError, VerbResult, ask, in_columns, unexpected};
use ::slurm::output::Moment;
use model::bounds;
use model::hostlist;
use model::printable::printable;
use model::time::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::what_if::{AddedNodes, ChangedStart, WhatIfQuery, WhatIfView};

/// Jobs in the table; `--json` has more.
const ROWS_MAX: usize = 40;

/// Reads `COUNT:NODE`.
pub fn added_nodes(text: &str) -> Result<AddedNodes, String> {
    let read = text.split_once(':').and_then(|(count, like)| {
        let count = count.parse::<u32>().ok().filter(|count| *count > 0)?;
        (!like.is_empty()).then(|| AddedNodes { count, like: like.to_owned() })
    });
    read.ok_or_else(|| "expected COUNT:NODE, as in 4:node1 for four nodes like node1".to_owned())
}

pub fn run(args: &SimArgs) -> VerbResult {
    let mut removed: Vec<String> = Vec::new();
    for list in &args.without {
        let names = hostlist::expand(list);
        removed.extend(names.map_err(|error| VerbError::Message(error.to_string()))?);
    }
    check_count(&args.add_nodes, removed.len())?;
    let files = args.config.as_deref().map(configuration).transpose()?;
    let query = WhatIfQuery { added: args.add_nodes.clone(), removed, files };
    let mut client = args.server.client()?;
    let view = match ask(&mut client, Call::WhatIf(query))? {
        Answer::WhatIf(view) => view,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        let text = serde_json::to_string(&view);
        println!("{}", text.map_err(|error| VerbError::Message(error.to_string()))?);
    } else {
        let tz = timezone::local();
        print!("{}", table(&view, Moment::at(::server::clock::now(), &tz)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses more nodes than there may be in all.
fn check_count(added: &[AddedNodes], removed: usize) -> Result<(), VerbError> {
    // The server counts the nodes that others are to be like with them.
    let most = (bounds::NODES.most as u64).saturating_sub(added.len() as u64);
    let added: u64 = added.iter().map(|added| u64::from(added.count)).sum();
    let asked = added + removed as u64;
    if asked <= most {
        return Ok(());
    }
    let fault = format!("{asked} nodes that come or go: expected at most {most}");
    Err(VerbError::Message(fault))
}

/// The files of a configuration. It is read here as the server will read it from these files: what is wrong is said of the folder,
/// which the server does not know.
fn configuration(dir: &Path) -> Result<BTreeMap<String, String>, VerbError> {
    let files = configuration_files::of_folder(dir, is_configuration)?;
    ::server::configure::load_given(dir, files.clone(), None)?;
    Ok(files)
}

/// Whether a file of this name may be part of a configuration. Keys and certificates are not sent.
fn is_configuration(name: &str) -> bool {
    [".conf", ".toml", ".yml", ".yaml"].iter().any(|ending| name.ends_with(ending))
}

fn table(view: &WhatIfView, moment: Moment<'_>) -> String {
    let WhatIfView { jobs, earlier, later, changes } = view;
    let wait = if *jobs == 1 { "job waits" } else { "jobs wait" };
    let mut text = format!("{jobs} {wait}: {earlier} would start earlier, {later} later\n");
    if changes.is_empty() {
        return text;
    }
    let time = |start: Option<Timestamp>| start.map_or("not foreseen".into(), |at| moment.iso(at));
    let row = |change: &ChangedStart| {
        let ChangedStart { job, name, user, start, start_then } = change;
        let words = [job, name, user].map(|word| printable(word).into_owned());
        let [job, name, user] = words;
        [job, name, user, time(*start), time(*start_then)]
    };
    let head = ["job", "name", "user", "start", "start then"].map(str::to_owned);
    let rows = changes.iter().take(ROWS_MAX).map(row);
    text += "\n";
    text += &in_columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    if changes.len() > ROWS_MAX {
        text += &format!("… and {} more: --json\n", changes.len() - ROWS_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    #[test]
    fn added_nodes_are_a_count_and_a_node_that_they_are_like() {
        let nodes = |count, like: &str| Ok(AddedNodes { count, like: like.to_owned() });
        assert_eq!(added_nodes("4:node1"), nodes(4, "node1"));
        for bad in ["", "4", "0:node1", "x:node1", "4:"] {
            assert!(added_nodes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_beside_a_configuration_are_not_sent() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["slurm.conf", "gres.conf", "sluice.toml", "server.key", "cert.pem"] {
            std::fs::write(dir.path().join(name), "# nothing\n").expect("a file");
        }
        let sent = configuration_files::text_files(dir.path(), is_configuration);
        let names: Vec<&str> = sent.keys().map(String::as_str).collect();
        assert_eq!(names, ["gres.conf", "sluice.toml", "slurm.conf"]);
        let none = dir.path().join("none");
        let said = configuration_files::of_folder(&none, is_configuration).expect_err("none");
        assert!(said.to_string().contains("none/slurm.conf"), "{said}");
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_said_of_its_own_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("a file");
        };
        let conf =
            "ClusterName=test\nNodeName=n1 CPUs=2\nPartitionName=main Nodes=n1 Default=YES\n";
        write("slurm.conf", conf);
        assert!(configuration(dir.path()).is_ok());
        let other = tempfile::NamedTempFile::new().expect("a file");
        let other = other.path().display();
        write("slurm.conf", &format!("{conf}Include {other}\n"));
        let said = configuration(dir.path()).expect_err("a file that is not sent").to_string();
        let place = dir.path().join("slurm.conf");
        assert!(
            said.starts_with(&format!("{}:4: Include: \"{other}\"", place.display())),
            "{said}"
        );
    }

    #[test]
    fn more_nodes_than_there_may_be_are_refused_by_their_number() {
        let added = |count| [AddedNodes { count, like: "node1".to_owned() }];
        let most = bounds::NODES.most as u32;
        assert!(check_count(&added(most - 2), 1).is_ok());
        let said = check_count(&added(most - 1), 1).expect_err("one too many").to_string();
        let expected = format!("{most} nodes that come or go: expected at most {}", most - 1);
        assert_eq!(said, expected);
    }

    #[test]
    fn changed_starts_are_told_in_a_table() {
        let utc = TimeZone::UTC;
        let moment = Moment::at(Timestamp::from_secs(0), &utc);
        let change = ChangedStart {
            job: "12".into(),
            name: "train".into(),
            user: "ann".into(),
            start: None,
            start_then: Some(Timestamp::from_secs(3_600)),
        };
        let view = WhatIfView { jobs: 3, earlier: 1, later: 0, changes: vec![change] };
        let expected = "\
3 jobs wait: 1 would start earlier, 0 later

job  name   user  start         start then
12   train  ann   not foreseen  1970-01-01T01:00:00
";
        assert_eq!(table(&view, moment), expected);
        let nothing = WhatIfView { jobs: 1, ..WhatIfView::default() };
        assert_eq!(table(&nothing, moment), "1 job waits: 0 would start earlier, 0 later\n");
    }
}
