//! The variable by which steps take over the `--cpu-freq` of their script or shell, and are told their own.

use super::Environment;
use crate::option::value::cpu_freq;
use model::cpu_frequency::CpuFrequency;

pub fn set_cpu_frequency(env: &mut Environment, asked: Option<&CpuFrequency>) {
    if let Some(asked) = asked {
        env.set("SLURM_CPU_FREQ_REQ", cpu_freq::text(asked));
    }
}
