//! From the files of a configuration folder to the state machine's configuration.
//!
//! A file for each subject: `priority`, `power`, `preempt_requeue`, `process`, `site` (prolog, epilog, folders), `show_config`,
//! `sluice_toml` (what slurm.conf has no words for), `toml_value` (its texts), `machine_source` (its `[[source]]`), `cloud_source`
//! and `pod_source` (the tables of a cloud and of Kubernetes in that), `backend` (a source that a call gives, by the same types), `projects_file` (dstack's `config.yml`, which has backends), `budget` (its `[[budget]]`), `oidc` (its `[oidc]`), `slurmdbd_conf` (the purge of the books), `type_error` (what is said of a value of another type than its key has).

pub mod backend;
mod budget;
mod cloud_source;
mod dstack_settings;
mod machine_source;
mod oidc;
mod pod_source;
mod power;
mod preempt_requeue;
mod priority;
mod process;
pub mod projects_file;
mod show_config;
mod site;
mod sluice_toml;
mod slurmdbd_conf;
mod toml_value;
mod type_error;

use crate::error::ServerError;
pub use oidc::is_safe_address;
pub use sluice_toml::StoreSettings;

use cluster::config::JwtKey;
use cluster::{ClusterConfig, Parameters};
use model::limits::CgroupPolicy;
use model::node::NodeConfig;
use model::partition::{Access, Partition};
use model::select::{Select, Unit};
use priority::priority_policy;
use show_config::{parameters_shown, value_shown};
use slurm::conf::keys::choices::{
    AccountingEnforce, Choice, EnforcePartLimits, SchedulerType, SelectParameter, SelectType,
    StoreFlag,
};
use slurm::conf::{Conf, Files, MemoryFiles, RealFiles, load_dir};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// How long a job waits at most for few switches, where the site does not set `max_switch_wait`.
const SWITCH_WAIT_S: u32 = 300;

/// The partition of a cluster without a configuration.
const MAIN_PARTITION: &str = "main";

/// The machine that all nodes of the configuration are on, for `sluice up`.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The machine itself as a node.
    pub node: NodeConfig,
}

/// The configuration of `dir`, or of the machine alone without one.
pub fn load(dir: Option<&Path>, machine: Option<&Machine>) -> Result<ClusterConfig, ServerError> {
    let mut config = match (dir, machine) {
        (Some(dir), _) => load_files(&RealFiles, dir)?,
        (None, Some(machine)) => for_machine(machine.node.clone()),
        (None, None) => {
            let text = "a server of several machines needs --config with a slurm.conf";
            return Err(ServerError::Configuration(text.into()));
        }
    };
    if dir.is_some() {
        mark_declared(&mut config, machine);
    }
    dstack_settings::apply(&mut config)?;
    Ok(config)
}

/// The configuration of `dir`, from the text of its files: the caller read them.
pub fn load_given(
    dir: &Path,
    given: BTreeMap<String, String>,
    machine: Option<&Machine>,
) -> Result<ClusterConfig, ServerError> {
    let add = |files: MemoryFiles, (name, text)| files.with(dir.join::<String>(name), text);
    let files = given.into_iter().fold(MemoryFiles::default(), add);
    let mut config = load_files(&files, dir)?;
    mark_declared(&mut config, machine);
    dstack_settings::apply(&mut config)?;
    Ok(config)
}

/// What a check of sluice.toml has found, a line each.
#[derive(Debug, Default)]
pub struct SluiceTomlFindings {
    pub errors: Vec<String>,
    /// What has no effect, or not the one that it should have.
    pub notices: Vec<String>,
}

/// What is wrong with the `sluice.toml` of `dir`, if it has one, beside a slurm.conf with these nodes.
pub fn check_sluice_toml(
    files: &dyn Files,
    dir: &Path,
    nodes: Vec<NodeConfig>,
) -> SluiceTomlFindings {
    let own = match sluice_toml::read(files, dir) {
        Ok(own) => own,
        Err(error) => {
            return SluiceTomlFindings { errors: vec![error.to_string()], notices: Vec::new() };
        }
    };
    let in_folder = |line: String| format!("{}/{line}", dir.display());
    let notices = own.notices().into_iter().map(in_folder);
    let mut notices: Vec<String> = notices.collect();
    let mut config = ClusterConfig { nodes, ..ClusterConfig::default() };
    own.apply(&mut config);
    notices.extend(machine_source::loopback_notices(&config).into_iter().map(in_folder));
    let mut errors = machine_source::missing_files(&config.sources);
    errors.extend(machine_source::back_nodes(&mut config).err());
    SluiceTomlFindings { errors: errors.into_iter().map(in_folder).collect(), notices }
}

