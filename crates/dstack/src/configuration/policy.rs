//! The policies of a run as types.

use super::value::Value;
use model::machine_choice::{MachineChoice, SpotChoice};
use model::run::{Retry, StartupOrder, UtilizationPolicy};
use std::time::Duration;

/// The duration of `retry: true`, and of a `retry` without one.
pub const RETRY_DURATION_S: u64 = 3_600;

const YEAR_S: u32 = 365 * 24 * 3_600;

/// The events that `retry` is about.
pub const RETRY_EVENTS: [&str; 3] = ["no-capacity", "interruption", "error"];

/// The seconds that a run may take to stop where it has no `stop_duration`.
pub const STOP_S: u32 = 300;

/// A fleet, of this project or of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetName {
    pub project: Option<String>,
    pub name: String,
}

/// A node, by one of the ways in which dstack names its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instance {
    Name(String),
    /// A host's name or address.
    Host(String),
    /// By its number in its fleet.
    OfFleet {
        fleet: FleetName,
        number: u32,
    },
}

impl Instance {
    pub(super) fn of(value: &Value) -> Self {
        let text = |name: &str| value.get(name).as_owned_text();
        match (text("hostname"), value.get("instance").as_count()) {
            (Some(host), _) => Self::Host(host),
            (None, Some(number)) => {
                Self::OfFleet { fleet: FleetName::of(value.get("fleet")), number }
            }
            (None, None) => Self::Name(text("name").unwrap_or_default()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpotPolicy {
    Spot,
    OnDemand,
    Auto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopCriteria {
    #[default]
    AllDone,
    MasterDone,
}

/// Policies on offers, on machines that are made and stand idle, and on idle GPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    pub spot_policy: Option<SpotPolicy>,
    pub max_price: Option<f64>,
    pub backends: Vec<String>,
    pub regions: Vec<String>,
    pub availability_zones: Vec<String>,
    pub instance_types: Vec<String>,
    /// `creation_policy: reuse`
    pub reuse_only: bool,
    /// An advance reservation of the cluster, as with `--reservation`.
    pub reservation: Option<String>,
    /// `Some(None)` is `off`.
    pub idle_duration: Option<Option<Duration>>,
    pub utilization_policy: Option<UtilizationPolicy>,
}

impl FleetName {
    pub(super) fn of(value: &Value) -> Self {
        let name = value.get("name").as_owned_text().unwrap_or_default();
        Self { project: value.get("project").as_owned_text(), name }
    }
}

pub(super) fn startup_order(word: Option<&str>) -> StartupOrder {
    match word {
        Some("master-first") => StartupOrder::MasterFirst,
        Some("workers-first") => StartupOrder::WorkersFirst,
        _ => StartupOrder::Any,
    }
}

impl StopCriteria {
    pub(super) fn of(word: Option<&str>) -> Self {
        match word {
            Some("master-done") => Self::MasterDone,
            _ => Self::AllDone,
        }
    }
}

impl Profile {
    pub(super) fn of(value: &Value) -> Self {
        let utilization = value.get("utilization_policy");
        let percent = utilization.get("min_gpu_utilization").as_count();
        let window = utilization.get("time_window").as_duration();
        Self {
            spot_policy: match value.get("spot_policy").as_text() {
                Some("spot") => Some(SpotPolicy::Spot),
                Some("on-demand") => Some(SpotPolicy::OnDemand),
                Some("auto") => Some(SpotPolicy::Auto),
                _ => None,
            },
            max_price: value.get("max_price").as_number(),
            backends: value.get("backends").texts(),
            regions: value.get("regions").texts(),
            availability_zones: value.get("availability_zones").texts(),
            instance_types: value.get("instance_types").texts(),
            reuse_only: value.get("creation_policy").as_text() == Some("reuse"),
            reservation: value.get("reservation").as_owned_text(),
            idle_duration: match value.get("idle_duration") {
                Value::Null => None,
                said => Some(said.as_duration()),
            },
            utilization_policy: percent.zip(window).map(|(percent, time_window)| {
                UtilizationPolicy { min_gpu_percent: percent, window_s: time_window.as_secs() }
            }),
        }
    }
}

impl Profile {
    /// What the run says of machines; `None` where it leaves all of it to dstack's defaults.
    pub fn machine_choice(&self) -> Option<MachineChoice> {
        let choice = MachineChoice {
            backends: self.backends.clone(),
            regions: self.regions.clone(),
            zones: self.availability_zones.clone(),
            types: self.instance_types.clone(),
            spot: match self.spot_policy {
                Some(SpotPolicy::Spot) => SpotChoice::Only,
                Some(SpotPolicy::Auto) => SpotChoice::Any,
                Some(SpotPolicy::OnDemand) | None => SpotChoice::Never,
            },
            reuse_only: self.reuse_only,
            // `off` is for ever: a year is.
            idle_s: self.idle_duration.map(|length| {
                length.map_or(YEAR_S, |length| u32::try_from(length.as_secs()).unwrap_or(YEAR_S))
            }),
            place: None,
        };
        let is_said = self.spot_policy.is_some() || choice != MachineChoice::default();
        is_said.then_some(choice)
    }
}

/// `None` if a run that cannot start, or fails, is not tried again.
pub(super) fn retry(value: &Value) -> Option<Retry> {
    let duration_s = value.get("duration").as_duration().map(|length| length.as_secs());
    let events = match value {
        Value::Bool(true) => Vec::new(),
        Value::Map(_) => value.get("on_events").texts(),
        _ => return None,
    };
    let on = |event: &str| events.is_empty() || events.iter().any(|named| named == event);
    Some(Retry {
        on_no_capacity: on("no-capacity"),
        on_interruption: on("interruption"),
        on_error: on("error"),
        duration_s: duration_s.or(Some(RETRY_DURATION_S)),
        attempts_max: value.get("attempts").as_count(),
    })
}
