//! Tests of the keys with which users come in by SSH.

use super::*;
use wire::ssh::{SshEndpoint, key_proof_text};

const ADA: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti ada@laptop";

fn keys(dir: &Path) -> SshKeys {
    SshKeys::load(dir, || Ok([7; 32])).expect("keys")
}

#[test]
fn registered_key_is_its_users_alone_and_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    store.add("ada", ADA, Registration::Proved, &[]).expect("added");
    store.add("ada", ADA, Registration::Proved, &[]).expect("the same key again changes nothing");
    let key = read_line(ADA).expect("a key");
    let again = keys(dir.path());
    assert!(again.is_key_of("ada", &key) && !again.is_key_of("bob", &key));
    assert_eq!(again.registered_by(&key), ["ada"]);
    assert_eq!(again.list("ada").len(), 1);
    again.remove("ada", "nobody@nowhere").expect_err("no such key");
    again.remove("ada", "ada@laptop").expect("removed");
    assert!(!keys(dir.path()).is_key_of("ada", &key));
}

#[test]
fn held_keys_differ_by_user_and_renewal_and_stay_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    let (ada, bob) = (store.held_public_line("ada"), store.held_public_line("bob"));
    assert_ne!(ada.split(' ').nth(1), bob.split(' ').nth(1));
    let private = PrivateKey::from_openssh(&store.held_private_text("ada").0).expect("a key");
    assert!(store.is_key_of("ada", private.public_key()));
    assert!(!store.is_key_of("bob", private.public_key()));
    assert_eq!(keys(dir.path()).held_public_line("ada"), ada);
    store.renew("ada", Timestamp(5)).expect("renewed");
    assert!(!keys(dir.path()).is_key_of("ada", private.public_key()));
    assert_eq!(store.held_public_line("bob"), bob);
    assert!(store.was_held_for("ada", private.public_key()), "it is known as an old one");
    assert!(!store.was_held_for("bob", private.public_key()));
    assert!(!store.was_held_for("ada", &read_line(ADA).expect("a key")));
}

#[test]
fn key_that_the_server_holds_for_another_is_not_registered() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    let (bobs, known) = (store.held_public_line("bob"), ["ada".to_owned(), "bob".to_owned()]);
    store.add("ada", &bobs, Registration::Proved, &known).expect_err("it is bob's");
    store.add("bob", &bobs, Registration::Proved, &known).expect("his own");
}

#[test]
fn keys_of_a_user_who_was_removed_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    store.add("ada", ADA, Registration::Proved, &[]).expect("added");
    let held = read_line(&store.held_public_line("ada")).expect("a key");
    assert!(store.is_held_since_before("ada", Timestamp(9)));
    store.renew_if_older("ada", Timestamp(3), Timestamp(5)).expect("renewed");
    let renewed = store.held_public_line("ada");
    store.renew_if_older("ada", Timestamp(3), Timestamp(6)).expect("nothing to do");
    assert_eq!(store.held_public_line("ada"), renewed, "it is renewed once");
    store.end_all("ada", Timestamp(9)).expect("ended");
    assert!(!store.is_held_since_before("ada", Timestamp(9)));
    let known = read_line(ADA).expect("a key");
    assert!(!store.is_key_of("ada", &known) && !store.is_key_of("ada", &held));
}

#[test]
fn key_that_another_has_registered_is_refused_unless_it_is_proved() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    let key = read_line(ADA).expect("a key");
    store.add("eve", ADA, Registration::Unproved, &[]).expect("nobody has it");
    assert!(store.is_unproved("eve", &key) && store.list("eve")[0].is_unproved);
    let refusal = store.add("ada", ADA, Registration::Unproved, &[]).expect_err("eve has it");
    assert!(refusal.to_string().contains("prove that it is yours"), "{refusal}");
    store.add("ada", ADA, Registration::Proved, &[]).expect("she has it");
    assert_eq!(store.registered_by(&key), ["ada"], "eve has it no more");
    store.add("eve", ADA, Registration::Unproved, &[]).expect_err("it is ada's");
    // Two who both have the private key may both register it.
    store.add("bob", ADA, Registration::Proved, &[]).expect("he has it too");
    assert_eq!(store.registered_by(&key), ["ada", "bob"]);
}

#[test]
fn key_is_the_same_with_any_comment_and_no_other_whose_line_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    let bare = ADA.rsplit_once(' ').expect("a comment").0;
    store.add("ada", bare, Registration::Proved, &[]).expect("added");
    assert_eq!(store.registered_by(&read_line(ADA).expect("a key")), ["ada"]);
    let key = read_line(bare).expect("a key");
    let longer = UserKeys { keys: vec![format!("{bare}A")], ..UserKeys::default() };
    store.users().insert("eve".into(), longer);
    assert_eq!(store.registered_by(&key), ["ada"]);
}

