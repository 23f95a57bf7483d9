//! Verifies orders: each must be signed by the server, for this node, user and attempt, not expired, and not taken
//! before.

pub(crate) mod replay_guard;

use crate::error::AgentError;
use crate::order_gate::replay_guard::ReplayGuard;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::id::AttemptId;
use model::time::Timestamp;
use ring::signature::{ED25519, UnparsedPublicKey};
use std::collections::HashMap;
use wire::order::{Action, Order, SignedOrder};
use wire::order_fence::{self, SeenOrders, StaleOrder};
use wire::version;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderRefusal {
    #[error("the order is not signed by this cluster's server")]
    Forged,
    #[error("the order cannot be read: {0}")]
    Malformed(String),
    #[error("the order is of protocol version {0}, which this agent does not speak")]
    Version(u32),
    #[error("the order is for node {0}, which this agent is not")]
    OtherNode(String),
    #[error(transparent)]
    Stale(#[from] StaleOrder),
    #[error("the order is for user {order}, and what it is about belongs to user {actual}")]
    OtherUser { order: u32, actual: u32 },
    #[error(
        "this agent is not root: it runs as user {own} and cannot start processes of user {wanted}"
    )]
    NotRoot { own: u32, wanted: u32 },
    #[error("no attempt {0} is here")]
    UnknownAttempt(AttemptId),
    #[error("attempt {0} still runs and cannot be forgotten")]
    StillRuns(AttemptId),
    #[error("the supervisor of attempt {0} does not take orders")]
    SupervisorBusy(AttemptId),
    #[error(transparent)]
    Node(#[from] AgentError),
}

/// A refused order, as far as it could be read, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    pub order: Option<Box<Order>>,
    pub why: OrderRefusal,
}

pub(crate) struct Gate {
    key: UnparsedPublicKey<Vec<u8>>,
    replay_guards: HashMap<String, ReplayGuard>,
    seen: SeenOrders,
    /// The only user whose jobs an agent without root can start.
    only_uid: Option<u32>,
}

impl Gate {
    /// `order_key` is the server's public key in base64; `replay_guards` has one entry for each node of this agent.
    pub fn new(
        order_key: &str,
        replay_guards: HashMap<String, ReplayGuard>,
        only_uid: Option<u32>,
    ) -> Result<Gate, AgentError> {
        let key = STANDARD.decode(order_key).map_err(|e| AgentError::Content {
            path: "the server's order key".into(),
            reason: e.to_string(),
        })?;
        let term = replay_guards.values().map(ReplayGuard::term).max().unwrap_or(0);
        let key = UnparsedPublicKey::new(&ED25519, key);
        let seen = SeenOrders { term, serial: 0 };
        Ok(Gate { key, replay_guards, seen, only_uid })
    }

    /// The replay guard of a node.
    pub fn replay_guard(&mut self, node: &str) -> Option<&mut ReplayGuard> {
        self.replay_guards.get_mut(node)
    }

    /// The highest term that any order has carried.
    pub fn term(&self) -> u64 {
        self.seen.term
    }

    /// Accepts an order and remembers it, or returns why it is refused. `uid_of` returns the user of an attempt on this
    /// node; `now` is by the server's clock.
    pub fn admit(
        &mut self,
        signed: &SignedOrder,
        now: Timestamp,
        uid_of: impl Fn(&str, AttemptId) -> Option<u32>,
    ) -> Result<Order, Refused> {
        let order = self.verify(signed).map_err(|why| Refused { order: None, why })?;
        match self.check(&order, now, uid_of).and_then(|()| self.remember(&order, now)) {
            Ok(()) => Ok(order),
            Err(why) => Err(Refused { order: Some(Box::new(order)), why }),
        }
    }

    fn verify(&self, signed: &SignedOrder) -> Result<Order, OrderRefusal> {
        let signature = STANDARD.decode(&signed.signature).map_err(|_| OrderRefusal::Forged)?;
        self.key.verify(signed.body.as_bytes(), &signature).map_err(|_| OrderRefusal::Forged)?;
        serde_json::from_str(&signed.body).map_err(|e| OrderRefusal::Malformed(e.to_string()))
    }

