//! Journals and snapshots of the build before are read, and written under the same names.
//!
//! The fixtures were written by the state machine of commit 1a91eee, before fields, variants and types were renamed:
//! `events.jsonl` has an event for every variant and field, each other file a snapshot with the events around it.

use cluster::{Event, State};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct StoredHistory {
    /// How many of the events the snapshot includes.
    snapshot_after: usize,
    snapshot: Value,
    events: Vec<Value>,
}

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("fixtures/stored_format/", $name, ".json")))
    };
}

const HISTORIES: [(&str, &str); 8] = [
    fixture!("array"),
    fixture!("gang"),
    fixture!("het_job"),
    fixture!("raw_usage"),
    fixture!("requeue"),
    fixture!("reservation"),
    fixture!("stale_attempt"),
    fixture!("step"),
];

const EVENTS: &str = include_str!("fixtures/stored_format/events.jsonl");

/// Whether `new` says all that `old` says. A newer build may write more fields.
fn covers(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| covers(new, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| covers(new, old))
        }
        _ => new == old,
    }
}

fn read_event(stored: &Value) -> Event {
    serde_json::from_value(stored.clone())
        .unwrap_or_else(|why| panic!("an old event is not read: {why}: {stored}"))
}

#[test]
fn every_kind_of_old_event_is_read_and_written_as_it_was() {
    for line in EVENTS.lines() {
        let stored: Value = serde_json::from_str(line).expect("a line of JSON");
        let written = serde_json::to_value(read_event(&stored)).expect("an event is written");
        assert!(covers(&written, &stored), "\nwas     {stored}\nwritten {written}");
    }
}

#[test]
fn old_snapshot_and_old_journal_lead_to_the_same_state() {
    for (name, text) in HISTORIES {
        let history: StoredHistory = serde_json::from_str(text).expect("a history");
        let events: Vec<Event> = history.events.iter().map(read_event).collect();
        let mut replayed = State::default();
        for (at, event) in events.iter().enumerate() {
            if at == history.snapshot_after {
                let mut read: State =
                    serde_json::from_value(history.snapshot.clone()).expect("an old snapshot");
                read.rebuild_derived();
                // The builds before kept no list of what was done, and not when the cluster began.
                (replayed.activities, replayed.begun) = Default::default();
                assert_eq!(read, replayed, "{name}: snapshot and journal differ");
                let written = serde_json::to_value(&read).expect("a state is written");
                assert!(covers(&written, &history.snapshot), "{name}: the snapshot's names differ");
                replayed = read;
            }
            replayed.apply(event);
        }
    }
}
