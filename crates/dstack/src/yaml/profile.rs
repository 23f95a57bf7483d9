//! The properties that dstack also keeps in profiles: policies of retrying, stopping and choosing offers.

use super::fault::{Fault, Problem};
use super::field::Field;
use super::notice::Notices;
use super::property;
use model::run::Retry;
use std::collections::BTreeMap;
use std::time::Duration;

/// The duration of `retry: true`, and of a `retry` without one.
const RETRY_DURATION_S: u64 = 3_600;
const UTILIZATION_WINDOW_MIN: Duration = Duration::from_secs(300);

/// A fleet, of this project or of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetName {
    pub project: Option<String>,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpotPolicy {
    Spot,
    OnDemand,
    Auto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreationPolicy {
    Reuse,
    ReuseOrCreate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupOrder {
    Any,
    MasterFirst,
    WorkersFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCriteria {
    AllDone,
    MasterDone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtilizationPolicy {
    pub min_gpu_utilization_percent: u32,
    pub time_window: Duration,
}

/// Policies on cloud offers and idle machines. They are read and kept, and have no effect yet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    pub regions: Vec<String>,
    pub availability_zones: Vec<String>,
    pub instance_types: Vec<String>,
    pub reservation: Option<String>,
    pub spot_policy: Option<SpotPolicy>,
    pub creation_policy: Option<CreationPolicy>,
    pub max_price: Option<f64>,
    /// `Some(None)` is `off`.
    pub idle_duration: Option<Option<Duration>>,
    pub utilization_policy: Option<UtilizationPolicy>,
}

const SPOT_POLICIES: &[(&str, SpotPolicy)] =
    &[("spot", SpotPolicy::Spot), ("on-demand", SpotPolicy::OnDemand), ("auto", SpotPolicy::Auto)];
const CREATION_POLICIES: &[(&str, CreationPolicy)] =
    &[("reuse", CreationPolicy::Reuse), ("reuse-or-create", CreationPolicy::ReuseOrCreate)];
const STARTUP_ORDERS: &[(&str, StartupOrder)] = &[
    ("any", StartupOrder::Any),
    ("master-first", StartupOrder::MasterFirst),
    ("workers-first", StartupOrder::WorkersFirst),
];
const STOP_CRITERIA: &[(&str, StopCriteria)] =
    &[("all-done", StopCriteria::AllDone), ("master-done", StopCriteria::MasterDone)];

#[derive(Clone, Copy)]
enum RetryEvent {
    NoCapacity,
    Interruption,
    Error,
}

const RETRY_EVENTS: &[(&str, RetryEvent)] = &[
    ("no-capacity", RetryEvent::NoCapacity),
    ("interruption", RetryEvent::Interruption),
    ("error", RetryEvent::Error),
];

impl Profile {
    /// Reads the property if it is one of the profile's.
    pub(super) fn set(&mut self, name: &str, field: &Field<'_>) -> Result<(), Fault> {
        let names = "a list of names";
        match name {
            "regions" => self.regions = field.texts(names)?,
            "availability_zones" => self.availability_zones = field.texts(names)?,
            "instance_types" => self.instance_types = field.texts(names)?,
            "reservation" => self.reservation = Some(field.text("a name")?.to_owned()),
            "spot_policy" => self.spot_policy = Some(field.word(SPOT_POLICIES)?),
            "creation_policy" => self.creation_policy = Some(field.word(CREATION_POLICIES)?),
            "max_price" => self.max_price = Some(price(field)?),
            "idle_duration" => self.idle_duration = Some(field.duration_or_off(None)?),
            "utilization_policy" => self.utilization_policy = Some(utilization_policy(field)?),
            _ => {}
        }
        Ok(())
    }
}

/// Reads `retry`. `None` if a run that cannot start, or fails, is not tried again.
pub(super) fn retry(field: &Field<'_>) -> Result<Option<Retry>, Fault> {
    let expected = "true, false, or a mapping of on_events and duration";
    let on_all = Retry {
        on_no_capacity: true,
        on_interruption: true,
        on_error: true,
        duration_s: Some(RETRY_DURATION_S),
    };
    match field.boolean() {
        Some(true) => return Ok(Some(on_all)),
        Some(false) => return Ok(None),
        None => {}
    }
    let mut retry = on_all;
    for (property, field) in field.properties(property::RETRY, expected)? {
        match property.name {
            "on_events" => {
                let events = field.list("a list of no-capacity, interruption and error")?;
                if events.is_empty() {
                    return Err(
                        field.invalid("at least one of no-capacity, interruption and error")
                    );
                }
                (retry.on_no_capacity, retry.on_interruption, retry.on_error) = Default::default();
                for event in events {
                    match event.word(RETRY_EVENTS)? {
                        RetryEvent::NoCapacity => retry.on_no_capacity = true,
                        RetryEvent::Interruption => retry.on_interruption = true,
                        RetryEvent::Error => retry.on_error = true,
                    }
                }
            }
            _ => retry.duration_s = Some(field.duration()?.as_secs()),
        }
    }
    Ok(Some(retry))
}

/// Every node here belongs to the backend `remote`, dstack's name for machines that are there already.
pub(super) fn backends(field: &Field<'_>) -> Result<(), Fault> {
    let names = field.texts("a list of backends")?;
    if names.is_empty() || names.iter().any(|name| name == "remote") {
        return Ok(());
    }
    Err(field.refused("no such backend here: every offer is of `remote`, this cluster's own nodes"))
}

pub(super) fn startup_order(
    field: &Field<'_>,
    notices: &mut Notices,
) -> Result<StartupOrder, Fault> {
    let order = field.word(STARTUP_ORDERS)?;
    if order != StartupOrder::Any {
        notices.add(field, "has no effect: all nodes of a run are started together");
    }
    Ok(order)
}

pub(super) fn stop_criteria(field: &Field<'_>) -> Result<StopCriteria, Fault> {
    field.word(STOP_CRITERIA)
}

pub(super) fn fleets(field: &Field<'_>) -> Result<Vec<FleetName>, Fault> {
    let items = field.list("a list of fleets")?;
    items.iter().map(fleet).collect()
}

fn fleet(field: &Field<'_>) -> Result<FleetName, Fault> {
    let expected = "NAME or PROJECT/NAME";
    let parts: Vec<&str> = field.text(expected)?.split('/').collect();
    let (project, name) = match parts[..] {
        [name] => (None, name),
        [project, name] if !project.is_empty() => (Some(project.to_owned()), name),
        _ => return Err(field.invalid(expected)),
    };
    if name.is_empty() {
        return Err(field.invalid(expected));
    }
    let name = name.to_owned();
    Ok(FleetName { project, name })
}

pub(super) fn tags(field: &Field<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let mut tags = BTreeMap::new();
    for (key, position, value) in field.entries("a mapping of tags to values")? {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !(1..=60).contains(&key.len()) || !key.bytes().all(letter) {
            let problem = Problem::Invalid {
                property: field.name.clone(),
                value: format!("{key:?}"),
                expected: "a tag of 1 to 60 letters, digits, _ and -".into(),
            };
            return Err(Fault::new(position, problem));
        }
        tags.insert(key.to_owned(), value.text("text")?.to_owned());
    }
    Ok(tags)
}

fn price(field: &Field<'_>) -> Result<f64, Fault> {
    let expected = "a price in dollars an hour, above 0";
    let price: Option<f64> = field.text(expected)?.parse().ok();
    price.filter(|price| price.is_finite() && *price > 0.0).ok_or_else(|| field.invalid(expected))
}

fn utilization_policy(field: &Field<'_>) -> Result<UtilizationPolicy, Fault> {
    let expected = "a mapping of min_gpu_utilization and time_window";
    let (mut percent, mut window) = (None, None);
    for (property, field) in field.properties(property::UTILIZATION, expected)? {
        match property.name {
            "min_gpu_utilization" => percent = Some(field.integer(0, 100)?),
            _ => {
                let length = field.duration()?;
                if length < UTILIZATION_WINDOW_MIN {
                    return Err(field.invalid("5m or more"));
                }
                window = Some(length);
            }
        }
    }
    match (percent, window) {
        (Some(min_gpu_utilization_percent), Some(time_window)) => {
            Ok(UtilizationPolicy { min_gpu_utilization_percent, time_window })
        }
        _ => Err(field.invalid(expected)),
    }
}
