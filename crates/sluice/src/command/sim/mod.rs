//! `sluice sim TRACE`: the cluster's own scheduler over a trace of jobs, in virtual time. Needs no server, but for `--live`.

mod faults;
mod live;
mod modes;
mod progress;
mod tables;

use super::verb::{ServerLocationArgs, VerbError, VerbResult, in_columns};
use ::agent::trusted_dir::TrustedDir;
use ::sim::chart;
use ::sim::history::History;
use ::sim::trace::destinations::{Destination, Destinations, Field};
use ::sim::trace::lublin::{self, Synthetic};
use ::sim::trace::{pods, swf};
use ::sim::{
    Arrivals, Measures, Outcome, PodSummary, Policy, Processors, SimError, Trace, machine,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use modes::Mode;
use progress::Progress;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::what_if::AddedNodes;

// Which option has a meaning for what is simulated is in `modes`: what requires an option that conflicts with another is not required.
#[derive(Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct SimArgs {
    #[command(subcommand)]
    kind: Option<SimKind>,
    /// The jobs: a file in the Standard Workload Format, or a list of pods with --nodes FILE; plain or gzip
    #[arg(value_name = "TRACE", required_unless_present_any = ["live", "synthetic"],
          conflicts_with_all = ["live", "synthetic"])]
    trace: Option<PathBuf>,
    /// Instead of a trace, jobs that are drawn at random, in the manner of Lublin and Feitelson's model
    #[arg(long, value_name = "MODEL", conflicts_with = "live", value_parser = ["lublin"])]
    synthetic: Option<String>,
    /// With --synthetic: how many jobs; 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: Option<u32>,
    /// With --synthetic: how much of the processors' time the jobs ask for, per cent; 70
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=200))]
    load: Option<u32>,
    /// Instead of a trace, the jobs that wait on the running cluster: what would change for them
    #[arg(long)]
    live: bool,
    /// With --live: so many nodes more like NODE, in the same partitions; may be repeated
    #[arg(long, value_name = "COUNT:NODE", value_parser = live::added_nodes)]
    add_nodes: Vec<AddedNodes>,
    /// With --live: without these nodes, on which jobs run to their ends; may be repeated
    #[arg(long, value_name = "NODES")]
    without: Vec<String>,
    #[command(flatten)]
    server: ServerLocationArgs,
    /// How jobs are scheduled, in the order of their submission: as the configuration says, or easy without one
    #[arg(long, value_parser = policy_parser())]
    policy: Option<Policy>,
    /// So many nodes of one processor, instead of as many as the trace's header says; or the list of nodes that pods are placed on
    #[arg(long, value_name = "N|FILE", conflicts_with = "config", value_parser = machine_nodes)]
    nodes: Option<MachineNodes>,
    /// Of a list of pods: how much of the nodes' GPUs they ask for before it is counted what they got, per cent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=130))]
    arrive: Option<u32>,
    /// Of a list of pods, which of the random orders they come in; with --synthetic, which of the random loads
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The nodes, partitions and settings of the slurm.conf in DIR
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// With --config: jobs with this number of a queue, the 15th field of their records, go to this partition; may be repeated
    #[arg(long, value_name = "NUMBER=PARTITION", conflicts_with = "partition",
          value_parser = destination)]
    queue: Vec<Destination>,
    /// As --queue, by the number of a partition, the 16th field
    #[arg(long, value_name = "NUMBER=PARTITION", value_parser = destination)]
    partition: Vec<Destination>,
    /// Also say how far the starts that were expected at submission were from the starts: it takes longer
    #[arg(long)]
    estimates: bool,
    /// Also the waits of short and long, narrow and wide jobs
    #[arg(long)]
    kinds: bool,
    /// Write charts into a folder, as SVG: utilisation, queue and waits over time, and each job of a small trace
    #[arg(long, value_name = "FOLDER")]
    charts: Option<PathBuf>,
    /// One object with jobs, utilisation, mean_wait_s, max_wait_s and mean_bounded_slowdown
    #[arg(long)]
    json: bool,
}

// What is simulated instead of a trace.
#[derive(Subcommand)]
pub enum SimKind {
    /// Histories of random faults: killed servers, failing disks, lost nodes and messages. Exits with 1 if one does not hold
    Faults(faults::FaultArgs),
}

/// Synthetic load where its options do not say otherwise.
const SYNTHETIC_JOBS: u32 = 10_000;
const SYNTHETIC_LOAD_PERCENT: u32 = 70;
const SYNTHETIC_PROCESSORS: u32 = 256;

