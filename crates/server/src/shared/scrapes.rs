//! The texts of the last scrapes of `/metrics`: however often it is read, they are made once a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
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
    last: Mutex<HashMap<Reader, (Instant, Arc<str>)>>,
}

impl Scrapes {
    /// The text for this reader: the last one, or made anew. Whoever comes meanwhile waits for the same text.
    pub fn get(&self, reader: Reader, make: impl FnOnce() -> String) -> Arc<str> {
        let mut last = self.last.lock().expect("no panic while a scrape is made");
        match last.get(&reader) {
            Some((made, text)) if made.elapsed() < LIFE => text.clone(),
            _ => {
                let text: Arc<str> = make().into();
                last.insert(reader, (Instant::now(), text.clone()));
                text
            }
        }
    }
}