/// The database of the state that the `sluice.toml` of `dir` names, if it has one.
pub fn store_settings(dir: &Path) -> Result<Option<StoreSettings>, ServerError> {
    Ok(sluice_toml::read(&RealFiles, dir)?.store(dir))
}

/// Whether this process may read the configuration again.
pub fn may_read(dir: &Path) -> bool {
    let denied = std::io::ErrorKind::PermissionDenied;
    !std::fs::read(dir.join("slurm.conf")).is_err_and(|e| e.kind() == denied)
}

/// Marks nodes whose counts are declared, not measured: several nodes on one host, or more than the host has.
fn mark_declared(config: &mut ClusterConfig, machine: Option<&Machine>) {
    let overrides =
        config.shown.get("SlurmdParameters").is_some_and(|v| v.contains("config_overrides"));
    let several = machine.is_some() && config.nodes.len() > 1;
    for node in &mut config.nodes {
        let larger =
            machine.is_some_and(|m| node.cpus > m.node.cpus || node.memory > m.node.memory);
        node.declared = overrides || several || larger;
    }
}

/// Reads a folder with `slurm.conf`. Notices go to the log; errors come back, a line each.
fn load_files(files: &dyn Files, dir: &Path) -> Result<ClusterConfig, ServerError> {
    let conf = load_dir(files, dir).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
        ServerError::Configuration(lines.join("\n"))
    })?;
    for notice in &conf.notices {
        tracing::info!("{notice}");
    }
    let mut config = from_conf(&conf)?;
    let own = sluice_toml::read(files, dir)?;
    for notice in own.notices() {
        tracing::info!("{notice}");
    }
    own.apply(&mut config);
    machine_source::back_nodes(&mut config).map_err(ServerError::Configuration)?;
    config.parameters.purge_jobs = slurmdbd_conf::read(files, dir)?;
    Ok(config)
}

/// The configuration without a folder: this machine as the one node, in one partition.
fn for_machine(node: NodeConfig) -> ClusterConfig {
    let mut partition = Partition::over(MAIN_PARTITION, vec![node.name.clone()]);
    partition.default = true;
    let parameters = Parameters {
        memory_by_core: true,
        return_to_service: 2,
        gres_types: gres_names(std::slice::from_ref(&node)),
        max_job_count: 100_000,
        max_array_size: 1_000_001,
        kill_wait_s: 10,
        ..Parameters::default()
    };
    ClusterConfig {
        nodes: vec![node],
        partitions: vec![partition],
        shown: parameters_shown(&parameters, &[]),
        parameters,
        ..ClusterConfig::default()
    }
}

