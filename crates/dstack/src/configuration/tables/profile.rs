//! The policies that a run may have itself or take from a profile, and `profiles.yml`.

use crate::configuration::property::{Default, Form, Property, Table, acts, notice};
use crate::configuration::shape::policy;

pub use crate::configuration::shape::policy::RETRY;

pub const NO_OPTIONS: &str = "has no effect: sources of machines have settings of their own";
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
    acts("backends", Form::List(&Form::Words(policy::BACKENDS), "backends")),
    acts("regions", NAMES),
    acts("availability_zones", NAMES),
    acts("instance_types", NAMES),
    acts("reservation", Form::Text),
    acts("spot_policy", SPOT_POLICIES),
    acts("retry", Form::Shape(policy::retry)),
    acts("max_duration", Form::Shape(policy::max_duration)),
    acts("stop_duration", Form::DurationOrOff),
    acts("max_price", Form::Number(0.0, f64::MAX)),
    acts("creation_policy", Form::Words(&["reuse", "reuse-or-create"])),
    acts("idle_duration", Form::IdleDuration),
    acts("utilization_policy", Form::Map(&UTILIZATION)),
    acts("startup_order", Form::Words(policy::STARTUP_ORDERS)),
    acts("stop_criteria", Form::Words(&["all-done", "master-done"])),
    acts("schedule", Form::Map(&SCHEDULE)),
    acts("fleets", Form::List(&Form::Shape(policy::entity), "fleets")),
    acts("instances", Form::Shape(policy::instances)),
    acts("tags", Form::Shape(policy::tags)),
    notice("backend_options", Form::Shape(policy::backend_options), NO_OPTIONS),
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