#[test]
fn key_that_was_removed_is_known_until_it_is_registered_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let key = read_line(ADA).expect("a key");
    let store = keys(dir.path());
    store.add("ada", ADA, Registration::Proved, &[]).expect("added");
    store.remove("ada", &fingerprint(&key)).expect("removed");
    let store = keys(dir.path());
    assert!(store.was_removed_by("ada", &key) && !store.was_removed_by("bob", &key));
    store.add("ada", ADA, Registration::Proved, &[]).expect("added again");
    assert!(!store.was_removed_by("ada", &key));
    store.end_all("ada", Timestamp(9)).expect("ended");
    assert!(store.was_removed_by("ada", &key), "with all others");
}

#[test]
fn number_of_removed_keys_that_are_known_has_a_bound() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    for number in 0..=u8::MAX {
        store.add("ada", &keys_line(number), Registration::Proved, &[]).expect("added");
        let key = read_line(&keys_line(number)).expect("a key");
        store.remove("ada", &fingerprint(&key)).expect("removed");
    }
    store.add("ada", ADA, Registration::Proved, &[]).expect("added");
    store.remove("ada", "ada@laptop").expect("removed");
    assert_eq!(store.users()["ada"].removed.len(), REMOVED_MAX);
    assert!(store.was_removed_by("ada", &read_line(ADA).expect("a key")), "the latest are kept");
}

#[test]
fn proof_is_a_signature_for_one_user_at_one_endpoint() {
    let pair = Ed25519Keypair::from_seed(&[3; 32]);
    let (key, other) = (PrivateKey::from(pair), keys_line(4));
    let line = key.public_key().to_openssh().expect("a line");
    let endpoint = SshEndpoint { host: "h".into(), port: 1, host_key: "k".into() };
    let text = key_proof_text("ada", "f", &endpoint);
    let sign = |namespace: &str, text: &str| {
        let signature = key.sign(namespace, HashAlg::Sha512, text.as_bytes()).expect("signed");
        signature.to_pem(LineEnding::LF).expect("text")
    };
    let proof = sign(KEY_PROOF_NAMESPACE, &text);
    assert!(is_proof(&line, &text, &proof));
    assert!(!is_proof(&other, &text, &proof), "of another key");
    let of = |user: &str, authority: &str, endpoint: &SshEndpoint| {
        is_proof(&line, &key_proof_text(user, authority, endpoint), &proof)
    };
    assert!(!of("eve", "f", &endpoint), "of another user");
    assert!(!of("ada", "g", &endpoint), "of another cluster");
    let elsewhere = SshEndpoint { host_key: "l".into(), ..endpoint.clone() };
    assert!(!of("ada", "f", &elsewhere), "elsewhere");
    assert!(!is_proof(&line, &text, &sign("file", &text)), "made for something else");
    assert!(!is_proof(&line, &text, "") && !is_proof(&line, &text, &"x".repeat(1 << 20)));
}

#[test]
fn secret_of_another_length_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    for text in ["", "AAAA"] {
        std::fs::write(dir.path().join(SECRET), text).expect("written");
        let error = SshKeys::load(dir.path(), || Ok([7; 32])).err().expect(text).to_string();
        assert!(error.contains("expected 32 bytes"), "{error}");
    }
}

#[test]
fn what_is_no_public_key_is_refused_in_one_line() {
    for line in [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3MAAACB",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+\nssh-ed25519 AAAA",
        &"x".repeat(LINE_BYTES_MAX + 1),
    ] {
        let refusal = read_line(line).expect_err(line).to_string();
        assert!(!refusal.contains('\n') && refusal.len() < 250, "{refusal}");
    }
}

#[test]
fn user_has_a_bounded_number_of_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = keys(dir.path());
    for number in 0..KEYS_MAX {
        store.add("ada", &keys_line(number as u8), Registration::Proved, &[]).expect("added");
    }
    let refusal = store
        .add("ada", &keys_line(200), Registration::Proved, &[])
        .expect_err("one too many")
        .to_string();
    assert!(refusal.contains("remove one first"), "{refusal}");
    store.add("bob", &keys_line(200), Registration::Proved, &[]).expect("another user's");
}

fn keys_line(number: u8) -> String {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[number; 32]));
    key.public_key().to_openssh().expect("a line")
}
