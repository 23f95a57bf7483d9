//! The one clock, and the one source of random numbers.

use cluster::Context;
use model::principal::Principal;
use model::time::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use std::time::{SystemTime, UNIX_EPOCH};

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as i64)
}

/// Fills with random bytes; the kernel's source does not fail once the machine is up.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

pub fn random_u128() -> u128 {
    u128::from_le_bytes(random())
}

/// The time and the random bits that a decision of the state machine is made with.
pub fn context(by: Principal) -> Context {
    Context { now: now(), random: random_u128(), by }
}
