//! Machines on demand: their sources, and the machines that were asked of these. `offer` is what a source offers, `answer` why a
//! machine is made for a waiting job or not.

mod answer;
mod offer;

pub use answer::{HoldCause, MachineAnswer, SourceHold, SourcePause, is_for_nodes};
pub use offer::{OFFERS_MAX, Offer, OfferedGpus};

use crate::cloud_source::SourceKind;
use crate::id::JobId;
use crate::machine_choice::{MachineKind, SourceRef};
use crate::month::costs_by_month;
use crate::pod::{PodKind, PodTemplate};
use crate::pod_source::PodRoot;
use crate::price::{Cost, Price};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A source of machines, as the site configures it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceConfig {
    pub name: String,
    /// Who makes its machines. In the journal its key is the kind: `"program": "/opt/make"`.
    #[serde(flatten)]
    pub kind: SourceKind,
    /// The nodes of slurm.conf with `State=CLOUD` that its machines are; where there are none, its machines are dynamic nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// What each machine has as a node; partitions take it in by these.
    pub features: Vec<String>,
    /// How many machines there may be at once.
    pub machines_max: u32,
    /// What all of them may cost in an hour.
    pub price_hour_max: Option<Price>,
    /// What they may cost in a calendar month (UTC). Beyond it no machine is made; those that are there stay.
    pub budget_month: Option<Cost>,
    /// How long a machine may have no job before it is deleted.
    pub idle_s: u32,
    /// How long a machine stays at least, from the moment that it joined.
    pub life_min_s: u32,
    /// How long a machine may take from its order until its agent has joined. A job that may start on other nodes sooner
    /// waits for these.
    pub boot_s: u32,
    /// How long one call of the program, or of the cloud's API, may take.
    pub call_limit_s: u32,
    /// A job waits for own nodes that are expected to be free before a machine would be up.
    #[serde(default = "own_first")]
    pub own_first: bool,
    /// The account, or the project, that pays for what no job has of its machines and for its disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

fn own_first() -> bool {
    true
}

impl SourceConfig {
    /// The source of a provider program, with the usual limits.
    pub fn new(name: &str, program: &str) -> Self {
        Self::of_kind(name, SourceKind::Program(program.to_owned()))
    }

    /// A source with the usual limits.
    pub fn of_kind(name: &str, kind: SourceKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            nodes: Vec::new(),
            features: vec![name.to_owned()],
            machines_max: 1,
            price_hour_max: None,
            budget_month: None,
            idle_s: 300,
            life_min_s: 0,
            boot_s: 600,
            call_limit_s: 60,
            own_first: own_first(),
            account: None,
        }
    }

    /// The source as machines and runs know it.
    pub fn reference(&self) -> SourceRef<'_> {
        let pods = match &self.kind {
            SourceKind::Program(_) => return SourceRef::named(&self.name),
            SourceKind::Kubernetes(config) => Some(config.root),
            SourceKind::Aws(_) | SourceKind::Gcp(_) | SourceKind::Lambda(_) => None,
        };
        SourceRef {
            name: &self.name,
            backend: self.kind.name(),
            makes_pods: pods.is_some(),
            makes_root_pods: pods.is_some_and(|root| root != PodRoot::Never),
            project: None,
        }
    }
}

/// A machine that was asked for. It is in the journal before the source is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Ours: the source makes one machine for it, however often it is asked.
    pub token: String,
    /// Machines are numbered in the order in which they were asked for.
    pub number: u32,
    pub source: String,
    pub offer: Offer,
    /// The node that it becomes.
    pub node: String,
    /// The first job that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub asked: Timestamp,
    /// When the source said that there is a machine: it is paid for from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Timestamp>,
    /// When the source said that there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Timestamp>,
    /// The source's own name of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub phase: MachinePhase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<MachineFailure>,
    #[serde(default, skip_serializing_if = "MachineTerms::is_usual")]
    pub terms: MachineTerms,
}

/// What was said of a machine when it was asked for, beside its source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineTerms {
    /// How long it may be idle, seconds, where that is less than its fleet or its source says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u32>,
    /// The fleet of dstack's language that it is an instance of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// What it is made with, where it is a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodTemplate>>,
    /// The rank of the node of its job that it is made for, where the pods of the job have claims of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The zone that it must be in, where its offer is of a whole region: the disks of its job are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl MachineTerms {
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// What the pod is made with, where it is one.
    pub fn own_pod(&self) -> Option<PodTemplate> {
        self.pod.as_ref().map(|pod| pod.of_rank(self.rank.unwrap_or_default()))
    }

    /// Whether it is a pod that has the claim.
    pub fn mounts(&self, claim_name: &str) -> bool {
        let rank = self.rank.unwrap_or_default();
        self.pod.as_ref().is_some_and(|pod| pod.mounts(claim_name, rank))
    }
}

impl Machine {
    /// Whether it may exist at the source.
    pub fn is_live(&self) -> bool {
        self.phase != MachinePhase::Gone
    }

    /// The features by which partitions take its node in: of its fleet, or of its source.
    pub fn own_features(&self, source: &SourceConfig) -> Vec<String> {
        match &self.terms.fleet {
            Some(fleet) => vec![fleet_feature(fleet)],
            None => source.features.clone(),
        }
    }

    /// What a node is that is this machine: in the zone that was asked for, where its offer names none.
    pub fn kind(&self, source: SourceRef<'_>) -> MachineKind {
        let kind = self.offer.kind(source);
        let zone = kind.zone.or_else(|| self.terms.zone.clone());
        let pod = match &self.terms.pod {
            Some(template) if source.makes_pods => PodKind::Of(template.clone()),
            _ => kind.pod,
        };
        MachineKind { zone, open_zone: false, pod, ..kind }
    }

