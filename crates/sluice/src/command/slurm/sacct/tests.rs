//! Command lines of `sacct`, and which records they ask for.

use super::*;
use ::slurm::option::parse::parse;
use model::run::JobState;

/// 2026-11-15T12:00:00 UTC.
const NOON: Timestamp = Timestamp::from_secs(1_794_744_000);
const MIDNIGHT: Timestamp = Timestamp::from_secs(1_794_700_800);

fn question(args: &[&str]) -> Result<HistoryQuery, CommandError> {
    let parsed = parse(Command::Sacct, args).expect("a right line");
    HistoryQuery::new(&parsed, NOON, &TimeZone::UTC, || Some("alice".to_owned()))
}

#[test]
fn the_default_period_depends_on_jobs_and_states() {
    let ten = Timestamp::from_secs(NOON.secs() - 7_200);
    let table = [
        (&[][..], Some(MIDNIGHT), NOON),
        (&["-j", "5"], None, NOON),
        (&["-s", "CD"], Some(NOON), NOON),
        (&["-s", "CD", "-S", "10:00"], Some(ten), ten),
        (&["-S", "10:00"], Some(ten), NOON),
        (&["-j", "5", "-s", "CD"], None, NOON),
        (&["-S", "now-2hours", "-E", "now", "-s", "CD"], Some(ten), NOON),
    ];
    for (args, from, until) in table {
        let filter = question(args).expect("right").filter;
        assert_eq!((filter.from, filter.until), (from, Some(until)), "{args:?}");
    }
}

#[test]
fn callers_name_is_looked_up_only_where_it_says_which_jobs_are_shown() {
    for (args, looks_up) in
        [(&[][..], true), (&["-j", "5"], false), (&["-u", "bob"], false), (&["-a"], false)]
    {
        let parsed = parse(Command::Sacct, args).expect("a right line");
        let mut is_looked_up = false;
        let me = || {
            is_looked_up = true;
            Some("alice".to_owned())
        };
        assert!(HistoryQuery::new(&parsed, NOON, &TimeZone::UTC, me).is_ok());
        assert_eq!(is_looked_up, looks_up, "{args:?}");
    }
}

#[test]
fn own_jobs_are_shown_unless_jobs_or_users_are_named() {
    let table = [
        (&[][..], &["alice"][..]),
        (&["-a"], &[]),
        (&["-j", "5"], &[]),
        (&["-u", "bob,carol"], &["bob", "carol"]),
        (&["-j", "5", "-u", "bob"], &["bob"]),
    ];
    for (args, users) in table {
        assert_eq!(question(args).expect("right").filter.users, users, "{args:?}");
    }
}

#[test]
fn lists_that_are_given_in_parts_are_one_list() {
    let args = ["-j", "5", "-j", "7,9", "-u", "bob", "-u", "carol", "-s", "CD", "-s", "F"];
    let asked = question(&args).expect("right");
    let jobs: Vec<u32> = asked.filter.jobs.iter().map(|job| job.id.0).collect();
    assert_eq!(jobs, [5, 7, 9]);
    assert_eq!(asked.filter.users, ["bob", "carol"]);
    assert_eq!(asked.filter.states, [JobState::Completed, JobState::Failed]);
}

#[test]
fn every_filter_is_sent_to_the_server() {
    let args =
        ["-A", "chem", "-r", "gpu", "--name", "a", "-q", "high", "-N", "n[1-2]", "-D", "-s", "r"];
    let filter = question(&args).expect("right").filter;
    assert_eq!(filter.accounts, ["chem"]);
    assert_eq!(filter.partitions, ["gpu"]);
    assert_eq!(filter.names, ["a"]);
    assert_eq!(filter.qos, ["high"]);
    assert_eq!(filter.nodes, ["n1", "n2"]);
    assert_eq!(filter.states, [JobState::Running]);
    assert!(filter.duplicates);
}

#[test]
fn ranges_are_filtered_by_the_client() {
    let asked = question(&["-I", "2-8", "-i", "1", "-k", "10", "-K", "1:00:00"]).expect("right");
    assert_eq!((asked.cpus, asked.nodes, asked.minutes), (Some(2..=8), Some(1..=1), Some(10..=60)));
}

#[test]
fn bad_values_are_refused_in_slurms_words() {
    let table = [
        (&["-j", "abc"][..], "sacct: fatal: Bad job/step specified: abc"),
        (&["-s", "BOGUS"], "sacct: fatal: unrecognized job state value 'BOGUS'"),
        (&["-S", "never"], "Invalid time specification (pos=0): never"),
        (&["-I", "8-2"], "Invalid --ncpus specification"),
        (&["-K", "10"], "timelimit-max needs a smaller timelimit-min"),
    ];
    for (args, said) in table {
        assert_eq!(question(args).expect_err("wrong").to_string(), said, "{args:?}");
    }
}

#[test]
fn the_last_of_two_layout_options_counts() {
    let layout = |args: &[&str]| {
        output_options(&parse(Command::Sacct, args).expect("right")).map(|o| o.layout)
    };
    assert_eq!(layout(&["-p"]).expect("right"), Layout::Ended("|".into()));
    assert_eq!(layout(&["-pP", "--delimiter=,"]).expect("right"), Layout::Separated(",".into()));
    assert_eq!(layout(&[]).expect("right"), Layout::Aligned);
    assert!(layout(&["--units=X"]).is_err());
}
