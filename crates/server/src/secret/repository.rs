//! The repositories that users have made known, with what each is cloned with: kept encrypted among the uploads of its user.

use crate::shared::Shared;
use crate::shared::uploads::Kind;
use model::reason::Refusal;
use model::secret::{Sealed, SecretValue};

/// What a kept repository belongs to: one that was copied to another name or user is not read there.
fn context(uid: u32, key: &str) -> String {
    format!("repository\0{uid}\0{key}")
}

pub async fn keep(shared: &Shared, uid: u32, key: &str, text: &str) -> Result<(), Refusal> {
    // Before the right to seal, as a submission takes them.
    let _own = shared.uploads.own_turn(uid).await;
    // Until it is written, no rotation takes its key away.
    let _sealing = shared.sealing.read().await;
    put(shared, uid, key, text).await
}

async fn put(shared: &Shared, uid: u32, key: &str, text: &str) -> Result<(), Refusal> {
    let sealed = shared.secret_keys.seal(&context(uid, key), text)?;
    let mut turn = shared.uploads.turn_to_write(uid).await;
    tokio::task::block_in_place(|| turn.put(Kind::Repository, key, sealed.0.as_bytes()))
}

pub fn open(shared: &Shared, uid: u32, key: &str) -> Option<SecretValue> {
    open_with(shared, uid, key, &context(uid, key))
}

/// The same with the context of an earlier build.
pub fn open_with(shared: &Shared, uid: u32, key: &str, context: &str) -> Option<SecretValue> {
    shared.secret_keys.open(context, &sealed(shared, uid, key)?).ok()
}

fn sealed(shared: &Shared, uid: u32, key: &str) -> Option<Sealed> {
    let bytes = shared.uploads.get(uid, Kind::Repository, key)?;
    String::from_utf8(bytes).ok().map(Sealed)
}

/// Encrypts all with the newest key. While others may seal with an older one, some may be left. One that cannot be read, as those of the
/// build before, stays as it is: its user has to make it known again.
pub async fn reseal_all(shared: &Shared) -> Result<(), Refusal> {
    for uid in shared.uploads.users() {
        for (key, _) in shared.uploads.kept(uid, Kind::Repository) {
            let is_old = |sealed: &Sealed| !shared.secret_keys.is_newest(sealed);
            if !sealed(shared, uid, &key).is_some_and(|sealed| is_old(&sealed)) {
                continue;
            }
            // From here on nobody deletes it, or makes it known anew.
            let mut turn = shared.uploads.turn_to_write(uid).await;
            if let Some(text) = open(shared, uid, &key) {
                let sealed = shared.secret_keys.seal(&context(uid, &key), &text.0)?;
                let bytes = sealed.0.as_bytes();
                tokio::task::block_in_place(|| turn.put(Kind::Repository, &key, bytes))?;
            }
        }
    }
    Ok(())
}
