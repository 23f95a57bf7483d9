//! The environment variables that tell a process of its GPUs.

use crate::conf::gres_conf::GresConf;
use crate::conf::keys::choices::{AutoDetect, GresFlag};

const VARIABLES: [(GresFlag, &str); 4] = [
    (GresFlag::NvidiaGpuEnv, "CUDA_VISIBLE_DEVICES"),
    (GresFlag::AmdGpuEnv, "ROCR_VISIBLE_DEVICES"),
    (GresFlag::IntelGpuEnv, "ZE_AFFINITY_MASK"),
    (GresFlag::OpenClEnv, "GPU_DEVICE_ORDINAL"),
];

/// The variables for the GPUs of a node; `None` is the usual ones. Flags of the node's lines come before
/// what its detection implies.
pub fn variables(conf: &GresConf, node: &str) -> Option<Vec<String>> {
    let lines = conf.lines.iter().filter(|line| line.name == "gpu" && line.is_for(node));
    let flags: Vec<GresFlag> = lines.flat_map(|line| line.flags.iter().copied()).collect();
    let named = names(&flags);
    if !named.is_empty() || flags.contains(&GresFlag::NoGpuEnv) {
        return Some(named);
    }
    implied_flag(conf.auto_detect(node)).map(|flag| names(&[flag]))
}

fn names(flags: &[GresFlag]) -> Vec<String> {
    let set = VARIABLES.iter().filter(|(flag, _)| flags.contains(flag));
    set.map(|(_, name)| (*name).to_owned()).collect()
}

fn implied_flag(detection: AutoDetect) -> Option<GresFlag> {
    match detection {
        AutoDetect::Nvml | AutoDetect::Nvidia => Some(GresFlag::NvidiaGpuEnv),
        AutoDetect::Rsmi => Some(GresFlag::AmdGpuEnv),
        AutoDetect::OneApi => Some(GresFlag::IntelGpuEnv),
        AutoDetect::Off | AutoDetect::Nrt | AutoDetect::Full => None,
    }
}