    fn check(
        &self,
        order: &Order,
        now: Timestamp,
        uid_of: impl Fn(&str, AttemptId) -> Option<u32>,
    ) -> Result<(), OrderRefusal> {
        if !version::compatible(order.version) {
            return Err(OrderRefusal::Version(order.version));
        }
        let Some(guard) = self.replay_guards.get(&order.node) else {
            return Err(OrderRefusal::OtherNode(order.node.clone()));
        };
        self.seen.check(order, now)?;
        let held = uid_of(&order.node, order.attempt);
        let owner = match &order.action {
            Action::Launch(launch) => Some(launch.user.uid),
            _ => held,
        };
        match owner {
            Some(actual) if actual != order.uid && !is_server_cleanup(order) => {
                return Err(OrderRefusal::OtherUser { order: order.uid, actual });
            }
            _ => {}
        }
        if matches!(order.action, Action::Reboot { .. }) && order.uid != 0 {
            return Err(OrderRefusal::OtherUser { order: order.uid, actual: 0 });
        }
        if !matches!(order.action, Action::Launch(_) | Action::Volume(_)) {
            return Ok(());
        }
        if let Some(own) = self.only_uid.filter(|own| *own != order.uid) {
            return Err(OrderRefusal::NotRoot { own, wanted: order.uid });
        }
        if matches!(order.action, Action::Volume(_)) {
            return Ok(());
        }
        let is_known = held.is_some() || guard.was_taken(order.attempt);
        let newest = guard.newest_attempt(order.attempt.job);
        Ok(order_fence::check_launch(order.attempt, is_known, newest)?)
    }

    fn remember(&mut self, order: &Order, now: Timestamp) -> Result<(), OrderRefusal> {
        let guard = self.replay_guards.get_mut(&order.node);
        let guard = guard.ok_or_else(|| OrderRefusal::OtherNode(order.node.clone()))?;
        self.seen.term = self.seen.term.max(order.term);
        guard.raise_term(order.term)?;
        if matches!(order.action, Action::Launch(_)) {
            guard.take(order.attempt, order.expires, now)?;
        }
        self.seen.note(order);
        Ok(())
    }
}

