//! An offer as the JSON of `offer` and `apply` has it.

use ::dstack::offer::Offer;
use ::dstack::offer_groups::OfferGroup;
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

/// A line of `offer --group-by`.
pub fn group_json(group: &OfferGroup) -> Value {
    let words: Vec<&str> = group.availability.iter().map(|one| one.word()).collect();
    json!({
        "gpu": {"name": group.name, "memory_bytes": group.memory},
        "count": {"min": group.count.0, "max": group.count.1},
        "price_per_gpu": {"min": group.price.0, "max": group.price.1},
        "availability": words,
    })
}
