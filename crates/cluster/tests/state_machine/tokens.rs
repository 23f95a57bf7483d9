//! Who may make, limit and revoke tokens, how long they last, and how many are kept.

use crate::job_builder::{alice, bob, root, user};
use crate::testbed::{World, world};
use cluster::command::JoinAttempt;
use cluster::token::{ADMIN_TOKEN, TokenStatus, UserToken};
use cluster::{Command, Reply};
use model::bounds;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::time::Timestamp;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A token of this user that is good for a day.
fn token(w: &World, of: &str, name: &str) -> UserToken {
    UserToken {
        hash: format!("{of}-{name}"),
        name: of.into(),
        token_name: name.into(),
        made: Some(w.now),
        expires: Some(w.now + DAY),
        ..UserToken::default()
    }
}

fn make(w: &mut World, by: Principal, token: UserToken) -> Result<Reply, Refusal> {
    w.try_as(by, Command::SetUserToken(Box::new(token)))
}

fn revoke(w: &mut World, by: Principal, name: &str, of: Option<&str>) -> Result<Reply, Refusal> {
    w.try_as(by, Command::RevokeToken { name: name.into(), user: of.map(str::to_owned) })
}

fn by_token(who: Principal, limit: Role) -> Principal {
    Principal { token_limit: Some(limit), ..who }
}

#[test]
fn users_make_tokens_for_themselves_and_administrators_for_all() {
    let mut w = world(1);
    w.run(Command::SetRole { name: "olga".into(), role: Role::Operator });
    let olga = user("olga", 2000);
    for (by, of, allowed) in [
        (alice(), "alice", true),
        (alice(), "bob", false),
        (olga, "alice", false),
        (root(), "alice", true),
        // A token that leaked makes no other, unless it is an administrator's.
        (by_token(alice(), Role::Admin), "alice", false),
        (by_token(root(), Role::User), "alice", false),
        (by_token(root(), Role::Admin), "alice", true),
    ] {
        let wanted = token(&w, of, &format!("t{}", w.events.len()));
        let made = make(&mut w, by.clone(), wanted);
        assert_eq!(made.is_ok(), allowed, "{} for {of}: {made:?}", by.name);
    }
}

#[test]
fn token_is_never_more_than_its_maker_and_limits_whoever_holds_it() {
    let mut w = world(1);
    w.run(Command::SetRole { name: "olga".into(), role: Role::Operator });
    let olga = user("olga", 2000);
    for (role, allowed) in [(Role::User, true), (Role::Operator, true), (Role::Admin, false)] {
        let limited = UserToken { role, limit: Some(role), ..token(&w, "olga", role.word()) };
        assert_eq!(make(&mut w, olga.clone(), limited).is_ok(), allowed, "{role:?}");
    }
    let qos = || Command::SetQos(Box::new(model::account::Qos::named("long")));
    assert!(w.try_as(by_token(olga.clone(), Role::Operator), qos()).is_ok());
    for limited in [by_token(olga, Role::User), by_token(root(), Role::User)] {
        assert_eq!(w.try_as(limited, qos()), Err(Refusal::AccessDenied));
    }
}

#[test]
fn only_administrators_make_tokens_that_never_expire() {
    let mut w = world(1);
    let never = |w: &World, name: &str| UserToken { expires: None, ..token(w, "alice", name) };
    let (first, second) = (never(&w, "a"), never(&w, "b"));
    assert!(matches!(make(&mut w, alice(), first), Err(Refusal::InvalidValue { .. })));
    assert!(make(&mut w, root(), second).is_ok());
    for (days, allowed) in [(0, false), (365, true), (366, false)] {
        let expires = Some(w.now + DAY * days);
        let wanted = UserToken { expires, ..token(&w, "alice", &format!("d{days}")) };
        assert_eq!(make(&mut w, alice(), wanted).is_ok(), allowed, "{days} days");
    }
}

#[test]
fn revoked_and_expired_tokens_are_remembered_as_such() {
    let mut w = world(1);
    for name in ["laptop", "ci"] {
        let wanted = token(&w, "alice", name);
        make(&mut w, alice(), wanted).expect("a token");
    }
    let status =
        |w: &World, name: &str| w.state.user_tokens[&format!("alice-{name}")].status(w.now);
    assert_eq!(revoke(&mut w, bob(), "laptop", Some("alice")), Err(Refusal::AccessDenied));
    assert!(revoke(&mut w, bob(), "laptop", None).is_err(), "he has no token of that name");
    assert_eq!(status(&w, "laptop"), TokenStatus::Good);
    revoke(&mut w, alice(), "laptop", None).expect("her own");
    assert!(revoke(&mut w, alice(), "laptop", None).is_err(), "only once");
    w.restart();
    assert_eq!((status(&w, "laptop"), status(&w, "ci")), (TokenStatus::Revoked, TokenStatus::Good));
    w.now = w.now + DAY;
    assert_eq!(status(&w, "ci"), TokenStatus::Expired);
}

