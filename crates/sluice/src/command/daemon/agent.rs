//! `sluice agent`: this machine's nodes.

use super::folder_watch::OpenFolder;
use super::keeper::AGENT_KEEPER;
use super::state_dir::StateDir;
use super::{core_dump, folder_identity, listen_addresses, log};
use crate::command::verb::{VerbError, VerbResult};
use ::agent::detect::{Machine, gpu_comment_lines, gres_config_lines, node_config_line};
use ::agent::{AgentConfig, Launcher, SpotCloud, SpotConfig};
use clap::Args;
use model::amount::Bytes;
use model::dynamic_node::FutureMachine;
use model::node::{NodeConfig, NodeGres};
use serde::de::IgnoredAny;
use slurm::conf::{GresConf, RealFiles};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the agent waits for the join file of a server that is starting.
const JOIN_FILE_TIMEOUT: Duration = Duration::from_secs(60);
/// When an agent of `sluice up` says so.
const JOIN_FILE_NOTICE: Duration = Duration::from_secs(2);
/// How long a join file that is not whole may stay as it is until nobody is taken to write to it.
const JOIN_FILE_STALL: Duration = Duration::from_secs(5);
/// The most that is read of a join file to see whether it is whole.
const JOIN_FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Args)]
pub struct AgentArgs {
    /// The server's agents port, ADDR:PORT; without it, the join file's
    #[arg(long)]
    server: Option<String>,
    /// The join file that `sluice token node` made; not needed once the agent has joined
    #[arg(long)]
    join: Option<PathBuf>,
    /// The node to be; without it, all that the join file is for, or with one for several nodes the short host name
    #[arg(long)]
    node: Option<String>,
    /// Be a node that no configuration file names, as this machine is; the join file's pattern must cover its name
    #[arg(long, short = 'Z')]
    dynamic: bool,
    /// With --dynamic: what the node is otherwise than this machine, as in a NodeName line: "Gres=gpu:2 Feature=f1"
    #[arg(long, value_name = "KEY=VALUE …", requires = "dynamic")]
    conf: Option<String>,
    /// Be a node that is declared with State=FUTURE and is like this machine, with this feature if one is given; the join file's
    /// pattern says which
    #[arg(
        long,
        short = 'F',
        value_name = "FEATURE",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["dynamic", "node"]
    )]
    future: Option<String>,
    /// This machine is a spot machine of this cloud, whose metadata service tells when it will be taken back
    #[arg(long, value_name = "CLOUD", value_parser = spot_cloud)]
    spot: Option<SpotCloud>,
    /// With --spot: the address of the metadata service, where it is not the cloud's own
    #[arg(long, value_name = "URL", requires = "spot")]
    metadata: Option<String>,
    /// This is a pod of Kubernetes: its limits are the node's, no CPU is bound, and the jobs end when the pod is stopped
    #[arg(long, requires = "dynamic", conflicts_with = "spot")]
    pod: bool,
    /// With --pod: jobs are root in this pod, which is for those of this user alone; the agent does nothing more for being root
    #[arg(long, value_name = "UID", requires = "pod")]
    pod_user: Option<u32>,
    /// The state folder; by default /var/lib/sluice for root, ~/.local/state/sluice for others
    #[arg(long, env = "SLUICE_STATE")]
    state: Option<PathBuf>,
    /// Start in a copy of a state folder: the agent has moved here, and the other folder is not used again
    #[arg(long)]
    moved: bool,
    /// A folder with a gres.conf of this machine's own, which says what its devices are
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Print this machine's NodeName line and the gres.conf lines of its GPUs, and do nothing else
    #[arg(long)]
    print_config: bool,
    /// Print the CDI specification that containers get for this machine's NVIDIA GPUs, and do nothing else
    #[arg(long)]
    print_cdi: bool,
    /// Print what this machine's GPUs report of themselves, a line each round; started by the agent
    #[arg(long, hide = true)]
    gpu_monitor: bool,
    /// Copy a job's output file, as its owner; started by the agent
    #[arg(long, hide = true)]
    read_output: bool,
    /// Report this moment as the machine's start: for a machine that is resumed or rebooted without a boot of its kernel
    #[arg(short = 'b')]
    booted_now: bool,
    /// Go into the background and start the agent again where it dies
    #[arg(long)]
    keep: bool,
}

