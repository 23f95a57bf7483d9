//! `sluice offer`: the shares of nodes that would serve a request, and which of them are free now.

use super::offer_json::to_json;
use super::{OfProject, apply, cluster, nodes_of, print};
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration;
use ::dstack::no_offer;
use ::dstack::table;
use clap::Args;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

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
    /// Only of this fleet
    #[arg(long, value_name = "NAME")]
    fleet: Vec<String>,
    /// Only nodes that cost at most so many dollars an hour
    #[arg(long, value_name = "PRICE")]
    max_price: Option<f64>,
    /// How many offers to show
    #[arg(long, value_name = "N", default_value_t = OFFERS_SHOWN)]
    max_offers: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: OfferArgs) -> VerbResult {
    let configuration = configuration(&args);
    let refused = |why: String| VerbError::Message(format!("offer: {why}"));
    let loaded = configuration::from_json(&configuration, None)
        .map_err(|faults| refused(faults.to_string()))?;
    let applicable = loaded.applicable().map_err(|fault| refused(fault.to_string()))?;
    let mut task = applicable.task().ok_or_else(|| refused("no task".into()))?;
    let mut client = args.server.client()?;
    args.of.check(&mut client)?;
    task.account = args.of.accounts().pop();
    let mut draft = apply::translate(&task, "offer", None, "sluice offer".into())?;
    let cluster = cluster(&mut client)?;
    draft.keep_within(&cluster.partitions);
    let (offers, why) = apply::offers(&mut client, &draft.submission, &nodes_of(cluster))?;
    let missing = why.map(|why| no_offer::explained(&why, &task.resources));
    if args.json {
        let shown: Vec<Value> = offers.iter().take(args.max_offers).map(to_json).collect();
        let said = json!({"offers": shown, "total_offers": offers.len(), "no_offers": missing});
        print(&format!("{said}\n"))?;
    } else {
        print(&format!(" Resources  {} \n\n", task.resources))?;
        print(&table::offers(&offers, args.max_offers))?;
        if let Some(why) = missing {
            print(&format!("{why}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
    if !args.fleet.is_empty() {
        task["fleets"] = json!(args.fleet);
    }
    if let Some(price) = args.max_price {
        task["max_price"] = json!(price);
    }
    task
}
