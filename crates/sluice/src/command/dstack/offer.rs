//! `sluice offer`: the shares of nodes that would serve a request, and which of them are free now.

use super::offer_json::{group_json, to_json};
use super::options::OutputArgs;
use super::profile_options::ProfileArgs;
use super::{OfProject, apply, cluster, nodes_of, print};
use crate::command::program_name::program_name;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration;
use ::dstack::configuration::resources::Resources;
use ::dstack::no_offer;
use ::dstack::node_offer;
use ::dstack::offer::{Availability, Offer};
use ::dstack::offer_groups::{self, groups, parse_fields};
use ::dstack::table;
use clap::Args;
use model::amount::Bytes;
use model::range::Range;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use wire::view::{ClusterView, NodeView};

/// Offers shown unless `--max-offers` says otherwise.
const OFFERS_SHOWN: usize = 50;

#[derive(Args)]
pub struct OfferArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// CPUs, as in 4, 8.. or x86:4..16
    #[arg(long, value_name = "SPEC")]
    cpu: Option<String>,
    /// GPUs, as in 1, H100:2 or 24GB..80GB:1..
    #[arg(long, value_name = "SPEC")]
    gpu: Option<String>,
    /// Memory, as in 16GB or 64GB..
    #[arg(long, value_name = "RANGE")]
    memory: Option<String>,
    /// Disk, as in 100GB..
    #[arg(long, value_name = "RANGE")]
    disk: Option<String>,
    #[command(flatten)]
    profile: ProfileArgs,
    /// How many offers to show
    #[arg(long, value_name = "N", default_value_t = OFFERS_SHOWN)]
    max_offers: usize,
    /// One line for each kind of GPU: gpu, and beside it backend, region or count
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    group_by: Vec<String>,
    /// Show whole nodes, and not the share of each that would serve the request
    #[arg(long)]
    full_offers: bool,
    /// Show only what is free now; with --full-offers, what nobody holds of each node
    #[arg(long)]
    unallocated: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: OfferArgs) -> VerbResult {
    let refused = |why: String| VerbError::Message(format!("offer: {why}"));
    let by = parse_fields(&args.group_by).map_err(|why| refused(format!("--group-by: {why}")))?;
    let profile = args.profile.profile()?;
    let loaded = configuration::from_json(&configuration(&args), profile.as_ref())
        .map_err(|faults| refused(faults.to_string()))?;
    let applicable = loaded.applicable().map_err(|fault| refused(fault.to_string()))?;
    let mut task = applicable.task().ok_or_else(|| refused("no task".into()))?;
    for notice in &loaded.notices {
        eprintln!("{}: note: offer: {notice}", program_name());
    }
    let mut client = args.server.client()?;
    args.of.check(&mut client)?;
    task.account = args.of.accounts().pop();
    let cluster = cluster(&mut client)?;
    apply::resolve_instances(&mut task, &cluster, "offer")?;
    let mut draft = apply::translate(&task, "offer", None, "sluice offer".into())?;
    // What a run would be granted beside what its offer shows: of a disk the least, and not the node's.
    for notice in &draft.notices {
        eprintln!("{}: note: offer: {notice}", program_name());
    }
    draft.keep_within(cluster.partitions.iter());
    let whole = if args.full_offers { whole_nodes(&cluster, &args) } else { BTreeMap::new() };
    let (offers, why) = apply::offers(&mut client, &draft.submission, &nodes_of(cluster))?;
    let offers = shown(offers, &whole, &args);
    let missing = why.map(|why| no_offer::explained(&why, &task.resources));
    let most = args.max_offers;
    if args.output.is_json() {
        let said = if by.is_empty() {
            let shown: Vec<Value> = offers.iter().take(most).map(to_json).collect();
            json!({"offers": shown, "total_offers": offers.len(), "no_offers": missing})
        } else {
            let groups = groups(&offers, &by);
            let shown: Vec<Value> = groups.iter().take(most).map(group_json).collect();
            json!({"group_by": args.group_by, "groups": shown, "no_offers": missing})
        };
        print(&format!("{said}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!(" Resources  {} \n\n", heading(args.disk.is_some(), task.resources)))?;
    if by.is_empty() {
        print(&table::offers(&offers, most))?;
    } else {
        print(&offer_groups::table(&groups(&offers, &by), &by, most))?;
    }
    if let Some(why) = missing {
        print(&format!("{why}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for. The default of a configuration's disk refuses no node, and is no word of the user's.
fn heading(is_disk_given: bool, resources: Resources) -> Resources {
    if is_disk_given {
        return resources;
    }
    Resources { disk: Range::at_least(Bytes(0)), ..resources }
}

/// The offers as the options want them: whole nodes once each, and only free ones.
fn shown(offers: Vec<Offer>, whole: &BTreeMap<String, Offer>, args: &OfferArgs) -> Vec<Offer> {
    let mut nodes = BTreeSet::new();
    let is_free = |offer: &Offer| offer.availability == Availability::Idle;
    let offers = offers.into_iter().filter(|offer| !args.unallocated || is_free(offer));
    let shown = offers.filter_map(|offer| match whole.get(&offer.instance_type) {
        None => Some(offer),
        Some(whole) => {
            let is_first = nodes.insert(offer.instance_type.clone());
            is_first.then(|| Offer { availability: offer.availability, ..whole.clone() })
        }
    });
    shown.collect()
}

/// All of each node, or what nobody holds of it.
fn whole_nodes(cluster: &ClusterView, args: &OfferArgs) -> BTreeMap<String, Offer> {
    let whole = |node: &NodeView| {
        let NodeView { config, cpus_allocated, memory_allocated, gres_used, .. } = node;
        let offer = if args.unallocated {
            node_offer::unallocated(config, *cpus_allocated, *memory_allocated, gres_used)
        } else {
            node_offer::whole(config)
        };
        (config.name.clone(), offer)
    };
    cluster.nodes.iter().map(whole).collect()
}

/// Without a word about a resource every amount of it is offered.
fn configuration(args: &OfferArgs) -> Value {
    let words = [
        ("cpu", args.cpu.as_deref().or(Some("1.."))),
        ("memory", args.memory.as_deref().or(Some("0GB.."))),
        ("gpu", args.gpu.as_deref()),
        ("disk", args.disk.as_deref()),
    ];
    let said = words.into_iter().filter_map(|(key, word)| Some((key.to_owned(), json!(word?))));
    let resources: Map<String, Value> = said.collect();
    let mut task = json!({"type": "task", "commands": ["true"], "resources": resources});
    for (name, value) in args.profile.properties() {
        task[name] = value;
    }
    task
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_that_nobody_asked_for_is_not_said_to_be_asked_for() {
        let shown = |is_given| heading(is_given, Resources::default()).to_string();
        assert!(shown(false).contains(" disk=0GB.."), "{}", shown(false));
        assert!(shown(true).contains(" disk=100GB.."), "{}", shown(true));
    }
}
