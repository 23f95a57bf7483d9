//! What a source may say, be it a program or a cloud: what is beyond it harms the source's own machines alone.

use super::source::{SourceError, SourceMachine};
use model::amount::Bytes;
use model::machine::{OFFERS_MAX, Offer, OfferedGpus};
use model::printable::{is_unprintable, printable};
use std::collections::HashSet;

/// The most machines in one answer.
const MACHINES_MAX: usize = 20_000;

/// The longest name in an answer.
const NAME_BYTES_MAX: usize = 256;

/// The most letters of a name that is wrong that are shown.
const SHOWN_MAX: usize = 80;

/// A pebibyte: more than any machine has, and no sum of them overflows.
const SIZE_MAX: Bytes = Bytes::from_mib(1 << 30);

pub fn is_name(text: &str) -> bool {
    !text.is_empty() && is_text(text)
}

fn is_text(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.contains(is_unprintable)
}

fn shown(text: &str) -> String {
    printable(&text.chars().take(SHOWN_MAX).collect::<String>()).into_owned()
}

/// The offer, if it is one that a node could be, or what is wrong with it.
pub fn checked(offer: Offer) -> Result<Offer, String> {
    let wrong = |what: &str| Err(format!("{}: {what}", shown(&offer.id)));
    if !is_name(&offer.id) || !is_text(&offer.region) {
        return wrong("id and region: expected at most 256 printable characters");
    }
    if !(1..=65_536).contains(&offer.cpus) {
        return wrong("cpus: expected 1 to 65536");
    }
    if offer.memory == Bytes(0) || offer.memory > SIZE_MAX || offer.disk > SIZE_MAX {
        return wrong("memory and disk: expected at most 1073741824 MiB, and some memory");
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_kind = |kind: &str| (1..=64).contains(&kind.len()) && kind.bytes().all(is_plain);
    let is_wrong = |gpus: &OfferedGpus| {
        let has_size = gpus.memory.is_none_or(|memory| memory <= SIZE_MAX);
        !(1..=4096).contains(&gpus.count) || !is_kind(&gpus.kind) || !has_size
    };
    if offer.gpus.as_ref().is_some_and(is_wrong) {
        return wrong("gpus: expected a kind of letters, digits and . _ -, and 1 to 4096 of it");
    }
    Ok(offer)
}

/// The offers of an answer that nodes could be, each name once. The others are left out and logged.
pub fn offers(source: &str, given: Vec<Offer>) -> Result<Vec<Offer>, SourceError> {
    if given.len() > OFFERS_MAX {
        let text = format!("{} offers: expected at most {OFFERS_MAX}", given.len());
        return Err(SourceError::unknown(text));
    }
    let count = given.len();
    let mut known = HashSet::new();
    let (mut offers, mut first) = (Vec::new(), None);
    for one in given {
        match checked(one) {
            Ok(offer) if known.insert(offer.id.clone()) => offers.push(offer),
            Ok(offer) => {
                first.get_or_insert(format!("{}: a second offer of this name", offer.id));
            }
            Err(why) => {
                first.get_or_insert(why);
            }
        }
    }
    if let Some(why) = first {
        let left = count - offers.len();
        tracing::warn!("source {source}: {left} offers are left out: {why}");
    }
    Ok(offers)
}

/// A machine whose names can be kept and shown. A token of ours is plain: another that cannot be printed is no machine of ours,
/// and is shown as a stranger.
pub fn machine(given: SourceMachine) -> Result<SourceMachine, SourceError> {
    if !is_name(&given.id) {
        let text = "a machine's id: expected 1 to 256 printable characters";
        return Err(SourceError::unknown(text));
    }
    let token = if is_text(&given.token) { given.token } else { shown(&given.token) };
    Ok(SourceMachine { token, ..given })
}

pub fn machines(given: Vec<SourceMachine>) -> Result<Vec<SourceMachine>, SourceError> {
    if given.len() > MACHINES_MAX {
        let text = format!("{} machines: expected at most {MACHINES_MAX}", given.len());
        return Err(SourceError::unknown(text));
    }
    given.into_iter().map(machine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::price::Price;

    fn offer(id: &str) -> Offer {
        Offer {
            id: id.into(),
            cpus: 2,
            memory: Bytes::from_gib(4),
            disk: Bytes(0),
            gpus: None,
            region: "eu-1".into(),
            price: Price::default(),
            spot: false,
        }
    }

    #[test]
    fn offers_beyond_what_a_node_could_be_are_left_out() {
        let gpus = |kind: &str, count: u32| {
            let gpus = OfferedGpus { kind: kind.into(), count, memory: None };
            Offer { gpus: Some(gpus), ..offer("gpus") }
        };
        let wrong = [
            offer(""),
            offer("a\nb"),
            offer(&"x".repeat(257)),
            Offer { region: "\u{1b}[2J".into(), ..offer("region") },
            Offer { cpus: 0, ..offer("none") },
            Offer { cpus: u32::MAX, ..offer("many") },
            Offer { memory: Bytes(0), ..offer("empty") },
            Offer { memory: Bytes(u64::MAX), ..offer("huge") },
            Offer { disk: Bytes(u64::MAX), ..offer("disk") },
            gpus("", 1),
            gpus("a b", 1),
            gpus("h100", u32::MAX),
        ];
        for one in &wrong {
            let why = checked(one.clone()).expect_err("it is no node");
            assert_eq!(why.lines().count(), 1, "{why}");
            assert!(why.len() < 400, "{why}");
        }
        let given = wrong.into_iter().chain([offer("good"), offer("good"), gpus("h100", 8)]);
        let found = offers("cloud", given.collect()).expect("an answer");
        let names: Vec<&str> = found.iter().map(|offer| offer.id.as_str()).collect();
        assert_eq!(names, ["good", "gpus"]);
        assert!(offers("cloud", vec![offer("good"); OFFERS_MAX + 1]).is_err());
    }

    #[test]
    fn machines_have_names_that_can_be_shown() {
        let told = |token: &str, id: &str| SourceMachine {
            token: token.into(),
            id: id.into(),
            since: None,
        };
        let token = |given: &str| machine(told(given, "i-1")).map(|machine| machine.token);
        assert_eq!(token("7-0af").as_deref(), Ok("7-0af"));
        assert_eq!(token("a\nb").as_deref(), Ok("a\\nb"));
        assert!(token(&"x".repeat(10_000)).is_ok_and(|shown| shown.len() == SHOWN_MAX));
        for id in ["", "\u{7}"] {
            assert!(machines(vec![told("t", id)]).is_err(), "{id:?}");
        }
    }
}
