//! The links between agents and the server. Within one direction of a link messages come in the order in which they were sent;
//! a link that breaks loses what is on its way, or brings it after the next one has begun. Any message may be late, and orders
//! and reports may come twice.

use crate::chance::Chance;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use wire::link::{ToAgent, ToServer};

/// One message in so many is late.
const LATE_IN: u64 = 25;
/// One order or report in so many comes twice.
const TWICE_IN: u64 = 40;

#[derive(Default)]
pub struct Network {
    links: BTreeMap<u64, Link>,
    last_link: u64,
}

struct Link {
    /// The start of the server that it was made to: a later one knows nothing of it.
    server: u64,
    /// When the last message of each direction arrives.
    to_server: i64,
    to_agent: i64,
    /// Messages that the agent has sent do not arrive any more.
    is_lossy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToAgent,
}

impl Network {
    /// A link to the server of this start.
    pub fn connect(&mut self, server: u64, now: i64) -> u64 {
        self.last_link += 1;
        let link = Link { server, to_server: now, to_agent: now, is_lossy: false };
        self.links.insert(self.last_link, link);
        self.last_link
    }

    /// When a message arrives that is sent now; none where the link is gone.
    pub fn arrival(
        &mut self,
        link: u64,
        direction: Direction,
        now: i64,
        chance: &mut Chance,
        is_calm: bool,
    ) -> Option<i64> {
        let is_late = !is_calm && chance.one_in(LATE_IN);
        let delay = if is_late { chance.millis(500, 15_000) } else { chance.millis(1, 40) };
        let link = self.links.get_mut(&link)?;
        let last = match direction {
            Direction::ToServer => &mut link.to_server,
            Direction::ToAgent => &mut link.to_agent,
        };
        *last = (*last).max(now + delay);
        Some(*last)
    }

    /// Whether a message of this link reaches the server of this start.
    pub fn reaches_server(&self, link: u64, server: u64) -> bool {
        let link = self.links.get(&link);
        link.is_some_and(|link| link.server == server && !link.is_lossy)
    }

    /// Whether the server of this start still reads the link.
    pub fn is_read(&self, link: u64, server: u64) -> bool {
        self.links.get(&link).is_some_and(|link| link.server == server)
    }

    /// What the agent has sent on it is lost.
    pub fn lose(&mut self, link: u64) {
        if let Some(link) = self.links.get_mut(&link) {
            link.is_lossy = true;
        }
    }

    /// The server ends it.
    pub fn end(&mut self, link: u64) {
        self.links.remove(&link);
    }
}

/// Whether a message comes a second time.
pub fn comes_twice(is_repeatable: bool, chance: &mut Chance) -> bool {
    is_repeatable && chance.one_in(TWICE_IN)
}

pub fn is_order(message: &ToAgent) -> bool {
    matches!(message, ToAgent::Order(_))
}

pub fn is_report(message: &ToServer) -> bool {
    matches!(message, ToServer::Report(_) | ToServer::OrderRefused { .. })
}

/// A message between a release and the next one: as bytes, with a field that the reader does not know. Between two of one
/// release it stays as it is.
pub fn between_versions<T: Serialize + DeserializeOwned>(
    message: T,
    writer: u32,
    reader: u32,
) -> Result<T, serde_json::Error> {
    if writer == reader {
        return Ok(message);
    }
    let mut value = serde_json::to_value(&message)?;
    let inner = value.as_object_mut().and_then(|variants| variants.values_mut().next());
    if let Some(Value::Object(fields)) = inner {
        fields.insert("of_the_next_release".to_owned(), Value::from(1));
    }
    serde_json::from_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wire::version::PROTOCOL;

    #[test]
    fn messages_between_releases_have_a_field_that_the_reader_does_not_know() {
        let message = json!({"Welcome": {"term": 3}});
        let between = |writer: u32, reader: u32| {
            between_versions(message.clone(), writer, reader).expect("a message")
        };
        let next = PROTOCOL + 1;
        let with_field = json!({"Welcome": {"term": 3, "of_the_next_release": 1}});
        // A server of the next release beside agents of this one, and the other way.
        assert_eq!(between(next, PROTOCOL), with_field);
        assert_eq!(between(PROTOCOL, next), with_field);
        for same in [PROTOCOL, next] {
            assert_eq!(between(same, same), message);
        }
    }
}
