//! An offer as the JSON of `offer` and `apply` has it.

use ::dstack::offer::Offer;
use serde_json::{Value, json};

pub fn to_json(offer: &Offer) -> Value {
    let resources = &offer.resources;
    let gpu = resources
        .gpu
        .as_ref()
        .map(|gpu| json!({"name": gpu.name, "memory_bytes": gpu.memory, "count": gpu.count}));
    json!({
        "node": offer.instance_type,
        "cpus": resources.cpus,
        "memory_bytes": resources.memory,
        "disk_bytes": resources.disk,
        "gpu": gpu,
        "blocks": offer.blocks.map(|(taken, _)| taken),
        "total_blocks": offer.blocks.map(|(_, total)| total),
        "price": offer.price_dollars_per_hour,
        "availability": offer.availability.word(),
    })
}
