//! The pages of docs/guide, and the runbooks that the lab can play: every `$` line is run against the lab of examples/lab, and
//! prints what the page says.
//!
//! What is printed may have more lines than the page. `…` stands for any text, a time for any time, runs of spaces for one,
//! `ada` for who runs the tests. A command that only looks is asked again until it says so: the page's reader is slower than jobs.

use crate::harness::{Cluster, within};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PAGES: [&str; 10] = [
    "first-job",
    "interactive",
    "arrays",
    "gpus",
    "waiting",
    "failing",
    "limits",
    "nodes",
    "accounts",
    "configuration",
];

/// The runbooks with `$` lines: that of machines on demand has none, since it needs a cloud.
const RUNBOOKS: [&str; 5] =
    ["cuda-visible-devices", "drained-node", "job-waits", "log", "node-down"];

/// Commands that change nothing.
const LOOKS: [&str; 11] = [
    "grep ",
    "sinfo",
    "squeue",
    "sacct ",
    "sacctmgr show",
    "seff",
    "scontrol show",
    "sluice node",
    "sluice ps",
    "sluice logs",
    "sluice explain",
];

/// How long a page waits for a job of its own.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command of a page, with the lines that follow it.
struct Example {
    command: String,
    printed: Vec<String>,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The examples are indented by four spaces; a line that is not ends one.
fn examples(page: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match line.strip_prefix("    ") {
            Some(text) => match (text.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => {
                    is_open = true;
                    found.push(Example { command: command.to_owned(), printed: Vec::new() });
                }
                (None, Some(last)) if is_open => last.printed.push(text.to_owned()),
                (None, _) => {}
            },
            None => is_open = false,
        }
    }
    found
}

/// One space between words; what differs from one run to the next is `…`.
fn pattern(line: &str, user: &str) -> String {
    let word = |word: &str| match word {
        "0:00" => "…".to_owned(),
        _ if word.parse::<jiff::civil::DateTime>().is_ok() => "…".to_owned(),
        _ if word.trim_end_matches(',') == "ada" => word.replace("ada", user),
        _ => word.to_owned(),
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

fn fits(pattern: &str, line: &str) -> bool {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Spaces beside what is left open belong to it.
    let mut pieces = pattern.split('…').map(str::trim);
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        if let Some(before) = last.replace(piece) {
            match rest.split_once(before) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// Whether the expected lines are among what was printed, in this order.
fn is_as_said(example: &Example, printed: &str, user: &str) -> bool {
    let mut lines = printed.lines();
    let expected = example.printed.iter().map(|line| pattern(line, user));
    if example.printed.is_empty() {
        return printed.is_empty();
    }
    expected.into_iter().all(|one| one == "…" || lines.any(|line| fits(&one, line)))
}

fn run_page(name: &str) {
    let page = std::fs::read_to_string(project().join(format!("docs/{name}.md"))).unwrap();
    let examples = examples(&page);
    assert!(!examples.is_empty(), "{name}: a page without commands");
    let lab = project().join("examples/lab");
    let cluster = Cluster::folder(&std::fs::read_to_string(lab.join("slurm.conf")).unwrap());
    for file in ["gres.conf", "cgroup.conf", "slurmdbd.conf"] {
        std::fs::copy(lab.join(file), cluster.path("conf").join(file)).unwrap();
    }
    let work = cluster.path("work");
    // `sluice links` makes it where PATH does not lead to the program.
    if !cluster.path("bin/sluice").exists() {
        std::os::unix::fs::symlink(crate::harness::program(), cluster.path("bin/sluice")).unwrap();
    }
    std::os::unix::fs::symlink(cluster.path("conf"), work.join("conf")).unwrap();
    let copied = Command::new("cp").arg("-r").arg(project().join("examples")).arg(&work).status();
    assert!(copied.unwrap().success());
    cluster.start();
    let user = crate::harness::user_name();
    for example in &examples {
        let line =
            format!("exec 2>&1; {}", example.command.replace("user ada", &format!("user {user}")));
        let looks = LOOKS.iter().any(|look| example.command.starts_with(look));
        let mut printed = cluster.shell(&line).stdout;
        if looks && !is_as_said(example, &printed, &user) {
            within(
                PATIENCE,
                &format!("{name}: {}: {:#?}", example.command, example.printed),
                || {
                    printed = cluster.shell(&line).stdout;
                    is_as_said(example, &printed, &user).then_some(())
                },
            );
        }
        assert!(
            is_as_said(example, &printed, &user),
            "{name}: $ {}\nprinted:\n{printed}\nthe page says:\n{}",
            example.command,
            example.printed.join("\n")
        );
    }
}

#[test]
fn every_page_of_the_guide_is_run() {
    let folder = std::fs::read_dir(project().join("docs/guide")).unwrap().flatten();
    let mut there: Vec<String> = folder
        .map(|file| file.path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut run = PAGES.map(str::to_owned).to_vec();
    there.sort();
    run.sort();
    assert_eq!(there, run);
}

#[test]
fn every_runbook_with_commands_is_run() {
    let folder = std::fs::read_dir(project().join("docs/runbooks")).unwrap().flatten();
    let mut with_commands: Vec<String> = folder
        .filter(|file| !examples(&std::fs::read_to_string(file.path()).unwrap()).is_empty())
        .map(|file| file.path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    with_commands.sort();
    assert_eq!(with_commands, RUNBOOKS);
}

/// Keys that belong together have one comment.
#[test]
fn keys_of_the_lab_say_what_happens_without_them() {
    for file in ["slurm.conf", "cgroup.conf", "gres.conf"] {
        let text = std::fs::read_to_string(project().join("examples/lab").join(file)).unwrap();
        for part in text.split("\n\n") {
            let has_key = part.lines().any(|line| !line.is_empty() && !line.starts_with('#'));
            let mut comments = part.lines().filter(|line| line.starts_with('#'));
            let says_so = comments.any(|line| line.contains("Without"));
            assert!(!has_key || says_so, "{file}: {part}");
        }
    }
}

#[test]
fn up_the_commands_of_the_guide_print_what_its_pages_say() {
    PAGES.iter().for_each(|page| run_page(&format!("guide/{page}")));
}

#[test]
fn up_runbook_of_gpus_prints_what_it_says() {
    run_page("runbooks/cuda-visible-devices");
}

#[test]
fn up_runbook_of_a_waiting_job_prints_what_it_says() {
    run_page("runbooks/job-waits");
}

#[test]
fn up_runbook_of_a_drained_node_prints_what_it_says() {
    run_page("runbooks/drained-node");
}

#[test]
fn up_runbook_of_a_node_that_is_down_prints_what_it_says() {
    run_page("runbooks/node-down");
}

#[test]
fn up_runbook_of_the_log_prints_what_it_says() {
    run_page("runbooks/log");
}

#[test]
fn a_line_fits_where_the_page_leaves_something_open() {
    assert!(fits("a … d", "a  b c   d") && fits("…b…", "a b c") && fits("a", "a"));
    assert!(!fits("a … d", "a b c") && !fits("a", "a b") && !fits("…x…", "a b c"));
}
