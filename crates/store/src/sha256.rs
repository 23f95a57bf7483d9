//! SHA-256: the names of contents, the chain of the journal. A submit is hashed several times over, on processors too that have no
//! instructions for it: ring has assembly for these.

use ring::digest::{Context, SHA256};

use crate::journal::Hash;

/// The hash of these bytes, one after the other.
pub(crate) fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlobId;

    #[test]
    fn hash_is_that_of_the_standard_however_the_bytes_come() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for parts in [&[&b"abc"[..]][..], &[b"a", b"", b"bc"]] {
            assert_eq!(BlobId(sha256(parts)).to_string(), expected);
        }
    }
}