/// The mode of a chart.
const CHART_MODE: u32 = 0o644;

/// The most nodes that a job can have, and so a trace's machine.
const NODES_MAX: i64 = model::bounds::NODES.most as i64;

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    let words = PossibleValuesParser::new(Policy::ALL.map(Policy::word));
    words.try_map(|word| Policy::from_word(&word).ok_or("no policy"))
}

/// What `--nodes` says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MachineNodes {
    /// So many of one processor.
    Count(u32),
    /// Those in this list, for a list of pods.
    List(PathBuf),
}

fn machine_nodes(text: &str) -> Result<MachineNodes, String> {
    let Ok(count) = text.parse::<i64>() else { return Ok(MachineNodes::List(text.into())) };
    let is_possible = |count: &u32| (1..=NODES_MAX).contains(&i64::from(*count));
    let count = u32::try_from(count).ok().filter(is_possible);
    count.map(MachineNodes::Count).ok_or_else(|| format!("{text} is not in 1..={NODES_MAX}"))
}

fn destination(text: &str) -> Result<Destination, String> {
    let read = Destination::parse(text);
    read.ok_or_else(|| "expected NUMBER=PARTITION, as in 2=debug".to_owned())
}

pub fn run(args: SimArgs) -> VerbResult {
    if let Some(SimKind::Faults(args)) = &args.kind {
        return faults::run(args);
    }
    let mode = modes::of(&args);
    modes::check(&args, mode)?;
    match (mode, &args.trace, &args.nodes) {
        (Mode::Synthetic, ..) => run_synthetic(&args),
        (Mode::Pods, Some(path), Some(MachineNodes::List(nodes))) => run_pods(&args, path, nodes),
        (_, Some(path), _) => run_trace(&args, path),
        // Without a trace it is `--live`: the options say so.
        (_, None, _) => live::run(&args),
    }
}

/// Reads a trace and replays it.
fn run_trace(args: &SimArgs, path: &Path) -> VerbResult {
    let named = |error: SimError| VerbError::Message(format!("{}: {error}", path.display()));
    let processors = match (&args.config, &args.nodes) {
        (Some(_), _) => Processors::FromConfiguration,
        (None, Some(MachineNodes::Count(count))) => Processors::Given(*count),
        (None, _) => Processors::FromHeader,
    };
    let destinations = if args.partition.is_empty() {
        Destinations { field: Field::Queue, named: args.queue.clone() }
    } else {
        Destinations { field: Field::Partition, named: args.partition.clone() }
    };
    let word = destinations.field.word();
    if let Some(number) = destinations.repeated() {
        let fault =
            format!("--{word}: {number} is given twice: expected one partition for each number");
        return Err(VerbError::Message(fault));
    }
    // What is wrong with the configuration is said before a long trace is read.
    let configured = args.config.as_deref().map(|dir| site(dir, args.policy)).transpose()?;
    let file = File::open(path).map_err(VerbError::file(path))?;
    let trace = swf::read_to(file, processors, &destinations).map_err(named)?;
    for number in &trace.unused_numbers {
        eprintln!("sluice: note: {}: no job has {word} {number}", path.display());
    }
    replay_trace(args, &trace, configured, named)
}

/// Draws a trace and replays it.
fn run_synthetic(args: &SimArgs) -> VerbResult {
    let configured = args.config.as_deref().map(|dir| site(dir, args.policy)).transpose()?;
    let default = configured.as_ref().and_then(machine::default_partition);
    let processors = match (&configured, &args.nodes) {
        (_, Some(MachineNodes::List(nodes))) => {
            let fault = format!("--nodes {}: expected a number", nodes.display());
            return Err(VerbError::Message(fault));
        }
        (Some(config), _) => machine::processors(config, default.as_slice()),
        (None, Some(MachineNodes::Count(count))) => u64::from(*count),
        (None, None) => u64::from(SYNTHETIC_PROCESSORS),
    };
    let largest = configured
        .as_ref()
        .zip(default)
        .map_or(processors, |(config, partition)| machine::largest_job(config, partition));
    let count = |processors: u64| u32::try_from(processors).unwrap_or(u32::MAX);
    let trace = lublin::generate(&Synthetic {
        jobs: args.jobs.unwrap_or(SYNTHETIC_JOBS),
        processors: count(processors),
        largest: count(largest),
        load: f64::from(args.load.unwrap_or(SYNTHETIC_LOAD_PERCENT)) / 100.0,
        seed: args.seed.unwrap_or_default(),
    });
    let named = |error: SimError| VerbError::Message(format!("synthetic load: {error}"));
    replay_trace(args, &trace, configured, named)
}

