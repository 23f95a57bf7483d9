//! Network volumes, which belong to a cloud.

use crate::configuration::property::{Default, Form, Property, Table, acts};
use crate::configuration::shape::{policy, run};

/// The backends that have volumes, each with its properties.
pub const BACKENDS: &[(&str, &Table)] = &[
    ("aws", &ZONED),
    ("gcp", &ZONED),
    ("runpod", &ZONED),
    ("kubernetes", &KUBERNETES),
    ("daytona", &NAMED),
    ("lium", &NAMED),
];

const VOLUME: &[Property] = &[
    acts("type", Form::Text),
    acts("backend", Form::Text),
    acts("name", Form::Shape(run::run_name)),
    acts("auto_cleanup_duration", Form::IdleDuration),
    acts("tags", Form::Shape(policy::tags)),
];

static ZONED: Table = Table {
    of: "volume",
    sections: &[
        VOLUME,
        &[
            acts("size", Form::Size),
            acts("volume_id", Form::Text),
            acts("region", Form::Text).or(Default::Required("the volume's region")),
            acts("availability_zone", Form::Text),
        ],
    ],
};

static NAMED: Table = Table { of: "volume", sections: &[VOLUME, &[acts("volume_id", Form::Text)]] };

static KUBERNETES: Table = Table {
    of: "volume",
    sections: &[
        VOLUME,
        &[
            acts("size", Form::Size),
            acts("region", Form::Text),
            acts("claim_name", Form::Text),
            acts("storage_class_name", Form::Text),
            acts("access_modes", Form::List(&Form::Text, "access modes")).or(Default::Empty),
            acts("read_only", Form::Bool).or(Default::Written("false")),
        ],
    ],
};
