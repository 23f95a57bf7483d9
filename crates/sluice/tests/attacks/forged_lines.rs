//! Texts of users that would forge a line of a listing or of the log, or move the cursor of who reads it.

use crate::harness::{Cluster, TWO_NODES};

/// A name that would show as a second job of root's, and one that would clear the screen.
const FORGED: [&str; 2] =
    [r"train\n    99       gpu  sleep root  R 1:00 1 node1", r"\033[2J\033[Htrain"];

fn assert_plain(what: &str, text: &str) {
    let unprintable = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(unprintable), "{what}: {text:?}");
}

#[test]
fn up_job_name_forges_no_line_of_squeue_and_none_of_the_log() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["-H", "-J", "plain", "--wrap", "true"]);
    for forged in FORGED {
        for line in [
            "sbatch -H -J \"$NAME\" --wrap true".into(),
            format!("scontrol update jobid={id} name=\"$NAME\""),
        ] {
            let said = cluster.shell(&format!("NAME=$(printf '{forged}'); {line}"));
            assert_ne!(said.code, 0, "{line}: {said:?}");
            assert!(said.stderr.contains("expected no control characters"), "{line}: {said:?}");
            assert_plain(&line, &said.stderr);
        }
    }
    let lines = cluster.sluice(&["squeue", "-h", "-o", "%i %j"]).ok();
    assert_eq!(lines, format!("{id} plain\n"));
    assert!(!cluster.log("server").lines().any(|line| line.contains(" 99 ")));
}

#[test]
fn up_text_that_slurm_accepts_is_shown_escaped() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "sbatch --parsable -H --comment \"$(printf 'a\\n99 forged\\033[2J')\" --wrap true";
    let id = cluster.shell(line).ok().trim().to_string();
    let shown = cluster.sluice(&["squeue", "-h", "-O", "Comment:40"]).ok();
    assert_eq!(shown.trim_end(), r"a\n99 forged\u{1b}[2J");
    let shown = cluster.sluice(&["scontrol", "show", "job", &id]).ok();
    assert!(shown.contains(r"Comment=a\n99 forged\u{1b}[2J"), "{shown}");
    assert_plain("scontrol", &shown);
}