pub fn run(args: AgentArgs) -> VerbResult {
    if args.gpu_monitor {
        ::agent::gpu_monitor::run();
        return Ok(ExitCode::SUCCESS);
    }
    if args.read_output {
        return match ::agent::output_reader::run() {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(why) => {
                // The text alone: the agent passes it on.
                eprintln!("{why}");
                Ok(ExitCode::FAILURE)
            }
        };
    }
    if args.print_cdi {
        let why = "no NVIDIA GPU with a loaded module and libraries of its version on this machine";
        let text =
            ::agent::cdi_specification().ok_or_else(|| VerbError::Message(why.to_owned()))?;
        println!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if args.print_config {
        let begun = Instant::now();
        let (machine, notice) =
            Machine::detect_with_libraries().map_err(|e| VerbError::Message(e.to_string()))?;
        let took = begun.elapsed();
        if let Some(why) = notice {
            eprintln!("sluice: {why}; the GPUs are those that /proc and /sys show");
        }
        println!("{}", node_config_line(&machine));
        let gres = gres_config_lines(&machine);
        if !gres.is_empty() {
            println!("# gres.conf\n{}", gres.join("\n"));
            println!("{}", gpu_comment_lines(&machine).join("\n"));
        }
        println!("# detected in {:.1} ms", took.as_secs_f64() * 1000.0);
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.state.unwrap_or_else(crate::client::default_state_dir);
    let state = StateDir::prepare(&path)?;
    core_dump::forbid()?;
    log::start(&state, "agent");
    if let Some(pid) =
        state.running_pid("agent").filter(|p| p.as_raw() != std::process::id() as i32)
    {
        let text = format!("an agent runs in {} already, as process {pid}", path.display());
        return Err(VerbError::Message(text));
    }
    folder_identity::refuse_copy(&state, args.moved, "agent")?;
    if args.keep {
        // An agent counts as working as soon as it runs: it waits for its server.
        AGENT_KEEPER.keep_in_background(&state)?.tell_ready();
    }
    // The launcher's processes are to know it.
    if let Some(uid) = args.pod_user {
        ::agent::set_pod_user(uid);
    }
    // The launcher is a fork of this process, so it is started before there are threads or open files.
    let launcher = Launcher::start().map_err(VerbError::file("the launcher"))?;
    let _ = nix::sys::prctl::set_name(c"sluice-agent");
    state.claim("agent")?;
    folder_identity::save(&state)?;
    OpenFolder::of(&state)?.watch("agent")?;
    // A file that was spent may be removed: it is a secret until then. That of `sluice up` is made anew with each server, which
    // may have another port.
    let is_needed = args.keep || !::agent::has_joined(&state.path);
    if let Some(join) = args.join.as_ref().filter(|_| is_needed) {
        await_file(join, args.keep)?;
    }
    let dynamic = if args.dynamic {
        let name = args.node.clone().unwrap_or_else(short_host_name);
        Some(Box::new(dynamic_node(&name, args.conf.as_deref().unwrap_or_default())?))
    } else {
        None
    };
    let future = args.future.map(future_machine).transpose()?;
    let gres = args.config.as_deref().map(machine_gres).transpose()?.unwrap_or_default();
    let config = AgentConfig {
        state: state.path.clone(),
        join_file: args.join,
        servers: args.server.iter().map(|s| address_of(s)).collect(),
        nodes: args.node.into_iter().collect(),
        host_name: short_host_name(),
        client_socket: (!listen_addresses::has_server(&state)).then(|| state.socket()),
        booted_now: args.booted_now,
        dynamic,
        future,
        spot: args.spot.map(|cloud| SpotConfig { cloud, address: args.metadata }),
        in_pod: args.pod,
        gres_of: Box::new(move |node| gres.of_machine(node)),
    };
    ::agent::run(config, launcher).map_err(|e| VerbError::Message(e.to_string()))?;
    let _ = std::fs::remove_file(state.pid_file("agent"));
    Ok(ExitCode::SUCCESS)
}

fn spot_cloud(text: &str) -> Result<SpotCloud, String> {
    let found = SpotCloud::NAMES.iter().find(|(name, _)| *name == text);
    found.map(|(_, cloud)| *cloud).ok_or_else(|| "expected aws or gcp".to_owned())
}

/// This machine as a node of this name, with what `--conf` says otherwise.
fn dynamic_node(name: &str, conf: &str) -> Result<NodeConfig, VerbError> {
    let (machine, _) =
        Machine::detect_with_libraries().map_err(|e| VerbError::Message(e.to_string()))?;
    slurm::conf::node_line::of_machine(name, &node_config_line(&machine), conf)
        .map_err(|why| VerbError::Message(format!("--conf: {why}")))
}

/// This machine as one that is looked for among the FUTURE nodes; an empty feature is none.
fn future_machine(feature: String) -> Result<Box<FutureMachine>, VerbError> {
    let (machine, _) =
        Machine::detect_with_libraries().map_err(|e| VerbError::Message(e.to_string()))?;
    let feature = Some(feature).filter(|feature| !feature.is_empty());
    Ok(Box::new(FutureMachine { detected: node_config(&machine), feature }))
}

/// The machine's name up to its first dot, as `hostname -s` prints it.
pub(super) fn short_host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn machine_gres(dir: &Path) -> Result<GresConf, VerbError> {
    slurm::conf::load_machine_gres(&RealFiles, dir).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        VerbError::Message(lines.join("\n"))
    })
}

fn address_of(server: &str) -> String {
    let rest = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://"));
    rest.unwrap_or(server).trim_end_matches('/').to_string()
}

/// What there is of a join file.
#[derive(Debug, PartialEq, Eq)]
enum JoinFileState {
    /// Nothing, or an empty file: a shell makes it before the command that writes to it has an answer.
    Missing,
    /// The first so many bytes of it: it is being written or copied.
    Partial(usize),
    /// All of it, or what waiting does not help: its reader says what is wrong with it.
    Whole,
}