/// Whether the server itself, as uid 0, ends or forgets an attempt: allowed for any user's attempt.
fn is_server_cleanup(order: &Order) -> bool {
    order.uid == 0 && matches!(order.action, Action::End(_) | Action::Forget)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::{attempt, launch};
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use tempfile::TempDir;

    struct Bench {
        key: Ed25519KeyPair,
        folder: TempDir,
        own: u32,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().expect("a scratch folder");
            Bench { key: key_pair(), folder, own: launch().user.uid }
        }

        fn gate(&self) -> Gate {
            let guard = ReplayGuard::open(self.folder.path(), Timestamp(0)).expect("a guard");
            let public = STANDARD.encode(self.key.public_key());
            Gate::new(&public, HashMap::from([("n1".to_owned(), guard)]), None).expect("a gate")
        }

        fn order(&self, serial: u64, number: u32) -> Order {
            Order {
                version: version::PROTOCOL,
                term: 5,
                serial,
                node: "n1".into(),
                attempt: attempt(9, number),
                uid: self.own,
                expires: Timestamp(1_000),
                action: Action::Launch(Box::new(launch())),
            }
        }
    }

    fn key_pair() -> Ed25519KeyPair {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("the same key")
    }

    fn sign(key: &Ed25519KeyPair, order: &Order) -> SignedOrder {
        let body = serde_json::to_string(order).expect("JSON");
        let signature = STANDARD.encode(key.sign(body.as_bytes()));
        SignedOrder { body, signature }
    }

    fn nobody(_: &str, _: AttemptId) -> Option<u32> {
        None
    }

    fn refusal(gate: &mut Gate, signed: &SignedOrder, now: i64) -> String {
        gate.admit(signed, Timestamp(now), nobody)
            .map_or_else(|r| r.why.to_string(), |_| "taken".into())
    }

    #[test]
    fn order_with_any_wrong_field_is_refused() {
        let bench = Bench::new();
        let own = bench.own;
        type Change = fn(&mut Order);
        let cases: [(Change, &str); 7] = [
            (|_| {}, "taken"),
            (|o| o.node = "n2".into(), "for node n2"),
            (|o| o.term = 4, "term 4, and term 5"),
            (|o| o.expires = Timestamp(499), "expired 1 ms ago"),
            (|o| o.version = 99, "protocol version 99"),
            (|o| o.uid += 1, "belongs to user"),
            (|o| o.attempt.number = 2, "taken"),
        ];
        for (serial, (change, words)) in cases.into_iter().enumerate() {
            let mut gate = bench.gate();
            let mut first = bench.order(serial as u64 + 1, 1);
            first.attempt = attempt(1_000 + serial as u32, 1);
            assert_eq!(refusal(&mut gate, &sign(&bench.key, &first), 500), "taken");
            let mut order = bench.order(serial as u64 + 1_000, 1);
            change(&mut order);
            let answer = refusal(&mut gate, &sign(&bench.key, &order), 500);
            let fits = if words == "taken" { answer == words } else { answer.contains(words) };
            assert!(fits, "{order:?}: {answer}");
        }
        assert_eq!(bench.own, own);
    }

    #[test]
    fn forged_and_altered_orders_are_refused() {
        let bench = Bench::new();
        let mut gate = bench.gate();
        let order = bench.order(1, 1);
        let by_stranger = sign(&key_pair(), &order);
        assert!(refusal(&mut gate, &by_stranger, 0).contains("not signed"));
        let mut altered = sign(&bench.key, &order);
        altered.body = altered.body.replace("\"n1\"", "\"n1\" ");
        assert!(refusal(&mut gate, &altered, 0).contains("not signed"));
        let unreadable = SignedOrder { signature: "%%".into(), ..altered };
        assert!(refusal(&mut gate, &unreadable, 0).contains("not signed"));
    }

    #[test]
    fn order_is_taken_once_even_across_a_restart() {
        let bench = Bench::new();
        let mut gate = bench.gate();
        let signed = sign(&bench.key, &bench.order(1, 2));
        assert_eq!(refusal(&mut gate, &signed, 0), "taken");
        assert!(refusal(&mut gate, &signed, 0).contains("order 1 was taken before"));
        drop(gate);
        let mut restarted = bench.gate();
        assert!(refusal(&mut restarted, &signed, 0).contains("9.2 was launched here before"));
        let older = sign(&bench.key, &bench.order(2, 1));
        assert!(refusal(&mut restarted, &older, 0).contains("older than attempt 2"));
        let deposed = Order { term: 4, ..bench.order(3, 3) };
        let answer = refusal(&mut restarted, &sign(&bench.key, &deposed), 0);
        assert!(answer.contains("term 5 has begun"), "{answer}");
    }

    #[test]
    fn order_about_a_running_attempt_must_name_its_user() {
        let bench = Bench::new();
        let mut gate = bench.gate();
        let order = Order { action: Action::Suspend, ..bench.order(1, 1) };
        let signed = sign(&bench.key, &order);
        let other = gate.admit(&signed, Timestamp(0), |_, _| Some(bench.own + 1));
        assert!(matches!(other, Err(Refused { why: OrderRefusal::OtherUser { .. }, .. })));
        assert!(gate.admit(&signed, Timestamp(0), |_, _| Some(bench.own)).is_ok());
    }

    #[test]
    fn agent_without_root_runs_only_jobs_of_its_own_user() {
        let bench = Bench::new();
        let mut gate = bench.gate();
        gate.only_uid = Some(bench.own + 7);
        let answer = refusal(&mut gate, &sign(&bench.key, &bench.order(1, 1)), 0);
        assert!(answer.contains("not root"), "{answer}");
    }
}
