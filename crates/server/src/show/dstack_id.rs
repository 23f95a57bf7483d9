//! The UUIDs that dstack's clients are shown for things that have none of their own.

use model::id::RunId;
use model::time::Timestamp;
use ring::digest::{SHA256, digest};

/// Always the same for the same thing.
pub fn uuid(kind: &str, name: &str) -> String {
    let digest = digest(&SHA256, format!("{kind}\0{name}").as_bytes());
    let bits: [u8; 16] = digest.as_ref()[..16].try_into().expect("a digest has 32 bytes");
    RunId::from_random(u128::from_be_bytes(bits)).to_string()
}

/// A volume: one that was made anew under the same name is another.
pub fn volume_id(project: &str, name: &str, created: Timestamp) -> String {
    uuid("volume", &format!("{project}/{name}/{}", created.0))
}

/// One node's part of one attempt.
pub fn submission_id(run: &str, restarts: u32, rank: u32) -> String {
    uuid("submission", &format!("{run} {restarts} {rank}"))
}
