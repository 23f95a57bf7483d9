//! `resources`: the least and the most of each thing that a node of the run shall have.

use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::shape::amount;

pub use crate::configuration::shape::amount::{CPU, DISK, GPU};

pub static RESOURCES: Table = Table {
    of: "resources",
    sections: &[&[
        acts("cpu", Form::Shape(amount::cpu)).or(Default::Written("2..")),
        acts("memory", Form::Shape(amount::node_size)).or(Default::Written("8GB..")),
        acts("shm_size", Form::Size),
        acts("gpu", Form::Shape(amount::gpu)).or(Default::WrittenOrNull("0..")),
        acts("disk", Form::Shape(amount::disk)).or(Default::WrittenOrNull("100GB..")),
    ]],
};
