//! Which machines on demand a job may be on: what a run of dstack's language says of backends, regions, types and spot.

use crate::pod::PodKind;
use serde::{Deserialize, Serialize};

/// Backends as dstack names them, in its order. A source with the name of one is of that backend; any other one is of `remote`, as own
/// nodes are.
pub const BACKENDS: &[&str] = &[
    "amddevcloud",
    "aws",
    "azure",
    "cloudrift",
    "crusoe",
    "cudo",
    "datacrunch",
    "daytona",
    "digitalocean",
    "dstack",
    "gcp",
    "hotaisle",
    "jarvislabs",
    "kubernetes",
    "lambda",
    "lium",
    "remote",
    "nebius",
    "oci",
    "runpod",
    "seeweb",
    "tensordock",
    "vastai",
    "verda",
    "vultr",
    "slurm",
];

/// The backend of own nodes, and of sources that are of no cloud in the list.
pub const REMOTE: &str = "remote";

/// The backend of a source, in dstack's words.
pub fn backend_of(source: &str) -> &str {
    if BACKENDS.contains(&source) { source } else { REMOTE }
}

/// A source, and the backend that it is in dstack's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRef<'a> {
    pub name: &'a str,
    pub backend: &'a str,
    /// Its machines are pods, each made for jobs of one sort.
    pub makes_pods: bool,
    /// A job may be root in such a pod.
    pub makes_root_pods: bool,
    /// The project whose jobs alone its machines are for; `None` for everybody's.
    pub project: Option<&'a str>,
}

impl<'a> SourceRef<'a> {
    /// The source of this name, which says its backend.
    pub fn named(name: &'a str) -> Self {
        let backend = backend_of(name);
        Self { name, backend, makes_pods: false, makes_root_pods: false, project: None }
    }

    /// Whether its machines are for jobs of this project, which is their account.
    pub fn serves(&self, project: &str) -> bool {
        is_for(self.project, project)
    }
}

/// Whether what belongs to a project, or to nobody, is for jobs of this project.
fn is_for(owner: Option<&str>, project: &str) -> bool {
    owner.is_none_or(|owner| owner == project)
}

/// What a node is that is a machine of a source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MachineKind {
    pub source: String,
    /// The source's, in dstack's words.
    #[serde(default)]
    pub backend: String,
    /// The instance type.
    pub offer: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// It is not made yet, and can be made in any zone of its region.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_zone: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spot: bool,
    #[serde(default, skip_serializing_if = "PodKind::is_none")]
    pub pod: PodKind,
    /// The project whose jobs alone it takes: that of the backend which made it. `None` for everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

impl MachineKind {
    /// Whether it takes jobs of this project, which is their account.
    pub fn serves(&self, project: &str) -> bool {
        is_for(self.project.as_deref(), project)
    }
}

/// Where the disks of a job are: it may be on machines there alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct MachinePlace {
    pub source: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl MachinePlace {
    /// Whether the machine is there, or can be made there.
    pub fn has(&self, kind: &MachineKind) -> bool {
        let is_zone = match (&self.zone, &kind.zone) {
            (None, _) => true,
            (Some(wanted), Some(own)) => wanted == own,
            (Some(wanted), None) => kind.open_zone || *wanted == kind.region,
        };
        let is_region = self.region.is_empty() || self.region == kind.region;
        self.source == kind.source && is_region && is_zone
    }
}

/// Whether a job may be on a machine that its source may take back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpotChoice {
    #[default]
    Never,
    Only,
    Any,
}

/// What a job says of machines; an empty list is anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineChoice {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    pub spot: SpotChoice,
    /// No machine is made for it: it waits for what is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reuse_only: bool,
    /// How long a machine that was made for it may be idle, seconds; `None` for as long as its source says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u32>,
    /// Where the disks of the job are, set when it is submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<MachinePlace>,
}

impl MachineChoice {
    /// Whether the job may be on such a machine.
    pub fn allows(&self, kind: &MachineKind) -> bool {
        let has = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        // Where the source does not tell the zone: its name begins with that of its region.
        let is_zone = |zone: &String| match &kind.zone {
            Some(own) => own == zone,
            None => zone.starts_with(&kind.region),
        };
        let has_zone = || self.zones.is_empty() || self.zones.iter().any(is_zone);
        let is_spot_well = match self.spot {
            SpotChoice::Any => true,
            SpotChoice::Only => kind.spot,
            SpotChoice::Never => !kind.spot,
        };
        is_spot_well
            && self.place.as_ref().is_none_or(|place| place.has(kind))
            && has(&self.backends, &kind.backend)
            && has(&self.regions, &kind.region)
            && has(&self.types, &kind.offer)
            && has_zone()
    }

