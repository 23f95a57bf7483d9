//! Both ends of a channel in one place, with an attacker between them.

use super::*;
use proptest::prelude::*;
use ring::rand::SystemRandom;

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn dialler(key: &str) -> StepChannel {
    StepChannel::dialler(key, &SystemRandom::new()).expect("a key")
}

fn listener(key: &str) -> StepChannel {
    StepChannel::listener(key, &SystemRandom::new()).expect("a key")
}

fn take(channel: &mut StepChannel) -> Vec<u8> {
    let bytes = channel.unsent().to_vec();
    channel.mark_sent(bytes.len());
    bytes
}

fn pass(from: &mut StepChannel, to: &mut StepChannel) -> Result<Vec<u8>, ChannelError> {
    let mut plain = Vec::new();
    to.receive(&take(from), &mut plain).map(|()| plain)
}

/// A dialler and a listener that have proven the key to each other.
fn proven() -> (StepChannel, StepChannel) {
    let (mut dials, mut listens) = (dialler(KEY), listener(KEY));
    pass(&mut dials, &mut listens).expect("a greeting");
    pass(&mut listens, &mut dials).expect("an answer");
    pass(&mut dials, &mut listens).expect("a proof");
    assert!(dials.is_proven() && listens.is_proven());
    (dials, listens)
}

fn sealed(from: &mut StepChannel, plain: &[u8]) -> Vec<u8> {
    assert_eq!(from.seal(plain), Ok(plain.len()));
    take(from)
}

#[test]
fn a_dialler_gives_a_listener_without_the_key_nothing_that_depends_on_it() {
    let (mut dials, mut listens) = (dialler(KEY), listener(OTHER));
    let greeting = dials.unsent().to_vec();
    assert_eq!(greeting.len(), GREETING_BYTES, "magic and a random public key");
    pass(&mut dials, &mut listens).expect("any greeting is answered");
    assert_eq!(pass(&mut listens, &mut dials), Err(ChannelError::NotProven));
    assert!(!dials.is_proven() && dials.unsent().is_empty());
    assert_eq!(dials.seal(b"secret"), Ok(0));
    assert!(dials.receive(b"more", &mut Vec::new()).is_err(), "it does not recover");
}

#[test]
fn a_listener_takes_nothing_from_a_dialler_without_the_key() {
    let (mut dials, mut listens) = (dialler(KEY), listener(KEY));
    pass(&mut dials, &mut listens).expect("a greeting");
    let _answer = take(&mut listens);
    assert_eq!(listens.seal(b"secret"), Ok(0));
    let mut plain = Vec::new();
    let forged = [[0; PROOF_BYTES].as_slice(), b"\x20\0records"].concat();
    assert_eq!(listens.receive(&forged, &mut plain), Err(ChannelError::NotProven));
    assert!(plain.is_empty() && !listens.is_proven());
}

#[test]
fn a_reflected_or_replayed_handshake_proves_nothing() {
    // The greeting comes back, followed by anything.
    let mut dials = dialler(KEY);
    let public = take(&mut dials)[MAGIC.len()..].to_vec();
    let reflected = [public.as_slice(), &[7; PROOF_BYTES]].concat();
    assert_eq!(dials.receive(&reflected, &mut Vec::new()), Err(ChannelError::NotProven));

    // The listener's own proof comes back as the dialler's.
    let (mut dials, mut listens) = (dialler(KEY), listener(KEY));
    let greeting = take(&mut dials);
    listens.receive(&greeting, &mut Vec::new()).expect("a greeting");
    let answer = take(&mut listens);
    let reflected = listens.receive(&answer[PUBLIC_BYTES..], &mut Vec::new());
    assert_eq!(reflected, Err(ChannelError::NotProven));

    // An answer that was recorded is no answer to a new greeting, and a recorded proof none to a new answer.
    assert_eq!(dialler(KEY).receive(&answer, &mut Vec::new()), Err(ChannelError::NotProven));
    dials.receive(&answer, &mut Vec::new()).expect("its own answer");
    let proof = take(&mut dials);
    let mut again = listener(KEY);
    again.receive(&greeting, &mut Vec::new()).expect("a greeting");
    assert_eq!(again.receive(&proof, &mut Vec::new()), Err(ChannelError::NotProven));
}

#[test]
fn a_weak_public_key_and_another_protocol_are_refused() {
    let weak = [MAGIC.as_slice(), &[0; PUBLIC_BYTES]].concat();
    assert_eq!(listener(KEY).receive(&weak, &mut Vec::new()), Err(ChannelError::NotProven));
    let old = [0x40, 0, 0, 0, 0].iter().chain(b"{\"hello\":{\"key\":\"").chain(&[b'0'; 40]);
    let old: Vec<u8> = old.copied().collect();
    assert_eq!(listener(KEY).receive(&old, &mut Vec::new()), Err(ChannelError::OtherProtocol));
    let random = SystemRandom::new();
    assert_eq!(StepChannel::dialler("", &random).err(), Some(ChannelError::NoKey));
    assert_eq!(StepChannel::listener("secret", &random).err(), Some(ChannelError::NoKey));
}

