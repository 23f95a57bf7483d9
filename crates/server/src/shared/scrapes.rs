//! The texts of the last scrapes of `/metrics`: however often it is read, they are made once a second.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a text is served.
const LIFE: Duration = Duration::from_secs(1);

/// Who reads the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reader {
    /// May see every job.
    Operator,
    /// Unknown: sees no series of a single job, whose labels name its user.
    Anonymous,
}

#[derive(Default)]
pub struct Scrapes {
    last: Mutex<HashMap<Reader, (Instant, Bytes)>>,
}

impl Scrapes {
    /// The text for this reader: the last one, or made anew. Whoever comes meanwhile waits for the same text. It is one in memory,
    /// however many have it and do not read it.
    pub fn get(&self, reader: Reader, make: impl FnOnce() -> String) -> Bytes {
        let mut last = self.last.lock().expect("no panic while a scrape is made");
        match last.get(&reader) {
            Some((made, text)) if made.elapsed() < LIFE => text.clone(),
            _ => {
                let text = Bytes::from(make());
                last.insert(reader, (Instant::now(), text.clone()));
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_readers_of_a_second_have_one_text_in_memory() {
        let scrapes = Scrapes::default();
        let first = scrapes.get(Reader::Anonymous, || "up 1\n".repeat(1000));
        let last = scrapes.last.lock().expect("no panic before");
        let (_, held) = last.get(&Reader::Anonymous).expect("the text");
        assert_eq!(held.as_ptr(), first.as_ptr());
    }
}