    /// Whether the job may be on a node that is no machine of a source. Such a node is in every region, and of every type.
    pub fn allows_own(&self) -> bool {
        let is_meant = |name: &String| name == REMOTE;
        self.place.is_none() && (self.backends.is_empty() || self.backends.iter().any(is_meant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Grant, Request};

    fn kind(source: &str, spot: bool) -> MachineKind {
        let SourceRef { name, backend, .. } = SourceRef::named(source);
        MachineKind {
            source: name.to_owned(),
            backend: backend.to_owned(),
            offer: "m5.large".into(),
            region: "eu-west-1".into(),
            zone: None,
            open_zone: true,
            spot,
            pod: PodKind::NoPod,
            project: None,
        }
    }

    #[test]
    fn machine_of_a_project_takes_its_jobs_alone() {
        let of_everybody = kind("aws", false);
        assert!(of_everybody.serves("vision") && of_everybody.serves(""));
        let own = MachineKind { project: Some("vision".into()), ..of_everybody };
        assert!(own.serves("vision") && !own.serves("speech") && !own.serves(""));
    }

    #[test]
    fn job_with_a_disk_is_on_machines_that_are_or_can_be_where_it_is() {
        let place = |zone: Option<&str>| MachineChoice {
            place: Some(MachinePlace {
                source: "aws".into(),
                region: "eu-west-1".into(),
                zone: zone.map(str::to_owned),
            }),
            ..MachineChoice::default()
        };
        let in_zone = |zone: Option<&str>, open_zone| MachineKind {
            zone: zone.map(str::to_owned),
            open_zone,
            ..kind("aws", false)
        };
        let of_zone = place(Some("eu-west-1a"));
        assert!(of_zone.allows(&in_zone(Some("eu-west-1a"), false)));
        assert!(of_zone.allows(&in_zone(None, true)), "it can be made there");
        assert!(!of_zone.allows(&in_zone(Some("eu-west-1b"), false)));
        assert!(!of_zone.allows(&in_zone(None, false)), "nobody knows where it is");
        assert!(!of_zone.allows(&kind("gcp", false)) && !of_zone.allows_own());
        let elsewhere = MachineKind { region: "us-east-1".into(), ..in_zone(None, true) };
        assert!(!of_zone.allows(&elsewhere) && !place(None).allows(&elsewhere));
        assert!(place(None).allows(&in_zone(Some("eu-west-1b"), false)));
    }

    #[test]
    fn machines_are_chosen_by_backend_region_type_zone_and_spot() {
        let words = |text: &str| vec![text.to_owned()];
        let plain = MachineChoice::default;
        let any = MachineChoice { spot: SpotChoice::Any, ..plain() };
        let table = [
            (plain(), true, false),
            (any.clone(), true, true),
            (MachineChoice { spot: SpotChoice::Only, ..plain() }, false, true),
            (MachineChoice { backends: words("aws"), ..any.clone() }, true, true),
            (MachineChoice { backends: words("remote"), ..any.clone() }, false, false),
            (MachineChoice { regions: words("EU-WEST-1"), ..plain() }, true, false),
            (MachineChoice { regions: words("us-east-1"), ..any.clone() }, false, false),
            (MachineChoice { types: words("m5.large"), ..plain() }, true, false),
            (MachineChoice { types: words("m5"), ..any.clone() }, false, false),
            (MachineChoice { zones: words("eu-west-1a"), ..plain() }, true, false),
            (MachineChoice { zones: words("us-east-1a"), ..any }, false, false),
        ];
        for (choice, on_demand, spot) in table {
            let found = (choice.allows(&kind("aws", false)), choice.allows(&kind("aws", true)));
            assert_eq!(found, (on_demand, spot), "{choice:?}");
        }
        let zone = |zone: &str| MachineKind { zone: Some(zone.to_owned()), ..kind("aws", false) };
        let wanted = MachineChoice { zones: words("eu-west-1a"), ..plain() };
        assert!(wanted.allows(&zone("eu-west-1a")) && !wanted.allows(&zone("eu-west-1b")));
        let remote = MachineChoice { backends: words("remote"), ..plain() };
        assert!(remote.allows(&kind("our-openstack", false)) && remote.allows_own());
        assert!(!MachineChoice { backends: words("gcp"), ..plain() }.allows_own());
    }

    #[test]
    fn run_of_dstack_that_says_nothing_is_on_no_spot_machine_and_a_batch_job_may_be() {
        let run = Request { grant: Grant::Offer, ..Request::default() };
        let (spot, on_demand) = (kind("aws", true), kind("aws", false));
        assert!(!run.allows_machine(Some(&spot)) && run.allows_machine(Some(&on_demand)));
        assert!(run.allows_machine(None) && Request::default().allows_machine(Some(&spot)));
    }
}