fn gres_names(nodes: &[NodeConfig]) -> Vec<String> {
    let mut names: Vec<String> =
        nodes.iter().flat_map(|n| &n.gres).map(|g| g.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn from_conf(conf: &Conf) -> Result<ClusterConfig, ServerError> {
    let slurm = &conf.slurm;
    let mut nodes: Vec<NodeConfig> = slurm.nodes.iter().map(|n| n.config.clone()).collect();
    for down in &slurm.down_nodes {
        for node in nodes.iter_mut().filter(|n| down.nodes.contains(&n.name)) {
            node.initial = slurm::conf::slurm_conf::node_conf::admin_state(down.state);
            node.initial_reason.clone_from(&down.reason);
        }
    }
    if nodes.is_empty() && slurm.globals.max_node_count == 0 {
        let text = "slurm.conf: no NodeName line: a cluster needs at least one node, or MaxNodeCount for dynamic ones";
        return Err(ServerError::Configuration(text.into()));
    }
    let partitions: Vec<Partition> =
        slurm.partitions.iter().map(|p| with_group_ids(p.partition.clone())).collect();
    let partitions =
        preempt_requeue::with_preempt_mode(partitions, &slurm.globals.preemption.modes);
    let mut parameters = parameters(conf, &nodes);
    parameters.licenses = slurm.globals.licenses.clone();
    parameters.power = power::policy(slurm)?;
    let mut shown = parameters_shown(&parameters, &conf.slurm.globals.scheduling.select_parameters);
    shown.extend(slurm.raw.iter().map(|(key, value)| (key.clone(), value_shown(key, &value.text))));
    let most = (nodes.len() as u64).max(slurm.globals.max_node_count.into());
    shown.insert("MaxNodeCount".into(), most.to_string());
    Ok(ClusterConfig {
        name: match slurm.cluster_name.as_str() {
            "" => "sluice".into(),
            name => name.into(),
        },
        nodes,
        partitions,
        parameters,
        shown,
        topology: conf.topology.clone().map(Arc::new),
        limits: limits(conf),
        cgroup_plugin: conf.cgroup.plugin.word().to_string(),
        site: site::site(conf),
        server_addresses: Vec::new(),
        controllers: slurm.globals.controllers.clone(),
        server_certificate: None,
        login_nodes: Vec::new(),
        certificate_life: cluster::config::CERTIFICATE_LIFE,
        open_metrics: false,
        job_pages: true,
        proxy: Default::default(),
        shared_folders: Default::default(),
        prices: Default::default(),
        sources: Vec::new(),
        budgets: Vec::new(),
        upload_bytes_max: None,
        jwt_key: jwt_key(conf)?,
        oidc: None,
    })
}

/// `AuthAltTypes=auth/jwt` with `AuthAltParameters=jwt_key=FILE`, or without a file with a key of the server's own.
fn jwt_key(conf: &Conf) -> Result<Option<JwtKey>, ServerError> {
    let auth = &conf.slurm.globals.alternate_auth;
    if !auth.types.iter().any(|word| word.eq_ignore_ascii_case("auth/jwt")) {
        return Ok(None);
    }
    match auth.parameters.get("jwt_key") {
        None => Ok(Some(JwtKey::Own)),
        Some(path) if Path::new(path).is_absolute() => Ok(Some(JwtKey::File(path.to_owned()))),
        Some(path) => {
            let text = format!("AuthAltParameters=jwt_key={path}: expected an absolute path");
            Err(ServerError::Configuration(text))
        }
    }
}

/// Looks the admitted groups up in the machine's group database.
pub(crate) fn with_group_ids(mut partition: Partition) -> Partition {
    partition.allow_group_ids.clear();
    if let Access::Only(names) = &partition.allow_groups {
        let id = |name: &String| nix::unistd::Group::from_name(name).ok().flatten();
        partition.allow_group_ids = names.iter().filter_map(id).map(|g| g.gid.as_raw()).collect();
    }
    partition
}

fn parameters(conf: &Conf, nodes: &[NodeConfig]) -> Parameters {
    let globals = &conf.slurm.globals;
    // `all` implies `safe` and `qos`, `safe` implies `limits`, and each of them implies `associations`.
    let has = |what| globals.accounting.enforce.contains(&what);
    let enforce_limits = has(AccountingEnforce::Limits)
        || has(AccountingEnforce::Safe)
        || has(AccountingEnforce::All);
    let enforce_safe = has(AccountingEnforce::Safe) || has(AccountingEnforce::All);
    let enforce_qos = has(AccountingEnforce::Qos) || has(AccountingEnforce::All);
    let enforce_associations = has(AccountingEnforce::Associations)
        || has(AccountingEnforce::WcKeys)
        || enforce_limits
        || enforce_qos;
    let mut gres_types = globals.gres_types.clone();
    gres_types.extend(gres_names(nodes));
    gres_types.sort();
    gres_types.dedup();
    Parameters {
        slurmd_timeout_s: globals.times.slurmd_timeout_s,
        kill_wait_s: globals.times.kill_wait_s,
        min_job_age_s: globals.times.min_job_age_s,
        max_job_count: globals.ids.max_job_count,
        max_node_count: globals.max_node_count,
        max_array_size: globals.ids.max_array_size,
        max_array_tasks: globals.ids.max_array_tasks,
        max_script_bytes: globals.ids.max_script_bytes,
        max_tasks_per_node: globals.ids.max_tasks_per_node,
        max_step_count: globals.ids.max_step_count,
        first_job_id: globals.ids.first_job_id,
        max_job_id: globals.ids.max_job_id,
        job_requeue: globals.launch.job_requeue,
        return_to_service: globals.return_to_service.min(2) as u8,
        default_memory: globals.memory.default,
        max_memory: globals.memory.max,
        memory_by_core: false,
        backfill: globals.scheduling.scheduler == SchedulerType::Backfill,
        enforce_associations,
        enforce_limits,
        enforce_qos,
        enforce_safe,
        book_jobs: !has(AccountingEnforce::NoJobs),
        book_steps: !has(AccountingEnforce::NoJobs) && !has(AccountingEnforce::NoSteps),
        keep_scripts: globals.accounting.store_flags.contains(&StoreFlag::JobScript),
        keep_environments: globals.accounting.store_flags.contains(&StoreFlag::JobEnvironment),
        kept_text_days: globals.accounting.kept_texts.days,
        kept_text_mib: globals.accounting.kept_texts.mib,
        purge_jobs: None,
        enforce_partition_limits: globals.scheduling.enforce_part_limits != EnforcePartLimits::No,
        enforce_all_partitions: globals.scheduling.enforce_part_limits == EnforcePartLimits::All,
        select: select(&globals.scheduling),
        cpus_per_gpu: globals
            .memory
            .cpus_per_gpu
            .filter(|cpus| *cpus > 0)
            .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX)),
        switch_wait_s: globals
            .scheduling
            .parameters
            .get("max_switch_wait")
            .and_then(|secs| secs.parse().ok())
            .unwrap_or(SWITCH_WAIT_S),
        over_time_limit_min: globals.times.over_time_limit_min.unwrap_or(u32::MAX),
        unkillable_step_timeout_s: globals.times.unkillable_step_timeout_s,
        bind: process::binding(conf),
        rlimits: process::rlimits(conf),
        nice: globals.launch.propagate_nice,
        job_file_append: globals.launch.job_file_append,
        gres_types,
        priority: priority_policy(&globals.priority),
        licenses: BTreeMap::new(),
        private_data: globals.private_data.clone(),
        reservation_over_run_min: globals.times.resv_over_run_min,
        ..preempt_requeue::parameters(globals)
    }
}

