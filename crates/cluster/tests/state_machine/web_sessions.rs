//! Sessions of browsers: who may set them, how many there are, and when they go.

use crate::job_builder::{alice, bob, root};
use crate::testbed::{World, world};
use cluster::Command;
use cluster::web_session::{LIFE, OF_USER_MAX, SignInProof, WebSession};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use std::time::Duration;

fn session(w: &World, who: Principal, hash: &str) -> WebSession {
    let proof = SignInProof::Token { hash: "of a token".into() };
    WebSession { hash: hash.into(), who, made: w.now, proof }
}

fn set(open: Option<WebSession>, close: &[&str]) -> Command {
    let close = close.iter().map(|hash| (*hash).to_owned()).collect();
    Command::SetWebSessions { open: open.map(Box::new), close }
}

fn open(w: &mut World, who: Principal, hash: &str) {
    let session = session(w, who, hash);
    w.run(set(Some(session), &[]));
}

#[test]
fn sessions_are_set_by_the_server_alone() {
    let mut w = world(1);
    let own = session(&w, alice(), "own");
    let refused = w.try_as(alice(), set(Some(own), &[])).expect_err("it is not hers to make");
    assert_eq!(refused, Refusal::AccessDenied);
    open(&mut w, alice(), "own");
    assert!(w.try_as(alice(), set(None, &["own"])).is_err());
    w.try_as(root(), set(None, &["own", "unknown"])).expect("closed");
    assert!(w.state.web_sessions.is_empty());
}

#[test]
fn users_have_a_bounded_number_of_sessions_and_lose_the_oldest() {
    let mut w = world(1);
    open(&mut w, bob(), "of-bob");
    for n in 0..=OF_USER_MAX {
        w.pass(1);
        open(&mut w, alice(), &format!("s{n}"));
    }
    assert_eq!(w.state.web_sessions.len(), OF_USER_MAX + 1);
    assert!(!w.state.web_sessions.contains_key("s0"));
    assert!(w.state.web_sessions.contains_key("of-bob"), "others' sessions stay");
}

#[test]
fn session_goes_with_its_end_and_with_its_users_removal() {
    let mut w = world(1);
    let sign_on = SignInProof::SingleSignOn { expires: w.now + Duration::from_secs(60) };
    let short = WebSession { proof: sign_on, ..session(&w, alice(), "short") };
    assert!(!short.has_ended(w.now) && short.has_ended(w.now + Duration::from_secs(60)));
    let long = session(&w, alice(), "long");
    assert!(!long.has_ended(w.now + LIFE / 2) && long.has_ended(w.now + LIFE));
    w.run(set(Some(short), &[]));
    w.run(set(Some(long), &[]));
    w.pass(61);
    open(&mut w, bob(), "of-bob");
    assert!(!w.state.web_sessions.contains_key("short"), "its end goes with the next change");
    w.run(Command::SetRole { name: alice().name, role: Role::Operator });
    w.run(Command::RemoveUsers { names: vec![alice().name] });
    let left: Vec<&str> = w.state.web_sessions.keys().map(String::as_str).collect();
    assert_eq!(left, ["of-bob"]);
}

/// Somebody whom the identity provider vouches for need not have a token or a role that could be taken away.
#[test]
fn user_of_a_sign_on_alone_is_shut_out_and_removed() {
    let mut w = world(1);
    let expires = w.now + Duration::from_secs(3600);
    let proof = SignInProof::SingleSignOn { expires };
    let visitor = || Principal { name: "visitor".into(), uid: 7007, ..alice() };
    let remove = || Command::RemoveUsers { names: vec![visitor().name] };
    w.try_as(root(), remove()).expect_err("nobody has heard of him");
    let session = WebSession { proof, ..session(&w, visitor(), "his") };
    w.run(set(Some(session), &[]));
    assert!(w.state.is_known_user("visitor"));
    w.try_as(root(), remove()).expect("he is removed");
    assert!(w.state.web_sessions.is_empty());
}
