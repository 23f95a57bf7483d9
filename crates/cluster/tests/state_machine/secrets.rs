//! Who may set and delete secrets, how many there may be, and what becomes of them when the key changes.

use crate::job_builder::{alice, root};
use crate::testbed::{World, world};
use cluster::command::ResealedSecret;
use cluster::{Command, Reply};
use model::bounds;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use model::reason::Refusal;
use model::secret::Sealed;

fn sealed(text: &str) -> Sealed {
    Sealed::new("k1", text)
}

fn set(w: &mut World, by: Principal, name: &str, value: &str) -> Result<Reply, Refusal> {
    let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
    w.try_as(by, Command::SetSecret { project, name, sealed: sealed(value) })
}

fn remove(w: &mut World, by: Principal, names: &[&str]) -> Result<Reply, Refusal> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    w.try_as(by, Command::RemoveSecrets { project: MAIN_PROJECT.into(), names })
}

#[test]
fn secrets_are_set_replaced_and_removed_by_administrators() {
    let mut w = world(1);
    set(&mut w, root(), "token", "one").expect("set");
    set(&mut w, root(), "token", "two").expect("replaced");
    assert_eq!(w.state.secrets_of(MAIN_PROJECT)["token"], sealed("two"));
    assert_eq!(set(&mut w, alice(), "token", "hers"), Err(Refusal::AccessDenied));
    assert_eq!(remove(&mut w, alice(), &["token"]), Err(Refusal::AccessDenied));
    // One name that is not there: none is removed.
    assert!(remove(&mut w, root(), &["token", "other"]).is_err());
    assert_eq!(w.state.secrets_of(MAIN_PROJECT).len(), 1);
    remove(&mut w, root(), &["token", "token"]).expect("removed");
    assert!(w.state.secrets.is_empty());
}

#[test]
fn bad_names_and_too_many_secrets_are_refused() {
    let mut w = world(1);
    for name in ["", "a b", "a.b", &"x".repeat(201)] {
        let refused = set(&mut w, root(), name, "value");
        assert!(matches!(refused, Err(Refusal::InvalidValue { .. })), "{name}: {refused:?}");
    }
    for n in 0..bounds::SECRETS.most {
        set(&mut w, root(), &format!("s{n}"), "value").expect("within the bound");
    }
    assert!(set(&mut w, root(), "more", "value").is_err());
    set(&mut w, root(), "s0", "replaced").expect("a known one may be replaced");
}

#[test]
fn resealing_leaves_a_secret_that_was_changed_meanwhile() {
    let mut w = world(1);
    set(&mut w, root(), "kept", "old").expect("set");
    set(&mut w, root(), "changed", "newer").expect("set");
    let resealed = |name: &str| ResealedSecret {
        project: MAIN_PROJECT.into(),
        name: name.into(),
        before: sealed("old"),
        after: Sealed::new("k2", "old"),
    };
    let command = Command::ResealSecrets(vec![resealed("kept"), resealed("changed")]);
    assert_eq!(w.try_as(alice(), command.clone()), Err(Refusal::AccessDenied));
    w.try_as(root(), command).expect("resealed");
    let known = w.state.secrets_of(MAIN_PROJECT);
    assert_eq!((&known["kept"], &known["changed"]), (&Sealed::new("k2", "old"), &sealed("newer")));
}