#[test]
fn records_that_are_repeated_reordered_dropped_or_turned_around_end_the_channel() {
    let plain = &mut Vec::new();
    let (mut dials, mut listens) = proven();
    let (one, two) = (sealed(&mut dials, b"one"), sealed(&mut dials, b"two"));
    listens.receive(&one, plain).expect("in order");
    assert_eq!(listens.receive(&one, plain), Err(ChannelError::Tampered), "repeated");
    let (mut dials, mut listens) = proven();
    let _one = sealed(&mut dials, b"one");
    let moved = sealed(&mut dials, b"two");
    assert_eq!(listens.receive(&moved, plain), Err(ChannelError::Tampered), "one is missing");
    let (mut dials, _) = proven();
    let own = sealed(&mut dials, b"one");
    assert_eq!(dials.receive(&own, plain), Err(ChannelError::Tampered), "turned around");
    let (_, mut listens) = proven();
    assert_eq!(listens.receive(&two, plain), Err(ChannelError::Tampered), "of another connection");
    assert_eq!(plain, b"one");
}

#[test]
fn a_record_beyond_the_bound_is_refused_by_its_length() {
    for length in [0, TAG_BYTES, TAG_BYTES + RECORD_BYTES_MAX + 1, usize::from(u16::MAX)] {
        let (_, mut listens) = proven();
        let said = listens.receive(&(length as u16).to_le_bytes(), &mut Vec::new());
        assert_eq!(said, Err(ChannelError::RecordLength(length)));
    }
    let (mut dials, mut listens) = proven();
    assert_eq!(dials.seal(&[1; RECORD_BYTES_MAX + 5]), Ok(RECORD_BYTES_MAX));
    assert_eq!(pass(&mut dials, &mut listens).map(|plain| plain.len()), Ok(RECORD_BYTES_MAX));
}

#[test]
fn nothing_of_a_cut_record_is_given_out_and_no_plain_text_is_on_the_wire() {
    let (mut dials, mut listens) = proven();
    let secret = b"the password of everybody";
    let bytes = sealed(&mut dials, secret);
    assert!(!bytes.windows(6).any(|part| secret.windows(6).any(|of| of == part)));
    let mut plain = Vec::new();
    listens.receive(&bytes[..bytes.len() - 1], &mut plain).expect("not whole yet");
    assert!(plain.is_empty());
    listens.receive(&bytes[bytes.len() - 1..], &mut plain).expect("whole");
    assert_eq!(plain, secret);
}

proptest! {
    #[test]
    fn bytes_arrive_as_sent_however_they_are_cut(
        parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..3000)), 1..12),
        cut in 1usize..900,
    ) {
        let (mut dials, mut listens) = (dialler(KEY), listener(KEY));
        let (mut to_listener, mut to_dialler) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            for piece in take(&mut dials).chunks(cut) {
                listens.receive(piece, &mut to_listener).unwrap();
            }
            for piece in take(&mut listens).chunks(cut) {
                dials.receive(piece, &mut to_dialler).unwrap();
            }
        }
        let (mut said, mut answered) = (Vec::new(), Vec::new());
        for (dialled, bytes) in parts {
            let (from, to, heard, kept) = if dialled {
                (&mut dials, &mut listens, &mut to_listener, &mut said)
            } else {
                (&mut listens, &mut dials, &mut to_dialler, &mut answered)
            };
            kept.extend_from_slice(&bytes);
            for piece in sealed(from, &bytes).chunks(cut) {
                to.receive(piece, heard).unwrap();
            }
        }
        prop_assert_eq!(to_listener, said);
        prop_assert_eq!(to_dialler, answered);
    }

    #[test]
    fn a_changed_bit_anywhere_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut dials, mut listens) = (dialler(KEY), listener(KEY));
        let mut heard = Vec::new();
        let mut position = at.index(GREETING_BYTES + ANSWER_BYTES + PROOF_BYTES + 2 + 5 + TAG_BYTES);
        let mut spoil = |mut bytes: Vec<u8>| {
            if position < bytes.len() {
                bytes[position] ^= 1 << bit;
            }
            position = position.checked_sub(bytes.len()).unwrap_or(usize::MAX);
            bytes
        };
        let mut talk = || -> Result<(), ChannelError> {
            listens.receive(&spoil(take(&mut dials)), &mut heard)?;
            dials.receive(&spoil(take(&mut listens)), &mut heard)?;
            listens.receive(&spoil(take(&mut dials)), &mut heard)?;
            dials.seal(b"hello")?;
            listens.receive(&spoil(take(&mut dials)), &mut heard)
        };
        let said = talk();
        prop_assert!(heard.is_empty(), "{:?}", said);
    }

    #[test]
    fn no_bytes_make_an_end_panic_or_hold_more_than_a_record(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        state in 0u8..3,
    ) {
        let mut channel = match state {
            0 => dialler(KEY),
            1 => listener(KEY),
            _ => proven().1,
        };
        let mut plain = Vec::new();
        let _ = channel.receive(&bytes, &mut plain);
        prop_assert!(plain.is_empty() && channel.partial.len() <= bytes.len());
    }
}
