//! The objects of Slurm's OpenAPI, which `squeue --json`, `sinfo --json` and `sacct --json` print and slurmrestd answers with.
//!
//! - `field`: the tables of fields, one for each kind of object, and the form that each version gives them
//! - `job`, `node`, `partition`, `reservation`, `license`, `shares`, `diag`: the objects of the controller
//! - `accounting`, `accounting_later`: the jobs of the books; `accounts`: users, accounts, associations, QOS
//! - `rest`: the documents of slurmrestd; `submit`, `update`, `account_changes` and `account_additions`: what its clients send

pub mod account_additions;
pub mod account_changes;
pub mod accounting;
mod accounting_later;
pub mod accounts;
mod diag;
pub mod field;
mod job;
mod license;
mod node;
mod partition;
mod reservation;
pub mod rest;
mod shares;
pub mod submit;
pub mod update;

use field::{Context, Listed, Object, TextRoom};
use model::time::Timestamp;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::io::{self, Write as _};
use wire::view::{ClusterView, JobView};

/// A version of slurmrestd's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Slurm 22.05's, which the commands print too.
    V38,
    V40,
    V41,
    /// Slurm 24.11's.
    V42,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::V38, Self::V40, Self::V41, Self::V42];

    /// As in a path: `v0.0.38`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V38 => "v0.0.38",
            Self::V40 => "v0.0.40",
            Self::V41 => "v0.0.41",
            Self::V42 => "v0.0.42",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Numbers that may be missing are objects, and states arrays.
    pub fn is_typed(self) -> bool {
        self > Self::V38
    }
}

/// The version of Slurm that has the objects of v0.0.38, and of the later ones.
const RELEASE: &str = "22.05.8";
const TYPED_RELEASE: &str = "24.11.5";

/// The part of Slurm whose objects a document has.
#[derive(Clone, Copy)]
struct Plugin {
    kind: &'static str,
    name: &'static str,
    typed_kind: &'static str,
    typed_name: &'static str,
}

const CONTROLLER: Plugin = Plugin {
    kind: "openapi/v0.0.38",
    name: "Slurm OpenAPI v0.0.38",
    typed_kind: "openapi/slurmctld",
    typed_name: "Slurm OpenAPI slurmctld",
};

const DATABASE: Plugin = Plugin {
    kind: "openapi/dbv0.0.38",
    name: "Slurm OpenAPI DB v0.0.38",
    typed_kind: "openapi/slurmdbd",
    typed_name: "Slurm OpenAPI slurmdbd",
};

fn meta(plugin: Plugin, version: Version, cluster: &str) -> Value {
    if !version.is_typed() {
        return json!({
            "plugin": { "type": plugin.kind, "name": plugin.name },
            "Slurm": { "version": { "major": 22, "micro": 8, "minor": 5 }, "release": RELEASE },
        });
    }
    json!({
        "plugin": {
            "type": plugin.typed_kind,
            "name": plugin.typed_name,
            "data_parser": format!("data_parser/{}", version.name()),
            "accounting_storage": "accounting_storage/slurmdbd",
        },
        "client": { "source": "", "user": "", "group": "" },
        "command": [],
        "slurm": {
            "version": { "major": "24", "micro": "5", "minor": "11" },
            "release": TYPED_RELEASE,
            "cluster": cluster,
        },
    })
}

/// Documents are printed in pieces of this size: standard output would write each line by itself.
const PIECE_BYTES: usize = 64 << 10;

/// A document of v0.0.38, as commands print it.
fn document(
    out: &mut impl io::Write,
    plugin: Plugin,
    key: &str,
    items: &impl Serialize,
) -> io::Result<()> {
    let document = Document {
        meta: meta(plugin, Version::V38, ""),
        version: Version::V38,
        warnings: &[],
        key,
        items,
        more: &[],
    };
    let mut pieces = io::BufWriter::with_capacity(PIECE_BYTES, out);
    serde_json::to_writer_pretty(&mut pieces, &document)?;
    pieces.write_all(b"\n")?;
    pieces.flush()
}

/// Written piece by piece: a list of ten thousand jobs is never a tree in memory.
struct Document<'a, T> {
    meta: Value,
    version: Version,
    /// What the answer does not hold although it was asked for. v0.0.38 has no place for it.
    warnings: &'a [Value],
    key: &'a str,
    items: &'a T,
    more: &'a [(&'static str, Value)],
}

impl<T: Serialize> Serialize for Document<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("meta", &self.meta)?;
        map.serialize_entry("errors", &[(); 0])?;
        if self.version.is_typed() {
            map.serialize_entry("warnings", self.warnings)?;
        }
        for (key, value) in self.more {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(self.key, self.items)?;
        map.end()
    }
}

/// Objects of one table.
struct Objects<'a, T> {
    context: &'a Context,
    fields: &'a [field::Field<T>],
    items: &'a [T],
    /// For long texts; `None` where they have no bound.
    room: Option<TextRoom>,
}

impl<T> Serialize for Objects<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (context, fields, room) = (self.context, self.fields, self.room.as_ref());
        let listed = |item| Listed { object: Object { context, fields, item }, room };
        serializer.collect_seq(self.items.iter().map(listed))
    }
}

/// What commands print is of v0.0.38.
fn printed(cluster: &str, now: Timestamp) -> Context {
    Context { version: Version::V38, cluster: cluster.to_owned(), gres: Vec::new(), now }
}

/// `squeue --json`
pub fn jobs(out: &mut impl io::Write, cluster: &str, jobs: &[JobView]) -> io::Result<()> {
    // A listing does not say when it was made: what a job began to gain by waiting counts as begun.
    let context = printed(cluster, Timestamp(i64::MAX));
    let jobs = Objects { context: &context, fields: job::JOB, items: jobs, room: None };
    document(out, CONTROLLER, "jobs", &jobs)
}

/// `sinfo --json`
pub fn nodes(out: &mut impl io::Write, cluster: &ClusterView) -> io::Result<()> {
    let context = printed(&cluster.name, cluster.now);
    let items = &cluster.nodes;
    let nodes = Objects { context: &context, fields: node::NODE, items, room: None };
    document(out, CONTROLLER, "nodes", &nodes)
}

/// Seconds since the epoch; zero for a time that is not known.
fn time(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::secs)
}

/// Joins objects into one.
fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let mut whole = Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            whole.extend(part);
        }
    }
    Value::Object(whole)
}

#[cfg(test)]
mod description_tests;
#[cfg(test)]
mod tests;
