//! The id of this command, which goes with each of its calls: the server's lines, and those of the nodes that run its jobs, have
//! it. `SLUICE_CALL_ID` sets one, for programs that call several commands.

use model::id::CallId;
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn own() -> &'static CallId {
    static OWN: OnceLock<CallId> = OnceLock::new();
    OWN.get_or_init(|| {
        let named = std::env::var("SLUICE_CALL_ID").ok().and_then(|text| CallId::parse(&text));
        named.unwrap_or_else(random)
    })
}

/// Whether the id stands for the submission that is made now, and no other: it is random, and the first of this process.
pub fn is_own_of_one_submit() -> bool {
    static IS_USED: AtomicBool = AtomicBool::new(false);
    std::env::var_os("SLUICE_CALL_ID").is_none() && !IS_USED.swap(true, Ordering::Relaxed)
}

fn random() -> CallId {
    let mut bytes = [0; 8];
    // Without randomness the process still has a number.
    let text = match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => format!("{:016x}", u64::from_be_bytes(bytes)),
        Err(_) => format!("pid-{}", std::process::id()),
    };
    CallId::parse(&text).expect("letters, digits and a dash")
}