/// `SelectType` and `SelectTypeParameters`.
fn select(scheduling: &slurm::conf::slurm_conf::globals::Scheduling) -> Select {
    let has = |parameter| scheduling.select_parameters.contains(&parameter);
    let linear = scheduling.select == SelectType::Linear;
    // The default with memory is not meant for whole nodes: there it must be asked for.
    let with_memory = has(SelectParameter::Memory)
        || (!linear
            && (has(SelectParameter::CpuMemory)
                || has(SelectParameter::CoreMemory)
                || has(SelectParameter::SocketMemory)));
    let unit = if linear {
        Unit::Node
    } else if has(SelectParameter::Cpu) || has(SelectParameter::CpuMemory) {
        Unit::Cpu
    } else if has(SelectParameter::Socket) || has(SelectParameter::SocketMemory) {
        Unit::Socket
    } else {
        Unit::Core
    };
    let counts_cpus = has(SelectParameter::Core)
        || has(SelectParameter::CoreMemory)
        || matches!(unit, Unit::Cpu | Unit::Socket);
    Select {
        unit,
        memory: with_memory,
        one_task_per_core: has(SelectParameter::OneTaskPerCore),
        least_loaded: has(SelectParameter::LeastLoadedNodes),
        pack_nodes: has(SelectParameter::PackNodes),
        shares_cpus: has(SelectParameter::Memory) && unit == Unit::Core && !counts_cpus,
    }
}

fn limits(conf: &Conf) -> CgroupPolicy {
    let cgroup = &conf.cgroup;
    let percent = |p: slurm::conf::keys::value::Percent| p.of(100_000) as f64 / 1000.0;
    CgroupPolicy {
        constrain_cores: cgroup.constrain_cores,
        constrain_memory: cgroup.constrain_ram,
        constrain_swap: cgroup.constrain_swap,
        constrain_devices: cgroup.constrain_devices,
        allowed_memory_percent: percent(cgroup.allowed_ram),
        allowed_swap_percent: percent(cgroup.allowed_swap),
        max_memory_percent: percent(cgroup.max_ram),
        max_swap_percent: percent(cgroup.max_swap),
        memory_floor: cgroup.min_ram,
        swappiness: cgroup.memory_swappiness,
        pids_max: cgroup.max_pids,
        open_files_max: cgroup.max_open_files,
        no_new_privs: cgroup.no_new_privs,
        constrain_scratch: cgroup.constrain_scratch,
        scratch_max: cgroup.max_scratch,
        cpu_seconds_max: cgroup.max_cpu_seconds,
        constrain_cpu_time: cgroup.constrain_cpu_time,
        allowed_devices: cgroup.allowed_devices.clone(),
        // The rest is each node's own.
        ..CgroupPolicy::default()
    }
}

#[cfg(test)]
mod tests;
