//! The encrypted channel between a step's supervisor and its `srun`. Both hold the step's key: the supervisor by its
//! signed order, `srun` because it drew it. Each proves that it knows the key before the other sends anything else.
//!
//! The supervisor dials and sends a greeting: magic, ephemeral public key. `srun` answers with its own ephemeral public
//! key and its proof; the supervisor checks that proof, and sends its own. Keys and proofs come from HKDF-SHA256 with
//! the step's key as salt, the X25519 secret as input and all handshake bytes as context, so:
//! - a listener that does not know the key learns a random public key, and nothing that depends on the step's key;
//! - proofs and records of one connection are worth nothing on another, or in the other direction;
//! - who learns the step's key later cannot read what was recorded before.
//!
//! After the proofs come records: length (2 bytes little-endian, of what follows), then ChaCha20-Poly1305 over at most
//! [`RECORD_BYTES_MAX`] bytes. The nonce is the record's number and the length is authenticated, so a record that was
//! changed, left out, repeated or moved ends the channel. A channel that is cut in a record gives nothing of it; that
//! bytes are missing after a whole record is told by the messages of the step, which say their end themselves.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::rand::SecureRandom;
use ring::{hkdf, hmac};

/// The most plain bytes in one record.
pub const RECORD_BYTES_MAX: usize = 16 << 10;
/// A key with fewer characters is none that an `srun` drew, and is not used.
pub const KEY_CHARACTERS_MIN: usize = 32;

/// Names the protocol and its version. The first byte is no length of a frame that an earlier build could send.
const MAGIC: &[u8; 8] = b"SLUICE\xff\x01";
const PUBLIC_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
const GREETING_BYTES: usize = MAGIC.len() + PUBLIC_BYTES;
const ANSWER_BYTES: usize = PUBLIC_BYTES + PROOF_BYTES;
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChannelError {
    #[error("the step has no key that a link could be proven with")]
    NoKey,
    #[error("the kernel gives no random bytes")]
    NoRandomness,
    #[error("the other end speaks another protocol")]
    OtherProtocol,
    #[error("the other end does not know the step's key")]
    NotProven,
    #[error("a record of {0} bytes is outside the bounds")]
    RecordLength(usize),
    #[error("a record was changed on its way")]
    Tampered,
    #[error("the channel has carried all records that its keys are good for")]
    Exhausted,
}

/// One end of a channel. It does no I/O: bytes of the connection go in by [`receive`](Self::receive), and come out by
/// [`unsent`](Self::unsent).
pub struct StepChannel {
    state: State,
    /// The part of a handshake message or record that has arrived; never more than one.
    partial: Vec<u8>,
    unsent: Vec<u8>,
}

enum State {
    /// Dialled; waits for the answer.
    Greeted(Handshake),
    /// Answers; waits for the greeting.
    Listening(Handshake),
    /// Has answered; waits for this proof.
    Answered {
        proof: hmac::Key,
        transcript: Vec<u8>,
        traffic: Traffic,
    },
    Proven(Traffic),
    Broken,
}

struct Handshake {
    private: EphemeralPrivateKey,
    public: [u8; PUBLIC_BYTES],
    key: String,
}

struct Traffic {
    sending: Direction,
    receiving: Direction,
}

struct Direction {
    key: LessSafeKey,
    records: u64,
}

/// What a handshake agrees on.
struct Agreed {
    of_dialler: hmac::Key,
    of_listener: hmac::Key,
    from_dialler: Direction,
    from_listener: Direction,
    transcript: Vec<u8>,
}

impl StepChannel {
    /// The supervisor's end, for a connection that it has dialled.
    pub fn dialler(key: &str, random: &dyn SecureRandom) -> Result<Self, ChannelError> {
        let handshake = Handshake::new(key, random)?;
        let unsent = [MAGIC.as_slice(), &handshake.public].concat();
        Ok(Self { state: State::Greeted(handshake), partial: Vec::new(), unsent })
    }

    /// The end of the `srun`, for a connection that it has accepted.
    pub fn listener(key: &str, random: &dyn SecureRandom) -> Result<Self, ChannelError> {
        let handshake = Handshake::new(key, random)?;
        Ok(Self { state: State::Listening(handshake), partial: Vec::new(), unsent: Vec::new() })
    }