#[test]
fn token_names_are_plain_and_each_users_own() {
    let mut w = world(1);
    for wrong in ["a b", "a\nb", "ä", ADMIN_TOKEN, &"x".repeat(65)] {
        let wanted = token(&w, "alice", wrong);
        assert!(make(&mut w, alice(), wanted).is_err(), "{wrong}");
    }
    for who in [alice(), bob()] {
        let wanted = token(&w, &who.name, "ci");
        make(&mut w, who, wanted).expect("each has one of that name");
    }
    let again = UserToken { hash: "other".into(), ..token(&w, "alice", "ci") };
    assert!(make(&mut w, alice(), again.clone()).is_err(), "there is one");
    assert!(revoke(&mut w, root(), "ci", None).is_err(), "whose?");
    revoke(&mut w, root(), "ci", Some("alice")).expect("hers");
    make(&mut w, alice(), again).expect("the name is free again");
    // Without a name it is called by user and hash, as tokens of the build before are.
    let unnamed = UserToken { hash: "0123456789".into(), ..token(&w, "bob", "") };
    make(&mut w, bob(), unnamed).expect("a token");
    revoke(&mut w, bob(), "bob-01234567", None).expect("by its given name");
}

#[test]
fn user_has_a_bounded_number_of_tokens_and_ended_ones_make_room() {
    let mut w = world(1);
    for n in 0..bounds::TOKENS.most {
        let wanted = token(&w, "alice", &format!("t{n}"));
        make(&mut w, alice(), wanted).expect("within the bound");
    }
    let (more, of_bob) = (token(&w, "alice", "more"), token(&w, "bob", "t0"));
    assert!(make(&mut w, alice(), more.clone()).is_err());
    make(&mut w, bob(), of_bob).expect("another user's");
    revoke(&mut w, alice(), "t7", None).expect("hers");
    let churned = make(&mut w, alice(), more.clone());
    assert!(churned.is_err(), "who makes and revokes in a loop is refused: {churned:?}");
    w.now = w.now + Duration::from_secs(3600);
    make(&mut w, alice(), more).expect("there is room again");
    assert!(!w.state.user_tokens.contains_key("alice-t7"), "it is forgotten");
    assert_eq!(w.state.user_tokens.len(), bounds::TOKENS.most + 1);
}

#[test]
fn there_is_one_admin_token_and_the_one_before_is_refused() {
    let mut w = world(1);
    let admin = |w: &World, digit: &str| UserToken {
        hash: digit.repeat(64),
        expires: None,
        ..token(w, "root", ADMIN_TOKEN)
    };
    for digit in ["1", "2", "1"] {
        let wanted = admin(&w, digit);
        w.run(Command::SetAdminToken(Box::new(wanted)));
        w.now = w.now + DAY;
        let good = w.state.user_tokens.values().filter(|t| t.status(w.now) == TokenStatus::Good);
        assert_eq!(good.map(|t| t.hash.clone()).collect::<Vec<_>>(), [digit.repeat(64)]);
    }
    assert!(revoke(&mut w, root(), ADMIN_TOKEN, None).is_err(), "it is rotated");
    let (bad, stolen) = (UserToken { hash: "1".into(), ..admin(&w, "1") }, admin(&w, "3"));
    assert!(w.try_as(root(), Command::SetAdminToken(Box::new(bad))).is_err(), "no hash");
    let denied = w.try_as(alice(), Command::SetAdminToken(Box::new(stolen)));
    assert_eq!(denied, Err(Refusal::AccessDenied));
}

#[test]
fn join_tokens_expire_are_revoked_and_are_forgotten() {
    let mut w = world(1);
    let node = w.state.nodes.keys().next().expect("a node").clone();
    let issue = |w: &World, hash: &str, life: Duration| Command::IssueToken {
        hash: hash.into(),
        nodes: vec![node.clone()],
        expires: w.now + life,
    };
    let too_long = issue(&w, "long", DAY * 31);
    assert!(w.try_as(root(), too_long).is_err());
    for (hash, life) in [("first000", DAY), ("second00", DAY * 2)] {
        let command = issue(&w, hash, life);
        w.run(command);
    }
    w.now = w.now + DAY;
    let spend = spend("first000", "f");
    assert!(w.try_as(root(), spend).is_err(), "it has expired");
    let third = issue(&w, "third000", DAY);
    w.run(third);
    assert_eq!(w.state.tokens.keys().collect::<Vec<_>>(), ["second00", "third000"]);
    assert!(revoke(&mut w, alice(), "join-second00", None).is_err());
    revoke(&mut w, root(), "join-second00", None).expect("a join token");
    assert_eq!(w.state.tokens.keys().collect::<Vec<_>>(), ["third000"]);
}

/// An agent joins with the token of this hash.
pub fn spend(hash: &str, fingerprint: &str) -> Command {
    Command::UseToken(JoinAttempt {
        hash: hash.into(),
        fingerprint: fingerprint.into(),
        request: format!("request of {fingerprint}"),
        certificate_end: Timestamp(i64::MAX),
        node: None,
        dynamic: false,
        future: None,
    })
}
