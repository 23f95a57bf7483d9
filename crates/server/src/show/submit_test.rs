//! Tests of a job that is not submitted: `--test-only`, and the offers of dstack's plan.

use crate::clock;
use crate::fleet::choice::open_fleets;
use crate::secret::references;
use crate::shared::Shared;
use crate::writer::submission::{check_texts, settle_owner};
use cluster::Context;
use cluster::command::Submit;
use cluster::visibility::Viewer;
use model::id::JobId;
use model::principal::Principal;
use model::reason::{NeverFits, Refusal};
use sched::query;
use sched::view::{Availability, Estimate};
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, NodeOutage, Offer, Submission, SubmitForecast};

/// The most machines that could be made in one answer: the cheapest.
const MACHINE_OFFERS_MAX: usize = 500;

/// The view with the job, or with all components of a het job, and their ids.
type TestView = (sched::View, Vec<JobId>);

/// Checks the job as a submit would, and puts it into a view of its own.
fn probe(
    shared: &Shared,
    by: &Principal,
    submission: Submission,
) -> Result<(Submit, TestView, Vec<u32>, Context), Refusal> {
    let mut submission = submission;
    check_texts(&submission)?;
    settle_owner(shared, &mut submission, by)?;
    open_fleets(&shared.read(), &mut submission);
    references::check_submission(&shared.read(), &submission)?;
    let Submission { spec, het_components, array, hold, priority, .. } = submission;
    let submit =
        Submit { spec, array, hold, priority, het_components, test_only: true, unique_name: false };
    let context = clock::context(by.clone());
    let state = shared.read();
    state.check_submit(&submit, &context)?;
    let partitions = state.partition_indices(&submit.spec.request().partitions).unwrap_or_default();
    let probed = state.probe_all(&submit, &partitions, &context);
    Ok((submit, probed, partitions, context))
}

pub async fn test_submit(
    shared: &Arc<Shared>,
    by: Principal,
    submission: Submission,
) -> Result<Answer, Refusal> {
    let (submit, (view, jobs), partitions, context) =
        block_in_place(|| probe(shared, &by, submission))?;
    let most = partitions.iter().map(|index| view.partitions[*index as usize].nodes.len() as u64);
    let (asked, most) = (u64::from(submit.spec.request().nodes.min), most.max().unwrap_or(0));
    let names: Vec<String> = view.partitions.iter().map(|p| p.partition.name.clone()).collect();
    let never = |why: NeverFits| Err(Refusal::NodeConfiguration(why.into()));
    let expected = match shared.forecasts.expect(Box::new(view), context.now, jobs).await {
        Some(Ok(expected)) => expected,
        Some(Err(_)) if asked > most => return never(NeverFits::Nodes { asked, most }),
        Some(Err(why)) => return never(NeverFits::Waits(Box::new(why))),
        None => return Err(Refusal::Other("the server has no time for estimates now".into())),
    };
    let is_shown_nodes = Viewer::new(&shared.read(), &by).nodes();
    let tested = |one: Estimate| SubmitForecast {
        job: Some(one.job),
        start: one.start,
        nodes: if is_shown_nodes { one.nodes.to_names() } else { Vec::new() },
        cpus: one.cpus,
        partition: names[one.partition as usize].clone(),
    };
    Ok(Answer::Tested(expected.into_iter().map(tested).collect()))
}

pub fn offers(shared: &Shared, by: Principal, submission: Submission) -> Result<Answer, Refusal> {
    let (submit, (view, jobs), partitions, context) = probe(shared, &by, submission)?;
    let probed = view.queue.iter().find(|waiting| jobs.contains(&waiting.job));
    let project = probed.map_or_else(String::new, |waiting| waiting.account.clone());
    // Offers are where the volumes are; what is wrong with a volume is said at submit.
    let mut spec = submit.spec.clone();
    let settled = shared.read().settle_volumes(&mut spec, !submit.het_components.is_empty());
    let spec = if settled.is_ok() { spec } else { submit.spec };
    let offers = query::offers::offers(&view, &spec, &project, &partitions);
    let offers = offers.into_iter().map(|offer| {
        let node = view.nodes.iter().find(|n| n.config.name == offer.share.node);
        let gpus = offer.share.gres.iter().filter(|g| g.name == "gpu");
        Offer {
            fleet: node.map(|n| n.config.fleet.clone()).unwrap_or_default(),
            node: offer.share.node.clone(),
            cpus: offer.share.cpus.len(),
            memory: offer.share.memory,
            gpus: gpus.map(|g| (g.kind.clone().unwrap_or_default(), g.count)).collect(),
            available: offer.available,
            machine: None,
            outage: node.and_then(|n| outage(n.availability)),
        }
    });
    let mut offers: Vec<Offer> = offers.collect();
    if !Viewer::new(&shared.read(), &by).nodes() {
        // Whether it could start now, and not how all nodes stand.
        offers.sort_by_key(|offer| !offer.available);
        offers.truncate(1);
    }
    let state = shared.read();
    if state.has_sources() {
        let there = state.machine_view(context.now);
        drop(state);
        let most = MACHINE_OFFERS_MAX;
        let machines =
            query::offers::machine_offers(&view, &spec, &project, &partitions, &there, most);
        offers.extend(machines.into_iter().map(machine_offer));
    }
    Ok(Answer::Offers(offers))
}

fn machine_offer(found: query::offers::MachineOffer) -> Offer {
    let gpus = found.share.gres.iter().filter(|gres| gres.name == "gpu");
    Offer {
        fleet: String::new(),
        node: found.node.name.clone(),
        cpus: found.share.cpus.len(),
        memory: found.share.memory,
        gpus: gpus.map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count)).collect(),
        available: false,
        machine: Some(Box::new(found.node)),
        outage: None,
    }
}

/// A node that ends something first, or reboots, is taken by that, and no outage.
fn outage(availability: Availability) -> Option<NodeOutage> {
    match availability {
        Availability::Down => Some(NodeOutage::Down),
        Availability::Drained => Some(NodeOutage::Drained),
        Availability::Silent => Some(NodeOutage::Silent),
        Availability::Available
        | Availability::Reconciling
        | Availability::PoweringUp
        | Availability::PoweredDown => None,
    }
}