    /// What it has cost until now.
    pub fn cost(&self, now: Timestamp) -> Cost {
        self.made.map_or(Cost::default(), |made| self.cost_since(made, now))
    }

    /// What it has cost from then until now.
    pub fn cost_since(&self, from: Timestamp, now: Timestamp) -> Cost {
        let length = |made: Timestamp| self.gone.unwrap_or(now).since(made.max(from));
        self.offer.price.for_time(self.made.map_or(Duration::ZERO, length))
    }

    /// What it has cost until now, by the calendar months (UTC) in which it was there.
    pub fn costs_by_month(&self, now: Timestamp) -> Vec<(String, Cost)> {
        let Some(made) = self.made else { return Vec::new() };
        costs_by_month(self.offer.price, made, self.gone.unwrap_or(now))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachinePhase {
    /// The source is to be called, or its answer is not known.
    Asked,
    /// There is a machine; its agent has not joined.
    Made,
    /// Its agent is a node.
    Joined,
    /// Its node is drained, and its jobs end.
    Leaving,
    /// Its node is gone; the source is to delete it.
    Deleting,
    /// The source says that there is no such machine.
    Gone,
}

impl fmt::Display for MachinePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked",
            Self::Made => "made",
            Self::Joined => "joined",
            Self::Leaving => "leaving",
            Self::Deleting => "deleting",
            Self::Gone => "gone",
        })
    }
}

/// Why a machine was not made, or did not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFailure {
    pub kind: FailureKind,
    pub text: String,
    pub at: Timestamp,
    /// Its source was configured otherwise since, and is not left alone for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}

impl MachineFailure {
    pub fn new(kind: FailureKind, text: impl Into<String>, at: Timestamp) -> Self {
        Self { kind, text: text.into(), at, settled: false }
    }
}

/// The errors of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// There is none of this kind now: another offer may do.
    NoCapacity,
    /// The account may have no more.
    Quota,
    /// Too many calls: the same call is good later.
    Throttled,
    /// The source will not do it: credentials, permissions, a wrong value.
    Refused,
    /// The source knows no such machine: it is gone, or it was made a moment ago and cannot be seen yet.
    NotFound,
    /// It is not known what happened: no answer, a wrong one, or one too late.
    Unknown,
}

impl FailureKind {
    /// Whether another offer of the same source may do.
    pub fn is_of_offer(self) -> bool {
        self == Self::NoCapacity
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCapacity => "no capacity",
            Self::Quota => "quota",
            Self::Throttled => "throttled",
            Self::Refused => "refused",
            Self::NotFound => "not found",
            Self::Unknown => "unknown",
        })
    }
}

/// The feature by which the partition of a fleet takes its machines in.
pub fn fleet_feature(fleet: &str) -> String {
    format!("fleet-{fleet}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Bytes;
    use crate::cloud_source::CloudConfig;

    #[test]
    fn source_of_an_old_journal_is_that_of_its_program() {
        let config = SourceConfig::new("cloud", "/opt/make");
        let text = serde_json::to_string(&config).expect("JSON");
        assert!(text.starts_with(r#"{"name":"cloud","program":"/opt/make","features":"#), "{text}");
        assert_eq!(serde_json::from_str::<SourceConfig>(&text).expect("a source"), config);
        let cloud = CloudConfig { regions: vec!["eu-1".into()], ..CloudConfig::default() };
        let config = SourceConfig::of_kind("ec2", SourceKind::Aws(Box::new(cloud)));
        let text = serde_json::to_string(&config).expect("JSON");
        assert_eq!(serde_json::from_str::<SourceConfig>(&text).expect("a source"), config);
    }

    #[test]
    fn machine_costs_from_its_making_to_its_end_and_nothing_where_none_was_made() {
        let price = Price::from_dollars(3.6).expect("a price");
        let memory = Bytes::from_gib(1);
        let offer = Offer {
            id: "small".into(),
            cpus: 1,
            memory,
            disk: Bytes(0),
            gpus: None,
            region: String::new(),
            price,
            spot: false,
        };
        let at = Timestamp::from_secs;
        let mut machine = Machine {
            token: "t".into(),
            number: 1,
            source: "cloud".into(),
            offer,
            node: "cloud-1".into(),
            job: None,
            asked: at(0),
            made: None,
            joined: None,
            gone: None,
            id: None,
            phase: MachinePhase::Asked,
            failure: None,
            terms: MachineTerms::default(),
        };
        let cost = |machine: &Machine, secs| machine.cost(at(secs)).to_string();
        assert_eq!(cost(&machine, 1000), "$0.0000");
        machine.made = Some(at(1000));
        assert_eq!(cost(&machine, 2000), "$1.0000");
        machine.gone = Some(at(3000));
        assert_eq!(cost(&machine, 9000), "$2.0000");
        // Half an hour of October, all of November and an hour of December.
        let november = 1_793_491_200;
        let (made, gone) = (november - 1800, november + 30 * 86_400 + 3600);
        (machine.made, machine.gone) = (Some(at(made)), Some(at(gone)));
        let months: Vec<String> = machine
            .costs_by_month(at(gone + 1000))
            .into_iter()
            .map(|(month, cost)| format!("{month} {cost}"))
            .collect();
        let expected = ["2026-10 $1.8000", "2026-11 $2592.0000", "2026-12 $3.6000"];
        assert_eq!(months, expected);
        assert_eq!(machine.cost_since(at(gone - 1000), at(gone)).to_string(), "$1.0000");
    }
}