    /// Whether the other end has proven that it knows the key.
    pub fn is_proven(&self) -> bool {
        matches!(self.state, State::Proven(_))
    }

    /// Takes bytes of the connection, and appends what they say to `plain`. After an error the channel is of no use.
    pub fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), ChannelError> {
        let result = loop {
            let wanted = match self.wanted() {
                Ok(wanted) => wanted,
                Err(error) => break Err(error),
            };
            let (piece, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(piece);
            bytes = rest;
            if self.partial.len() < wanted {
                break Ok(());
            }
            // The length of a record alone is no unit yet: the next round reads the record.
            if self.is_proven() && wanted == LENGTH_BYTES {
                continue;
            }
            let unit = std::mem::take(&mut self.partial);
            if let Err(error) = self.take_unit(unit, plain) {
                break Err(error);
            }
        };
        if result.is_err() {
            *self = Self { state: State::Broken, partial: Vec::new(), unsent: Vec::new() };
        }
        result
    }

    /// The length of the unit that `partial` is to become.
    fn wanted(&self) -> Result<usize, ChannelError> {
        match &self.state {
            State::Listening(_) => Ok(GREETING_BYTES),
            State::Greeted(_) => Ok(ANSWER_BYTES),
            State::Answered { .. } => Ok(PROOF_BYTES),
            State::Broken => Err(ChannelError::NotProven),
            State::Proven(_) => match self.partial.first_chunk::<LENGTH_BYTES>() {
                None => Ok(LENGTH_BYTES),
                Some(length) => match usize::from(u16::from_le_bytes(*length)) {
                    length if (TAG_BYTES + 1..=TAG_BYTES + RECORD_BYTES_MAX).contains(&length) => {
                        Ok(LENGTH_BYTES + length)
                    }
                    length => Err(ChannelError::RecordLength(length)),
                },
            },
        }
    }

    fn take_unit(&mut self, unit: Vec<u8>, plain: &mut Vec<u8>) -> Result<(), ChannelError> {
        self.state = match std::mem::replace(&mut self.state, State::Broken) {
            State::Listening(handshake) => {
                let (answer, state) = handshake.answer(&unit)?;
                self.unsent.extend_from_slice(&answer);
                state
            }
            State::Greeted(handshake) => {
                let (proof, state) = handshake.check_answer(&unit)?;
                self.unsent.extend_from_slice(&proof);
                state
            }
            State::Answered { proof, transcript, traffic } => {
                hmac::verify(&proof, &transcript, &unit).map_err(|_| ChannelError::NotProven)?;
                State::Proven(traffic)
            }
            State::Proven(mut traffic) => {
                traffic.receiving.open(unit, plain)?;
                State::Proven(traffic)
            }
            State::Broken => return Err(ChannelError::NotProven),
        };
        Ok(())
    }

    /// The bytes to write to the connection next.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    pub fn mark_sent(&mut self, bytes: usize) {
        self.unsent.drain(..bytes.min(self.unsent.len()));
    }

    /// Encrypts the next record from the front of `plain`. Returns how many bytes it took: none before the other end is
    /// proven.
    pub fn seal(&mut self, plain: &[u8]) -> Result<usize, ChannelError> {
        let State::Proven(traffic) = &mut self.state else { return Ok(0) };
        let piece = &plain[..plain.len().min(RECORD_BYTES_MAX)];
        if !piece.is_empty() {
            traffic.sending.seal(piece, &mut self.unsent)?;
        }
        Ok(piece.len())
    }
}

impl Handshake {
    fn new(key: &str, random: &dyn SecureRandom) -> Result<Self, ChannelError> {
        if key.len() < KEY_CHARACTERS_MIN {
            return Err(ChannelError::NoKey);
        }
        let private = EphemeralPrivateKey::generate(&X25519, random);
        let private = private.map_err(|_| ChannelError::NoRandomness)?;
        let public = private.compute_public_key().map_err(|_| ChannelError::NoRandomness)?;
        let public = public.as_ref().try_into().map_err(|_| ChannelError::NoRandomness)?;
        Ok(Self { private, public, key: key.to_owned() })
    }