impl JoinFileState {
    fn of(path: &Path) -> Self {
        let Ok(found) = std::fs::metadata(path) else { return Self::Missing };
        // What a pipe has told is not told again.
        if !found.is_file() {
            return Self::Whole;
        }
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(JOIN_FILE_BYTES_MAX).read_to_end(&mut text));
        let is_cut = || serde_json::from_slice::<IgnoredAny>(&text).is_err_and(|e| e.is_eof());
        match read {
            Ok(_) if text.trim_ascii().is_empty() => Self::Missing,
            Ok(length) if is_cut() => Self::Partial(length),
            _ => Self::Whole,
        }
    }
}

/// Waits for the join file: `sluice up` starts the agent before the server has written it. Whoever starts an agent by hand
/// is told at once what it waits for.
fn await_file(path: &Path, is_kept: bool) -> Result<(), VerbError> {
    let (start, shown) = (Instant::now(), path.display());
    let notice = if is_kept { JOIN_FILE_NOTICE } else { Duration::ZERO };
    let mut is_told = false;
    // How much there is of it, and since when it is not more.
    let mut partial: Option<(usize, Instant)> = None;
    loop {
        let is_late = start.elapsed() > JOIN_FILE_TIMEOUT;
        match JoinFileState::of(path) {
            JoinFileState::Whole => return Ok(()),
            JoinFileState::Missing if is_late => {
                return Err(VerbError::Message(format!(
                    "there is no join file {shown}, or it is empty: make one where the server is, with `sluice token node NAME`"
                )));
            }
            JoinFileState::Missing => partial = None,
            JoinFileState::Partial(length) => {
                let known = partial.filter(|(known, _)| *known == length);
                let since = known.map_or_else(Instant::now, |(_, since)| since);
                // Nobody writes to it: its reader says what is wrong with it.
                if is_late || since.elapsed() > JOIN_FILE_STALL {
                    return Ok(());
                }
                partial = Some((length, since));
            }
        }
        if start.elapsed() >= notice && !is_told {
            eprintln!(
                "sluice: waiting {} s for the join file {shown}: `sluice token node NAME --out FILE` makes one where the server is",
                JOIN_FILE_TIMEOUT.as_secs()
            );
            is_told = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The configuration of this machine as a node.
pub fn node_config(machine: &Machine) -> NodeConfig {
    let mut gres: Vec<NodeGres> = Vec::new();
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let (kind, cores) = (Some(gpu.gres_type()), machine.cpus_near(gpu));
        let capability = gpu.compute_capability;
        let is_same = |line: &&mut NodeGres| {
            line.kind == kind && line.cores == cores && line.compute_capability == capability
        };
        match gres.last_mut().filter(is_same) {
            Some(same) => {
                same.count += 1;
                same.files.push(gpu.files());
                same.device_names.push(gpu.uuid.clone().unwrap_or_default());
            }
            None => gres.push(NodeGres {
                name: "gpu".into(),
                kind,
                count: 1,
                first_index: index as u32,
                files: vec![gpu.files()],
                device_names: vec![gpu.uuid.clone().unwrap_or_default()],
                links: Vec::new(),
                cores,
                device_memory: None,
                variables: machine.gpu_variables(),
                no_consume: false,
                share_of: None,
                compute_capability: capability,
            }),
        }
    }
    // Whole GPUs have indices and no names.
    for line in gres.iter_mut().filter(|line| line.device_names.iter().all(String::is_empty)) {
        line.device_names.clear();
    }
    NodeConfig {
        hostname: machine.hostname.clone(),
        address: "127.0.0.1".into(),
        boards: machine.boards,
        sockets: machine.sockets,
        cores_per_socket: machine.cores_per_socket,
        threads_per_core: machine.threads_per_core,
        tmp_disk: Bytes::from_mib(machine.tmp_disk_mb),
        gres,
        ..NodeConfig::plain(
            &machine.hostname,
            machine.cpus,
            Bytes::from_mib(machine.real_memory_mb),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_file_is_whole_when_its_last_byte_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("n1.join");
        let text = r#"{"token":"a","nodes":["n1"]}"#;
        assert_eq!(JoinFileState::of(&path), JoinFileState::Missing);
        for length in 0..text.len() {
            std::fs::write(&path, &text[..length]).expect("written");
            let expected = match length {
                0 => JoinFileState::Missing,
                length => JoinFileState::Partial(length),
            };
            assert_eq!(JoinFileState::of(&path), expected, "{length} bytes");
        }
        // What no further byte makes good is not waited for.
        for whole in [text, "{\"token\":\"a\"}\n", "sluice: error: no server"] {
            std::fs::write(&path, whole).expect("written");
            assert_eq!(JoinFileState::of(&path), JoinFileState::Whole, "{whole}");
        }
        let device = Path::new("/dev/null");
        assert_eq!(JoinFileState::of(device), JoinFileState::Whole, "it is not read twice");
    }
}
