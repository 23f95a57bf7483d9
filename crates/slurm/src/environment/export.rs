//! The environment that `sbatch` submits: the submitter's variables that `--export` names, and variables that stand for options.

use super::Environment;
use crate::option::job_options::{Export, ExportVariable, JobOptions};
use model::gres::GresCount;

/// The search path of a job that does not take its submitter's.
const LOGIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games";

/// The user whose login stands in for an environment that is not exported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoginUser {
    pub name: String,
    pub home: String,
    pub shell: String,
}

/// The options of a job that its processes know only by a variable, with the values of those that were given.
pub fn option_variables(options: &JobOptions) -> [(&'static str, Option<String>); 4] {
    let gpus = &options.gpus_per_node;
    [
        ("SLURM_GPUS_PER_NODE", (!gpus.is_empty()).then(|| gpu_counts(gpus))),
        ("SLURM_GPU_BIND", options.gpu_bind.clone()),
        ("SLURM_HINT", options.hint.clone()),
        ("SLURM_JOB_DEPENDENCY", options.dependency.as_ref().map(ToString::to_string)),
    ]
}

/// `2`, `h100:2`.
fn gpu_counts(gpus: &[GresCount]) -> String {
    let one = |gpu: &GresCount| match &gpu.kind {
        Some(kind) => format!("{kind}:{}", gpu.count),
        None => gpu.count.to_string(),
    };
    gpus.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The submitter's variables that the job gets. Without `--export` that is all of them.
///
/// When only some or none are exported, Slurm's own variables stay, and the variables of a login are added, except for `NIL`.
pub fn exported(own: &Environment, export: Option<&Export>, login: &LoginUser) -> Environment {
    let Some(export) = export else { return own.clone() };
    let mut env = match export {
        Export::All(variables) => {
            let mut env = own.clone();
            set_named(&mut env, own, variables);
            env
        }
        Export::Only(variables) => {
            let mut env = slurm_variables(own);
            set_named(&mut env, own, variables);
            set_login_variables(&mut env, login);
            env
        }
        Export::None => {
            let mut env = slurm_variables(own);
            set_login_variables(&mut env, login);
            env
        }
        Export::Nil => slurm_variables(own),
    };
    if let Some(text) = text(export) {
        env.set("SLURM_EXPORT_ENV", text);
    }
    env
}

fn slurm_variables(own: &Environment) -> Environment {
    let mut env = own.clone();
    env.retain(|name| name.starts_with("SLURM_"));
    env
}

/// Sets the variables that `--export` names. One without a value has the submitter's, if the submitter has it.
fn set_named(env: &mut Environment, own: &Environment, variables: &[ExportVariable]) {
    for variable in variables {
        if let Some(value) = variable.value.as_deref().or_else(|| own.get(&variable.name)) {
            env.set(&variable.name, value);
        }
    }
}

fn set_login_variables(env: &mut Environment, login: &LoginUser) {
    env.set("SLURM_GET_USER_ENV", 1);
    env.set_default("HOME", &login.home);
    env.set_default("SHELL", &login.shell);
    env.set_default("PATH", LOGIN_PATH);
    for name in ["USER", "LOGNAME"] {
        env.set_default(name, &login.name);
    }
}

/// `--export` as `srun` in the job reads it; `None` for what `srun` does by default.
fn text(export: &Export) -> Option<String> {
    let named = |variables: &[ExportVariable]| {
        let one = |variable: &ExportVariable| match &variable.value {
            Some(value) => format!("{}={value}", variable.name),
            None => variable.name.clone(),
        };
        variables.iter().map(one).collect::<Vec<_>>().join(",")
    };
    match export {
        Export::All(variables) if variables.is_empty() => None,
        Export::All(variables) => Some(format!("ALL,{}", named(variables))),
        Export::Only(variables) => Some(named(variables)),
        Export::None => Some("NONE".to_owned()),
        Export::Nil => Some("NIL".to_owned()),
    }
}
