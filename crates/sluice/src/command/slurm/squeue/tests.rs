//! Command lines of `squeue`, and which jobs they ask for.

use super::*;
use ::slurm::option::parse::parse;
use model::change::JobRef;
use model::id::JobId;
use model::run::JobState;

fn question(args: &[&str]) -> Result<SqueueQuery, CommandError> {
    let parsed = parse(Command::Squeue, args).expect("a right line");
    SqueueQuery::new(&parsed, || "alice".to_owned(), |uid| (uid == 1002).then(|| "bob".to_owned()))
}

#[test]
fn every_squeue_filter_is_sent_to_the_server() {
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let none = JobFilter::default;
    let table = [
        (&[][..], none()),
        (&["-u", "carol,1002"], JobFilter { users: strings(&["carol", "bob"]), ..none() }),
        (&["-u", "carol", "--me"], JobFilter { users: strings(&["alice"]), ..none() }),
        (&["-A", "chem,phys"], JobFilter { accounts: strings(&["chem", "phys"]), ..none() }),
        (&["-p", "gpu"], JobFilter { partitions: strings(&["gpu"]), ..none() }),
        (&["-n", "a,b"], JobFilter { names: strings(&["a", "b"]), ..none() }),
        (&["-q", "high"], JobFilter { qos: strings(&["high"]), ..none() }),
        (&["-w", "n[1-2]"], JobFilter { nodes: strings(&["n1", "n2"]), ..none() }),
        (&["-t", "pd"], JobFilter { states: vec![JobState::Pending], ..none() }),
        (&["-t", "all"], JobFilter { all_states: true, ..none() }),
        (&["--json"], JobFilter { all_states: true, ..none() }),
        (&["--json", "-t", "r"], JobFilter { states: vec![JobState::Running], ..none() }),
        (&["-j", "7"], JobFilter { jobs: vec![JobRef::whole(JobId(7))], ..none() }),
    ];
    for (args, filter) in table {
        assert_eq!(question(args).expect("right").wanted.filter, filter, "{args:?}");
    }
}

#[test]
fn callers_name_is_looked_up_for_me_alone_and_only_named_users_may_be_unknown() {
    let table = [
        (&[][..], false, false),
        (&["-u", "carol"], false, true),
        (&["--me"], true, false),
        (&["--me", "-u", "carol"], false, true),
        (&["-u", "carol", "--me"], true, false),
    ];
    for (args, looks_up, names_users) in table {
        let parsed = parse(Command::Squeue, args).expect("a right line");
        let mut is_looked_up = false;
        let me = || {
            is_looked_up = true;
            "alice".to_owned()
        };
        let asked = SqueueQuery::new(&parsed, me, |_| None).expect("right");
        assert_eq!((is_looked_up, asked.names_users), (looks_up, names_users), "{args:?}");
    }
}

#[test]
fn a_step_filter_also_filters_by_its_job() {
    let asked = question(&["-s", "7.0"]).expect("right");
    assert!(asked.wanted.steps);
    assert_eq!(asked.wanted.filter.jobs, [JobRef::whole(JobId(7))]);
    assert!(question(&["-s"]).expect("right").wanted.filter.jobs.is_empty());
}

#[test]
fn bad_filters_are_refused_with_one_message() {
    let table = [
        (&["-j", "abc"][..], "squeue: error: Invalid job id: abc"),
        (&["-t", "BOGUS"], "squeue: error: Invalid job state specified: BOGUS"),
        (&["-w", "n[1-"], "n[1-"),
    ];
    for (args, words) in table {
        let text = question(args).expect_err("wrong").to_string();
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

#[test]
fn the_last_of_two_formats_counts() {
    let shown = |args: &[&str]| output_options(&parse(Command::Squeue, args).expect("right"));
    let options = shown(&["-O", "JobID", "-o", "%i"]);
    assert_eq!((options.format.as_deref(), options.long_format), (Some("%i"), None));
    let options = shown(&["-o", "%i", "-O", "JobID"]);
    assert_eq!((options.format, options.long_format.as_deref()), (None, Some("JobID")));
}

#[test]
fn an_interval_is_a_whole_number_of_seconds() {
    let every = |text: &str| iterate(&parse(Command::Squeue, &["-i", text]).expect("right"));
    assert_eq!(every("2").expect("right"), Some(Duration::from_secs(2)));
    assert!(every("0").is_err() && every("x").is_err());
}
