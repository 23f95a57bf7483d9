//! The kept texts of runs that were shown lately. A list of a hundred runs would otherwise read a hundred texts from disk and check
//! each against its name, again at each look.

use model::id::BlobRef;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// The bytes of all texts that are held. With more, all are let go: the next lists read what they show.
const BYTES_MAX: usize = 4 << 20;

/// A longer text is not held: few of them would take the place of all others.
const TEXT_BYTES_MAX: usize = BYTES_MAX / 16;

/// Texts by the name of their content, so that none of them can be out of date.
#[derive(Default)]
pub struct RunTexts(Mutex<HeldTexts>);

#[derive(Default)]
struct HeldTexts {
    by_blob: HashMap<BlobRef, Box<RawValue>>,
    bytes: usize,
}

impl RunTexts {
    /// The text that is held, or else the one that `read` has.
    pub fn get(
        &self,
        blob: &BlobRef,
        read: impl FnOnce() -> Option<Box<RawValue>>,
    ) -> Option<Box<RawValue>> {
        let held = self.lock().by_blob.get(blob).cloned();
        if held.is_some() {
            return held;
        }
        // Others are not held up by the disk.
        let text = read()?;
        self.lock().put(*blob, &text);
        Some(text)
    }

    fn lock(&self) -> MutexGuard<'_, HeldTexts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl HeldTexts {
    fn put(&mut self, blob: BlobRef, text: &RawValue) {
        let length = text.get().len();
        if length > TEXT_BYTES_MAX {
            return;
        }
        if self.bytes + length > BYTES_MAX {
            *self = Self::default();
        }
        // Somebody else may have read it at the same time.
        if self.by_blob.insert(blob, text.to_owned()).is_none() {
            self.bytes += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Option<Box<RawValue>> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).ok()
    }

    #[test]
    fn text_is_read_once_and_one_that_is_not_there_is_not_held() {
        let texts = RunTexts::default();
        let blob = BlobRef([1; 32]);
        assert!(texts.get(&blob, || None).is_none());
        assert_eq!(texts.get(&blob, || text(8)).expect("it is read").get().len(), 8);
        let again = texts.get(&blob, || panic!("it is held"));
        assert_eq!(again.expect("it is held").get().len(), 8);
    }

    #[test]
    fn texts_that_are_held_have_a_bound() {
        let texts = RunTexts::default();
        for number in 0..100 {
            texts.get(&BlobRef([number; 32]), || text(TEXT_BYTES_MAX)).expect("it is read");
            let held = texts.lock();
            let bytes: usize = held.by_blob.values().map(|text| text.get().len()).sum();
            assert_eq!(held.bytes, bytes);
            assert!(bytes <= BYTES_MAX, "{bytes}");
            assert!(held.by_blob.contains_key(&BlobRef([number; 32])));
        }
        let long = BlobRef([255; 32]);
        assert!(texts.get(&long, || text(TEXT_BYTES_MAX + 1)).is_some());
        assert!(!texts.lock().by_blob.contains_key(&long));
    }
}
