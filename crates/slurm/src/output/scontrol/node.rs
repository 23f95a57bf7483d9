//! `scontrol show node`.

use super::Options;
use super::record::RecordWriter;
use crate::output::Moment;
use crate::output::text::node_text;
use crate::words::{self, node::NodeState};
use model::gpu_health::{GpuReading, Severity};
use model::node::SlotState;
use model::node_reason::NodeReason;
use model::time::{Timestamp, format_elapsed_full};
use wire::view::NodeView;

pub fn push(out: &mut String, node: &NodeView, moment: Moment<'_>, options: Options) {
    let mut record = RecordWriter::new(out, options.oneliner);
    push_machine(&mut record, node, options);
    push_state(&mut record, node, moment);
    record.end();
}

fn push_machine(record: &mut RecordWriter<'_>, node: &NodeView, options: Options) {
    let (config, facts) = (&node.config, &node.facts);
    let arch = if facts.arch.is_empty() { String::new() } else { format!("Arch={} ", facts.arch) };
    record.line(format!(
        "NodeName={} {arch}CoresPerSocket={} ",
        config.name, config.cores_per_socket
    ));
    record.line(format!(
        "CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad={}",
        node.cpus_allocated,
        config.usable_cpus().len(),
        config.cpus,
        node_text::cpu_load(node)
    ));
    let features = node_text::features(config);
    record.line(format!("AvailableFeatures={features}"));
    record.line(format!("ActiveFeatures={features}"));
    record.line(format!("Gres={}", node_text::gres(config)));
    if options.details {
        record.line("GresDrain=N/A");
        record.line(format!("GresUsed={}", node_text::gres_used(node)));
    }
    // The agent dials the server: there is no port to name.
    record.line(format!(
        "NodeAddr={} NodeHostName={} Port=0 Version={}",
        node_text::address(node),
        node_text::hostname(node),
        facts.version
    ));
    if !facts.os.is_empty() {
        record.line(format!("OS={} ", facts.os));
    }
}

fn push_state(record: &mut RecordWriter<'_>, node: &NodeView, moment: Moment<'_>) {
    let (config, facts) = (&node.config, &node.facts);
    record.line(format!(
        "RealMemory={} AllocMem={} FreeMem={} Sockets={} Boards={}",
        config.memory.mib_floor(),
        node.memory_allocated.mib(),
        facts.free_memory.mib_floor(),
        config.sockets,
        config.boards
    ));
    if config.memory_reserved.0 > 0 {
        record.line(format!("MemSpecLimit={}", config.memory_reserved.mib()));
    }
    record.line(format!(
        "State={} ThreadsPerCore={} TmpDisk={} Weight={} Owner=N/A MCS_label=N/A",
        NodeState::of(node).full(),
        config.threads_per_core,
        config.tmp_disk.mib_floor(),
        config.weight
    ));
    if !node.partitions.is_empty() {
        record.line(format!("Partitions={} ", node.partitions.join(",")));
    }
    let known = |time: Timestamp| match time.secs() {
        0 => "None".to_owned(),
        _ => moment.iso(time),
    };
    record.line(format!(
        "BootTime={} SlurmdStartTime={}",
        known(facts.boot_time),
        known(facts.agent_start)
    ));
    record.line(format!("LastBusyTime={}", known(node.last_busy.unwrap_or_default())));
    record.line(format!("CfgTRES={}", node_text::configured_tres(config)));
    record.line(format!("AllocTRES={}", node_text::allocated_tres(node)));
    record.line("CapWatts=n/a");
    let [now, mean] = [facts.power_w, facts.mean_power_w].map(Option::unwrap_or_default);
    record.line(format!("CurrentWatts={now} AveWatts={mean}"));
    record.line("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s");
    if let Some(reason) = &node.reason {
        record.line(reason_line(reason, moment));
    }
    // Lines that Slurm does not have follow.
    if node.slot == SlotState::Up && facts.boot_time.secs() > 0 {
        let up = moment.now.since(facts.boot_time);
        record.line(format!("UpTime={}", format_elapsed_full(up.as_secs())));
    }
    if config.declared {
        record.line("Declared=YES");
    }
    for gpu in &facts.gpus {
        record.line(gpu_line(gpu));
    }
    for line in &facts.not_enforced {
        record.line(format!("NotEnforced={line}"));
    }
}

fn reason_line(reason: &NodeReason, moment: Moment<'_>) -> String {
    let (text, (user, _)) = (words::node::reason_text(reason), words::node::reason_user(reason));
    format!("Reason={text} [{user}@{}]", moment.iso(reason.at))
}

/// A GPU as its vendor's library shows it; what is not known is left out.
fn gpu_line(gpu: &GpuReading) -> String {
    let word = |text: &str| text.replace(char::is_whitespace, "_");
    let mut line = format!("GPU={} Model={} UUID={}", gpu.index, word(&gpu.model), word(&gpu.uuid));
    let mut add = |key: &str, value: Option<u64>, unit: &str| {
        if let Some(value) = value {
            line.push_str(&format!(" {key}={value}{unit}"));
        }
    };
    let has_memory = gpu.memory.0 > 0;
    add("Memory", has_memory.then(|| gpu.memory.mib_floor()), "M");
    add("Used", has_memory.then(|| gpu.memory_used.mib_floor()), "M");
    add("Util", gpu.busy_percent, "%");
    add("Temp", gpu.temperature_c, "C");
    add("Watts", gpu.power_mw.map(|milliwatts| milliwatts / 1000), "");
    let worst = gpu.findings().into_iter().map(|finding| finding.severity).max();
    let health = match worst {
        None => "ok",
        Some(Severity::Warning) => "warning",
        Some(Severity::Failure) => "failure",
    };
    format!("{line} Health={health}")
}
