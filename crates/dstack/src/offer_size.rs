//! Why an offer is larger than what was asked for, in words for whoever asked.

use crate::configuration::resources::Resources;
use crate::offer::Offer;

/// The reason, where one of the offers is larger. `several_nodes`: the run is on more than one.
pub fn why_larger(asked: &Resources, offers: &[Offer], several_nodes: bool) -> Option<String> {
    let larger = offers.iter().find(|offer| is_larger(asked, offer))?;
    let why = match larger.blocks {
        _ if several_nodes => "whole hosts, as every run on several nodes",
        Some((taken, all)) if taken == all => {
            "a whole host, of which no part is offered that holds it"
        }
        // A share without GPUs of a host that has some has no number of blocks, and is some of them all the same.
        _ => "as many whole blocks of a host as hold it",
    };
    Some(format!("More is offered than is asked for: the run gets {why}"))
}

/// The disk does not count: a run is held to what it asked for.
fn is_larger(asked: &Resources, offer: &Offer) -> bool {
    let offered = &offer.resources;
    let gpus = |gpus: u32| gpus > asked.gpu.as_ref().map_or(0, |gpu| gpu.count.min);
    offered.cpus > asked.cpu.count.min
        || offered.memory > asked.memory.min
        || offered.gpu.as_ref().is_some_and(|gpu| gpus(gpu.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, parse};
    use crate::offer::{Availability, OfferResources};
    use model::amount::Bytes;

    #[test]
    fn larger_offers_have_their_reason_and_others_have_none() {
        let asked = |resources: &str| {
            let text = format!("type: task\ncommands: [a]\nresources: {resources}\n");
            let loaded = parse("t.yml", text.as_bytes()).expect("a task");
            let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
            task.resources
        };
        let offer = |blocks| Offer {
            backend: "ssh (remote)".into(),
            resources: OfferResources {
                cpus: 4,
                memory: Bytes::from_gib(16),
                disk: Some(Bytes::from_gib(500)),
                gpu: None,
            },
            instance_type: "n1".into(),
            blocks,
            price_dollars_per_hour: 0.0,
            availability: Availability::Idle,
        };
        let why = |resources: &str, blocks, several| {
            why_larger(&asked(resources), &[offer(blocks)], several)
        };
        let said = |why: Option<String>, words: &str| why.is_some_and(|why| why.contains(words));
        assert_eq!(why("{cpu: 4.., memory: 16GB..}", Some((1, 2)), false), None);
        assert!(said(why("{cpu: 2.., memory: 16GB..}", Some((1, 2)), false), "blocks of a host"));
        assert!(said(why("{cpu: 4.., memory: 1GB..}", Some((1, 2)), false), "blocks of a host"));
        assert!(said(why("{cpu: 2..}", None, true), "several nodes"));
        assert!(said(why("{cpu: 2..}", Some((1, 1)), false), "a whole host"));
        assert!(said(why("{cpu: 2..}", None, false), "blocks of a host"));
        assert_eq!(why_larger(&asked("{cpu: 2..}"), &[], true), None);
    }
}