    /// The listener's turn: its answer to a greeting.
    fn answer(self, greeting: &[u8]) -> Result<(Vec<u8>, State), ChannelError> {
        let theirs = greeting.strip_prefix(MAGIC).ok_or(ChannelError::OtherProtocol)?;
        let public = self.public;
        let agreed = self.agree(theirs, theirs, &public)?;
        let proof = hmac::sign(&agreed.of_listener, &agreed.transcript);
        let traffic = Traffic { sending: agreed.from_listener, receiving: agreed.from_dialler };
        let answer = [public.as_slice(), proof.as_ref()].concat();
        let (proof, transcript) = (agreed.of_dialler, agreed.transcript);
        Ok((answer, State::Answered { proof, transcript, traffic }))
    }

    /// The dialler's turn: checks the listener's proof, and gives its own.
    fn check_answer(self, answer: &[u8]) -> Result<(Vec<u8>, State), ChannelError> {
        let (theirs, proof) = answer.split_at(PUBLIC_BYTES);
        let public = self.public;
        let agreed = self.agree(theirs, &public, theirs)?;
        hmac::verify(&agreed.of_listener, &agreed.transcript, proof)
            .map_err(|_| ChannelError::NotProven)?;
        let proof = hmac::sign(&agreed.of_dialler, &agreed.transcript);
        let traffic = Traffic { sending: agreed.from_dialler, receiving: agreed.from_listener };
        Ok((proof.as_ref().to_vec(), State::Proven(traffic)))
    }

    fn agree(self, theirs: &[u8], dialler: &[u8], listener: &[u8]) -> Result<Agreed, ChannelError> {
        let transcript = [MAGIC.as_slice(), dialler, listener].concat();
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, self.key.as_bytes());
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let secret =
            agreement::agree_ephemeral(self.private, &theirs, |secret| salt.extract(secret))
                .map_err(|_| ChannelError::NotProven)?;
        let derive = |label: &[u8]| -> Result<[u8; 32], ChannelError> {
            let mut bytes = [0; 32];
            let info = [label, &transcript];
            let derived = secret.expand(&info, hkdf::HKDF_SHA256);
            derived.and_then(|okm| okm.fill(&mut bytes)).map_err(|_| ChannelError::NotProven)?;
            Ok(bytes)
        };
        let proof = |label| derive(label).map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes));
        let direction = |label| derive(label).and_then(|bytes| Direction::new(&bytes));
        Ok(Agreed {
            of_dialler: proof(b"proof of the dialler")?,
            of_listener: proof(b"proof of the listener")?,
            from_dialler: direction(b"records of the dialler")?,
            from_listener: direction(b"records of the listener")?,
            transcript,
        })
    }
}

impl Direction {
    fn new(key: &[u8; 32]) -> Result<Self, ChannelError> {
        let key = UnboundKey::new(&aead::CHACHA20_POLY1305, key);
        Ok(Self { key: LessSafeKey::new(key.map_err(|_| ChannelError::NotProven)?), records: 0 })
    }

    /// The next record's nonce: each is used once.
    fn nonce(&mut self) -> Result<Nonce, ChannelError> {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[4..].copy_from_slice(&self.records.to_le_bytes());
        self.records = self.records.checked_add(1).ok_or(ChannelError::Exhausted)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), ChannelError> {
        let nonce = self.nonce()?;
        let length = ((plain.len() + TAG_BYTES) as u16).to_le_bytes();
        out.reserve(LENGTH_BYTES + plain.len() + TAG_BYTES);
        out.extend_from_slice(&length);
        let start = out.len();
        out.extend_from_slice(plain);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(length), &mut out[start..]);
        out.extend_from_slice(tag.map_err(|_| ChannelError::Exhausted)?.as_ref());
        Ok(())
    }

    fn open(&mut self, mut record: Vec<u8>, plain: &mut Vec<u8>) -> Result<(), ChannelError> {
        let nonce = self.nonce()?;
        let (length, sealed) = record.split_at_mut(LENGTH_BYTES);
        let opened = self.key.open_in_place(nonce, Aad::from(&*length), sealed);
        plain.extend_from_slice(opened.map_err(|_| ChannelError::Tampered)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
