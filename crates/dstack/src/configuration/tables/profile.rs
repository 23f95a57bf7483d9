//! The policies that a run may have itself or take from a profile, and `profiles.yml`.

use crate::configuration::property::{Default, Form, Property, Table, acts, acts_in_part, notice};
use crate::configuration::shape::policy;

pub use crate::configuration::shape::policy::RETRY;

const OWN_NODES: &str = "has no effect: every offer is one of this cluster's own nodes";
const NAMES: Form = Form::List(&Form::Text, "names");

pub const SPOT_POLICIES: Form = Form::Words(&["spot", "on-demand", "auto"]);

pub static UTILIZATION: Table = Table {
    of: "utilization_policy",
    sections: &[&[
        acts("min_gpu_utilization", Form::Integer(0, 100))
            .or(Default::Required("a whole number from 0 to 100")),
        acts("time_window", Form::Shape(policy::time_window))
            .or(Default::Required("a duration of 5m or more")),
    ]],
};

static SCHEDULE: Table = Table {
    of: "schedule",
    sections: &[&[acts("cron", Form::Shape(policy::cron))
        .or(Default::Required("a cron expression such as 0 3 * * *"))]],
};

pub const PROFILE: &[Property] = &[
    acts_in_part("backends", Form::Shape(policy::backends)),
    notice("regions", NAMES, OWN_NODES),
    notice("availability_zones", NAMES, OWN_NODES),
    notice("instance_types", NAMES, OWN_NODES),
    acts("reservation", Form::Text),
    notice("spot_policy", SPOT_POLICIES, OWN_NODES),
    acts("retry", Form::Shape(policy::retry)),
    acts("max_duration", Form::DurationOrOff),
    acts("stop_duration", Form::DurationOrOff),
    acts("max_price", Form::Number(0.0, f64::MAX)),
    notice("creation_policy", Form::Words(&["reuse", "reuse-or-create"]), OWN_NODES),
    notice("idle_duration", Form::IdleDuration, OWN_NODES),
    acts("utilization_policy", Form::Map(&UTILIZATION)),
    acts("startup_order", Form::Words(policy::STARTUP_ORDERS)),
    acts("stop_criteria", Form::Words(&["all-done", "master-done"])),
    acts("schedule", Form::Map(&SCHEDULE)),
    acts("fleets", Form::List(&Form::Shape(policy::entity), "fleets")),
    acts("instances", Form::Shape(policy::instances)),
    acts("tags", Form::Shape(policy::tags)),
    notice("backend_options", Form::List(&Form::Anything, "options"), OWN_NODES),
];

/// One profile of `profiles.yml`.
pub static NAMED_PROFILE: Table = Table {
    of: "profile",
    sections: &[
        PROFILE,
        &[
            acts("name", Form::Text).or(Default::Required("the profile's name")),
            acts("default", Form::Bool).or(Default::Written("false")),
        ],
    ],
};

pub static PROFILES: Table = Table {
    of: "profiles file",
    sections: &[&[acts("profiles", Form::List(&Form::Map(&NAMED_PROFILE), "profiles"))
        .or(Default::Required("a list of profiles"))]],
};
