//! Nodes that join by the token of a group, renew their certificates, join again and are removed.

use crate::job_builder::{self, alice, root};
use crate::testbed::{World, world};
use cluster::Command;
use cluster::command::JoinAttempt;
use cluster::hello_answer::HelloAnswer;
use model::reason::Refusal;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn issue(w: &mut World, pattern: &str, count: Option<u32>) -> Result<(), Refusal> {
    let expires = w.now + DAY;
    let (hash, pattern) = ("group000".into(), pattern.to_owned());
    let command = Command::IssueGroupToken { hash, pattern, count, dynamic: false, expires };
    w.try_as(root(), command).map(|_| ())
}

fn join(w: &mut World, node: &str, fingerprint: &str) -> Result<(), String> {
    let attempt = JoinAttempt {
        hash: "group000".into(),
        fingerprint: fingerprint.into(),
        request: format!("request of {fingerprint}"),
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
fn what_the_agent_before_may_run_is_not_launched_by_one_that_joins_anew() {
    let mut w = world(1);
    issue(&mut w, "n1", Some(2)).expect("a token");
    join(&mut w, "n1", "a").expect("the first");
    let running = w.started(job_builder::ask());
    let answers = |w: &World| w.state.hello_answers("n1", &[], |_| false);
    assert_eq!(answers(&w), [HelloAnswer::Launch(running)], "its order was lost");
    w.try_as(root(), Command::RejoinNode { node: "n1".into() }).expect("an administrator's word");
    join(&mut w, "n1", "b").expect("it joins again");
    assert_eq!(answers(&w), [HelloAnswer::Missing(running)]);
    let here = w.state.hello_answers("n1", &[(running, true)], |_| false);
    assert_eq!(here, [HelloAnswer::GoOn(running)], "its spool is still there");
    let later = w.started(job_builder::ask());
    assert!(answers(&w).contains(&HelloAnswer::Launch(later)));
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
        request: "request of sixth".into(),
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

/// An agent asks with this certificate request, and would be given this certificate.
fn ask(
    w: &mut World,
    hash: &str,
    node: Option<&str>,
    request: &str,
    fingerprint: &str,
) -> Result<(), String> {
    let attempt = JoinAttempt {
        hash: hash.into(),
        fingerprint: fingerprint.into(),
        request: request.into(),
        certificate_end: w.now + DAY * 10,
        node: node.map(str::to_owned),
        dynamic: false,
        future: None,
    };
    w.try_as(root(), Command::UseToken(attempt)).map(|_| ()).map_err(|why| why.to_string())
}

#[test]
fn join_whose_answer_was_lost_is_asked_for_again_by_the_same_key_alone_and_for_a_short_time() {
    let mut w = world(2);
    let (nodes, expires) = (vec!["n1".to_owned()], w.now + DAY);
    w.run(Command::IssueToken { hash: "own".into(), nodes, expires });
    ask(&mut w, "own", None, "mine", "first").expect("joined");
    w.restart();
    refused(ask(&mut w, "own", None, "another's", "theirs"), "the join token is wrong, was used");
    refused(ask(&mut w, "guessed", None, "mine", "theirs"), "the join token is wrong");
    ask(&mut w, "own", None, "mine", "second").expect("the same request");
    assert!(w.state.speaks_for("n1", "second") && !w.state.speaks_for("n1", "first"));
    for again in 1..10 {
        ask(&mut w, "own", None, "mine", &format!("again {again}")).expect("a few times");
    }
    refused(ask(&mut w, "own", None, "mine", "too often"), "was used");

    issue(&mut w, "n[1-2]", None).expect("a token");
    ask(&mut w, "group000", Some("n2"), "of two", "a").expect("joined");
    refused(ask(&mut w, "group000", Some("n2"), "another's", "b"), "has joined already");
    refused(ask(&mut w, "group000", Some("n1"), "of two", "b"), "has joined already");
    ask(&mut w, "group000", Some("n2"), "of two", "b").expect("the same request");
    let used = |w: &World| w.state.tokens["group000"].group.as_ref().map(|group| group.used);
    assert_eq!(used(&w), Some(1), "it has spent one join");
    w.now = w.now + Duration::from_secs(600);
    refused(ask(&mut w, "group000", Some("n2"), "of two", "c"), "has joined already");
    assert!(w.state.speaks_for("n2", "b"));
}

#[test]
fn join_is_not_repeated_for_a_node_that_was_removed_or_with_a_token_that_was_revoked() {
    let mut w = world(2);
    issue(&mut w, "n[1-2]", Some(9)).expect("a token");
    ask(&mut w, "group000", Some("n1"), "of one", "a").expect("joined");
    w.run(Command::RemoveAgent { node: "n1".into() });
    refused(ask(&mut w, "group000", Some("n1"), "of one", "b"), "was removed");
    ask(&mut w, "group000", Some("n2"), "of two", "c").expect("joined");
    w.run(Command::RevokeToken { name: "join-group000".into(), user: None });
    refused(ask(&mut w, "group000", Some("n2"), "of two", "d"), "the join token is wrong");
    assert!(w.state.speaks_for("n2", "c"));
}