/// Replays a trace, on the nodes of a configuration or on its own, and prints its figures.
fn replay_trace(
    args: &SimArgs,
    trace: &Trace,
    configured: Option<cluster::ClusterConfig>,
    named: impl Fn(SimError) -> VerbError,
) -> VerbResult {
    let charts = args.charts.as_deref().map(|folder| {
        // Nobody else's link is followed there, whoever simulates.
        TrustedDir::make(folder).map_err(VerbError::file(folder))
    });
    let charts = charts.transpose()?;
    let policy = args.policy.unwrap_or(Policy::Easy);
    let config = configured
        .unwrap_or_else(|| machine::single_processor_nodes(trace.processors.unwrap_or(1), policy));
    let nodes = config.nodes.len();
    let mut progress = Progress::new();
    let all = trace.jobs.len();
    let measures =
        Measures { estimates: args.estimates, history: charts.is_some(), kinds: args.kinds };
    let outcome = ::sim::replay(trace, config, measures, |done| progress.replay(done, all));
    progress.clear();
    let Outcome { figures, history, beyond } = outcome.map_err(named)?;
    if let Some(folder) = &charts {
        write_charts(folder, &history)?;
    }
    if args.json {
        let text = serde_json::to_string(&figures);
        println!("{}", text.map_err(|error| VerbError::Message(error.to_string()))?);
    } else {
        let policy = match (&args.config, args.policy) {
            (Some(dir), None) => dir.display().to_string(),
            (Some(dir), Some(policy)) => format!("{policy}, {}", dir.display()),
            (None, _) => policy.to_string(),
        };
        print!("{}", tables::figures(nodes, &policy, &beyond, &figures));
        if args.estimates {
            print!("\n{}", tables::estimates(&figures.estimate_errors));
        }
        if args.kinds {
            print!("\n{}", tables::kinds(&figures.kinds));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Places the pods of a list on the nodes of another.
fn run_pods(args: &SimArgs, pod_path: &Path, nodes: &Path) -> VerbResult {
    let named =
        |path: &Path, error: SimError| VerbError::Message(format!("{}: {error}", path.display()));
    let open = |path: &Path| File::open(path).map_err(VerbError::file(path));
    let node_list = pods::read_nodes(open(nodes)?).map_err(|error| named(nodes, error))?;
    let pod_list = pods::read_pods(open(pod_path)?).map_err(|error| named(pod_path, error))?;
    let arrivals =
        Arrivals { percent: args.arrive.unwrap_or(100), seed: args.seed.unwrap_or_default() };
    let mut progress = Progress::new();
    let summary =
        ::sim::replay_pods(&node_list, &pod_list, arrivals, |came, all| progress.jobs(came, all));
    progress.clear();
    let summary = summary.map_err(|error| named(nodes, error))?;
    if args.json {
        let text = serde_json::to_string(&summary);
        println!("{}", text.map_err(|error| VerbError::Message(error.to_string()))?);
        return Ok(ExitCode::SUCCESS);
    }
    let PodSummary { pods, placed, gpu_allocated_percent } = summary;
    let rows = [
        ("pods", pods.to_string()),
        ("placed", placed.to_string()),
        ("nodes", node_list.len().to_string()),
        ("GPUs allocated", format!("{gpu_allocated_percent:.2} %")),
    ];
    print!("{}", in_columns(&rows.map(|(name, value)| [name.to_owned(), value])));
    Ok(ExitCode::SUCCESS)
}

fn site(dir: &Path, policy: Option<Policy>) -> Result<cluster::ClusterConfig, VerbError> {
    let config = ::server::configure::load(Some(dir), None)?;
    let named = |error: SimError| VerbError::Message(format!("{}: {error}", dir.display()));
    machine::configured(config, policy).map_err(named)
}

/// Writes the charts. One that this replay does not have is not left there from another.
fn write_charts(folder: &TrustedDir, history: &History) -> Result<(), VerbError> {
    let files = chart::files(history);
    for name in chart::NAMES {
        let svg = files.iter().find(|(file, _)| *file == name);
        let done = match svg {
            Some((_, svg)) => folder.replace(name, CHART_MODE, svg.as_bytes()),
            None => match std::fs::remove_file(folder.path().join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        done.map_err(VerbError::file(folder.path().join(name)))?;
    }
    Ok(())
}
