//! Nodes that join by the token of a group, renew their certificates, join again and are removed.

use crate::job_builder::{alice, root};
use crate::testbed::{World, world};
use cluster::Command;
use cluster::command::JoinAttempt;
use model::reason::Refusal;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn issue(w: &mut World, pattern: &str, count: Option<u32>) -> Result<(), Refusal> {
    let expires = w.now + DAY;
    let (hash, pattern) = ("group000".into(), pattern.to_owned());
    w.try_as(root(), Command::IssueGroupToken { hash, pattern, count, expires }).map(|_| ())
}

fn join(w: &mut World, node: &str, fingerprint: &str) -> Result<(), String> {
    let attempt = JoinAttempt {
        hash: "group000".into(),
        fingerprint: fingerprint.into(),
        certificate_end: w.now + DAY * 10,
        node: Some(node.into()),
        dynamic: false,
        future: None,
    };
    w.try_as(root(), Command::UseToken(attempt)).map(|_| ()).map_err(|why| why.to_string())
}

fn renew(w: &mut World, node: &str, former: &str, fingerprint: &str) -> Result<(), Refusal> {
    let (nodes, end) = (vec![node.to_owned()], w.now + DAY * 10);
    let (former, fingerprint) = (former.to_owned(), fingerprint.to_owned());
    w.try_as(root(), Command::RenewCertificate { nodes, former, fingerprint, end }).map(|_| ())
}

#[track_caller]
fn refused(said: Result<(), String>, words: &str) {
    let said = said.expect_err("it is refused");
    assert!(said.contains(words), "{said}");
}

#[test]
fn group_token_is_bounded_by_names_number_and_time() {
    let mut w = world(4);
    for wrong in ["none[1-3]", "n[1-", ""] {
        assert!(issue(&mut w, wrong, None).is_err(), "{wrong}");
    }
    assert!(issue(&mut w, "n[1-3]", Some(0)).is_err());
    issue(&mut w, "n[1-3]", Some(2)).expect("a token");
    refused(join(&mut w, "n4", "d"), "does not fit n[1-3]");
    join(&mut w, "n1", "a").expect("the first");
    refused(join(&mut w, "n1", "b"), "sluice node rejoin n1");
    assert!(w.state.speaks_for("n1", "a") && !w.state.speaks_for("n1", "b"));
    join(&mut w, "n2", "b").expect("the second");
    refused(join(&mut w, "n3", "c"), "is used up");
    w.now = w.now + DAY;
    refused(join(&mut w, "n3", "c"), "has expired");
}

#[test]
fn node_that_joins_again_or_is_removed_leaves_no_certificate_behind() {
    let mut w = world(2);
    issue(&mut w, "n[1-2]", Some(9)).expect("a token");
    let rejoin =
        |w: &mut World| w.try_as(root(), Command::RejoinNode { node: "n1".into() }).map(|_| ());
    assert!(rejoin(&mut w).is_err(), "it has not joined");
    join(&mut w, "n1", "first").expect("joined");
    renew(&mut w, "n1", "first", "second").expect("renewed");
    assert!(w.state.speaks_for("n1", "first") && w.state.speaks_for("n1", "second"));
    rejoin(&mut w).expect("an administrator's word");
    assert!(w.state.speaks_for("n1", "second"), "until it has joined");
    join(&mut w, "n1", "third").expect("again");
    for void in ["first", "second"] {
        assert!(!w.state.speaks_for("n1", void), "{void}");
        assert!(renew(&mut w, "n1", void, "fourth").is_err(), "{void}");
    }
    refused(join(&mut w, "n1", "fourth"), "has joined already");
    rejoin(&mut w).expect("an administrator's word");
    w.now = w.now + DAY / 2;
    let remove = Command::RemoveAgent { node: "n1".into() };
    for command in [remove.clone(), Command::RejoinNode { node: "n1".into() }] {
        assert_eq!(w.try_as(alice(), command), Err(Refusal::AccessDenied));
    }
    w.run(remove);
    assert!(!w.state.speaks_for("n1", "third") && w.state.joins.is_empty());
    assert!(w.state.rejoins.is_empty(), "the word went with it");
    refused(join(&mut w, "n1", "fifth"), "sluice node rejoin n1");
    w.restart();
    refused(join(&mut w, "n1", "fifth"), "was removed");
    rejoin(&mut w).expect("an administrator's word");
    join(&mut w, "n1", "fifth").expect("by that word");
    let (nodes, expires) = (vec!["n1".to_owned()], w.now + DAY);
    w.run(Command::RemoveAgent { node: "n1".into() });
    w.run(Command::IssueToken { hash: "own".into(), nodes, expires });
    let own = JoinAttempt {
        hash: "own".into(),
        fingerprint: "sixth".into(),
        certificate_end: expires,
        node: None,
        dynamic: false,
        future: None,
    };
    w.run(Command::UseToken(own));
    assert!(w.state.speaks_for("n1", "sixth"), "a file for it alone is such a word");
}

/// An answer that was lost leaves the agent with the certificate that it asked with.
#[test]
fn renewal_whose_answer_was_lost_is_asked_for_again() {
    let mut w = world(1);
    issue(&mut w, "n1", None).expect("a token");
    join(&mut w, "n1", "first").expect("joined");
    for lost in ["second", "third"] {
        renew(&mut w, "n1", "first", lost).expect("renewed");
        assert!(w.state.speaks_for("n1", "first"));
    }
    assert!(!w.state.speaks_for("n1", "second"));
    renew(&mut w, "n1", "third", "fourth").expect("renewed");
    assert!(!w.state.speaks_for("n1", "first"));
}

#[test]
fn ended_certificate_makes_room_for_a_join() {
    let mut w = world(1);
    issue(&mut w, "n1", Some(2)).expect("a token");
    join(&mut w, "n1", "first").expect("joined");
    w.now = w.now + DAY * 10;
    assert!(!w.state.has_live_certificate("n1", w.now));
    issue(&mut w, "n1", Some(2)).expect("a token");
    join(&mut w, "n1", "second").expect("the one before has ended");
}
